package stream_test

import (
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// probed is the outcome of a probe pass, with what is found on each shard; nil: no answer.
func probed(p stream.Pass, found ...*protocol.ShardEvidence) stream.PassResult {
	res := stream.PassResult{Pass: p}
	for i, st := range p.Stages[0] {
		rep := stream.Reply{Step: st, Err: "i/o timeout"}
		if ev := found[i]; ev != nil {
			rep = stream.Reply{Step: st, Code: shardscript.OK, Evidence: ev}
		}
		res.Replies = append(res.Replies, rep)
	}
	return res
}

func evidence(groups ...protocol.GroupEvidence) *protocol.ShardEvidence {
	return &protocol.ShardEvidence{Groups: groups}
}

func TestGroupBacklog(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	p := stream.PlanBacklog(h.s, "h")
	if p.Kind != stream.PassProbe || len(p.Stages[0]) != 3 || p.Stages[0][0].Most != 1000 {
		t.Fatalf("%+v", p)
	}
	other := protocol.GroupEvidence{Group: "g", Pending: 9, EntryAfter: true, Undelivered: 9}
	for name, c := range map[string]struct {
		found   []*protocol.ShardEvidence
		code    protocol.Code
		message string
		summary string
	}{
		"finished": {
			found:   []*protocol.ShardEvidence{evidence(other, protocol.GroupEvidence{Group: "h"}), evidence(other), evidence()},
			summary: "pending=0 undelivered=0",
		},
		"not finished": {
			found: []*protocol.ShardEvidence{
				evidence(other, protocol.GroupEvidence{Group: "h", Pending: 2}), evidence(protocol.GroupEvidence{Group: "h"}),
				evidence(protocol.GroupEvidence{Group: "h", EntryAfter: true, Undelivered: 1000, UndeliveredMore: true}),
			},
			code:    protocol.CodeGroupNotEmpty,
			message: `group "h" has not finished (shard 0: 2 pending, 0 undelivered; shard 2: 0 pending, more than 1000 undelivered)`,
			summary: "pending=2 undelivered=1000+ shards=0,2",
		},
		"unknown": {
			found:   []*protocol.ShardEvidence{evidence(), nil, evidence()},
			code:    protocol.CodeRedisUnavailable,
			message: "is not known of shard 1 (i/o timeout)",
			summary: "pending=0 undelivered=0 unknownShards=1",
		},
	} {
		b := stream.BacklogOf(h.s, "h", probed(p, c.found...))
		refused := b.Refusal("h")
		switch {
		case (refused == nil) != (c.code == ""):
			t.Errorf("%s: %v", name, refused)
		case refused != nil && (refused.Code != c.code || !strings.Contains(refused.Message, c.message)):
			t.Errorf("%s: %v", name, refused)
		}
		if got := b.Summary(); got != c.summary {
			t.Errorf("%s: %q, want %q", name, got, c.summary)
		}
	}
	many := stream.Backlog{}
	for i := range 30 {
		many.Shards = append(many.Shards, stream.ShardBacklog{Index: i, Pending: 1})
	}
	if refused := many.Refusal("h"); len(refused.Details) != 20 || !strings.Contains(refused.Message, "and 10 more shards") {
		t.Errorf("%v", refused)
	}
	if got := many.Summary(); !strings.HasSuffix(got, "18,19,…") || !strings.HasPrefix(got, "pending=30 ") {
		t.Errorf("%q", got)
	}
}

func TestLosses(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	p := stream.PlanLosses(h.s)
	report := stream.LossesOf(h.s, probed(p,
		evidence(protocol.GroupEvidence{Group: "g", Trimmed: 3}, protocol.GroupEvidence{Group: "unmanaged", Gone: 2}), nil,
		evidence(protocol.GroupEvidence{Group: "g", Trimmed: 1, Gone: 1}, protocol.GroupEvidence{Group: "unmanaged"})), h.w.now)
	if len(report.Groups) != 3 || len(report.Unknown) != 1 || report.Retention.Policy != protocol.RetentionNone {
		t.Fatalf("%+v", report)
	}
	g, hh, un := report.Groups[0], report.Groups[1], report.Groups[2]
	if g.Group != "g" || !g.Managed || g.Trimmed != 4 || g.Gone != 1 || len(g.Shards) != 2 || g.Shards[1].ShardIndex != 2 ||
		hh.Group != "h" || len(hh.Shards) != 0 || un.Managed || un.Gone != 2 || len(un.Shards) != 1 {
		t.Fatalf("%+v", report.Groups)
	}
}
