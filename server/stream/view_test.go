package stream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// conditions is "Type=Status/Reason" by type.
func conditions(s *stream.State) map[string]string {
	all := map[string]string{}
	for _, c := range stream.View(s).Status.Conditions {
		all[c.Type] = c.Status + "/" + c.Reason
		if c.Message == "" || c.Since.IsZero() {
			all[c.Type] += " without message or time"
		}
	}
	return all
}

func TestConditions(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 2)
	expect := func(when, converged, publishing, progressing string) {
		t.Helper()
		got := conditions(h.s)
		want := map[string]string{"Converged": converged, "Publishing": publishing, "Progressing": progressing}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("creating", "False/Resharding", "False/NoShards", "True/Resharding")
	h.settle()
	expect("at rest", "True/AsSpecified", "True/Open", "False/Completed")
	h.turn(func(x *stream.Turn) { x.RegisterGroup("g", protocol.StartEarliest, h.w.now) })
	expect("registering", "False/GroupsPending", "True/Open", "False/Completed")
	h.settle()
	h.turn(func(x *stream.Turn) { _ = x.Pause(h.w.now+seconds(600), stream.Request{RequestedBy: "ann"}, h.w.now) })
	expect("pausing", "False/PausePending", "False/PausedByOperator", "False/Completed")
	h.settle()
	expect("paused", "True/AsSpecified", "False/PausedByOperator", "False/Completed")
	id := h.put(3)
	h.until(protocol.PhaseDraining)
	expect("both", "False/Resharding", "False/PausedByOperatorAndResharding", "True/Resharding")
	h.turn(func(x *stream.Turn) { _ = x.Resume(stream.Request{}, h.w.now) })
	expect("resumed", "False/Resharding", "False/PausedByResharding", "True/Resharding")
	_ = h.rollback(id)
	h.settle()
	expect("rolled back", "True/AsSpecified", "True/Open", "False/RolledBack")
	h.turn(func(x *stream.Turn) { _ = x.Delete(true, stream.Request{}, h.w.now) })
	expect("deleting", "False/Deleting", "True/Open", "False/RolledBack")
}

func TestViews(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	states := func() string {
		var words []string
		for _, sh := range stream.View(h.s).Shards {
			words = append(words, fmt.Sprintf("%s %s", sh.StreamKey, sh.State))
		}
		return strings.Join(words, ", ")
	}
	id := h.put(3)
	if got := states(); got != "orders:0 ACTIVE, orders:1 ACTIVE, orders:2 ADDING" {
		t.Error(got)
	}
	version := h.s.RoutingVersion
	h.until(protocol.PhaseSealing)
	r := stream.RoutingOf(h.s)
	if r.PublishState != protocol.PublishPaused || r.PausedUntil == nil || r.RoutingVersion != version+1 || r.ShardCount != 2 || len(r.Shards) != 2 || r.LayoutEpoch != 1 {
		t.Errorf("%+v", r)
	}
	if v := stream.ReshardingOf(h.s, id, h.s.UpdatedAt); v.PauseDeadline == nil || len(v.WaitingFor) == 0 || v.FromEpoch != 1 || v.ToEpoch != 2 {
		t.Errorf("%+v", v)
	}
	h.settle()
	if r := stream.RoutingOf(h.s); r.ShardCount != 3 || r.MetadataVersion != 2 || r.RoutingVersion <= version+1 || r.PausedUntil != nil {
		t.Errorf("%+v", r)
	}
	h.add(2, h.s.Layout)
	h.putSpec(policy(func(p *protocol.ReshardingPolicy) { p.Strategy = protocol.StrategyOnline })(1))
	h.until(protocol.PhaseDrainingRemoved)
	h.step()
	if got := states(); got != "orders:0 ACTIVE, orders:1 REMOVING, orders:2 REMOVING" {
		t.Error(got)
	}
	if n := len(stream.RoutingOf(h.s).Shards); n != 1 || h.s.Assignable() != 3 {
		t.Errorf("routing lists %d shards, %d are assigned", n, h.s.Assignable())
	}
	list := stream.Reshardings(h.s, h.s.UpdatedAt)
	if len(list) != 3 || list[0].Phase != protocol.PhaseDrainingRemoved || list[1].ReshardingID != id {
		t.Errorf("%+v", list)
	}
	if w := strings.Join(list[0].WaitingFor, "; "); !strings.Contains(w, "shard 2: group g has 1 undelivered") {
		t.Errorf("waits for %q", w)
	}
	if stream.ReshardingOf(h.s, "nobody", h.s.UpdatedAt) != nil {
		t.Error("an unknown id was found")
	}
}

func TestWaitsForMembers(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	id := h.put(2)
	h.progress = func() []stream.GroupProgress {
		return []stream.GroupProgress{{Group: "g", LiveMember: true, HeldAbove: []int{2}, Unowned: []int{0, 1}}, {Group: "h", Unowned: []int{0}}}
	}
	h.until(protocol.PhaseConverging)
	for range 5 {
		h.step()
		h.w.now += 300
	}
	want := "CONVERGING: group g: shard 2 is still held; CONVERGING: group g: shards 0 and 1 have no owner yet"
	if got := strings.Join(stream.ReshardingOf(h.s, id, h.s.UpdatedAt).WaitingFor, "; "); got != want {
		t.Errorf("waits for %q, want %q", got, want)
	}
	h.progress = func() []stream.GroupProgress { return []stream.GroupProgress{{Group: "g"}} }
	h.w.now += 2000
	h.step()
	if got := strings.Join(stream.ReshardingOf(h.s, id, h.s.UpdatedAt).WaitingFor, "; "); got != "CONVERGING: group h: nothing is known of its members" {
		t.Errorf("waits for %q", got)
	}
	h.progress = func() []stream.GroupProgress {
		return []stream.GroupProgress{{Group: "g"}, {Group: "h", Unowned: []int{1}}}
	}
	h.settle()
	h.ended(id, protocol.PhaseCompleted)
}
