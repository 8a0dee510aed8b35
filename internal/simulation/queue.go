package simulation

import "github.com/redisstream/terraform-provider-redisstream/sdk/protocol"

// event is something that happens at an instant; seq orders the events of one instant.
type event struct {
	at   protocol.Instant
	seq  int64
	what string
	run  func()
}

// queue is a heap of events, ordered by (at, seq).
type queue struct {
	heap []event
	seq  int64
}

func (q *queue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	if a.at != b.at {
		return a.at < b.at
	}
	return a.seq < b.seq
}

func (q *queue) push(at protocol.Instant, what string, run func()) {
	q.seq++
	q.heap = append(q.heap, event{at: at, seq: q.seq, what: what, run: run})
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *queue) pop() (event, bool) {
	if len(q.heap) == 0 {
		return event{}, false
	}
	top, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && q.less(child, least) {
				least = child
			}
		}
		if least == i {
			return top, true
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
