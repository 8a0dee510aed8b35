package stream_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// nowhere asserts that no shard has the group, and that the state has forgotten it.
func (h *harness) nowhere(name string) {
	h.t.Helper()
	if _, goes := h.s.Removing[name]; goes || slices.Contains(h.s.GroupNames(), name) {
		h.t.Fatalf("%s is still known: registry %v, removing %v", name, h.s.GroupNames(), h.s.Removals())
	}
	for i, sh := range h.w.shards {
		if sh.groups[name] != nil {
			h.t.Fatalf("shard %d still has group %s", i, name)
		}
	}
}

func (h *harness) remove(name string) {
	h.t.Helper()
	h.turn(func(x *stream.Turn) { x.RemoveGroup(name, 7, h.w.now) })
}

func convergedOf(s *stream.State) protocol.Condition {
	for _, c := range stream.View(s).Status.Conditions {
		if c.Type == "Converged" {
			return c
		}
	}
	return protocol.Condition{}
}

func TestRemoveGroup(t *testing.T) {
	t.Parallel()
	t.Run("at rest", func(t *testing.T) {
		t.Parallel()
		h := running(t, 3)
		h.remove("h")
		if c := convergedOf(h.s); c.Status != "False" || c.Reason != "GroupsLeaving" || !strings.Contains(c.Message, "h") {
			t.Fatalf("%+v", c)
		}
		if got := stream.View(h.s).Groups; !slices.Equal(got, []string{"g"}) {
			t.Fatalf("groups %v", got)
		}
		// The name stays taken until it is gone everywhere.
		h.turn(func(x *stream.Turn) { x.RegisterGroup("h", protocol.StartEarliest, h.w.now) })
		if slices.Contains(h.s.GroupNames(), "h") {
			t.Fatal("registered while it is being removed")
		}
		p := stream.Plan(h.s, h.w.now)
		if p.Kind != stream.PassRemove || len(p.Stages[0]) != 3 || p.Stages[0][0].Outbid != 8 {
			t.Fatalf("%+v", p)
		}
		h.settle()
		h.nowhere("h")
		if h.w.shards[0].groups["g"] == nil {
			t.Fatal("another group has gone as well")
		}
		if c := convergedOf(h.s); c.Status != "True" {
			t.Fatalf("%+v", c)
		}
	})
	t.Run("a shard that does not answer is asked again, and holds up nothing else", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.fault = func(st stream.Step) fate {
			if st.Script == shardscript.RmGroup && st.Index == 1 {
				return dropped
			}
			return run
		}
		h.remove("h")
		h.turn(func(x *stream.Turn) { x.RegisterGroup("new", protocol.StartEarliest, h.w.now) })
		for range 10 {
			h.step()
			h.w.now += 20_000
			h.turn(func(x *stream.Turn) { x.Advance(h.progress(), h.w.now) })
		}
		if _, goes := h.s.Removing["h"]; !goes || !h.s.Groups["new"].Ready {
			t.Fatalf("removing %v, new group %+v", h.s.Removals(), h.s.Groups["new"])
		}
		id := h.put(3)
		for range 30 {
			h.step()
		}
		h.ended(id, protocol.PhaseCompleted)
		h.fault = nil
		for range 10 {
			h.w.now += 20_000
			h.turn(func(x *stream.Turn) { x.Advance(h.progress(), h.w.now) })
			h.step()
		}
		h.nowhere("h")
	})
	t.Run("late replies of an earlier life of the name say nothing", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		register := func() {
			h.turn(func(x *stream.Turn) { x.RegisterGroup("again", protocol.StartEarliest, h.w.now) })
		}
		register()
		made := h.pass(stream.Plan(h.s, h.w.now)) // MKGROUP of the first life; its reply comes twice
		h.turn(func(x *stream.Turn) { x.Apply(made, h.w.now) })
		h.remove("again")
		gone := h.pass(stream.Plan(h.s, h.w.now))
		h.turn(func(x *stream.Turn) { x.Apply(gone, h.w.now) })
		h.nowhere("again")
		register()
		h.turn(func(x *stream.Turn) { x.Apply(made, h.w.now) })
		if h.s.Groups["again"].Ready {
			t.Error("the second registration is ready by a reply to the first: no shard has the group")
		}
		h.settle()
		h.remove("again")
		h.turn(func(x *stream.Turn) { x.Apply(gone, h.w.now) })
		if _, goes := h.s.Removing["again"]; !goes {
			t.Error("the second removal is done by a reply to the first: every shard has the group")
		}
		h.settle()
		h.nowhere("again")
	})
	t.Run("its backlog does not hold up a drain", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.add(0, h.s.Layout)
		h.w.shards[0].groups["g"].last = 1
		id := h.put(3)
		h.until(protocol.PhaseDraining)
		h.step()
		if h.s.Active.Phase != protocol.PhaseDraining {
			t.Fatalf("%s", h.s.Active.Phase)
		}
		h.remove("h")
		h.settle()
		h.ended(id, protocol.PhaseCompleted)
		h.nowhere("h")
	})
	t.Run("new shards do not get it", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		id := h.put(4)
		late := stream.Plan(h.s, h.w.now) // PROVISION with the group, frozen before it was sent
		rev := h.rev
		h.remove("h")
		h.settle()
		h.ended(id, protocol.PhaseCompleted)
		for _, st := range slices.Concat(late.Stages...) {
			if rep := h.w.run(st, rev, h.w.now+effectLease); rep.Code != shardscript.Ahead {
				t.Errorf("a late %s of shard %d: %s", st.Script, st.Index, rep.Code)
			}
		}
		h.nowhere("h")
	})
	t.Run("a shard that is not there yet is waited for", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.put(4)
		late := slices.Concat(stream.Plan(h.s, h.w.now).Stages...) // frozen before it was sent
		rev := h.rev
		h.remove("h")
		h.w.now += 1500 // registrations and deletions get their turn
		p := stream.Plan(h.s, h.w.now)
		if p.Kind != stream.PassRemove {
			t.Fatalf("%+v", p)
		}
		h.apply(h.pass(p))
		if _, goes := h.s.Removing["h"]; !goes {
			t.Fatal("taken for gone before the new shards were made")
		}
		for _, st := range late {
			h.w.run(st, rev, h.w.now+effectLease)
		}
		if h.w.shards[3].groups["h"] == nil {
			t.Fatal("the late PROVISION did not make what this test is about")
		}
		for range 60 {
			h.step()
			h.w.now += 1000
			h.turn(func(x *stream.Turn) { x.Advance(h.progress(), h.w.now) })
		}
		h.nowhere("h")
	})
	t.Run("no shard is left that has it", func(t *testing.T) {
		t.Parallel()
		h := running(t, 1)
		id := h.put(0)
		h.settle()
		h.ended(id, protocol.PhaseCompleted)
		h.remove("h")
		if len(h.s.Removing) != 0 || !stream.Plan(h.s, h.w.now).Empty() {
			t.Fatalf("%v", h.s.Removing)
		}
	})
	t.Run("replies about an earlier registration do not count", func(t *testing.T) {
		t.Parallel()
		h := running(t, 1)
		h.remove("h")
		old := h.pass(stream.Plan(h.s, h.w.now))
		h.apply(old)
		h.turn(func(x *stream.Turn) { x.RegisterGroup("h", protocol.StartEarliest, h.w.now) })
		h.settle()
		h.turn(func(x *stream.Turn) { x.RemoveGroup("h", 20, h.w.now) })
		h.turn(func(x *stream.Turn) { x.Apply(old, h.w.now) })
		if _, goes := h.s.Removing["h"]; !goes {
			t.Fatal("old replies ended the new removal")
		}
		h.settle()
		h.nowhere("h")
	})
}

// TestManyGroupsAtOnce: what is registered or deleted at once takes passes that end in time, each
// of which finishes some of the groups.
func TestManyGroupsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1000)
	h.w = newWorld(1000)
	h.settle()
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	for _, c := range []struct {
		kind stream.PassKind
		ask  func(x *stream.Turn, name string)
		left func() int
	}{
		{stream.PassGroup, func(x *stream.Turn, name string) { x.RegisterGroup(name, protocol.StartEarliest, h.w.now) }, func() (n int) {
			for _, g := range h.s.Groups {
				if !g.Ready {
					n++
				}
			}
			return n
		}},
		{stream.PassRemove, func(x *stream.Turn, name string) { x.RemoveGroup(name, 7, h.w.now) }, func() int { return len(h.s.Removing) }},
	} {
		h.turn(func(x *stream.Turn) {
			for _, name := range names {
				c.ask(x, name)
			}
		})
		for _, want := range []int{10, 6, 2} {
			if p := stream.Plan(h.s, h.w.now); c.left() != want || p.Kind != c.kind || len(p.Stages[0]) != min(want, 4)*1000 || len(p.Groups) != min(want, 4) {
				t.Fatalf("%d groups are left, want %d, and %d steps of %s for %v", c.left(), want, len(p.Stages[0]), p.Kind, p.Groups)
			}
			h.step()
		}
		if n := c.left(); n != 0 {
			t.Fatalf("%d groups are left by %s", n, c.kind)
		}
	}
	h.nowhere("n0")
	h.nowhere("n9")
}
