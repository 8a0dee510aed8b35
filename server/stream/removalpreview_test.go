package stream_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// What force gives up is said, also where it is not known; without force nothing is given up.
func TestRemovalPreview(t *testing.T) {
	t.Parallel()
	f := stream.RemovalFacts{
		At: 1000, Live: 1, Refused: []*protocol.Error{protocol.ErrGroupNotFound}, Unknown: []string{"the leases"},
		Left: stream.Backlog{
			Shards:  []stream.ShardBacklog{{Index: 0, Pending: 1}, {Index: 3, Pending: 2, Undelivered: 100, More: true}},
			Unknown: []stream.ShardBacklog{{Index: 1, Error: "i/o timeout"}, {Index: 2, Error: "no answer"}},
		},
	}
	const silent = `shards 1 and 2 did not answer: what group "g" has left on them is not known (i/o timeout)`
	p := stream.RemovalPreview("orders", "g", false, f)
	if p.Force || p.LiveMembers != 1 || p.Pending != 3 || p.Undelivered != 100 || !p.UndeliveredMore || p.TakenAt.UnixMilli() != 1000 ||
		!slices.Equal(p.Shards, []protocol.ShardBacklog{{ShardIndex: 0, Pending: 1}, {ShardIndex: 3, Pending: 2, Undelivered: 100, UndeliveredMore: true}}) ||
		len(p.Blockers) != 1 || p.Blockers[0].Code != string(protocol.CodeGroupNotFound) || !slices.Equal(p.Unknown, []string{"the leases", silent}) {
		t.Errorf("%+v", p)
	}
	if p.Risks == nil || len(p.Risks) != 0 {
		t.Errorf("risks without force: %#v", p.Risks)
	}

	p = stream.RemovalPreview("orders", "g", true, f)
	var codes, texts []string
	for _, r := range p.Risks {
		codes, texts = append(codes, r.Code), append(texts, r.Message)
	}
	if !slices.Equal(codes, []string{protocol.NoteMembersFenced, protocol.NoteBacklogLost, protocol.NoteShardUnreadable}) {
		t.Errorf("%q", codes)
	}
	for _, want := range []string{`group "g" has 1 live member:`, "gives up 3 pending and more than 100 undelivered entries on shards 0 and 3", silent} {
		if !strings.Contains(strings.Join(texts, "\n"), want) {
			t.Errorf("%q lacks %q", texts, want)
		}
	}

	p = stream.RemovalPreview("orders", "g", true, stream.RemovalFacts{})
	if p.Shards == nil || p.Blockers == nil || p.Risks == nil || p.Unknown == nil || len(p.Risks) != 0 {
		t.Errorf("of an empty group: %#v", p)
	}
}
