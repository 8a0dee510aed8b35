package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
)

// worker is one place for a producing or consuming process: it is killed, and started again.
type worker struct {
	w     *world
	kind  victim
	index int
	group int // of a consumer

	fate sync.Mutex // one fault at a time

	// Of the present process.
	number int // no other process of the run has it
	proc   *child.Worker
	read   chan struct{} // closed when all that it wrote was read
	ending bool          // its end is wanted
	mu     sync.Mutex    // of ending and thawed
	froze  time.Time     // when it was last frozen: appends without an answer are no wonder then
}

func (k *worker) name() string { return fmt.Sprintf("%s-%d", k.kind, k.index) }

// start starts the process and reads what it reports.
func (k *worker) start(ctx context.Context) error {
	var settings any
	k.number = int(k.w.processes.Add(1))
	e := endpoints{Coordinator: k.w.balancer.URL, Username: username, Password: k.w.password, Redis: k.w.redis.Addr, Prefix: streamPrefix}
	switch k.kind {
	case producers:
		s := producerSettings{endpoints: e, ProducerID: k.name(), Rate: k.w.rate / howMany[producers]}
		for key := k.index; key < keyCount; key += howMany[producers] {
			s.Keys = append(s.Keys, key)
			s.Next = append(s.Next, k.w.journal.Next(key))
		}
		settings = s
	case consumers:
		s := consumerSettings{endpoints: e, Group: groupNames[k.group], MemberID: k.name(), IncarnationFile: k.w.dir + "/" + k.name() + ".incarnation", Concurrency: 1 + k.index%2}
		if k.index == 0 { // has to wait for the end of its own lease after a kill
			s.MemberID, s.IncarnationFile = fmt.Sprintf("%s-%d", k.name(), k.number), ""
		}
		settings = s
	case coordinators:
	}
	body, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	p, err := child.StartWorker(ctx, k.w.dir, k.name(), nil, k.w.self, "worker", string(k.kind))
	if err != nil {
		return err
	}
	if _, err := p.In.Write(body); err != nil {
		p.Kill()
		return errors.Join(fmt.Errorf("settings of %s: %w", k.name(), err), p.In.Close(), p.Out.Close())
	}
	k.mu.Lock()
	k.proc, k.ending, k.froze, k.read = p, false, time.Time{}, make(chan struct{})
	k.mu.Unlock()
	go k.listen(p, k.number, k.read)
	return nil
}

// listen notes what a process reports until it has ended.
func (k *worker) listen(p *child.Worker, number int, done chan struct{}) {
	defer close(done)
	in := bufio.NewScanner(p.Out)
	for in.Scan() {
		k.w.noted.Add(1)
		f := parseLine(in.Text())
		k.note(f, number)
		if f.err != nil {
			k.w.journal.Fail(time.Now(), "%s reports %q: %v", k.name(), in.Text(), f.err)
		}
	}
	p.Out.Close()
	<-p.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ending {
		k.w.journal.Fail(time.Now(), "%s (process %d) ended by itself: %v", k.name(), number, p.Err())
	}
}

// note is one line.
func (k *worker) note(f *fields, number int) {
	j := k.w.journal
	id := func() ledger.EntryID {
		id, err := ledger.ParseEntryID(f.text())
		f.err = errors.Join(f.err, err)
		return id
	}
	switch f.kind {
	case lineAttempt:
		key, n := f.int(), f.int()
		j.Attempt(key, n, f.at())
	case lineLanded:
		key, n, shard := f.int(), f.int(), f.int()
		j.Landed(key, n, ledger.Place{Shard: shard, ID: id()})
	case lineFailed:
		key, n, at := f.int(), f.int(), f.at()
		j.Unanswered(key, n, f.rest, k.wasFrozen(at))
	case lineBegin:
		shard, epoch, at := f.int(), f.number(), id()
		h := ledger.Handling{Group: k.group, Process: number, Epoch: epoch, Place: ledger.Place{Shard: shard, ID: at}, Key: f.int(), Number: f.int()}
		h.Begun = f.at()
		j.Begin(h)
	case lineEnd:
		shard, at := f.int(), id()
		j.End(number, ledger.Place{Shard: shard, ID: at}, f.at())
	case lineCut:
		j.Cut(ledger.Cut{Process: number, Shard: f.int(), Epoch: f.number(), At: f.at(), Cause: f.rest})
	case lineRefused:
		j.AckRefused(ledger.Cut{Process: number, Shard: f.int(), Epoch: f.number(), At: f.at()})
	case lineLost:
		shard, at := f.int(), f.at()
		j.Fail(at, "%s: pending entries of shard %d have no body: %s", k.name(), shard, f.rest)
	case lineRecreated:
		shard, at := f.int(), f.at()
		j.Fail(at, "%s: the consumer group of shard %d was missing", k.name(), shard)
	case lineEnded:
		at := f.at()
		j.Fail(at, "%s cannot go on: %s", k.name(), f.rest)
	default:
		f.err = fmt.Errorf("unknown line %q", f.kind)
	}
}

// wasFrozen says whether the process was frozen within the time-outs of a Redis client before at.
func (k *worker) wasFrozen(at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.froze.IsZero() && at.Sub(k.froze) < 20*time.Second
}

// kill ends the process with SIGKILL and notes what it leaves behind.
func (k *worker) kill(ctx context.Context) {
	k.mu.Lock()
	k.ending = true
	k.mu.Unlock()
	k.proc.Kill()
	k.leftBehind(ctx, time.Now(), time.Time{})
	k.proc.In.Close()
	<-k.read
}

// freeze stops the process until ctx or the time ends.
func (k *worker) freeze(ctx context.Context, d time.Duration) error {
	k.mu.Lock()
	k.froze = time.Now()
	from := k.froze
	k.mu.Unlock()
	if err := k.proc.Freeze(); err != nil {
		return err
	}
	thaw := k.leftBehindUntilThaw(ctx, from, time.Now())
	pause(ctx, d)
	err := k.proc.Thaw()
	thaw(time.Now())
	return err
}

// leftBehind notes what Redis holds as pending for the process that no longer runs.
func (k *worker) leftBehind(ctx context.Context, from, to time.Time) {
	if k.kind != consumers {
		return
	}
	i := ledger.Interruption{Process: k.number, From: from, To: to}
	var err error
	if i.Pending, err = k.w.pendingOf(ctx, groupNames[k.group], k.name()); err != nil && ctx.Err() == nil {
		k.w.journal.Fail(from, "look for what %s left behind: %v", k.name(), err)
	}
	k.w.journal.Interrupt(i)
}

// leftBehindUntilThaw is leftBehind for a process that will go on: the journal has to hear of it at
// once, and of its end later.
func (k *worker) leftBehindUntilThaw(ctx context.Context, from, stopped time.Time) (thaw func(at time.Time)) {
	if k.kind != consumers {
		return func(time.Time) {}
	}
	pending, err := k.w.pendingOf(ctx, groupNames[k.group], k.name())
	if err != nil && ctx.Err() == nil {
		k.w.journal.Fail(from, "look for what %s had under way: %v", k.name(), err)
	}
	number := k.number
	return func(at time.Time) {
		k.w.journal.Interrupt(ledger.Interruption{Process: number, From: from, Stopped: stopped, To: at, Pending: pending})
	}
}

// stop asks the process to end in order and waits; one that does not is killed.
func (k *worker) stop(within time.Duration) error {
	if k.proc == nil {
		return nil
	}
	k.mu.Lock()
	k.ending = true
	k.mu.Unlock()
	k.proc.In.Close()
	select {
	case <-k.proc.Done():
	case <-time.After(within):
		k.proc.Kill()
		<-k.read
		return fmt.Errorf("%s did not end within %s", k.name(), within)
	}
	<-k.read
	return k.proc.Err()
}
