package stream_test

import (
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

func TestOldEvidenceDecidesNothing(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	h.put(3)
	h.until(protocol.PhaseDraining)
	res := h.pass(stream.Plan(h.s, h.w.now))
	h.w.now = h.w.now.Add(stream.EvidenceLife) + 1
	h.apply(res)
	if h.s.Active.Phase != protocol.PhaseDraining {
		t.Fatalf("%s", h.s.Active.Phase)
	}
}

func TestRepairBesideAnOrphan(t *testing.T) {
	t.Parallel()
	h := running(t, 4)
	h.put(2)
	h.settle()
	*h.w.shards[2] = shard{exists: true, entries: []int{1}, last: 1, added: 1} // somebody's, without a control hash
	s3 := h.w.shards[3]
	s3.make([]string{"g"})
	s3.retired = "" // its retirement was lost
	h.sweep()
	if h.s.Active == nil {
		t.Fatal("s3 is not repaired")
	}
	h.settle()
	if s := h.w.shards[2]; !s.exists || s.fenced || s.sealed || s3.exists {
		t.Fatalf("orphan %+v, s3 %+v\n%s", s.control(), s3.control(), h.log())
	}
}

// TestRepairWaitsForTheDrain: there is nowhere to go back to.
func TestRepairWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	h.put(2)
	before := h.w.shards[2].clone()
	h.settle()
	h.w.shards[2] = before
	h.add(2, stream.Layout{Epoch: 1, Count: 3})
	h.sweep()
	h.until(protocol.PhaseDrainingRemoved)
	h.w.now += seconds(86_400)
	for range 5 {
		h.step()
		h.w.now += 1500
	}
	if h.s.Active == nil || h.s.Active.Kind != stream.KindRepair || !strings.Contains(strings.Join(h.s.Active.WaitingFor, ";"), "shard 2: group g has 1 undelivered") {
		t.Fatalf("%+v", h.s.Active)
	}
}

func TestGoingBackWantsTheOldCount(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	h.add(2, h.s.Layout)
	h.putSpec(policy(func(p *protocol.ReshardingPolicy) { p.Strategy = protocol.StrategyOnline })(1))
	h.until(protocol.PhaseDrainingRemoved)
	h.w.now = h.s.Active.DrainBy
	h.step()
	if h.s.Active.Kind != stream.KindBack || h.s.Spec.ShardCount != 3 {
		t.Fatalf("%s, %d shards are wanted", h.s.Active.Kind, h.s.Spec.ShardCount)
	}
}

// TestRegistrationDuringCreation is not held up by a MKGROUP that finds no shard.
func TestRegistrationDuringCreation(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 3)
	h.turn(func(x *stream.Turn) { x.RegisterGroup("g", protocol.StartEarliest, h.w.now) })
	start := h.w.now
	for h.s.Active != nil {
		h.step()
		h.w.now++
	}
	if !h.s.Groups["g"].Ready || h.w.now-start > 20 {
		t.Fatalf("ready %v after %d passes\n%s", h.s.Groups["g"].Ready, h.w.now-start, h.log())
	}
}

// TestDecisionLostBeforeItWasConfirmed: DECIDED was heard, but LOOK shows the old layout.
func TestDecisionLostBeforeItWasConfirmed(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	id := h.put(3)
	h.until(protocol.PhaseActivating)
	before := h.w.shards[0].clone()
	h.pass(stream.Plan(h.s, h.w.now))
	_ = h.rollback(id)
	h.step() // RELEASE 0: DECIDED
	h.w.shards[0] = before
	h.settle()
	h.ended(id, protocol.PhaseRolledBack)
	h.open(stream.Layout{Epoch: 1, Count: 2})
}

// TestLostAcceptance: only shard 0 remembers how far the shards of a lost change went.
func TestLostAcceptance(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	old, rev := h.s, h.rev
	h.put(5)
	h.until(protocol.PhaseSealing)
	h.lose(old, rev)
	for range 3 {
		h.sweep()
		h.settle()
	}
	h.open(stream.Layout{Epoch: 1, Count: 2})
}

func TestOlderPauseIsNotTheNewOne(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	pause := func(until protocol.Instant) {
		h.turn(func(x *stream.Turn) { _ = x.Pause(until, stream.Request{}, h.w.now) })
	}
	pause(h.w.now + seconds(10))
	res := h.pass(stream.Plan(h.s, h.w.now))
	pause(h.w.now + seconds(20))
	h.apply(res)
	if !h.s.HoldDirty {
		t.Fatal("the replies of the pause before count for the new one")
	}
	h.step()
	if h.s.HoldDirty || h.w.shards[1].hold != h.s.Hold.Until {
		t.Fatalf("%s", h.w.shards[1].hold)
	}
}

// TestTombstoneOfTheLayoutInForce: nothing is ahead, so the change ends and the sweep repairs.
func TestTombstoneOfTheLayoutInForce(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	s := h.w.shards[1]
	s.unlink()
	s.retired = "somebody"
	id := h.put(3)
	h.settle()
	if r := h.ended(id, protocol.PhaseRolledBack); !strings.Contains(r.Error, "shard 1") {
		t.Errorf("error %q", r.Error)
	}
	h.sweep()
	h.settle()
	h.open(stream.Layout{Epoch: 1, Count: 2})

	// one of a newer layout is left to Adopt
	h.put(3)
	res := h.pass(stream.Plan(h.s, h.w.now))
	rep := &res.Replies[len(res.Replies)-1]
	rep.Step.Script, rep.Code = shardscript.Prepare, shardscript.Ahead
	rep.Control = stream.Control{Present: true, HasEpoch: true, Epoch: 9, Retired: "x"}
	h.turn(func(x *stream.Turn) { x.Apply(res, h.w.now) })
	if h.s.Active.Phase != protocol.PhaseProvisioning {
		t.Fatal("rolled back on the tombstone of a newer layout")
	}
}

// TestProvisionUnderWay: a group is registered while a PROVISION without it is under way to a
// shard that is still a tombstone, where MKGROUP has nothing to do.
func TestProvisionUnderWay(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	h.put(2)
	h.settle()
	h.put(3)
	late := h.freeze(shardscript.Provision, 2)
	h.fault = without(shardscript.Provision, 2)
	res := h.pass(stream.Plan(h.s, h.w.now))
	h.fault = nil
	h.turn(func(x *stream.Turn) { x.RegisterGroup("new", protocol.StartEarliest, h.w.now) })
	h.w.now += seconds(1)
	h.step()
	if !h.s.Groups["new"].Ready {
		t.Fatalf("not ready\n%s", h.log())
	}
	res.Replies[len(res.Replies)-1] = late.release(false)
	if last := res.Replies[len(res.Replies)-1]; last.Code != shardscript.OK {
		t.Fatalf("PROVISION: %s", last.Code)
	}
	h.apply(res)
	h.settle()
	h.open(stream.Layout{Epoch: 3, Count: 3})
	if h.w.shards[2].groups["new"] == nil {
		t.Fatal("shard 2 lacks the group")
	}
}
