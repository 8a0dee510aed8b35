package group_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// TestReference holds the outcomes that the reference implementation's own tests pin down, for
// clients of the reference, as far as they are about heartbeats. Where ours differ on purpose
// the rule is named.
func TestReference(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"first-member", func(t *testing.T) {
			w := newWorld(t, 3)
			a := w.plain("A", "a")
			w.wantAnswer(a.last, ok, []int{0, 1, 2}, nil)
		}},
		{"second-member", func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.plain("A", "a"), w.plain("B", "b")
			w.wantAnswer(b.last, ok, nil, []int{1})
			a.call()
			req := a.request() // reports {0} and 1 as REVOKED with nothing in flight
			req.RevokingShards = []protocol.RevokingShard{{Shard: protocol.Shard{ShardIndex: 1}, State: protocol.RevokingRevoked}}
			a.apply(req, w.batch(req)[0])
			w.wantAnswer(b.call(), ok, []int{1}, nil)
		}},
		{"balance", func(t *testing.T) {
			for shards, members := range map[int]int{6: 3, 8: 4} {
				w := newWorld(t, shards)
				for _, id := range []string{"a", "b", "c", "d"}[:members] {
					w.plain(id, id)
				}
				for range 3 {
					for _, p := range w.procs {
						p.call()
					}
				}
				for _, p := range w.procs {
					if len(p.reads) != 2 {
						t.Errorf("%d shards, %d members: %s reads %v", shards, members, p.id, p.reads)
					}
				}
				if got := group.AssignmentsOf(w.stored).InvariantViolations; len(got) != 0 {
					t.Errorf("violations: %v", got)
				}
			}
		}},
		{"join-raises-once", func(t *testing.T) {
			w := newWorld(t, 2)
			a := w.plain("A", "a")
			before := w.stored.GroupEpoch
			b := w.plain("B", "b")
			a.call()
			if w.stored.GroupEpoch != before+1 || a.epoch != before+1 || b.epoch != before+1 || a.last.AssignmentEpoch != before+1 {
				t.Errorf("epochs: group %d, a %d, b %d, assignment %d; want %d", w.stored.GroupEpoch, a.epoch, b.epoch, a.last.AssignmentEpoch, before+1)
			}
		}},
		{"silent-16s-another-joins", func(t *testing.T) {
			w := newWorld(t, 2)
			a := w.plain("A", "a")
			w.at(16)
			b := w.plain("B", "b")
			w.wantAnswer(b.last, ok, []int{0, 1}, nil)
			w.wantState("a", group.Expired)
			w.wantAnswer(a.call(), fenced, nil, nil)
		}},
		{"silent-16s-tick", func(t *testing.T) {
			w := newWorld(t, 2)
			w.plain("A", "a")
			w.at(16)
			w.tick()
			w.wantState("a", group.Expired)
			if got := group.AssignmentsOf(w.stored).TargetAssignment; len(got) != 0 {
				t.Errorf("targets are %v", got)
			}
		}},
		{"expired-rejoins-with-old-report", func(t *testing.T) {
			w := newWorld(t, 1)
			a := w.plain("A", "a")
			w.at(16)
			b := w.plain("B", "b")
			req := a.request()
			req.MemberEpoch, req.MetadataVersion, req.OwnedShards = 0, 0, protocol.Shards([]int{0})
			w.wantAnswer(w.batch(req)[0], ok, nil, nil)
			w.wantAnswer(b.call(), ok, []int{0}, nil)
			if got := group.AssignmentsOf(w.stored).CurrentAssignments["a"]; len(got) != 0 {
				t.Errorf("A holds %v", got)
			}
		}},
		{"leave-of-the-only-member", func(t *testing.T) {
			w := newWorld(t, 2)
			a := w.plain("A", "a")
			req := a.request()
			req.MemberEpoch = -1 // with everything still owned
			a.kill()
			w.wantAnswer(w.batch(req)[0], ok, nil, nil)
			if got := group.GroupState(w.stored); got != protocol.GroupEmpty {
				t.Errorf("the group is %s", got)
			}
			if got := group.AssignmentsOf(w.stored).TargetAssignment; len(got) != 0 {
				t.Errorf("targets are %v", got)
			}
		}},
		{"leave-then-join", func(t *testing.T) {
			w := newWorld(t, 2)
			w.plain("A", "a").leave()
			w.wantAnswer(w.plain("A", "a").last, ok, []int{0, 1}, nil)
		}},
		{"unknown-member", func(t *testing.T) {
			w := newWorld(t, 2)
			for _, epoch := range []int64{-1, 7} {
				p := w.process("A", "a", true)
				p.left = epoch
				w.unchanged(func() { w.wantAnswer(p.call(), unknown, nil, nil) })
			}
		}},
		{"epoch-below-minus-two", func(t *testing.T) {
			// −2 means "away" here (4.5); below it is what −2 is there.
			w := newWorld(t, 2)
			p := w.process("A", "a", true)
			p.left = -3
			w.unchanged(func() { w.wantAnswer(p.call(), invalid, nil, nil) })
		}},
		{"epochs-around-the-member's", func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.plain("A", "a"), w.plain("B", "b")
			a.call()
			a.call()
			b.call()
			w.retarget(0, "b") // e4
			a.call()
			w.retarget(0, "a") // e5
			a.call()
			a.call()
			for _, c := range []struct {
				epoch  int64
				status protocol.HeartbeatStatus
			}{
				{w.member("a").JoinEpoch - 1, fenced},
				{w.stored.GroupEpoch - 1, ok}, // S2: an answer that was lost costs nothing
				{w.stored.GroupEpoch + 1, invalid},
				{0, invalid},
			} {
				if c.epoch == 0 && w.member("a").JoinEpoch-1 == 0 {
					t.Fatalf("the test is void")
				}
				req := a.request()
				req.MemberEpoch = c.epoch
				w.unchanged(func() {
					got := w.batch(req)[0]
					if got.Status != c.status {
						t.Errorf("epoch %d is answered %s, want %s", c.epoch, got.Status, c.status)
					}
					if c.status == invalid && (got.MemberEpoch != c.epoch || got.GroupEpoch != 0 || got.MetadataVersion != 0) {
						t.Errorf("a rejection of epoch %d is no echo: %+v", c.epoch, got)
					}
				})
			}
		}},
		{"rebalance-timeout", func(t *testing.T) {
			w := newWorld(t, 1)
			w.stored.Spec.RebalanceTimeoutMs = 5000
			a, b := w.plain("A", "a"), w.plain("B", "b")
			w.at(1)
			a.call()
			b.call()
			w.retarget(0, "b")
			w.at(7) // A is silent for 6 s; its lease is good
			b.call()
			w.wantState("a", group.Fenced)
			// Ours: the newcomer gets it when A's lease has ended, not before (4.6).
			w.wantAnswer(b.call(), ok, nil, []int{0})
			w.at(16)
			w.wantAnswer(b.call(), ok, []int{0}, nil)
		}},
		{"rebalance-timeout-released-in-time", func(t *testing.T) {
			w := newWorld(t, 1)
			w.stored.Spec.RebalanceTimeoutMs = 5000
			a, b := w.plain("A", "a"), w.plain("B", "b")
			w.at(1)
			a.call()
			w.retarget(0, "b")
			w.at(3)
			a.call()
			w.at(5)
			a.call()
			w.at(7)
			w.wantAnswer(b.call(), ok, []int{0}, nil)
			w.wantState("a", group.Active)
		}},
		{"server-replaced-between-revoke-and-assign", func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.plain("A", "a"), w.plain("B", "b")
			for range 3 {
				a.call()
				w.stored = decode(t, dump(w.stored)) // another process reads what is stored
				b.call()
				w.stored = decode(t, dump(w.stored))
			}
			a.want(0)
			b.want(1)
		}},
		{"metadata-ahead", func(t *testing.T) {
			w := newWorld(t, 2)
			a := w.plain("A", "a")
			req := a.request()
			req.MetadataVersion += 10
			req.MemberEpoch = 99 // is not looked at
			first := w.batch(req)[0]
			w.wantAnswer(first, sync, []int{0, 1}, nil)
			if first.MetadataVersion != 2 || first.MemberEpoch != 2 {
				t.Errorf("answered version %d, epoch %d; want 2, 2", first.MetadataVersion, first.MemberEpoch)
			}
			w.unchanged(func() {
				if again := w.batch(req)[0]; again.Status != sync || again.MetadataVersion != 2 || again.MemberEpoch != 2 {
					t.Errorf("repeated: %+v", again)
				}
			})
		}},
		{"sync-with-foreign-shards", func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.plain("A", "a"), w.plain("B", "b")
			a.call()
			a.call()
			b.call()
			req := a.request()
			req.MetadataVersion += 10
			req.OwnedShards = protocol.Shards([]int{1})
			w.wantAnswer(w.batch(req)[0], sync, nil, []int{0})
		}},
		{"correction-round", func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.plain("A", "a"), w.plain("B", "b")
			a.call()
			a.call()
			b.call()
			epoch, version := w.stored.GroupEpoch, w.stored.MetadataVersion
			req := a.request()
			req.MetadataVersion += 10
			a.apply(req, w.batch(req)[0])
			if a.last.Status != sync || a.last.GroupEpoch != epoch {
				t.Fatalf("answered %+v", a.last)
			}
			w.wantAnswer(a.call(), pending, []int{0}, nil)
			w.wantAnswer(a.call(), pending, []int{0}, nil)
			w.wantAnswer(b.call(), ok, []int{1}, nil)
			w.wantAnswer(a.call(), ok, []int{0}, nil)
			if w.stored.GroupEpoch != epoch || w.stored.MetadataVersion != version || w.stored.Correction != nil {
				t.Errorf("the round changed the group: %s", dump(w.stored))
			}
		}},
		{"correction-round-and-a-leaver", func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.plain("A", "a"), w.plain("B", "b")
			b.leave()
			a.call()
			req := a.request()
			req.MetadataVersion += 10
			a.apply(req, w.batch(req)[0])
			w.wantAnswer(a.call(), ok, []int{0, 1}, nil) // nobody waits for an empty leaver
		}},
		{"scale-to-zero", func(t *testing.T) {
			w := newWorld(t, 3)
			a := w.plain("A", "a")
			w.resize(0)
			w.wantAnswer(a.call(), ok, nil, nil)
			a.call()
			if target, current := group.Summaries(w.stored); !maps.Equal(target, map[string]int{"a": 0}) || len(current) != 0 {
				t.Errorf("summaries: %v %v", target, current)
			}
			if live, held, unowned := group.ProgressOf(w.stored, 0); !live || len(held)+len(unowned) != 0 {
				t.Errorf("progress: %v %v %v", live, held, unowned)
			}
			if len(w.stored.Shards) != 0 {
				t.Errorf("%d shards are kept", len(w.stored.Shards))
			}
		}},
		{"scale-with-live-members", func(t *testing.T) {
			w := newWorld(t, 2)
			a, b := w.plain("A", "a"), w.plain("B", "b")
			for s := 1.0; s < 20; s++ {
				w.at(s)
				w.tick()
				if s == 6 {
					w.resize(3)
				}
				if s == 12 {
					w.resize(1)
					if _, held, _ := group.ProgressOf(w.stored, 1); !slices.Equal(held, []int{1, 2}) {
						t.Errorf("shards above are held by nobody: %v", held)
					}
				}
				for _, p := range []*process{a, b} {
					if got := p.call().Status; got != ok {
						t.Fatalf("at %s %s is answered %s", w.clock(), p.name, got)
					}
				}
				if s == 11 && len(a.reads)+len(b.reads) != 3 {
					t.Errorf("after the scale-out: %v %v", a.reads, b.reads)
				}
			}
			if got := group.GroupState(w.stored); got != protocol.GroupStable || len(a.reads)+len(b.reads) != 1 {
				t.Errorf("the group is %s: %v %v", got, a.reads, b.reads)
			}
		}},
		{"prune", func(t *testing.T) {
			w := newWorld(t, 1)
			w.plain("A", "a")
			w.at(16)
			w.tick()
			version, epoch := w.stored.MetadataVersion, w.stored.GroupEpoch
			w.at(16 + 599.9)
			w.tick()
			w.wantState("a", group.Expired)
			w.at(16 + 600)
			w.tick()
			if len(w.stored.Members) != 0 || w.stored.MetadataVersion != version+1 || w.stored.GroupEpoch != epoch {
				t.Errorf("after retention: %s", dump(w.stored))
			}
		}},
		{"steady-heartbeat-twice", func(t *testing.T) {
			w, a, _ := pair(t)
			req := a.request()
			first := w.batch(req)[0]
			w.at(2)
			rev := w.rev
			w.unchanged(func() {
				if again := w.batch(req)[0]; again.GroupEpoch != first.GroupEpoch || again.MetadataVersion != first.MetadataVersion {
					t.Errorf("%+v, then %+v", first, again)
				}
			})
			if w.rev != rev || w.rows[group.Row("a", w.member("a").JoinEpoch)] != start.Add(17*time.Second) {
				t.Errorf("revision %d to %d, rows %v", rev, w.rev, w.rows)
			}
		}},
		{"regrant-while-draining", func(t *testing.T) {
			// The Spring starter would own the shard without ever reading it.
			w, a, _ := pair(t)
			a.slow = true
			w.retarget(0, "b")
			a.call()
			w.retarget(0, "a")
			for range 3 {
				w.wantAnswer(a.call(), ok, nil, []int{0})
			}
			a.drained()
			w.wantAnswer(a.call(), ok, []int{0}, nil)
		}},
		{"odd-reports-are-ignored", func(t *testing.T) {
			// S6: only claimed ownership fences.
			w, a, _ := pair(t)
			req := a.request()
			req.RevokingShards = []protocol.RevokingShard{{Shard: protocol.Shard{ShardIndex: 1}, State: protocol.RevokingDraining, InFlight: 1}}
			req.ShardProgress = []protocol.ShardProgress{{Shard: protocol.Shard{ShardIndex: 1}}, {Shard: protocol.Shard{ShardIndex: -4}}, {Shard: protocol.Shard{ShardIndex: 0}}}
			turn := group.Begin(w.stored)
			w.wantAnswer(turn.Heartbeat(req, w.now, w.rows), ok, []int{0}, nil)
			if turn.Ignored() != 3 || turn.Changed() {
				t.Errorf("%d items ignored, changed: %v", turn.Ignored(), turn.Changed())
			}
		}},
		{"unknown-shard-owned", func(t *testing.T) {
			for _, shard := range []int{9, -1} {
				w, a, _ := pair(t)
				req := a.request()
				req.OwnedShards = protocol.Shards([]int{0, shard})
				w.wantAnswer(w.batch(req)[0], fenced, nil, nil)
				a.dropAll()
				w.wantState("a", group.Fenced)
			}
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// resize is a phase of a resharding.
func (w *world) resize(shards int) {
	w.t.Helper()
	turn := group.Begin(w.stored)
	turn.SetAssignable(shards, w.now)
	if err := w.commit(w.rev, turn, false); err != nil {
		w.t.Fatalf("resize: %v", err)
	}
}
