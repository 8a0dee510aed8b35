package group_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

const (
	ok      = protocol.StatusOK
	sync    = protocol.StatusSyncMetadata
	pending = protocol.StatusRevokePending
	unknown = protocol.StatusUnknownMemberID
	fenced  = protocol.StatusFencedMemberEpoch
	invalid = protocol.StatusInvalidRequest

	inUse = protocol.ReasonIDInUse
	over  = protocol.ReasonSessionOver
)

// TestScenario replays the scenarios of docs/protocol/handover.md §8, as far as the group
// decides them. A, B, C are members; A1, A2 processes of member A. L 15 s, H 3 s, X 9 s, R 60 s.
func TestScenario(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"basic-handover", basicHandover},
		{"granted-blocks", grantedBlocks},
		{"late-omission", lateOmission},
		{"late-claim", lateClaim},
		{"two-lost-answers", twoLostAnswers},
		{"late-answer", lateAnswer},
		{"slow-answer", slowAnswer},
		{"held-call", heldCall},
		{"target-flips-back", targetFlipsBack},
		{"expiry-races-renewal", expiryRacesRenewal},
		{"pause-past-lease", pausePastLease},
		{"false-claim", falseClaim},
		{"deadline", deadline},
		{"same-id-two-processes", sameIDTwoProcesses},
		{"same-id-reference", sameIDReference},
		{"restart", restart},
		{"static-leave", staticLeave},
		{"leave-draining", leaveDraining},
		{"late-leave", lateLeave},
		{"batch-conflict", batchConflict},
		{"failover-lost-leases", failoverLostLeases},
		{"failover-lost-handover", failoverLostHandover},
		{"failover-same-revision", failoverSameRevision},
		{"ownership-falls-back", ownershipFallsBack},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// pair is A and B with two shards, each reading one: A reads 0, B reads 1. Both are at the
// group's epoch.
func pair(t tb) (w *world, a, b *process) {
	w = newWorld(t, 2)
	a = w.join("A", "a")
	b = w.join("B", "b")
	a.call() // told without 1
	a.call() // released
	b.call()
	a.want(0)
	b.want(1)
	if a.epoch != w.stored.GroupEpoch || b.epoch != w.stored.GroupEpoch {
		t.Fatalf("epochs are %d and %d, the group is at %d", a.epoch, b.epoch, w.stored.GroupEpoch)
	}
	return w, a, b
}

func basicHandover(t *testing.T) {
	w := newWorld(t, 2)
	a := w.join("A", "a")
	a.slow = true
	a.want(0, 1)
	before := a.reads[1]
	if a.epoch != 2 {
		t.Fatalf("A has epoch %d, want 2", a.epoch)
	}

	b := w.join("B", "b")
	w.wantAnswer(b.last, ok, nil, []int{1})
	if b.epoch != 3 {
		t.Fatalf("B has epoch %d, want 3", b.epoch)
	}
	held := b.request()
	wait := func() {
		t.Helper()
		if !group.Settled(w.stored, held) {
			t.Fatalf("B's call is not held any more: %s", dump(w.stored))
		}
	}
	wait()

	w.wantAnswer(a.call(), ok, []int{0}, nil) // sent e2 {0,1}
	wait()
	w.wantAnswer(a.call(), ok, []int{0}, nil) // e3 {0} draining {1}
	wait()
	a.drained()
	w.wantAnswer(a.call(), ok, []int{0}, nil) // e3 {0}
	if group.Settled(w.stored, held) {
		t.Fatalf("B's call is still held: %s", dump(w.stored))
	}
	answer := w.batch(held)[0]
	w.wantAnswer(answer, ok, []int{1}, nil)
	if got := answer.Assignment.OwnershipEpochs["1"]; got <= before {
		t.Fatalf("ownership epoch %d is not above A's %d", got, before)
	}
	b.apply(held, answer)
	b.want(1)
}

func grantedBlocks(t *testing.T) {
	// B is granted 1 and never hears of it.
	granted := func() (w *world, a, b *process) {
		w = newWorld(t, 2)
		a, b = w.join("A", "a"), w.join("B", "b")
		a.call()
		a.call()
		w.wantAnswer(w.batch(b.request())[0], ok, []int{1}, nil) // lost
		w.retarget(1, "a")
		w.wantAnswer(a.call(), ok, nil, []int{1})
		return w, a, b
	}
	w, a, b := granted()
	a.call() // releases 0, which is B's now
	w.wantAnswer(a.call(), ok, nil, []int{1})
	w.wantAnswer(b.call(), ok, []int{0}, nil) // told without 1
	w.wantAnswer(a.call(), ok, nil, []int{1})
	b.call() // called with that epoch
	w.wantAnswer(a.call(), ok, []int{1}, nil)

	w, a, _ = granted()
	for seconds := 3.0; seconds < 15; seconds += 3 {
		w.at(seconds)
		w.wantAnswer(a.call(), ok, nil, []int{1})
	}
	w.at(15) // B's row ends
	w.tick()
	w.wantState("b", group.Expired)
	w.wantAnswer(a.call(), ok, []int{0, 1}, nil)

	// Three joins within one heartbeat interval: the world checks that none is told twice.
	w = newWorld(t, 6)
	a = w.join("A", "a")
	b, c, d := w.join("B", "b"), w.join("C", "c"), w.join("D", "d")
	for range 3 {
		for _, p := range []*process{b, c, d, a} {
			p.call()
		}
	}
	if n := len(a.reads) + len(b.reads) + len(c.reads) + len(d.reads); n != 6 {
		t.Fatalf("%d shards are read, want 6", n)
	}
}

func lateOmission(t *testing.T) {
	w := newWorld(t, 2)
	b, a := w.join("B", "b"), w.join("A", "a")
	a.slow = true
	mine := a.last.Assignment.PendingShards[0].ShardIndex
	late := a.request() // e3, owned {}
	b.call()
	b.call()
	w.wantAnswer(a.call(), ok, []int{mine}, nil)
	if a.epoch != late.MemberEpoch {
		t.Fatalf("the late call has epoch %d, A is at %d", late.MemberEpoch, a.epoch)
	}

	w.retarget(mine, "b") // e4
	a.call()              // told
	if got := w.stored.Shards[mine].RevokedAt; got != 4 {
		t.Fatalf("revoked at %d, want 4", got)
	}
	w.unchanged(func() { w.batch(late) })
	b.call()
	if w.holder(mine) != "a" {
		t.Fatalf("a late call released shard %d: %s", mine, dump(w.stored))
	}
	a.call() // e4, draining
	b.call()
	if w.holder(mine) != "a" {
		t.Fatalf("shard %d was released while it drains: %s", mine, dump(w.stored))
	}
	a.drained()
	a.call() // e4 without it
	b.call()
	if w.holder(mine) != "b" {
		t.Fatalf("B does not have shard %d: %s", mine, dump(w.stored))
	}
}

func lateClaim(t *testing.T) {
	w, a, b := pair(t)
	late := a.request() // e3 {0}
	w.retarget(0, "b")
	a.call()
	a.call()
	b.call()
	b.call()
	if w.holder(0) != "b" {
		t.Fatalf("B does not have 0: %s", dump(w.stored))
	}
	a.call()
	w.unchanged(func() {
		if got := w.batch(late)[0].Status; got != ok {
			t.Fatalf("the late claim is answered %s", got)
		}
	})
	w.wantState("a", group.Active)
}

func twoLostAnswers(t *testing.T) {
	w := newWorld(t, 1)
	a := w.join("A", "a")
	w.join("B", "b")
	a.call()
	if a.epoch != 3 {
		t.Fatalf("A has epoch %d, want 3", a.epoch)
	}
	w.at(1)
	w.join("C", "c")
	w.batch(a.request()) // e4, lost
	w.at(2)
	w.join("D", "d")
	w.batch(a.request()) // e5, lost
	w.at(5)
	answer := a.call() // e3 {0}
	w.wantAnswer(answer, ok, []int{0}, nil)
	if answer.MemberEpoch != 5 {
		t.Fatalf("answered epoch %d, want 5", answer.MemberEpoch)
	}
	if got := w.rows[group.Row("a", w.member("a").JoinEpoch)]; got != start.Add(20*time.Second) {
		t.Fatalf("the lease ends %s after the start, want 20s", got.Sub(start))
	}
}

func lateAnswer(t *testing.T) {
	w, a, b := pair(t)
	slow := a.request()
	answer := w.batch(slow)[0] // {0} e3, under way
	w.retarget(0, "b")
	a.call() // A gave the slow one up
	a.call() // released
	b.call()
	b.call()
	if _, reads := b.reads[0]; !reads {
		t.Fatalf("B does not read 0: %s", dump(w.stored))
	}
	a.apply(slow, answer) // the world fails if both read 0
	if _, reads := a.reads[0]; reads {
		t.Fatalf("A took over an answer that it had given up")
	}
}

func slowAnswer(t *testing.T) {
	w := newWorld(t, 1)
	a := w.join("A", "a")
	b := w.join("B", "b")
	w.at(10)
	a.call()
	b.call()
	sent := a.request() // at 10 s
	w.at(10.1)
	answer := w.batch(sent)[0]
	for _, s := range []float64{13, 16, 19, 22} {
		w.at(s)
		b.call()
	}
	w.at(23.4)
	a.want(0)
	w.at(23.5) // 15 s − δ after it was sent
	a.want()
	w.at(24)
	a.apply(sent, answer) // arrives 14 s late
	a.want()
	w.at(25.09)
	w.tick()
	w.wantAnswer(b.call(), ok, nil, nil)
	w.at(25.1)
	w.tick()
	w.wantAnswer(b.call(), ok, []int{0}, nil)
}

func heldCall(t *testing.T) {
	w, a, b := pair(t)
	held := a.request()
	w.batch(held) // the report counts on arrival; R1 holds the answer
	r1 := w.replica()
	if !group.Settled(r1.state, held) {
		t.Fatalf("A's call is not held: %s", dump(r1.state))
	}
	// R1 is stopped; A gives up and calls R2.
	w.at(5)
	w.retarget(0, "b")
	a.call()
	a.call()
	b.call()
	b.call()
	if _, reads := b.reads[0]; !reads {
		t.Fatalf("B does not read 0: %s", dump(w.stored))
	}
	a.call()
	// R1 continues: its script finds another token.
	answers, err := w.batchFrom(r1, held)
	if err == nil {
		t.Fatalf("R1 committed %+v on an old state", answers)
	}
	w.unchanged(func() { a.apply(held, w.batch(held)[0]) })

	// Unstopped, a join is answered to the held call at once.
	w, a, _ = pair(t)
	held = a.request()
	w.batch(held)
	w.join("C", "c")
	if group.Settled(w.stored, held) {
		t.Fatalf("A's call is still held after a join: %s", dump(w.stored))
	}
}

func targetFlipsBack(t *testing.T) {
	// (a) A → B → A before A calls: nothing is revoked.
	w, a, _ := pair(t)
	before := a.reads[0]
	w.retarget(0, "b")
	w.retarget(0, "a")
	w.wantAnswer(a.call(), ok, []int{0}, nil)
	if a.reads[0] != before || w.stored.Shards[0].RevokedAt != 0 || w.stored.Shards[0].Deadline != 0 {
		t.Fatalf("the shard was touched: %s", dump(w.stored))
	}

	// (b) A is told by e4 and drains; the target comes back.
	w, a, _ = pair(t)
	a.slow = true
	before = a.reads[0]
	w.retarget(0, "b")
	a.call()
	a.want()
	w.retarget(0, "a")
	w.wantAnswer(a.call(), ok, nil, []int{0}) // draining
	w.wantAnswer(a.call(), ok, nil, []int{0})
	a.drained()
	late := a.request() // e5 {}
	w.wantAnswer(w.batch(late)[0], ok, []int{0}, nil)
	a.call()
	a.want(0)
	if a.reads[0] <= before {
		t.Fatalf("ownership epoch %d is not above %d", a.reads[0], before)
	}

	// (c) then the target goes away (e6) and A is told; a copy of "e5, {}" arrives.
	w.retarget(0, "b")
	a.call()
	w.unchanged(func() { w.batch(late) })
	if w.holder(0) != "a" {
		t.Fatalf("a late copy released 0: %s", dump(w.stored))
	}
}

func expiryRacesRenewal(t *testing.T) {
	w, a, b := pair(t)
	w.at(10)
	b.call()
	w.at(15.5)
	r1 := w.replica() // reads A's row as ended
	a.call()          // R2 renews it
	if answers, err := w.batchFrom(r1); err == nil {
		t.Fatalf("R1 expired a renewed member: %v %s", answers, dump(w.stored))
	}
	w.wantState("a", group.Active)
	a.want(0)

	// Redis's clock steps 20 s ahead; the processes' own clocks do not.
	w, _, b = pair(t)
	w.now = w.now.Add(20 * time.Second)
	for _, p := range w.procs {
		p.lease = p.lease.Add(20 * time.Second)
	}
	turn := group.Begin(w.stored)
	turn.RenewAll(w.rows)
	turn.Tick(w.now, w.rows, nil)
	if turn.Changed() {
		t.Fatalf("a stepped clock ended a lease: %s", dump(turn.State()))
	}
	if err := w.commit(w.rev, turn, true); err != nil {
		t.Fatalf("renewal refused: %v", err)
	}
	w.at(34.9)
	w.tick()
	w.wantState("a", group.Active)
	w.wantState("b", group.Active)
	w.at(35)
	w.tick()
	w.wantState("a", group.Expired)
	_ = b
}

func pausePastLease(t *testing.T) {
	w, a, b := pair(t)
	for s := 3.0; s <= 45; s += 3 {
		w.at(s)
		w.tick()
		b.call()
	}
	b.want(0, 1)
	a.want() // its own lease stopped it before it did anything else
	w.wantRefused(a.call(), fenced, over)
	w.wantAnswer(a.call(), ok, nil, []int{1}) // a new session
	b.call()
	b.call()
	w.wantAnswer(a.call(), ok, []int{1}, nil)

	// Its call overtakes the commit that would expire it.
	w, a, b = pair(t)
	before, session := a.reads[0], w.member("a").JoinEpoch
	w.at(10)
	b.call()
	w.at(16)
	a.want()
	w.wantAnswer(a.call(), ok, []int{0}, nil)
	if a.reads[0] != before || w.member("a").JoinEpoch != session {
		t.Fatalf("the session or the ownership is another one: %s", dump(w.stored))
	}
}

func falseClaim(t *testing.T) {
	claim := func() (w *world, a, b *process) {
		w, a, b = pair(t)
		w.at(1)
		req := a.request()
		req.OwnedShards = protocol.Shards([]int{0, 1})
		w.wantRefused(w.batch(req)[0], fenced, over) // lost: A reads on
		w.wantState("a", group.Fenced)
		if w.stored.GroupEpoch != 4 {
			t.Fatalf("group epoch is %d, want 4", w.stored.GroupEpoch)
		}
		w.wantAnswer(b.call(), ok, []int{1}, []int{0})
		return w, a, b
	}
	w, _, b := claim()
	for s := 3.0; s < 15; s += 3 {
		w.at(s)
		w.tick()
		w.wantAnswer(b.call(), ok, []int{1}, []int{0})
	}
	w.at(15) // A's row, last renewed at the start, ends
	w.tick()
	w.wantAnswer(b.call(), ok, []int{0, 1}, nil)

	w, a, b := claim()
	w.at(2)
	w.wantRefused(a.call(), fenced, over) // A hears of it and drops all
	w.wantAnswer(a.call(), ok, []int{0}, nil)
	w.wantAnswer(b.call(), ok, []int{1}, nil)
}

func deadline(t *testing.T) {
	short := func() (w *world, a, b *process) {
		w = newWorld(t, 1)
		w.stored.Spec.RebalanceTimeoutMs = 5000
		b = w.join("B", "b")
		a = w.join("A", "a")
		w.at(1)
		a.call()
		b.call()
		b.want(0)
		w.retarget(0, "a") // B is to let go by 6 s
		return w, b, a
	}

	// (a) the handler hangs, and the member says so.
	w, a, b := short()
	a.slow = true
	w.at(2)
	a.call()
	w.at(4)
	a.call() // draining: acknowledged
	w.at(5.9)
	w.tick()
	w.wantAnswer(b.call(), ok, nil, []int{0})
	w.at(6)
	w.tick()
	w.wantState(a.id, group.Fenced)
	w.wantAnswer(b.call(), ok, []int{0}, nil)

	// A call at the deadline does not spare it either, though nobody who calls is expired.
	w, a, b = short()
	a.slow = true
	w.at(2)
	a.call()
	w.at(5.9)
	a.call()
	w.at(6)
	w.wantRefused(a.call(), fenced, over)
	w.wantAnswer(b.call(), ok, []int{0}, nil)

	// It lets go in the very call that comes at the deadline.
	w, a, b = short()
	w.at(2)
	a.call()
	w.at(6)
	w.wantAnswer(a.call(), ok, nil, nil)
	w.wantAnswer(b.call(), ok, []int{0}, nil)

	// (b) silent, never told.
	w, a, b = short()
	for s := 2.0; s < 6; s++ {
		w.at(s)
		w.tick()
		b.call()
	}
	w.wantState(a.id, group.Active)
	w.at(6)
	w.tick()
	w.wantState(a.id, group.Fenced)
	for s := 6.0; s < 16; s++ {
		w.at(s)
		w.tick()
		w.wantAnswer(b.call(), ok, nil, []int{0})
	}
	w.at(16) // its row, renewed at 1 s
	w.tick()
	w.wantAnswer(b.call(), ok, []int{0}, nil)

	// (c) revoked one after the other, overlapping, each drained in 2 s: no deadline is moved
	// or shared.
	w = newWorld(t, 2)
	w.stored.Spec.RebalanceTimeoutMs = 5000
	a, b = w.join("A", "a"), w.join("B", "b")
	a.call()
	a.call()
	b.call()
	a.slow, b.slow = true, true
	due := map[*process]map[int]protocol.Instant{a: {}, b: {}}
	for s := 1.0; s <= 60; s++ {
		w.at(s)
		w.tick()
		if int(s)%3 == 0 {
			w.retarget(0, []string{"a", "b"}[int(s)/3%2])
		}
		for _, p := range []*process{a, b} {
			for shard := range p.drains {
				switch at, known := due[p][shard]; {
				case !known:
					due[p][shard] = w.now.Add(2 * time.Second)
				case at <= w.now:
					delete(p.drains, shard)
					delete(due[p], shard)
				}
			}
			p.call()
		}
		w.wantState("a", group.Active)
		w.wantState("b", group.Active)
	}
}

func sameIDTwoProcesses(t *testing.T) {
	w, a1, b := pair(t)
	epoch := w.stored.GroupEpoch
	a2 := w.process("A2", "a", false)
	for s := 1.0; s <= 60; s++ {
		w.at(s)
		w.tick()
		if int(s)%3 == 0 {
			a1.call()
			b.call()
		}
		if int(s)%3 == 1 {
			w.wantRefused(a2.call(), invalid, inUse)
			if w.now.Sub(a2.inUse) >= 15*time.Second { // it gives up; a supervisor restarts it
				a2.kill()
				a2 = w.process("A2", "a", false)
			}
		}
		a1.want(0)
	}
	if w.stored.GroupEpoch != epoch {
		t.Fatalf("group epoch rose from %d to %d", epoch, w.stored.GroupEpoch)
	}

	// Both join in the same millisecond.
	w = newWorld(t, 2)
	a1, a2 = w.process("A1", "a", false), w.process("A2", "a", false)
	r1, r2 := a1.request(), a2.request()
	answers := w.batch(r1, r2)
	a1.apply(r1, answers[0])
	a2.apply(r2, answers[1])
	a1.want(0, 1)
	a2.want()
	w.wantRefused(answers[1], invalid, inUse)
	if w.stored.GroupEpoch != 2 {
		t.Fatalf("group epoch is %d, want 2", w.stored.GroupEpoch)
	}
}

func sameIDReference(t *testing.T) {
	for _, shards := range []int{2, 0} {
		w := newWorld(t, shards)
		a1, a2 := w.plain("A1", "a"), w.process("A2", "a", true)
		epoch := w.stored.GroupEpoch
		for s := 1.0; s <= 60; s++ {
			w.at(s)
			w.tick()
			if int(s)%3 == 0 {
				a1.call()
			}
			if int(s)%3 == 1 {
				w.wantRefused(a2.call(), invalid, inUse)
			}
		}
		if len(a1.reads) != shards || w.stored.GroupEpoch != epoch {
			t.Fatalf("A1 reads %v at epoch %d, want %d shards at %d", a1.reads, w.stored.GroupEpoch, shards, epoch)
		}
	}
}

func restart(t *testing.T) {
	// killed restarts A at 1 s and lets A2 and B call each H until 15 s after A1's last call.
	// It returns when A2 was admitted, when it read, and whether B ever held A's shard.
	killed := func(replaces func(a1 *process) string) (admitted, read float64, moved bool) {
		w, a1, b := pair(t)
		w.at(20)
		a1.call()
		b.call()
		a1.kill()
		a2 := w.process("A2", "a", false)
		a2.replaces = replaces(a1)
		admitted, read = -1, -1
		for s := 1.0; s <= 16; s++ {
			w.at(20 + s)
			w.tick()
			if int(s)%3 == 0 {
				b.call()
			}
			if (int(s)-1)%3 == 0 || read < 0 && s >= 15 { // a held call would be woken at 15 s
				a := a2.call()
				if a.Status == ok && admitted < 0 {
					admitted = s
				}
				if len(a2.reads) > 0 && read < 0 {
					read = s
				}
			}
			moved = moved || w.holder(0) == "b"
		}
		a2.want(0)
		return admitted, read, moved
	}
	for _, c := range []struct {
		name     string
		replaces func(a1 *process) string
		at       float64
		reads    float64
	}{
		{"a", func(*process) string { return "" }, 10, 15},
		{"b", func(a1 *process) string { return a1.incarnation }, 1, 1},
		{"c", func(*process) string { return "somebody else" }, 10, 15},
	} {
		admitted, read, moved := killed(c.replaces)
		if admitted != c.at || read != c.reads || moved {
			t.Errorf("(%s) admitted at %vs, read at %vs, moved: %v; want %v, %v, false", c.name, admitted, read, moved, c.at, c.reads)
		}
	}
}

func staticLeave(t *testing.T) {
	w, a1, b := pair(t)
	w.at(1)
	b.call()
	join := &protocol.HeartbeatRequest{RequestID: "copy", MemberID: "a", Incarnation: a1.incarnation}
	last := a1.request()
	w.batch(last)
	w.wantAnswer(a1.away(), ok, nil, nil)
	if a1.last.MemberEpoch != -1 {
		t.Fatalf("answered epoch %d, want -1", a1.last.MemberEpoch)
	}
	away := &protocol.HeartbeatRequest{RequestID: "copy", MemberID: "a", Incarnation: a1.incarnation, MemberEpoch: -2, MetadataVersion: last.MetadataVersion}
	copies := func(status protocol.HeartbeatStatus) {
		w.unchanged(func() {
			w.t.Helper()
			for _, req := range []*protocol.HeartbeatRequest{last, join} {
				if got := w.batch(req)[0]; got.Status.ExtendsLease() {
					t.Fatalf("a late copy of epoch %d is answered %s", req.MemberEpoch, got.Status)
				}
			}
			if got := w.batch(away)[0].Status; got != status {
				t.Fatalf("a late copy of -2 is answered %s, want %s", got, status)
			}
		})
	}
	copies(ok)
	w.wantAnswer(b.call(), ok, []int{1}, nil)
	w.at(3)
	a2 := w.join("A2", "a")
	w.wantAnswer(a2.last, ok, []int{0}, nil)
	copies(unknown)
	a2.want(0)
	w.wantAnswer(b.call(), ok, []int{1}, nil)
	w.wantAnswer(a2.call(), ok, []int{0}, nil)

	// A2 never comes: the shards move when A1's row ends.
	w, a1, b = pair(t)
	w.at(1)
	a1.away()
	for s := 3.0; s < 16; s += 3 {
		w.at(s)
		w.tick()
		w.wantAnswer(b.call(), ok, []int{1}, nil)
	}
	w.at(16)
	w.tick()
	w.wantState("a", group.Expired)
	w.wantAnswer(b.call(), ok, []int{0, 1}, nil)
}

func leaveDraining(t *testing.T) {
	// A reads 0 and 1, drains 1 and leaves; B takes what is free.
	leaving := func() (w *world, a, b *process) {
		w = newWorld(t, 4)
		a, b = w.join("A", "a"), w.join("B", "b")
		a.call()
		a.call()
		b.call()
		a.want(0, 1)
		w.at(1)
		b.call()
		a.drains[1] = true
		a.reads = map[int]int64{}
		a.left = protocol.EpochLeave
		return w, a, b
	}
	w, a, b := leaving()
	w.wantAnswer(a.call(), ok, nil, nil)
	if a.last.MemberEpoch != -1 {
		t.Fatalf("answered epoch %d, want -1", a.last.MemberEpoch)
	}
	w.wantAnswer(b.call(), ok, []int{0, 2, 3}, []int{1}) // 0 is free at once
	a.call()                                             // still draining
	w.wantAnswer(b.call(), ok, []int{0, 2, 3}, []int{1})
	a.drained()
	a.call() // (a)
	w.wantAnswer(b.call(), ok, []int{0, 1, 2, 3}, nil)

	w, a, b = leaving()
	w.stored.Spec.RebalanceTimeoutMs = 5000
	a.call()
	a.kill() // (b)
	for s := 3.0; s < 16; s += 3 {
		w.at(s)
		w.tick()
		w.wantAnswer(b.call(), ok, []int{0, 2, 3}, []int{1})
		w.wantState("a", group.Leaving) // the rebalance timeout does not count
	}
	w.at(16)
	w.tick()
	w.wantState("a", group.Expired)
	w.wantAnswer(b.call(), ok, []int{0, 1, 2, 3}, nil)

	// (c) a slow answer to the call before arrives after −1 was sent.
	w, a, _ = leaving()
	a.left = 0
	slow := a.request()
	answer := w.batch(slow)[0]
	a.left = protocol.EpochLeave
	a.request()
	a.apply(slow, answer)
	a.want()
}

func lateLeave(t *testing.T) {
	w := newWorld(t, 1)
	a1 := w.plain("A1", "a")
	w.join("B", "b")
	a1.call()
	leave := a1.request()
	leave.MemberEpoch = protocol.EpochLeave // delayed; metadata version 3
	a1.kill()
	w.at(9)
	b := w.procs[1]
	b.call()
	a2 := w.plain("A2", "a")
	w.wantAnswer(a2.last, ok, nil, []int{0})
	w.at(14)
	b.call()
	a2.call()
	w.at(15)
	w.tick()
	w.wantAnswer(a2.call(), ok, []int{0}, nil)
	w.unchanged(func() {
		if got := w.batch(leave)[0].Status; got != fenced {
			t.Fatalf("the late leave is answered %s", got)
		}
	})
	w.wantAnswer(a2.call(), ok, []int{0}, nil)

	// A call with an epoch to a record that is leaving: the Spring starter would read on after
	// anything else.
	call := a2.request()
	a2.leave()
	w.unchanged(func() { w.wantRefused(w.batch(call)[0], fenced, over) })
}

func batchConflict(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.join("A", "a"), w.join("B", "b")
	a.call() // told without 1
	rb, ra := b.request(), a.request()
	answers := w.batch(rb, ra) // B asks before A releases
	w.wantAnswer(answers[0], ok, nil, []int{1})
	b.apply(rb, answers[0])
	a.apply(ra, answers[1])
	w.join("C", "c")
	w.retarget(1, "c")
	if w.holder(1) != "" {
		t.Fatalf("1 is held by %s", w.holder(1))
	}

	// The other way round, B has it, in the answer and in the store.
	w = newWorld(t, 2)
	a, b = w.join("A", "a"), w.join("B", "b")
	a.call()
	ra, rb = a.request(), b.request()
	answers = w.batch(ra, rb)
	a.apply(ra, answers[0])
	b.apply(rb, answers[1])
	b.want(1)
	c := w.join("C", "c")
	w.retarget(1, "c")
	w.wantAnswer(c.call(), ok, nil, []int{1})
	b.call() // told
	w.wantAnswer(c.call(), ok, nil, []int{1})
	b.call() // let go
	w.wantAnswer(c.call(), ok, []int{1}, nil)
}

// failover puts the world back to what a lagging Redis replica has, and commits the recovery.
func (w *world) failover(state *group.State, rows group.Leases) {
	w.t.Helper()
	highest := group.Epochs{GroupEpoch: w.stored.GroupEpoch, MetadataVersion: w.stored.MetadataVersion, OwnershipCounter: w.stored.OwnershipCounter}
	w.lost = true
	w.stored, w.rows = state, rows
	w.rev++
	turn := group.Begin(w.stored)
	turn.Recover(highest, w.now, maps.Clone(w.rows))
	if err := w.commit(w.rev, turn, true); err != nil {
		w.t.Fatalf("at %s: recovery refused: %v", w.clock(), err)
	}
}

func failoverLostLeases(t *testing.T) {
	single := func() (w *world, a, b *process, copied replica) {
		w = newWorld(t, 1)
		a, b = w.join("A", "a"), w.join("B", "b")
		copied = w.replica() // has A's row of 0 s
		w.at(10)
		a.call()
		b.call()
		return w, a, b, copied
	}
	// (a) A calls at 12 s, B at 15.1 s.
	w, a, b, copied := single()
	w.at(12)
	w.failover(copied.state, copied.leases)
	w.wantAnswer(a.call(), ok, []int{0}, nil)
	w.at(15.1)
	w.tick()
	w.wantAnswer(b.call(), ok, nil, nil)
	for s := 18.0; s < 40; s += 3 {
		w.at(s)
		w.tick()
		w.wantAnswer(a.call(), ok, []int{0}, nil)
		w.wantAnswer(b.call(), ok, nil, nil)
	}
	w.wantState("a", group.Active)

	// (b) the first call is B's, at 15.1 s.
	w, a, b, copied = single()
	w.at(15.1)
	w.failover(copied.state, copied.leases)
	w.wantAnswer(b.call(), ok, nil, nil)
	w.wantState("a", group.Active)
	a.want(0) // it does not know yet
	answer := a.call()
	w.wantAnswer(answer, ok, nil, []int{0})
	for s := 18.0; s < 30; s += 3 {
		w.at(s)
		w.tick()
		w.wantAnswer(a.call(), ok, nil, []int{0})
		w.wantAnswer(b.call(), ok, nil, nil)
	}
	w.at(30.1)
	w.tick()
	w.wantState("a", group.Active)
	w.wantAnswer(a.call(), ok, []int{0}, nil)
}

func failoverLostHandover(t *testing.T) {
	// 0 moved from A to B, and Redis lost all of it.
	moved := func(between func(w *world, a *process)) (w *world, a, b *process) {
		w = newWorld(t, 2)
		a, b = w.join("A", "a"), w.join("B", "b")
		a.call()
		a.call()
		b.call()
		copied := w.replica()
		w.at(2)
		w.retarget(0, "b")
		between(w, a)
		b.call()
		b.call()
		if _, reads := b.reads[0]; !reads {
			t.Fatalf("B does not read 0: %s", dump(w.stored))
		}
		w.failover(copied.state, copied.leases)
		return w, a, b
	}
	w, a, b := moved(func(_ *world, a *process) { a.call(); a.call() })
	until := w.now.Add(15 * time.Second)
	for ; w.now < until; w.advance(time.Second) {
		w.tick()
		for _, p := range []*process{a, b} {
			if got := p.call(); got.Status != ok || slices.Contains(protocol.Indexes(got.Assignment.AssignedShards), 0) {
				t.Fatalf("at %s %s is answered %+v", w.clock(), p.name, got)
			}
		}
	}
	w.tick()
	if got := w.stored.Shards[0].Target; got != "a" {
		t.Fatalf("target of 0 is %s", got)
	}
	w.wantAnswer(a.call(), ok, []int{0}, nil)
	w.wantState("b", group.Active)

	// A had expired; a call of A from before that arrives after the failover.
	var late *protocol.HeartbeatRequest
	w, _, _ = moved(func(w *world, a *process) {
		late = a.request()
		w.at(8)
		w.procs[1].call()
		w.at(16)
		w.tick()
		w.wantState("a", group.Expired)
	})
	w.wantAnswer(w.batch(late)[0], ok, nil, []int{0})
}

// The replica's half of this scenario, a script that finds an equal revision with another id,
// belongs to the commit script. Here: the admission of A2 was lost.
func failoverSameRevision(t *testing.T) {
	w := newWorld(t, 2)
	w.join("B", "b")
	copied := w.replica()
	a2 := w.join("A2", "a")
	w.at(1)
	w.failover(copied.state, copied.leases)
	w.wantRefused(a2.call(), unknown, over)
	for s := 3.0; s < 40; s += 3 {
		w.at(s)
		w.tick()
		if got := a2.call().Status; got != ok {
			t.Fatalf("at %s A2 is answered %s", w.clock(), got)
		}
		w.procs[0].call()
	}
	if len(a2.reads) != 1 {
		t.Fatalf("A2 reads %v", a2.reads)
	}
}

// The nodes' half of this scenario belongs to the scripts beside the shards. Here (a): the
// coordinator's counter was forced back, and the shard's node refuses the grant.
func ownershipFallsBack(t *testing.T) {
	w := newWorld(t, 1)
	c := w.join("C", "c")
	met := c.reads[0] + 5000 // "epoch 5 to B", which the coordinator lost
	req := c.request()
	req.OwnershipSeen = []protocol.OwnershipSeen{{Epoch: met}}
	answer := w.batch(req)[0]
	w.wantAnswer(answer, ok, []int{0}, nil)
	got := answer.Assignment.OwnershipEpochs["0"]
	if got <= met {
		t.Fatalf("the new ownership epoch %d is not above %d", got, met)
	}
	w.unchanged(func() { // a copy changes nothing more
		if again := w.batch(req)[0].Assignment.OwnershipEpochs["0"]; again != got {
			t.Fatalf("a copy got another epoch %d", again)
		}
	})
	c.call()

	// Nobody pushes the counter more than a day ahead of Redis time.
	req = c.request()
	req.OwnershipSeen = []protocol.OwnershipSeen{{Epoch: int64(w.now.Add(25 * time.Hour))}}
	w.unchanged(func() { w.batch(req) })
	req.OwnershipSeen = []protocol.OwnershipSeen{{Epoch: int64(w.now.Add(23 * time.Hour))}}
	answer = w.batch(req)[0]
	if epoch := answer.Assignment.OwnershipEpochs[strconv.Itoa(0)]; epoch <= int64(w.now.Add(23*time.Hour)) {
		t.Fatalf("ownership epoch %d is not above what was seen", epoch)
	}
}
