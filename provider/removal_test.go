package provider

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The plan of a destroy says what stands in its way, or what is lost by force, and changes nothing.
func TestPlanOfARemoval(t *testing.T) {
	c, f := setupGroup(t)
	kept := c.must(c.none(streamGroup), billing())
	forced := c.must(kept, billing(attrs{"force_destroy": true}))
	before := len(f.mutations())
	shards := []protocol.ShardBacklog{{ShardIndex: 0, Pending: 1}, {ShardIndex: 1, Undelivered: 1000, UndeliveredMore: true}}
	for name, tt := range map[string]struct {
		group   instance
		removal protocol.RemovalPreview
		words   []string // of the only warning
	}{
		"nothing in the way":    {kept, protocol.RemovalPreview{}, []string{"will be removed", "begins at its start_position", "moved block"}},
		"nothing lost by force": {forced, protocol.RemovalPreview{}, []string{"will be removed", "has read and acknowledged everything"}},
		"not finished": {kept, protocol.RemovalPreview{
			Pending: 1, Undelivered: 1000, UndeliveredMore: true, Shards: shards, LiveMembers: 2,
			Blockers: []protocol.PreviewNote{{Code: string(protocol.CodeGroupHasMembers), Message: "repeat with force"}},
		}, []string{"Consumer group has not finished", `"billing" of stream "orders"`, "Now: 1 pending and more than 1000 undelivered entries on shards 0 and 1; 2 live members.", "force_destroy = true"}},
		"one of each": {kept, protocol.RemovalPreview{
			Undelivered: 1, Shards: []protocol.ShardBacklog{{ShardIndex: 3, Undelivered: 1}}, LiveMembers: 1,
			Blockers: []protocol.PreviewNote{{Code: string(protocol.CodeGroupHasMembers)}},
		}, []string{"Now: 1 undelivered entry on shard 3; 1 live member."}},
		"members alone": {kept, protocol.RemovalPreview{LiveMembers: 1, Blockers: []protocol.PreviewNote{{Code: string(protocol.CodeGroupHasMembers)}}}, []string{"Consumer group has live members", "Now: 1 live member."}},
		"a shard is silent": {kept, protocol.RemovalPreview{
			Blockers: []protocol.PreviewNote{{Code: string(protocol.CodeRedisUnavailable), Message: "shard 1 did not answer, correct-horse-battery"}},
		}, []string{"could not be removed now", "- shard 1 did not answer", "(REDIS_UNAVAILABLE)"}},
		"lost by force": {forced, protocol.RemovalPreview{
			Pending: 1, Shards: shards, LiveMembers: 2,
			Risks: []protocol.PreviewNote{{Code: protocol.NoteBacklogLost, Message: "gives up 1 pending entry"}, {Code: protocol.NoteMembersFenced, Message: "two members"}},
		}, []string{"force_destroy is set", `"billing" of stream "orders"`, "- gives up 1 pending entry (GROUP_BACKLOG_LOST)", "- two members (LIVE_MEMBERS_FENCED)"}},
	} {
		t.Run(name, func(t *testing.T) {
			f.set(func() { f.removal = tt.removal })
			p := c.plan(tt.group, nil)
			w := warningsOf(p.diags)
			if failed(p.diags) || len(w) != 1 {
				t.Fatalf("%q, %q", errorsOf(p.diags), w)
			}
			for _, word := range tt.words {
				if !strings.Contains(w[0], word) {
					t.Errorf("%q lacks %q", w[0], word)
				}
			}
			if strings.Contains(strings.Join(w, ""), "correct-horse") {
				t.Errorf("a secret is shown: %q", w)
			}
		})
	}
	t.Run("a replacement removes too", func(t *testing.T) {
		f.set(func() {
			f.removal = protocol.RemovalPreview{Risks: []protocol.PreviewNote{{Code: protocol.NoteBacklogLost, Message: "gives up 1 pending entry"}}}
		})
		p := c.plan(forced, billing(attrs{"force_destroy": true, "consumer_group": "others"}))
		if w := warningsOf(p.diags); len(w) != 1 || !strings.Contains(w[0], "force_destroy is set") || p.replace == 0 {
			t.Errorf("%d, %q", p.replace, w)
		}
	})
	if n := len(f.mutations()) - before; n != 0 || f.groups["orders/billing"] == nil {
		t.Errorf("%d requests changed something", n)
	}
}

// What cannot be asked is said, and stops the plan only where no apply can succeed.
func TestPlanOfARemovalUnchecked(t *testing.T) {
	c, f := setupGroup(t)
	i := c.must(c.none(streamGroup), billing())
	for code, warned := range map[protocol.Code]bool{
		protocol.CodeForbidden: true, protocol.CodeInvalidRequest: true, protocol.CodeGroupNotFound: false, protocol.CodeStreamNotFound: false, protocol.CodeUnauthenticated: false,
	} {
		f.set(func() {
			f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if r.Method != http.MethodDelete {
					return false
				}
				refuse(w, protocol.NewError(code, "no, correct-horse-battery"))
				return true
			}
		})
		p := c.plan(i, nil)
		w := warningsOf(p.diags)
		if warned != (len(w) == 1) || failed(p.diags) != (code == protocol.CodeUnauthenticated) {
			t.Errorf("%s: %q, %q", code, errorsOf(p.diags), w)
		}
		if warned && (!strings.Contains(w[0], `the removal of consumer group "billing"`) || strings.Contains(w[0], "correct-horse")) {
			t.Errorf("%s: %q", code, w)
		}
	}
}
