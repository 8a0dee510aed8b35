package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A dry run reaches the engine as a preview and as nothing else, and comes back whole.
func TestDryRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.do("PUT", Base+"/streams/a%3Ab?dryRun=true", `{"shardCount":2,"resharding":{"strategy":"ONLINE"},"retention":{"policy":"MAX_LEN","maxLen":9}}`, header("If-Match", `"7"`))
	if got.Code != http.StatusOK || got.Header().Get("ETag") != `"7"` {
		t.Fatalf("got %d %s, ETag %q", got.Code, got.Body, got.Header().Get("ETag"))
	}
	var preview protocol.Preview
	got.json(&preview)
	if want := samplePreview("a:b"); !reflect.DeepEqual(preview, want) {
		t.Errorf("got  %+v\nwant %+v", preview, want)
	}
	call := b.engine.last(t, "PreviewStream")
	want := protocol.StreamSpec{ShardCount: 2, Resharding: protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline}, Retention: protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 9}}
	if call.prefix != "a:b" || call.mutation.IfMatch != 7 || !reflect.DeepEqual(call.spec, want) {
		t.Errorf("the engine was told %+v", call)
	}
	if len(b.engine.calls) != 1 || len(b.engine.audits) != 0 {
		t.Errorf("calls %v, audits %v", b.engine.calls, b.engine.audits)
	}
}

// Who may read may look ahead; who may not, may not, and neither is audited: nothing was to change.
func TestDryRunNeedsTheRoleRead(t *testing.T) {
	t.Parallel()
	for user, status := range map[string]int{"reader": 200, "monitor": 200, "writer": 200, "root": 200, "member": 403} {
		b := setup(t, allUsers)
		got := b.do("PUT", Base+"/streams/orders?dryRun=1", `{"shardCount":2}`, as(user))
		if got.Code != status || len(b.engine.audits) != 0 {
			t.Errorf("%s: got %d, %d audits; want %d, 0", user, got.Code, len(b.engine.audits), status)
		}
		// Without the parameter, or with anything that is not clearly a dry run, it is the mutation.
		for _, query := range []string{"", "?dryRun=false", "?dryRun=yes", "?dryRun=true&dryRun=true", "?dryrun=true", "?DRYRUN=true"} {
			got := b.do("PUT", Base+"/streams/orders"+query, `{"shardCount":2}`, as(user))
			if writes := user == "writer" || user == "root"; !writes && got.Code != 403 {
				t.Errorf("%s, PUT%s: got %d, want 403", user, query, got.Code)
			}
		}
		if reads := user != "writer" && user != "root"; reads {
			for _, call := range b.engine.calls {
				if call.call == "PutStream" {
					t.Errorf("%s changed a stream", user)
				}
			}
		}
	}
	b := setup(t)
	if got := b.do("PUT", Base+"/streams/orders?dryRun=true", `{"shardCount":2}`, noAuth); got.Code != 401 || len(b.engine.audits) != 0 {
		t.Errorf("without credentials: got %d, %d audits", got.Code, len(b.engine.audits))
	}
}

// The dry run of a removal reaches the engine as a preview and as nothing else, and comes back
// whole. Nobody needs to be named, and the body may be left out.
func TestDryRunOfARemoval(t *testing.T) {
	t.Parallel()
	for body, force := range map[string]bool{
		"": false, `{}`: false, `{"force":true}`: true,
		`{"force":false,"requestedBy":"me","reason":"why"}`: false, `{"force":true,"requestedBy":"me","reason":"why"}`: true,
	} {
		b := setup(t, allUsers)
		got := b.do("DELETE", Base+"/streams/a%3Ab/groups/g?dryRun=true", body, as("reader"), header("If-Match", `"3"`))
		if got.Code != http.StatusOK || got.Header().Get("ETag") != `"3"` {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
			continue
		}
		var preview protocol.RemovalPreview
		got.json(&preview)
		if want := sampleRemovalPreview("a:b", "g", force); !reflect.DeepEqual(preview, want) {
			t.Errorf("%s: got  %+v\nwant %+v", body, preview, want)
		}
		if call := b.engine.last(t, "PreviewGroupRemoval"); call.prefix != "a:b" || call.group != "g" || call.force != force || call.mutation.IfMatch != 3 || len(b.engine.calls) != 1 || len(b.engine.audits) != 0 {
			t.Errorf("%s: calls %+v, audits %v", body, b.engine.calls, b.engine.audits)
		}
	}
	b := setup(t, allUsers)
	target := Base + "/streams/orders/groups/g?dryRun=true"
	if got := b.do("DELETE", target, "", as("member")); got.Code != 403 || len(b.engine.audits) != 0 {
		t.Errorf("a member: %d, %d audits", got.Code, len(b.engine.audits))
	}
	b.engine.err = protocol.ErrGroupNotFound
	if got := b.do("DELETE", target, ""); got.Code != 404 || len(b.engine.audits) != 0 {
		t.Errorf("no such group: %d, %d audits", got.Code, len(b.engine.audits))
	}
}

// dryRun=false is the mutation.
func TestDryRunFalse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if got := b.do("PUT", Base+"/streams/orders?dryRun=false", `{"shardCount":4}`); got.Code != 200 {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	b.engine.last(t, "PutStream")
	if got := b.do("DELETE", Base+"/streams/orders/groups/g?dryRun=false", `{"force":true,"requestedBy":"me","reason":"why"}`); got.Code != 200 {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	if call := b.engine.last(t, "DeleteGroup"); !call.force {
		t.Errorf("%+v", call)
	}
}

// A preview ends with its client, a mutation does not.
func TestDryRunEndsWithItsClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "PUT", Base+"/streams/orders?dryRun=true", strings.NewReader(`{"shardCount":4}`))
	rt := previewOf(&route{method: "PUT", pattern: Base + S})
	got, done := b.h.callContext(&call{r: r, route: rt})
	defer done()
	if got.Err() == nil {
		t.Error("the call goes on though its client has left")
	}
}
