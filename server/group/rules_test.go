package group_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// row names the lease row of the member's present session.
func (w *world) row(id string) string {
	w.t.Helper()
	return group.Row(id, w.member(id).JoinEpoch)
}

// decide applies requests in one turn, without a tick and without committing.
func (w *world) decide(leases group.Leases, reqs ...*protocol.HeartbeatRequest) (*group.Turn, []protocol.HeartbeatResponse) {
	turn := group.Begin(w.stored)
	var answers []protocol.HeartbeatResponse
	for _, req := range reqs {
		answers = append(answers, turn.Heartbeat(req, w.now, leases))
	}
	return turn, answers
}

func wantRows(t *testing.T, turn *group.Turn, renew, drop []string, check []group.RowCheck) {
	t.Helper()
	rows := turn.Rows()
	if !slices.Equal(rows.Renew, renew) || !slices.Equal(rows.Drop, drop) || !slices.Equal(rows.Check, check) {
		t.Errorf("rows %+v, want renew %v, drop %v, check %v", rows, renew, drop, check)
	}
}

// TestRules are single rules of docs/protocol/handover.md, by number, that no scenario shows by
// itself.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"C4/ExpiryNamesItsRow", func(t *testing.T) {
			w, a, _ := pair(t)
			w.at(10)
			w.procs[1].call()
			w.at(15)
			turn := group.Begin(w.stored)
			turn.Tick(w.now, w.rows, nil)
			wantRows(t, turn, nil, []string{w.row("a")}, []group.RowCheck{{Row: w.row("a")}})
			_ = a
		}},
		{"C4/AnOrphanNamesItsRow", func(t *testing.T) {
			w, a, b := pair(t)
			row := w.row("a")
			req := a.request()
			req.OwnedShards = protocol.Shards([]int{1})
			w.batch(req) // fenced
			w.at(10)
			b.call()
			w.at(15)
			turn := group.Begin(w.stored)
			turn.Tick(w.now, w.rows, nil)
			wantRows(t, turn, nil, []string{row}, []group.RowCheck{{Row: row}})
			if turn.State().Shards[0].Holder != nil {
				t.Errorf("still an orphan: %s", dump(turn.State()))
			}
		}},
		{"C7/WhoHasARequestInTheBatchIsNotExpired", func(t *testing.T) {
			w, _, _ := pair(t)
			w.at(20)
			turn := group.Begin(w.stored)
			turn.Tick(w.now, w.rows, map[string]bool{"a": true})
			if s := turn.State(); s.Members["a"].State != group.Active || s.Members["b"].State != group.Expired {
				t.Errorf("after the tick: %s", dump(s))
			}
		}},
		{"C7/WhoWasRenewedIsNotExpired", func(t *testing.T) {
			w, a, _ := pair(t)
			w.at(20)
			turn, _ := w.decide(w.rows, a.request())
			turn.Tick(w.now, w.rows, nil)
			if s := turn.State(); s.Members["a"].State != group.Active || s.Members["b"].State != group.Expired {
				t.Errorf("after the tick: %s", dump(s))
			}
		}},
		{"C7/WhoWasRenewedIsNotQuiet", func(t *testing.T) {
			w, a, _ := pair(t)
			w.at(14)
			a2 := w.process("A2", "a", false)
			turn, answers := w.decide(w.rows, a.request(), a2.request())
			w.wantRefused(answers[1], invalid, inUse)
			wantRows(t, turn, []string{w.row("a")}, nil, nil)
		}},
		{"C3/AMissingRowIsWrittenNeverTakenAsEnded", func(t *testing.T) {
			w, _, _ := pair(t)
			w.at(10)
			delete(w.rows, w.row("a"))
			a2 := w.process("A2", "a", false)
			turn, answers := w.decide(w.rows, a2.request())
			w.wantRefused(answers[0], invalid, inUse)
			turn.Tick(w.now, w.rows, nil)
			wantRows(t, turn, []string{w.row("a")}, nil, nil)
			if turn.Changed() {
				t.Errorf("the state changed: %s", dump(turn.State()))
			}
		}},
		{"C3/AMissingRowOfAnOrphanIsWritten", func(t *testing.T) {
			w, a, _ := pair(t)
			row := w.row("a")
			req := a.request()
			req.OwnedShards = protocol.Shards([]int{1})
			w.batch(req)
			delete(w.rows, row)
			turn := group.Begin(w.stored)
			turn.Tick(w.now, w.rows, nil)
			wantRows(t, turn, []string{row}, nil, nil)
		}},
		{"C8/TargetsMoveOnlyWithTheEpochs", func(t *testing.T) {
			w, a, _ := pair(t)
			for _, change := range []func(turn *group.Turn){
				func(turn *group.Turn) { turn.SetAssignable(5, w.now) },
				func(turn *group.Turn) { turn.Heartbeat(w.process("C", "c", false).request(), w.now, w.rows) },
				func(turn *group.Turn) {
					req := a.request()
					req.MemberEpoch = -1
					turn.Heartbeat(req, w.now, w.rows)
				},
				func(turn *group.Turn) {
					req := a.request()
					req.MemberEpoch = -2
					turn.Heartbeat(req, w.now, w.rows)
				},
				func(turn *group.Turn) { turn.Tick(w.now.Add(16*time.Second), w.rows, nil) },
				func(turn *group.Turn) {
					req := a.request()
					req.OwnedShards = protocol.Shards([]int{1})
					turn.Heartbeat(req, w.now, w.rows)
				},
			} {
				turn := group.Begin(w.stored)
				change(turn)
				if s := turn.State(); s.GroupEpoch != w.stored.GroupEpoch+1 || s.MetadataVersion != w.stored.MetadataVersion+1 {
					t.Errorf("epochs %d and %d became %d and %d", w.stored.GroupEpoch, w.stored.MetadataVersion, s.GroupEpoch, s.MetadataVersion)
				}
			}
		}},
		{"S1/TheOtherIncarnationIsUnknown", func(t *testing.T) {
			w, a, _ := pair(t)
			for _, incarnation := range []string{"", "another"} {
				for _, epoch := range []int64{-1, -2, 2, 3, 99} {
					req := a.request()
					req.Incarnation, req.MemberEpoch = incarnation, epoch
					w.unchanged(func() { w.wantRefused(w.batch(req)[0], unknown, over) })
				}
			}
		}},
		{"S3/AnEchoOfAFinishedSessionOpensNothing", func(t *testing.T) {
			for name, end := range map[string]func(w *world, a *process){
				"expired": func(w *world, _ *process) { w.at(16); w.tick() },
				"leaving": func(_ *world, a *process) { a.leave() },
				"away":    func(_ *world, a *process) { a.away() },
				"fenced": func(w *world, a *process) {
					req := a.request()
					req.OwnedShards = protocol.Shards([]int{1})
					w.batch(req)
				},
			} {
				w, a, _ := pair(t)
				join := &protocol.HeartbeatRequest{RequestID: "again", MemberID: "a", Incarnation: a.incarnation}
				end(w, a)
				w.unchanged(func() {
					if got := w.batch(join)[0]; got.Status != fenced || got.Reason != over {
						t.Errorf("%s: an echo is answered %+v", name, got)
					}
				})
			}
		}},
		{"S3/ACopyOfTheJoinIsTheSameSession", func(t *testing.T) {
			w := newWorld(t, 2)
			for _, plain := range []bool{true, false} {
				p := w.process("P", map[bool]string{true: "plain", false: "ours"}[plain], plain)
				req := p.request()
				first := w.batch(req)[0]
				w.unchanged(func() {
					again := w.batch(req)[0]
					if again.Status != ok || again.GroupEpoch != first.GroupEpoch || !slices.Equal(again.Assignment.AssignedShards, first.Assignment.AssignedShards) {
						t.Errorf("%+v, then %+v", first, again)
					}
				})
				if plain { // another join of the same client is another process
					w.wantRefused(w.batch(p.request())[0], invalid, inUse)
				} else {
					w.wantAnswer(w.batch(p.request())[0], ok, protocol.Indexes(first.Assignment.AssignedShards), protocol.Indexes(first.Assignment.PendingShards))
				}
			}
		}},
		{"S3/TheQuietIncumbentIsChecked", func(t *testing.T) {
			w, _, b := pair(t)
			w.at(8.999)
			a2 := w.process("A2", "a", false)
			w.wantRefused(a2.call(), invalid, inUse)
			w.at(9)
			row := w.row("a")
			turn, answers := w.decide(w.rows, a2.request())
			w.wantAnswer(answers[0], ok, nil, []int{0})
			wantRows(t, turn, []string{group.Row("a", 4)}, nil, []group.RowCheck{{Row: row, MaxRemaining: 6 * time.Second}})
			if s := turn.State(); !s.Shards[0].Orphaned {
				t.Errorf("the shard is no orphan: %s", dump(s))
			}
			_ = b
		}},
		{"S3/TheQuietIncumbentWithNothingLeavesNoRow", func(t *testing.T) {
			w := newWorld(t, 0)
			w.join("A1", "a")
			w.at(9)
			a2 := w.process("A2", "a", false)
			turn, _ := w.decide(w.rows, a2.request())
			wantRows(t, turn, []string{group.Row("a", 3)}, []string{w.row("a")}, []group.RowCheck{{Row: w.row("a"), MaxRemaining: 6 * time.Second}})
		}},
		{"S3/WhatALeaverDrainsIsOrphanedByANewSession", func(t *testing.T) {
			w, a, b := pair(t)
			a.slow = true
			a.leave()
			row := w.row("a")
			a2 := w.join("A2", "a")
			if sh := w.stored.Shards[0]; !sh.Orphaned || sh.Holder.Row() != row {
				t.Errorf("not an orphan: %s", dump(w.stored))
			}
			w.at(10)
			b.call()
			a2.call()
			w.wantRefused(w.batch(&protocol.HeartbeatRequest{MemberID: "a", Incarnation: a.incarnation, MemberEpoch: -1})[0], unknown, over)
			w.at(15)
			w.tick()
			if _, there := w.rows[row]; there || w.holder(0) != "" {
				t.Errorf("still an orphan: %v %s", w.rows, dump(w.stored))
			}
			a2.call()
			b.call()
			if n := len(a2.reads) + len(b.reads); n != 2 {
				t.Errorf("%d shards are read", n)
			}
		}},
		{"S4/ReplacesFreesOrphansWhateverTheOutcome", func(t *testing.T) {
			w, a1, b := pair(t)
			w.at(9)
			b.call()
			row := w.row("a")
			a2 := w.join("A2", "a") // takes over the quiet A1, whose shard becomes an orphan
			a3 := w.process("A3", "a", false)
			a3.replaces = a1.incarnation
			a1.kill()
			w.wantRefused(a3.call(), invalid, inUse)
			if w.stored.Shards[0].Holder != nil {
				t.Errorf("still an orphan: %s", dump(w.stored))
			}
			if _, there := w.rows[row]; there {
				t.Errorf("the row is still there: %v", w.rows)
			}
			w.wantAnswer(a2.call(), ok, []int{0}, nil)
		}},
		{"S4/ReplacesFreesNobodyElses", func(t *testing.T) {
			w, _, b := pair(t)
			w.at(9)
			b.call()
			w.join("A2", "a")
			a3 := w.process("A3", "a", false)
			for _, replaces := range []string{"another", b.incarnation, a3.incarnation} {
				a3.replaces = replaces
				w.unchanged(func() { w.wantRefused(a3.call(), invalid, inUse) })
			}
		}},
		{"S2/AnEarlierSessionIsNotTakenInByACorrectionRound", func(t *testing.T) {
			w := newWorld(t, 2)
			a1, b := w.plain("A1", "a"), w.plain("B", "b")
			w.at(9)
			b.call()
			w.plain("A2", "a") // takes over the quiet A1
			req := b.request()
			req.MetadataVersion += 10
			b.apply(req, w.batch(req)[0])
			w.unchanged(func() { w.wantRefused(a1.call(), fenced, over) })
		}},
		{"S2/InRecoveryTheEpochsRiseAboveWhatIsSent", func(t *testing.T) {
			w, a, _ := pair(t)
			w.lost = true
			turn := group.Begin(w.stored)
			turn.Recover(group.Epochs{}, w.now, w.rows)
			if err := w.commit(w.rev, turn, true); err != nil {
				t.Fatal(err)
			}
			req := a.request()
			req.MemberEpoch, req.MetadataVersion = 5000, 6000 // nobody knew how far it had been
			answer := w.batch(req)[0]
			w.wantAnswer(answer, sync, []int{0}, nil)
			if answer.MemberEpoch <= 5000 || answer.MetadataVersion <= 6000 {
				t.Errorf("answered epoch %d, version %d", answer.MemberEpoch, answer.MetadataVersion)
			}
			a.apply(req, answer)
			w.wantAnswer(a.call(), ok, []int{0}, nil)

			req = a.request()
			req.MemberEpoch = 1 << 62 // no client has that
			w.unchanged(func() { w.wantRefused(w.batch(req)[0], invalid, "") })
		}},
		{"S5/WhatIsStillOwnedIsNotReleased", func(t *testing.T) {
			w, a, _ := pair(t)
			w.retarget(0, "b")
			a.call()
			req := a.request()
			req.OwnedShards = protocol.Shards([]int{0})
			w.unchanged(func() { w.wantAnswer(w.batch(req)[0], ok, nil, []int{1}) })
			if sh := w.stored.Shards[0]; sh.Acknowledged {
				t.Errorf("acknowledged: %s", dump(w.stored))
			}
			// REVOKED with nothing in flight counts as not listed.
			req = a.request()
			req.RevokingShards = []protocol.RevokingShard{{State: protocol.RevokingRevoked}}
			w.batch(req)
			if w.holder(0) != "" {
				t.Errorf("not released: %s", dump(w.stored))
			}
		}},
		{"S6/AClaimOfAnEarlierEpochIsIgnored", func(t *testing.T) {
			w, a, _ := pair(t)
			req := a.request()
			req.OwnedShards = protocol.Shards([]int{0, 1})
			w.join("C", "c")
			w.unchanged(func() { w.wantAnswer(w.batch(req)[0], ok, []int{0}, nil) })
		}},
		{"S6/AClaimOfWhatIsFreeAndItsTargetIsAGrant", func(t *testing.T) {
			w := newWorld(t, 1)
			a, b := w.join("A", "a"), w.join("B", "b")
			w.retarget(0, "b")
			w.batch(a.request()) // lost
			a.call()
			a.call()
			w.retarget(0, "a") // free, B never asked
			req := a.request()
			req.MemberEpoch, req.OwnedShards = w.stored.GroupEpoch, protocol.Shards([]int{0})
			w.wantAnswer(w.batch(req)[0], ok, []int{0}, nil)
			w.wantState("a", group.Active)
			_ = b
		}},
		{"S7/WhatIsListedAsDrainingIsNotGranted", func(t *testing.T) {
			w := newWorld(t, 1)
			a := w.join("A", "a")
			w.resize(2)
			req := a.request()
			req.RevokingShards = []protocol.RevokingShard{{Shard: protocol.Shard{ShardIndex: 1}, State: protocol.RevokingDraining, InFlight: 1}}
			w.wantAnswer(w.batch(req)[0], ok, []int{0}, []int{1})
			if w.holder(1) != "" {
				t.Errorf("granted: %s", dump(w.stored))
			}
			w.wantAnswer(a.call(), ok, []int{0, 1}, nil)
		}},
		{"S10/ATargetThatComesBackUntoldHasNoDeadline", func(t *testing.T) {
			w := newWorld(t, 2)
			w.join("A", "a")
			b := w.join("B", "b")
			if w.stored.Shards[1].Deadline != start.Add(time.Minute) {
				t.Errorf("the deadline is not R away: %s", dump(w.stored))
			}
			b.leave()
			if sh := w.stored.Shards[1]; sh.Deadline != 0 || sh.Target != "a" {
				t.Errorf("not back: %s", dump(w.stored))
			}
		}},
		{"S11/NothingMovesADeadline", func(t *testing.T) {
			w := newWorld(t, 6)
			a := w.join("A", "a")
			a.slow = true
			w.join("B", "b")
			want := w.stored.Shards[5].Deadline
			w.at(10)
			a.call()
			w.join("C", "c")
			a.call()
			w.resize(7)
			if got := w.stored.Shards[5].Deadline; got != want || got != start.Add(time.Minute) {
				t.Errorf("the deadline moved from %d to %d", want, got)
			}
		}},
		{"4.5/TheRowOfALeaverIsRenewedByEachLeave", func(t *testing.T) {
			w, a, b := pair(t)
			a.slow = true
			a.leave()
			w.at(10)
			b.call()
			a.drains[0] = true
			w.wantAnswer(a.call(), ok, nil, nil)
			w.at(20)
			b.call()
			w.tick()
			w.wantState("a", group.Leaving)
			if w.holder(0) != "a" {
				t.Errorf("released: %s", dump(w.stored))
			}
		}},
		{"4.5/AwayAfterLeaveStaysLeft", func(t *testing.T) {
			w, a, b := pair(t)
			a.leave()
			a.left = protocol.EpochAway
			w.unchanged(func() { a.call() })
			w.wantState("a", group.Leaving)
			w.wantAnswer(b.call(), ok, []int{0, 1}, nil)
		}},
		{"4.5/LeaveAfterAwayGivesUpTheTargets", func(t *testing.T) {
			w, a, b := pair(t)
			a.away()
			w.wantAnswer(b.call(), ok, []int{1}, nil)
			a.left = protocol.EpochLeave
			a.call()
			w.wantState("a", group.Leaving)
			w.wantAnswer(b.call(), ok, []int{0, 1}, nil)
		}},
		{"S12/NothingIsGrantedExpiredOrFencedForALease", func(t *testing.T) {
			w, a, b := pair(t)
			w.stored.Spec.RebalanceTimeoutMs = 1000
			w.retarget(0, "b")
			w.at(0.5)
			w.failover(w.stored, w.rows)
			if got := w.stored.Shards[0].Deadline; got != w.now.Add(time.Second) {
				t.Errorf("the deadline is %s after the start", got.Sub(start))
			}
			w.join("C", "c")
			for s := 1.0; s < 15; s += 2 {
				w.at(s)
				w.tick()
				req := b.request() // a claim of the current epoch
				req.MemberEpoch = w.stored.GroupEpoch
				req.OwnedShards = protocol.Shards([]int{0, 1})
				if got := w.batch(req)[0].Status; got != ok {
					t.Fatalf("at %s B is answered %s", w.clock(), got)
				}
				w.wantState("a", group.Active)
			}
			if w.holder(0) != "a" {
				t.Errorf("0 was given away: %s", dump(w.stored))
			}
			w.at(15.5)
			w.tick()
			if w.stored.RecoverUntil != 0 {
				t.Errorf("the recovery has not ended: %s", dump(w.stored))
			}
			w.wantState("a", group.Expired)
			_ = a
		}},
		{"S12/NothingFreeIsGranted", func(t *testing.T) {
			w := newWorld(t, 1)
			a := w.join("A", "a")
			w.failover(w.stored, w.rows)
			w.resize(2)
			req := a.request()
			if w.wantAnswer(w.batch(req)[0], ok, []int{0}, []int{1}); group.Settled(w.stored, req) {
				t.Errorf("a call of an older epoch is held")
			}
			w.at(14)
			a.call()
			if w.holder(1) != "" {
				t.Errorf("granted: %s", dump(w.stored))
			}
			if req = a.request(); !group.Settled(w.stored, req) {
				t.Errorf("not held: %s", dump(w.stored))
			}
			w.at(15)
			w.tick()
			if group.Settled(w.stored, req) {
				t.Errorf("still held after the recovery: %s", dump(w.stored))
			}
			w.wantAnswer(w.batch(req)[0], ok, []int{0, 1}, nil)
		}},
		{"Correction/WhoIsAheadAgainHasNotAcknowledged", func(t *testing.T) {
			w, a, b := pair(t)
			ahead := func() {
				req := a.request()
				req.MetadataVersion += 10
				a.apply(req, w.batch(req)[0])
			}
			ahead()
			w.wantAnswer(a.call(), pending, []int{0}, nil)
			ahead()
			w.wantAnswer(b.call(), pending, []int{1}, nil)
			w.wantAnswer(a.call(), ok, []int{0}, nil)
		}},
		{"Correction/StaysOpenWhileShardsMove", func(t *testing.T) {
			w, a, b := pair(t)
			w.retarget(0, "b") // the targets of 0 and 1 change places
			a.call()
			b.call()
			req := a.request()
			req.RevokingShards = []protocol.RevokingShard{{State: protocol.RevokingDraining, InFlight: 1}}
			req.MetadataVersion += 10
			a.apply(req, w.batch(req)[0])
			b.call()
			req = a.request()
			req.RevokingShards = []protocol.RevokingShard{{State: protocol.RevokingDraining, InFlight: 1}}
			w.wantAnswer(w.batch(req)[0], pending, nil, []int{1})
			w.wantAnswer(a.call(), ok, []int{1}, nil)
			w.wantAnswer(b.call(), ok, []int{0}, nil)
		}},
		{"S12/EpochsJumpAboveAllThatIsKnown", func(t *testing.T) {
			w, _, _ := pair(t)
			turn := group.Begin(w.stored)
			turn.Recover(group.Epochs{GroupEpoch: 70, MetadataVersion: 80, OwnershipCounter: 9e12}, w.now, w.rows)
			s := turn.State()
			if s.GroupEpoch != 1070 || s.MetadataVersion != 1080 || s.OwnershipCounter != 9e12+1000 || s.RecoverUntil != w.now.Add(15*time.Second) {
				t.Errorf("recovered to %s", dump(s))
			}
			wantRows(t, turn, []string{w.row("a"), w.row("b")}, nil, nil)
		}},
		{"D7/OwnershipEpochsFollowRedisTime", func(t *testing.T) {
			w := newWorld(t, 2)
			w.at(7)
			a := w.join("A", "a")
			if a.reads[0] != int64(w.now) || a.reads[1] != int64(w.now)+1 {
				t.Errorf("ownership epochs %v at %d", a.reads, w.now)
			}
		}},
		{"Spec/ChangeRenewsTheRowsOfWhoLives", func(t *testing.T) {
			w, a, b := pair(t)
			b.leave()
			w.at(16)
			a.call()
			w.tick()
			turn := group.Begin(w.stored)
			turn.SetSpec(w.stored.Spec, w.now)
			if turn.Changed() {
				t.Errorf("an equal spec is a change")
			}
			turn.SetSpec(protocol.GroupSpec{MemberLeaseMs: 60000, HeartbeatIntervalMs: 12000}, w.now)
			wantRows(t, turn, []string{w.row("a")}, nil, nil)
			if got := turn.State().Config(); got.MemberLease != time.Minute || got.QuietTime() != 36*time.Second {
				t.Errorf("config %+v", got)
			}
		}},
		{"Readiness/AGroupThatIsNotReadyAssignsNothing", func(t *testing.T) {
			w := newWorld(t, 0)
			a, b := w.join("A", "a"), w.join("B", "b")
			w.wantAnswer(a.last, ok, nil, nil)
			w.resize(2)
			w.wantAnswer(a.call(), ok, []int{0}, nil)
			w.wantAnswer(b.call(), ok, []int{1}, nil)
		}},
		{"Movement/WhoReadsIsNotInterruptedForWhatNobodyReads", func(t *testing.T) {
			// B was given A's shard while A restarts, and has not begun: it is the one that goes back.
			w, a, b := pair(t)
			a.leave()
			w.join("A2", "a")
			w.wantAnswer(b.call(), ok, []int{1}, nil)
			if got := w.stored.Shards[0].Target; got != "a" {
				t.Errorf("the target of 0 is %s", got)
			}
		}},
		{"Name/IsKept", func(t *testing.T) {
			w, a, _ := pair(t)
			name := "orders worker"
			req := a.request()
			req.MemberName = &name
			w.batch(req)
			w.unchanged(func() { w.batch(req) })
			views := group.Members(w.stored, w.rows)
			if views[0].MemberName != name || views[1].MemberName != "b" {
				t.Errorf("names %q and %q", views[0].MemberName, views[1].MemberName)
			}
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// TestCheck demands that each kind of damage is found.
func TestCheck(t *testing.T) {
	t.Parallel()
	for want, damage := range map[string]func(s *group.State){
		"is no live member":              func(s *group.State) { s.Shards[0].Target = "nobody" },
		"has no target":                  func(s *group.State) { s.Shards[0].Target = "" },
		"unbalanced":                     func(s *group.State) { s.Shards[0].Target, s.Shards[0].Deadline = "b", 1 },
		"which is over":                  func(s *group.State) { s.Members["a"].State = group.Fenced },
		"another incarnation":            func(s *group.State) { s.Members["a"].Incarnation = "x" },
		"orphaned but its session":       func(s *group.State) { s.Shards[0].Orphaned = true },
		"marks of a holder":              func(s *group.State) { s.Shards[0].Holder, s.Shards[0].Deadline = nil, 1 },
		"acknowledged but":               func(s *group.State) { s.Shards[0].Acknowledged = true },
		"was revoked at":                 func(s *group.State) { s.Shards[0].RevokedAt, s.Shards[0].Deadline = 99, 1 },
		"has no deadline":                func(s *group.State) { s.Shards[0].RevokedAt = 1 },
		"the counter is at":              func(s *group.State) { s.Shards[0].OwnershipEpoch = 9e15 },
		"same ownership epoch":           func(s *group.State) { s.Shards[0].OwnershipEpoch = s.Shards[1].OwnershipEpoch },
		"are assignable":                 func(s *group.State) { s.Assignable = 7 },
		"no longer in the layout":        func(s *group.State) { s.Shards = append(s.Shards, group.Shard{}) },
		"not in the layout":              func(s *group.State) { s.Assignable = 1 },
		"correction round":               func(s *group.State) { s.Correction = &group.Correction{TargetMV: 1} },
		"unknown state":                  func(s *group.State) { s.Members["a"].State = "?" },
		"joined at epoch 0":              func(s *group.State) { s.Members["a"].JoinEpoch = 0 },
		"joined at metadata version":     func(s *group.State) { s.Members["a"].JoinMV = 99 },
		"joined at the same epoch":       func(s *group.State) { s.Members["a"].JoinEpoch = s.Members["b"].JoinEpoch },
		"is not marked as draining":      func(s *group.State) { s.Members["a"].State = group.Away },
		"is orphaned but its session a/": func(s *group.State) { s.Shards[0].Orphaned = true },
	} {
		w, _, _ := pair(t)
		if bad := group.Check(w.stored); len(bad) != 0 {
			t.Fatalf("a sound state: %v", bad)
		}
		s := decode(t, dump(w.stored))
		damage(s)
		if bad := strings.Join(group.Check(s), "\n"); !strings.Contains(bad, want) {
			t.Errorf("want %q, got %q", want, bad)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	a, b := w.join("A", "a"), w.join("B", "b")
	c, d := w.join("C", "c"), w.join("D", "d")
	a.slow = true
	a.call()
	d.away()
	c.leave()
	w.at(2)
	b.call()

	views := group.Members(w.stored, w.rows)
	var ids []string
	for _, v := range views {
		ids = append(ids, v.MemberID)
	}
	if !slices.Equal(ids, []string{"a", "b", "c", "d"}) {
		t.Fatalf("members %v", ids)
	}
	va, vb, vc, vd := views[0], views[1], views[2], views[3]
	if va.State != protocol.MemberActive || va.MemberEpoch != w.stored.GroupEpoch || len(va.Revoking) == 0 || va.RebalanceDeadlineAt == nil {
		t.Errorf("A is shown as %+v", va)
	}
	if !vb.LastHeartbeatAt.Equal(w.now.Time()) || !vb.MemberLeaseExpiresAt.Equal(w.now.Add(15*time.Second).Time()) {
		t.Errorf("B is shown as %+v", vb)
	}
	if vc.State != protocol.MemberLeaving || vd.State != protocol.MemberLeaving || vd.MemberEpoch != -1 {
		t.Errorf("C and D are shown as %+v, %+v", vc, vd)
	}
	for _, v := range views {
		if v.CurrentAssignment == nil || v.GrantedAssignment == nil || v.Revoking == nil || v.ShardProgress == nil {
			t.Errorf("null lists in %+v", v)
		}
	}
	got := group.AssignmentsOf(w.stored)
	if len(got.RevokeProgress["a"]) == 0 || len(got.RevokeProgress) != 1 || len(got.TargetAssignment) != 3 || len(got.CurrentAssignments) != 4 || got.InvariantViolations == nil {
		t.Errorf("assignments %+v", got)
	}
	if group.GroupState(w.stored) != protocol.GroupReconciling {
		t.Errorf("the group is %s", group.GroupState(w.stored))
	}
}
