package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

var quiesce = protocol.ReshardingPolicy{Strategy: protocol.StrategyQuiesce, DrainScope: protocol.DrainAll}

// scenario runs one trace of docs/protocol/resharding.md on standalone Redis and on a cluster.
func scenario(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		backends(t, func(t *testing.T, rdb redis.UniversalClient) { f(t, newWorld(t, rdb)) })
	})
}

func TestReshardingScenario(t *testing.T) {
	t.Parallel()
	scenario(t, "late-seal", func(t *testing.T, w *world) {
		a, frozen, _ := w.start("a")
		w.create(a, 3)
		stopped := frozen.at(protocol.PhaseSealing)
		id := w.scale(a, 2, quiesce)
		await(t, "SEALING at a", stopped)
		b, _, _ := w.start("b")
		w.consume(b, "m")
		if r := finish(t, b, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("b ends it %s: %s", r.Phase, r.Error)
		}
		frozen.release()
		w.healthy(b, 2)
		w.healthy(a, 2)
	})
	scenario(t, "late-retire", func(t *testing.T, w *world) {
		a, frozen, _ := w.start("a")
		w.create(a, 3)
		w.consume(a, "m")
		stopped := frozen.at(protocol.PhaseRetiring)
		id := w.scale(a, 2, quiesce)
		await(t, "RETIRING at a", stopped)
		b, _, _ := w.start("b")
		finish(t, b, w.prefix, id)
		put(t, b, w.prefix, spec(3))
		epoch, _ := w.layout(b)
		_, entry := w.append(2, epoch, 3)
		frozen.release()
		w.healthy(b, 3)
		if !w.exists(2) || entry == "" {
			t.Error("shard 2 was removed by a late RETIRE")
		}
		w.eventually("the entry on shard 2 is handled", 10*time.Second, func() (bool, string) { return w.handled(2, entry), entry })
	})
	scenario(t, "split-activation", func(t *testing.T, w *world) {
		a, frozen, _ := w.start("a")
		w.create(a, 2)
		before, _ := w.layout(a)
		stopped := frozen.at(protocol.PhaseOpening)
		policy := quiesce
		policy.PauseTimeoutMs = 700
		id := w.scale(a, 3, policy)
		await(t, "OPENING at a", stopped) // decided, nothing opened
		w.eventually("the deadline passes at shard 1", 5*time.Second, func() (bool, string) {
			reply, landed := w.append(1, before, 2)
			if landed != "" {
				t.Fatal("an entry of the old layout landed after the decision")
			}
			return reply.Code == shardscript.Overdue, string(reply.Code)
		})
		zero := w.control(0)
		if zero["count"] != "3" {
			t.Fatalf("shard 0 shows %v, want the new layout", zero)
		}
		frozen.release()
		if r := finish(t, a, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		w.healthy(a, 3)
	})
	scenario(t, "rollback-or-decision", func(t *testing.T, w *world) {
		a, gate, _ := w.start("a")
		w.create(a, 2)
		w.consume(a, "m")
		// Before the decision: the rollback wins.
		stopped := gate.at(protocol.PhaseActivating)
		id := w.scale(a, 3, quiesce)
		await(t, "ACTIVATING", stopped)
		if _, err := a.Rollback(t.Context(), w.prefix, id, mutation("ROLLBACK")); err != nil {
			t.Fatal(err)
		}
		b, _, stop := w.start("b")
		r := finish(t, b, w.prefix, id)
		if r.Phase != protocol.PhaseRolledBack {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		gate.release()
		w.healthy(b, 2)
		stop()
		// Behind it: DECIDE ran, its answer is not known yet.
		stopped = gate.at(protocol.PhaseOpening)
		id = w.scale(a, 3, quiesce)
		await(t, "OPENING", stopped)
		if _, err := a.Rollback(t.Context(), w.prefix, id, mutation("ROLLBACK")); err == nil {
			t.Error("a rollback behind the decision is accepted")
		}
		gate.release()
		if r := finish(t, a, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		w.healthy(a, 3)
	})
	scenario(t, "seal-after-deadline", func(t *testing.T, w *world) {
		a, gate, _ := w.start("a")
		w.create(a, 2)
		before, _ := w.layout(a)
		stopped := gate.at(protocol.PhaseSealing)
		policy := quiesce
		policy.PauseTimeoutMs = 300
		id := w.scale(a, 3, policy)
		await(t, "SEALING", stopped)
		w.eventually("the deadline passes on Redis's clock", 5*time.Second, func() (bool, string) {
			r, err := a.Resharding(t.Context(), w.prefix, id, "", 0)
			if err != nil || r.PauseDeadline == nil {
				return false, fmt.Sprint(r.PauseDeadline, err)
			}
			now, err := w.rdb.Time(t.Context()).Result()
			return err == nil && now.After(*r.PauseDeadline), fmt.Sprint(now, err)
		})
		gate.release()
		if r := finish(t, a, w.prefix, id); r.Phase != protocol.PhaseRolledBack || r.Error == "" {
			t.Fatalf("ended %s (%q)", r.Phase, r.Error)
		}
		if epoch, count := w.layout(a); epoch != before || count != 2 {
			t.Errorf("layout is %d/%d, want %d/2 as before", epoch, count, before)
		}
		w.healthy(a, 2)
	})
	scenario(t, "aggregate-loses-decision", func(t *testing.T, w *world) {
		a, gate, stop := w.start("a")
		w.create(a, 2)
		stopped := gate.at(protocol.PhaseDraining)
		id := w.scale(a, 3, quiesce)
		await(t, "DRAINING", stopped)
		lose := w.keep(w.aggregates()...)
		gate.release()
		w.eventually("the new layout is in force", 10*time.Second, func() (bool, string) {
			_, count := w.layout(a)
			return count == 3, ""
		})
		epoch, _ := w.layout(a)
		finish(t, a, w.prefix, id)
		_, entry := w.append(2, epoch, 3)
		stop()
		lose() // back in DRAINING; somebody asks for a rollback before anybody has looked
		b, _, _ := w.start("b")
		_, _ = b.Rollback(t.Context(), w.prefix, id, mutation("ROLLBACK"))
		w.consume(b, "m")
		w.healthy(b, 3)
		if now, _ := w.layout(b); now != epoch {
			t.Errorf("layout epoch is %d, want the decided %d", now, epoch)
		}
		w.eventually("the entry on the new shard is handled", 10*time.Second, func() (bool, string) { return w.handled(2, entry), entry })
	})
	scenario(t, "aggregate-loses-two", func(t *testing.T, w *world) {
		a, gate, stop := w.start("a")
		w.create(a, 2)
		w.consume(a, "m")
		lose := w.keep(w.aggregates()...)
		put(t, a, w.prefix, spec(3))
		e2, _ := w.layout(a)
		stopped := gate.at(protocol.PhaseOpening)
		w.scale(a, 2, quiesce)
		await(t, "OPENING of 3 → 2", stopped) // decided at shard 0; all others show the layout before
		go gate.release()
		stop()
		lose()
		b, _, _ := w.start("b")
		w.consume(b, "m2")
		w.eventually("the newest decision is adopted", 15*time.Second, func() (bool, string) {
			if _, landed := w.append(1, e2, 3); landed != "" && w.control(0)["count"] == "2" {
				// allowed only as long as shard 0 was not looked at: shard 1 was open under e2 before
				t.Log("an entry landed under the layout before on a shard that had never been sealed")
			}
			epoch, count := w.layout(b)
			return epoch > e2 && count == 2, ""
		})
		w.healthy(b, 2)
	})
	scenario(t, "aggregate-loses-retirement", func(t *testing.T, w *world) {
		a, gate, stop := w.start("a")
		w.create(a, 3)
		w.consume(a, "m")
		stopped := gate.at(protocol.PhaseDraining)
		id := w.scale(a, 2, quiesce)
		await(t, "DRAINING", stopped)
		lose := w.keep(w.aggregates()...)
		gate.release()
		finish(t, a, w.prefix, id)
		stop()
		lose()
		b, _, _ := w.start("b")
		w.consume(b, "m2")
		w.healthy(b, 2)
		if c := w.control(2); c["retired"] == "" {
			t.Errorf("the tombstone of shard 2 is gone: %v", c)
		}
		if _, err := b.Rollback(t.Context(), w.prefix, id, mutation("ROLLBACK")); err == nil {
			t.Error("a rollback behind the retirement is accepted")
		}
	})
	scenario(t, "seal-lost", func(t *testing.T, w *world) {
		for _, phase := range []protocol.Phase{protocol.PhaseDraining, protocol.PhaseActivating} {
			a, gate, stop := w.start("a")
			w.create(a, 2)
			unsealed := w.keep(w.shardKeys(1)...)
			epoch, _ := w.layout(a)
			stopped := gate.at(phase)
			id := w.scale(a, 3, quiesce)
			await(t, string(phase), stopped)
			unsealed()
			_, entry := w.append(1, epoch, 2)
			if entry == "" {
				t.Fatal("the shard that lost its seal does not take the entry: the test shows nothing")
			}
			gate.release()
			w.eventually("it waits for the entry, or seals again", 5*time.Second, func() (bool, string) {
				r, err := a.Resharding(t.Context(), w.prefix, id, "", 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, count := w.layout(a); count == 3 && phase == protocol.PhaseDraining {
					t.Fatal("it was decided on evidence from before the seal was lost")
				}
				return r.Phase == protocol.PhaseDraining && len(r.WaitingFor) > 0 || phase == protocol.PhaseActivating, string(r.Phase)
			})
			quit := w.consume(a, "m")
			if r := finish(t, a, w.prefix, id); r.Phase != protocol.PhaseCompleted {
				t.Fatalf("ended %s: %s", r.Phase, r.Error)
			}
			w.eventually("the entry is handled", 10*time.Second, func() (bool, string) { return w.handled(1, entry), entry })
			w.healthy(a, 3)
			quit()
			stop()
			w.prefix += "-again"
		}
	})
	scenario(t, "opening-lost", func(t *testing.T, w *world) {
		a, gate, _ := w.start("a")
		w.create(a, 2)
		before, _ := w.layout(a)
		stopped := gate.at(protocol.PhaseActivating)
		id := w.scale(a, 3, quiesce)
		await(t, "ACTIVATING", stopped)
		lose := w.keep(w.shardKeys(1)...) // sealed, old layout, held
		gate.release()
		finish(t, a, w.prefix, id)
		lose()
		if reply, landed := w.append(1, before, 2); landed != "" {
			t.Fatalf("an entry of the old layout landed: %+v", reply)
		}
		w.healthy(a, 3) // the sweep repairs it
	})
	scenario(t, "retirement-lost", func(t *testing.T, w *world) {
		a, _, _ := w.start("a")
		w.create(a, 3)
		w.consume(a, "m")
		before, _ := w.layout(a)
		lose := w.keep(w.shardKeys(2)...)
		put(t, a, w.prefix, spec(2))
		lose()
		_, entry := w.append(2, before, 3)
		if entry == "" {
			t.Fatal("the shard whose retirement was lost does not take the entry: the test shows nothing")
		}
		w.eventually("the entry is handled", 15*time.Second, func() (bool, string) { return w.handled(2, entry), entry })
		w.healthy(a, 2)
	})
	scenario(t, "retire-refused", func(t *testing.T, w *world) {
		a, gate, _ := w.start("a")
		w.create(a, 3)
		stopConsumer := w.consume(a, "m")
		epoch, _ := w.layout(a)
		_, entry := w.append(2, epoch, 3)
		w.eventually("the entry is handled", 10*time.Second, func() (bool, string) { return w.handled(2, entry), entry })
		stopped := gate.at(protocol.PhaseRetiring)
		id := w.scale(a, 2, quiesce)
		await(t, "RETIRING", stopped)
		stopConsumer()
		// The node of shard 2 lost the acknowledgement: the entry is pending again.
		if err := w.rdb.XGroupSetID(t.Context(), protocol.ShardKey(w.prefix, 2), "g", "0").Err(); err != nil {
			t.Fatal(err)
		}
		w.consumed.Clear()
		gate.release()
		w.consume(a, "m2")
		r := finish(t, a, w.prefix, id)
		if r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		got := phases(r)
		at := slices.Index(got, protocol.PhaseRetiring)
		if at < 0 || at+1 >= len(got) || got[at+1] != protocol.PhaseDrainingRemoved {
			t.Errorf("phases %v, want DRAINING_REMOVED after the refused RETIRING", got)
		}
		if !w.handled(2, entry) {
			t.Error("the shard was removed with an entry that nobody handled again")
		}
		w.healthy(a, 2)
	})
	scenario(t, "lost-history", func(t *testing.T, w *world) {
		a, gate, _ := w.start("a")
		w.create(a, 2)
		before, _ := w.layout(a)
		stopped := gate.at(protocol.PhaseSealing)
		id := w.scale(a, 3, quiesce)
		await(t, "SEALING", stopped)
		lose := w.keep(slices.Concat(w.aggregates(), w.shardKeys(0), w.shardKeys(1), w.shardKeys(2))...)
		opening := gate.next(protocol.PhaseOpening)
		await(t, "OPENING of the history that will be lost", opening)
		lost, _ := w.layout(a)
		lose()
		// A producer holds the layout of the lost history; shard 0 shows the one that is in force.
		for shard := range 2 {
			if reply, landed := w.append(shard, lost, 3); landed != "" || reply.Code != shardscript.Behind {
				t.Fatalf("append under the lost layout to shard %d: %+v", shard, reply)
			}
		}
		if reply, landed := w.append(0, before, 2); landed == "" {
			t.Fatalf("append under the layout that shard 0 shows: %+v", reply)
		}
		// Its effect lease has run out when the frozen replica goes on: nothing that it sends counts.
		time.Sleep(redisstore.EffectLease + 200*time.Millisecond)
		gate.release()
		b, _, _ := w.start("b")
		w.consume(b, "m")
		if r := finish(t, b, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		w.healthy(b, 3)
	})
	scenario(t, "operator-and-resharding", func(t *testing.T, w *world) {
		a, gate, _ := w.start("a")
		w.create(a, 2)
		before, _ := w.layout(a)
		if _, err := a.Pause(t.Context(), w.prefix, time.Minute, mutation("PAUSE")); err != nil {
			t.Fatal(err)
		}
		refused := func(shard int, epoch int64, count int) {
			t.Helper()
			if reply, landed := w.append(shard, epoch, count); landed != "" || reply.Code != shardscript.Sealed {
				t.Fatalf("append to shard %d while paused: %+v", shard, reply)
			}
		}
		refused(0, before, 2)
		refused(1, before, 2)
		// A whole resharding inside the operator's pause leaves it in force.
		stopped := gate.at(protocol.PhaseDraining)
		id := w.scale(a, 3, quiesce)
		await(t, "DRAINING", stopped)
		gate.release()
		if r := finish(t, a, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		after, _ := w.layout(a)
		for i := range 3 {
			refused(i, after, 3)
		}
		if s, err := a.Resume(t.Context(), w.prefix, mutation("RESUME")); err != nil || s.Status.PublishState != protocol.PublishOpen {
			t.Fatalf("resume: %+v, %v", s.Status, err)
		}
		w.healthy(a, 3)
		// Resume inside a resharding never opens its barrier.
		if _, err := a.Pause(t.Context(), w.prefix, time.Minute, mutation("PAUSE")); err != nil {
			t.Fatal(err)
		}
		w.append(0, after, 3)
		stopped = gate.at(protocol.PhaseActivating)
		w.consume(a, "m")
		id = w.scale(a, 4, quiesce)
		await(t, "ACTIVATING", stopped)
		b, _, _ := w.start("b") // a stands still: b stamps the resume
		resumed := make(chan error, 1)
		go func() {
			_, err := b.Resume(t.Context(), w.prefix, mutation("RESUME"))
			resumed <- err
		}()
		refused(1, after, 3)
		gate.release()
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		if r := finish(t, b, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		w.healthy(b, 4)
		// The operator's own deadline ends the pause.
		if _, err := b.Pause(t.Context(), w.prefix, 300*time.Millisecond, mutation("PAUSE")); err != nil {
			t.Fatal(err)
		}
		w.healthy(b, 4)
	})
	scenario(t, "register-while-retiring", func(t *testing.T, w *world) {
		a, frozen, _ := w.start("a")
		w.create(a, 3)
		w.consume(a, "m")
		epoch, _ := w.layout(a)
		_, entry := w.append(2, epoch, 3)
		w.eventually("the entry is handled", 10*time.Second, func() (bool, string) { return w.handled(2, entry), entry })
		stopped := frozen.at(protocol.PhaseRetiring)
		id := w.scale(a, 2, quiesce)
		await(t, "RETIRING at a", stopped)
		b, _, _ := w.start("b")
		g, _, err := b.PutGroup(t.Context(), w.prefix, "late", protocol.GroupSpec{StartPosition: protocol.StartEarliest}, mutation("PUT_GROUP"))
		if err != nil || !g.Ready {
			t.Fatalf("registration: %+v, %v", g, err)
		}
		// Registered: then either shard 2 is gone for good, or its entry reaches the new group.
		if w.exists(2) {
			groups, err := w.rdb.XInfoGroups(t.Context(), protocol.ShardKey(w.prefix, 2)).Result()
			if err != nil || !slices.ContainsFunc(groups, func(g redis.XInfoGroup) bool { return g.Name == "late" }) {
				t.Fatalf("shard 2 exists without the registered group: %v, %v", groups, err)
			}
		}
		frozen.release()
		late := memberOf(b, w.prefix, "l1")
		late.group = "late"
		got := false
		w.eventually("the resharding ends", 20*time.Second, func() (bool, string) {
			late.beat(t.Context(), 0)
			for _, shard := range late.owned {
				res, err := w.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "late", Consumer: "l1", Streams: []string{protocol.ShardKey(w.prefix, shard), ">"}, Block: -1, NoAck: true}).Result()
				if err == nil {
					for _, m := range res[0].Messages {
						got = got || shard == 2 && m.ID == entry
					}
				}
			}
			r, err := b.Resharding(t.Context(), w.prefix, id, "", 0)
			return err == nil && r.Phase.Terminal(), string(r.Phase)
		})
		if w.exists(2) {
			t.Error("shard 2 was not removed")
		}
		t.Logf("the new group got the entry of the removed shard: %v", got)
	})
}
