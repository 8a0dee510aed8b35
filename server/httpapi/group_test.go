package httpapi

import (
	"net/http"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

// A group has its generation as entity tag, and what a request presupposes reaches the engine.
func TestGroupGenerations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = Base + "/streams/orders/groups/billing"
	for _, tt := range []struct {
		header, value string
		want          int64
	}{{"If-Match", `"5"`, 5}, {"If-Match", "7", 7}, {"If-None-Match", "*", engine.MustBeNew}, {"X-None", "", 0}} {
		got := b.do("PUT", path, `{}`, header(tt.header, tt.value))
		var g protocol.Group
		got.json(&g)
		if sent := b.engine.last(t, "PutGroup").mutation.IfMatch; sent != tt.want || got.Code != http.StatusOK || got.Header().Get("ETag") != `"5"` || g.Generation != 5 {
			t.Errorf("PUT with %s %s: the engine was told %d; %d, ETag %s, generation %d", tt.header, tt.value, sent, got.Code, got.Header().Get("ETag"), g.Generation)
		}
		b.do("DELETE", path, `{"requestedBy":"ann","reason":"over"}`, header(tt.header, tt.value))
		if sent := b.engine.last(t, "DeleteGroup").mutation.IfMatch; sent != tt.want {
			t.Errorf("DELETE with %s %s: the engine was told %d", tt.header, tt.value, sent)
		}
	}
	if got := b.do("GET", path, ""); got.Header().Get("ETag") != `"5"` {
		t.Errorf("GET: ETag %s", got.Header().Get("ETag"))
	}
	b.engine.created = true
	if got := b.do("PUT", path, `{}`); got.Code != http.StatusCreated || got.Header().Get("ETag") != `"5"` {
		t.Errorf("created: %d, ETag %s", got.Code, got.Header().Get("ETag"))
	}
	b.engine.err = protocol.ErrGenerationMismatch
	if got := b.do("PUT", path, `{}`, header("If-Match", `"4"`)); got.Code != http.StatusPreconditionFailed || got.Header().Get("ETag") != "" {
		t.Errorf("refused: %d, ETag %s", got.Code, got.Header().Get("ETag"))
	}
}
