package provider

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// replacement is the second half of the plan of -replace or replace_triggered_by,
// as Terraform asks for it: without a state, with the private data of the first half.
func (c *core) replacement(old instance, config attrs) planned {
	c.t.Helper()
	first := c.plan(old, config)
	none := c.none(old.kind)
	none.private = first.private
	return c.plan(none, config)
}

// A stream that has been resharded since it was made can be replaced by itself: it is not in its own
// way. The stream that is in the way of another prefix still is.
func TestShardCountReplacedAsRequested(t *testing.T) {
	c, _ := setup(t)
	i := c.refresh(c.must(c.must(c.none(shardCount), orders(2)), orders(3)))
	p := c.replacement(i, orders(3))
	c.ok(p.diags)
	_, diags := c.apply(t.Context(), c.plan(i, nil))
	c.ok(diags)
	c.config = nil // the same run: the creation follows
	i, diags = c.apply(t.Context(), p)
	c.ok(diags)
	wantField(t, i, "shard_count", "3")

	oneError(t, c.replacement(i, orders(3, attrs{"deletion_protection": true})).diags, "protected against deletion")

	c, f := setup(t)
	i = c.must(c.none(shardCount), orders(2))
	c.must(c.must(c.none(shardCount), orders(2, attrs{"stream_prefix": "other"})), orders(4, attrs{"stream_prefix": "other"}))
	oneError(t, c.replacement(i, orders(2, attrs{"stream_prefix": "other"})).diags, `"other" exists already`)

	// One that is only forgotten would be in the way.
	i = c.must(i, orders(3, attrs{"skip_destroy": true}))
	oneError(t, c.replacement(c.refresh(i), orders(3, attrs{"skip_destroy": true})).diags, `"orders" exists already`)
	i = c.must(c.refresh(c.must(i, orders(3))), orders(3, attrs{"skip_destroy": true})) // known without a refresh, too
	oneError(t, c.replacement(i, orders(3, attrs{"skip_destroy": true})).diags, `"orders" exists already`)
	if f.streams["orders"] == nil {
		t.Error("the stream is gone")
	}
}

// With create_before_destroy, Terraform puts the old object aside before it plans the creation once more,
// and takes it back when the creation fails, not when that plan does. So the creation refuses.
func TestShardCountReplacedAsRequestedBeforeDestroy(t *testing.T) {
	c, f := setup(t)
	i := c.refresh(c.must(c.must(c.none(shardCount), orders(2)), orders(3)))
	c.ok(c.replacement(i, orders(3)).diags)
	again := c.plan(c.none(shardCount), orders(3))
	oneWarning(t, again.diags, "apply will refuse", "create_before_destroy")
	_, diags := c.apply(t.Context(), again)
	oneError(t, diags, `"orders" exists already`, "resharded since")
	again = c.plan(c.none(shardCount), orders(4)) // with other settings, too
	oneWarning(t, again.diags, "apply will refuse", "shard_count is 3, wanted 4", "create_before_destroy")
	_, diags = c.apply(t.Context(), again)
	oneError(t, diags, `"orders" exists already`, "wanted 4")
	if f.streams["orders"].Status.ShardCount != 3 {
		t.Error("the stream was touched")
	}
}

// So can a group, with other settings in the same plan.
func TestStreamGroupReplacedAsRequested(t *testing.T) {
	c, _ := setupGroup(t)
	i := c.must(c.none(streamGroup), billing())
	changed := billing(attrs{"member_lease": "30s"})
	p := c.replacement(i, changed)
	c.ok(p.diags)
	_, diags := c.apply(t.Context(), c.plan(i, nil))
	c.ok(diags)
	i, diags = c.apply(t.Context(), p)
	c.ok(diags)
	wantField(t, i, "member_lease", "30s")
	oneError(t, c.replacement(i, billing(attrs{"deletion_protection": true})).diags, "protected against deletion")
	c.must(c.none(streamGroup), billing(attrs{"consumer_group": "other"}))
	oneError(t, c.replacement(i, billing(attrs{"consumer_group": "other", "member_lease": "30s"})).diags, `"other" exists already`)

	// In the apply of one with create_before_destroy, the old one is aside when the creation is planned again.
	again := c.plan(c.none(streamGroup), billing())
	oneWarning(t, again.diags, "is in the way", "member_lease is 30s", "create_before_destroy")
	_, diags = c.apply(t.Context(), again)
	oneError(t, diags, `"billing" exists already`)
}

// What the state of the plan's own run has under another address, or tainted, and with other settings, is
// refused by the plan: a moved block was forgotten, most likely.
func TestCreationOfWhatTheStateHas(t *testing.T) {
	c, _ := setup(t)
	stream := c.must(c.none(shardCount), orders(2))
	group := c.must(c.none(streamGroup), billing())
	for _, tt := range []struct {
		old     instance
		changed attrs
	}{{group, billing(attrs{"member_lease": "1m"})}, {stream, orders(3)}} {
		c.ok(c.configure(c.config))
		c.refresh(tt.old)
		config := c.config
		c.config = nil // the same run
		oneError(t, c.plan(c.none(tt.old.kind), tt.changed).diags, "exists already", "moved block", "untaint")
		c.config = config
		oneWarning(t, c.plan(c.none(tt.old.kind), tt.changed).diags, "is in the way")
	}
}

// Credentials that are bad, too, are for the creation to find.
func TestCreationPlannedWithBadCredentials(t *testing.T) {
	c, f := setupGroup(t)
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			refuse(w, protocol.NewError(protocol.CodeUnauthenticated, "wrong"))
			return true
		}
	})
	for kind, config := range map[string]attrs{shardCount: orders(2), streamGroup: billing()} {
		p := c.plan(c.none(kind), config)
		oneWarning(t, p.diags, "could not be checked", "UNAUTHENTICATED")
		_, diags := c.apply(t.Context(), p)
		oneError(t, diags, "Authentication failed")
	}
}

// Terraform destroys and creates in any order where the address of an object was changed without a moved
// block. When the creation comes first, and is refused, the object stays.
func TestNotDestroyedAfterRefusedCreation(t *testing.T) {
	c, _ := setup(t)
	stream := c.must(c.none(shardCount), orders(2))
	group := c.must(c.none(streamGroup), billing())
	for _, tt := range []struct {
		old     instance
		changed attrs
	}{{group, billing(attrs{"member_lease": "1m"})}, {stream, orders(3)}} {
		p := c.plan(c.none(tt.old.kind), tt.changed)
		config := c.config
		c.config = nil // the same run
		_, diags := c.apply(t.Context(), p)
		oneError(t, diags, "exists already")
		i, diags := c.apply(t.Context(), c.plan(tt.old, nil))
		oneError(t, diags, "Not destroyed", "moved block")
		if i.state.IsNull() {
			t.Error("it has gone from the state")
		}
		c.config = config
	}
	for _, old := range []instance{group, stream} {
		_, diags := c.apply(t.Context(), c.plan(old, nil))
		c.ok(diags)
	}
}

// A replacement of a stream leaves its groups to the removal, whose plan Terraform does not show: so
// the apply says which went with it.
func TestShardCountDeleteNamesGroups(t *testing.T) {
	c, f := setup(t)
	observe(t, f)
	i := c.must(c.none(shardCount), orders(2))
	c.must(c.none(shardCount), orders(2, attrs{"stream_prefix": "other"}))
	c.must(c.none(streamGroup), billing())
	c.must(c.none(streamGroup), billing(attrs{"stream_prefix": "other", "consumer_group": "audit"}))
	_, diags := c.apply(t.Context(), c.plan(i, nil))
	c.ok(diags)
	if w := strings.Join(warningsOf(diags), "\n"); !strings.Contains(w, "Consumer groups went with the stream") || !strings.Contains(w, "billing") || strings.Contains(w, "audit") {
		t.Errorf("warnings: %s", w)
	}
}
