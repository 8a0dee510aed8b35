package stream_test

import (
	"slices"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

func retained(n int, r protocol.Retention) protocol.StreamSpec {
	return protocol.StreamSpec{ShardCount: n, Retention: r}
}

func TestRetention(t *testing.T) {
	t.Parallel()
	most := protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 10}
	t.Run("by default nothing goes", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		if got := stream.View(h.s).Spec.Retention; got.Policy != protocol.RetentionNone {
			t.Errorf("shown as %+v", got)
		}
		if h.s.Retains() || !stream.PlanRetention(h.s, nil).Empty() {
			t.Error("planned")
		}
	})
	t.Run("is a change of the spec alone", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		generation := h.s.Generation
		h.turn(func(x *stream.Turn) {
			if id, started, err := x.Put(retained(2, most), stream.Request{ID: "x"}, h.w.now); id != "" || started || err != nil {
				t.Fatal(id, started, err)
			}
		})
		if h.s.Generation != generation+1 || stream.View(h.s).Spec.Retention != most || h.s.Active != nil {
			t.Fatalf("%+v", h.s.Spec)
		}
		h.turn(func(x *stream.Turn) { _, _, _ = x.Put(retained(2, most), stream.Request{ID: "x"}, h.w.now) })
		if h.s.Generation != generation+1 {
			t.Error("the same again is a new generation")
		}
		// A spec that was stored before there was retention is no other than NONE.
		old := *h.s
		old.Spec.Retention = protocol.Retention{}
		x := stream.Begin(&old)
		if _, _, err := x.Put(retained(2, protocol.Retention{Policy: protocol.RetentionNone}), stream.Request{ID: "x"}, h.w.now); err != nil || x.State().Generation != old.Generation {
			t.Errorf("generation %d, %v", x.State().Generation, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		for _, r := range []protocol.Retention{
			{Policy: protocol.RetentionMaxLen}, {Policy: protocol.RetentionMaxAge}, {MaxLen: 3}, {Policy: "OLD"},
			{Policy: protocol.RetentionAcked, MaxAgeMs: 5000}, {Policy: protocol.RetentionMaxLen, MaxLen: 3, MaxAgeMs: 5000},
		} {
			x := stream.Begin(h.s)
			if _, _, err := x.Put(retained(2, r), stream.Request{ID: "x"}, h.w.now); err == nil || err.Code != protocol.CodeInvalidRequest || x.Changed() {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
	t.Run("only at rest, and with the groups that matter", func(t *testing.T) {
		t.Parallel()
		h := running(t, 3)
		h.turn(func(x *stream.Turn) { _, _, _ = x.Put(retained(3, most), stream.Request{ID: "x"}, h.w.now) })
		h.turn(func(x *stream.Turn) { x.RegisterGroup("new", protocol.StartEarliest, h.w.now) })
		p := stream.PlanRetention(h.s, nil)
		if len(p.Stages) != 1 || len(p.Stages[0]) != 3 {
			t.Fatalf("%+v", p)
		}
		st := p.Stages[0][2]
		if st.Script != shardscript.Retain || st.Index != 2 || st.Epoch != 1 || st.Count != 3 || st.Retention != most || !slices.Equal(st.Groups, []string{"g", "h"}) {
			t.Errorf("%+v", st)
		}
		if p := stream.PlanRetention(h.s, []int{1}); len(p.Stages[0]) != 1 || p.Stages[0][0].Index != 1 {
			t.Errorf("%+v", p)
		}
		h.turn(func(x *stream.Turn) {
			_, _, _ = x.Put(retained(3, protocol.Retention{Policy: protocol.RetentionAcked}), stream.Request{ID: "x"}, h.w.now)
		})
		if st := stream.PlanRetention(h.s, nil).Stages[0][0]; !slices.Equal(st.Groups, []string{"g", "h", "new"}) {
			t.Errorf("ACKED expects %v", st.Groups)
		}
		h.settle()
		h.turn(func(x *stream.Turn) {
			_, _, _ = x.Put(retained(4, most), stream.Request{ID: "x"}, h.w.now)
		})
		for h.s.Active != nil {
			if p := stream.PlanRetention(h.s, nil); !p.Empty() {
				t.Fatalf("planned in %s", h.s.Active.Phase)
			}
			h.step()
		}
		if p := stream.PlanRetention(h.s, nil); len(p.Stages[0]) != 4 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("what is unfinished", func(t *testing.T) {
		t.Parallel()
		rep := func(i int, more bool) stream.Reply {
			return stream.Reply{Step: stream.Step{Script: shardscript.Retain, Index: i}, Code: shardscript.OK, More: more}
		}
		got := stream.Unfinished(stream.PassResult{Replies: []stream.Reply{rep(3, true), rep(1, false), rep(0, true)}})
		if !slices.Equal(got, []int{0, 3}) {
			t.Errorf("%v", got)
		}
	})
}

// What a shard of the layout that is not there has counted cannot be seen: that is not nothing.
func TestLossesOfAMissingShard(t *testing.T) {
	t.Parallel()
	h := running(t, 4)
	p := stream.PlanLosses(h.s)
	res := probed(p, evidence(protocol.GroupEvidence{Group: "g", Trimmed: 2, Gone: 1}), nil, evidence(), evidence())
	res.Replies[2].Evidence = nil
	res.Replies[3].Evidence, res.Replies[3].Err = nil, "the key is no stream"
	r := stream.LossesOf(h.s, res, h.w.now)
	if !slices.Equal(r.Unknown, []string{"shard 1: i/o timeout", "shard 2: the stream is missing", "shard 3: the key is no stream"}) {
		t.Errorf("unknown: %q", r.Unknown)
	}
	if len(r.Groups) != 2 || r.Groups[0].Trimmed != 2 || r.Groups[0].Gone != 1 || len(r.Groups[0].Shards) != 1 {
		t.Errorf("%+v", r.Groups)
	}
}
