package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The dry run of a removal asks for one, is repeated like a read, and names nobody: without its
// query it would be a removal that is refused.
func TestPreviewGroupRemoval(t *testing.T) {
	t.Parallel()
	want := protocol.RemovalPreview{StreamPrefix: "a:b", ConsumerGroup: "g", TakenAt: time.Unix(1, 0).UTC(), Force: true, Pending: 3, Shards: []protocol.ShardBacklog{{ShardIndex: 1, Pending: 3}}}
	var calls atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			answer(w, http.StatusBadGateway, nil)
			return
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || !reflect.DeepEqual(body, map[string]any{"force": true}) {
			t.Errorf("body %+v, %v", body, err)
		}
		if r.Method != http.MethodDelete || r.URL.EscapedPath() != "/coord/v1/streams/a:b/groups/g" || r.URL.RawQuery != "dryRun=true" || r.Header.Get("X-Request-Id") != "id" {
			t.Errorf("%s %s?%s, %q", r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("X-Request-Id"))
		}
		answer(w, http.StatusOK, want)
	})
	c := connect(t, client.Config{Endpoints: []string{url}})
	got, err := c.PreviewGroupRemoval(t.Context(), "a:b", "g", true, client.Call{RequestID: "id"})
	if err != nil || !reflect.DeepEqual(got, want) || calls.Load() != 2 {
		t.Errorf("got %+v, %v after %d calls", got, err, calls.Load())
	}
}

// An answer that is no preview of this removal is not taken for one.
func TestPreviewGroupRemovalIsAPreview(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, body := range map[string]any{
		"the group that was deleted": protocol.Group{StreamPrefix: "orders", ConsumerGroup: "g", State: protocol.GroupEmpty},
		"another stream's":           protocol.RemovalPreview{StreamPrefix: "other", ConsumerGroup: "g", TakenAt: now},
		"another group's":            protocol.RemovalPreview{StreamPrefix: "orders", ConsumerGroup: "h", TakenAt: now},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, body) })
		c := connect(t, client.Config{Endpoints: []string{url}})
		if p, err := c.PreviewGroupRemoval(t.Context(), "orders", "g", false, client.Call{}); !errors.Is(err, client.ErrUnexpectedAnswer) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// A call about a group outlasts the wait of the coordinator for its shards.
func TestGroupCallsAreHeld(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(400 * time.Millisecond) // of the coordinator's work
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
		answer(w, http.StatusOK, protocol.Group{StreamPrefix: "orders", ConsumerGroup: "g", Generation: 3})
	})
	c := connect(t, client.Config{Endpoints: []string{url}, CallTimeout: 100 * time.Millisecond, Retries: 1})
	if g, err := c.PutGroup(t.Context(), "orders", "g", protocol.PutGroupRequest{}, client.Call{IfMatch: 2}); err != nil || g.Generation != 3 {
		t.Errorf("put: %+v, %v", g, err)
	}
	if err := c.DeleteGroup(t.Context(), "orders", "g", protocol.DeleteGroupRequest{}, client.Call{}); err != nil {
		t.Errorf("delete: %v", err)
	}
}
