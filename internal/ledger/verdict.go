package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Times of the judgement.
const (
	// ackSlack is how long before an ownership was cut off an entry may have been handled without
	// having been acknowledged.
	ackSlack = 2 * time.Second
	// leaseSlack is how long after a disturbance a member may still notice that it lost its lease.
	leaseSlack = 10 * time.Second
	// clockSlack is between an instant that Redis gave in ms and one of a process.
	clockSlack = 2 * time.Millisecond
)

// Verdict is what a Journal comes to.
type Verdict struct {
	Attempted  int
	Landed     int
	Unknown    int // attempted, never answered: their producer was killed or frozen
	Recovered  int // of those, entries that were handled: they had landed
	Handled    int // different entries, summed over the groups
	Lost       int // landed and not handled by a group
	Duplicates int // handled again by a group; all of them were pending at a kill, or a problem
	Inversions int // handled out of order across a change that promises no order
	Cuts       int // ownerships that ended without their owners' wish
	Problems   []Problem
}

// Judge checks every promise over everything that was noted. Call it when nothing is under way.
func (j *Journal) Judge() Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := Verdict{Cuts: len(j.cuts)}
	found := len(j.problems)
	work := map[[2]int][]span{} // group, shard → times of handling
	for key := range j.keys {
		j.judgeKey(key, &v, work)
	}
	j.judgeCuts()
	for at, spans := range work {
		j.judgeSpans(at[0], at[1], spans)
	}
	v.Problems = slices.Clone(j.problems)
	j.problems = j.problems[:found] // a second call finds the same
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return a.At.Compare(b.At) })
	return v
}

func (j *Journal) judgeKey(key int, v *Verdict, work map[[2]int][]span) {
	k := &j.keys[key]
	v.Attempted += len(k.sent)
	// Where each entry stands: its append says so, or whoever handled it.
	known := make([]bool, len(k.sent))
	for n := range k.sent {
		if k.sent[n].landed {
			v.Landed++
			known[n] = true
		} else {
			v.Unknown++
		}
	}
	place := make([]Place, len(k.sent))
	for n := range k.sent {
		place[n] = k.sent[n].place
	}
	for g := range j.groups {
		list := slices.Clone(k.handled[g])
		slices.SortStableFunc(list, func(a, b Handling) int { return a.Begun.Compare(b.Begun) })
		first := make([]*Handling, len(k.sent))
		last := make([]*Handling, len(k.sent))
		for i := range list {
			h := &list[i]
			if h.Number >= len(k.sent) {
				j.problem(h.Begun, "key %d: entry %d was handled but never appended", key, h.Number)
				continue
			}
			work[[2]int{g, h.Shard}] = append(work[[2]int{g, h.Shard}], j.span(*h))
			switch {
			case !known[h.Number]:
				known[h.Number], place[h.Number] = true, h.Place
				v.Recovered++
			case place[h.Number] != h.Place:
				j.problem(h.Begun, "key %d: entry %d stands twice: %s on shard %d and %s on shard %d", key, h.Number,
					place[h.Number].ID, place[h.Number].Shard, h.ID, h.Shard)
			}
			if first[h.Number] == nil {
				first[h.Number] = h
			} else {
				v.Duplicates++
				if before := last[h.Number]; !j.mayRepeat(*before) {
					j.problem(h.Begun, "group %d, key %d: entry %d (%s on shard %d) was handled by process %d at ownership epoch %d and again by process %d at %d, and was not pending at a kill", g, key,
						h.Number, h.ID, h.Shard, before.Process, before.Epoch, h.Process, h.Epoch)
				}
			}
			last[h.Number] = h
		}
		for n := range k.sent {
			done := n < len(k.ended[g]) && k.ended[g][n]
			if done {
				v.Handled++
			} else if k.sent[n].landed {
				v.Lost++
				j.problem(k.sent[n].at, "group %d, key %d: entry %d (%s on shard %d) is lost", g, key, n, place[n].ID, place[n].Shard)
			}
		}
		j.judgeOrder(g, key, first, v)
	}
}

// judgeOrder looks at the first handling of every entry of a key.
func (j *Journal) judgeOrder(group, key int, first []*Handling, v *Verdict) {
	var earliest *Handling // of those with higher numbers
	for n, late := range slices.Backward(first) {
		if late == nil {
			continue
		}
		if earliest == nil || late.Begun.Before(earliest.Begun) {
			earliest = late
			continue
		}
		// The nearest later entry that came before gives the shortest time in which the layout can
		// have changed between the two.
		early := late
		for m := n + 1; early == late; m++ {
			if first[m] != nil && first[m].Begun.Before(late.Begun) {
				early = first[m]
			}
		}
		if j.changedBetween(late.ID, early.ID) {
			v.Inversions++
			continue
		}
		j.problem(late.Begun, "group %d, key %d: entry %d (%s on shard %d) was handled after entry %d (%s on shard %d), and no change without a promise of order lies between", group, key,
			late.Number, late.ID, late.Shard, early.Number, early.ID, early.Shard)
	}
}

// changedBetween says whether a change without a promise of order ran between two appends.
func (j *Journal) changedBetween(a, b EntryID) bool {
	from, to := instant(min(a.Ms, b.Ms)), instant(max(a.Ms, b.Ms))
	return slices.ContainsFunc(j.windows, func(w Window) bool {
		return !from.After(w.To.Add(clockSlack)) && !to.Before(w.From.Add(-clockSlack))
	})
}

func instant(ms uint64) time.Time { return time.UnixMilli(int64(ms)) } //nolint:gosec // a time of today

// mayRepeat says whether an entry may be handled again after h: it was pending when the process was
// killed or frozen, or when its ownership was cut off.
func (j *Journal) mayRepeat(h Handling) bool {
	return slices.ContainsFunc(j.interrupted, func(i Interruption) bool {
		return i.Process == h.Process && i.Pending[h.Place]
	}) || slices.ContainsFunc(j.cuts, func(c Cut) bool {
		return c.Process == h.Process && c.Shard == h.Shard && c.Epoch == h.Epoch &&
			(h.Ended.IsZero() || h.Ended.Add(ackSlack).After(c.At))
	})
}

// judgeCuts: a live process that nothing disturbed keeps what it owns and may acknowledge it.
func (j *Journal) judgeCuts() {
	disturbed := func(c Cut) bool {
		near := func(from, to time.Time) bool {
			return !c.At.Before(from) && (to.IsZero() || c.At.Before(to.Add(leaseSlack)))
		}
		return slices.ContainsFunc(j.disturbed, func(w Window) bool { return near(w.From, w.To) }) ||
			slices.ContainsFunc(j.interrupted, func(i Interruption) bool { return i.Process == c.Process && near(i.From, i.To) })
	}
	for _, c := range j.cuts {
		if !disturbed(c) {
			j.problem(c.At, "process %d was undisturbed and lost shard %d (ownership epoch %d): %s", c.Process, c.Shard, c.Epoch, c.Cause)
		}
	}
	for _, c := range j.refusals {
		if !disturbed(c) {
			j.problem(c.At, "process %d was undisturbed and an acknowledgement on shard %d (ownership epoch %d) was refused", c.Process, c.Shard, c.Epoch)
		}
	}
}

// span is a time in which a handler of a process was at work on a shard, as far as that process
// was allowed to: it ends with a kill, with a freeze and with the loss of the ownership.
type span struct {
	h        Handling
	from, to time.Time
}

func (j *Journal) span(h Handling) span {
	s := span{h: h, from: h.Begun, to: h.Ended}
	end := func(at time.Time) {
		if !at.Before(h.Begun) && (s.to.IsZero() || at.Before(s.to)) {
			s.to = at
		}
	}
	for _, i := range j.interrupted {
		if i.Process != h.Process {
			continue
		}
		at := i.From
		if h.Begun.After(at) && !h.Begun.After(i.Stopped) { // begun between the signal and the stop
			at = i.Stopped
		}
		end(at)
	}
	for _, c := range j.cuts {
		if c.Process == h.Process && c.Shard == h.Shard && c.Epoch == h.Epoch {
			end(c.At)
		}
	}
	return s
}

// judgeSpans: never two at work on one shard.
func (j *Journal) judgeSpans(group, shard int, spans []span) {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to))
	})
	for i := 1; i < len(spans); i++ {
		before, now := spans[i-1], spans[i]
		if before.to.IsZero() || before.to.After(now.from) {
			j.problem(now.from, "group %d, shard %d: process %d (ownership epoch %d) handles %s while process %d (%d) is at work on %s", group, shard,
				now.h.Process, now.h.Epoch, now.h.ID, before.h.Process, before.h.Epoch, before.h.ID)
		}
		if before.to.After(now.to) && !now.to.IsZero() {
			spans[i] = before // it is still at work
		}
	}
}
