package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A preview asks for a dry run, with everything that the PUT itself would carry, and is repeated
// like a read.
func TestPreviewStream(t *testing.T) {
	t.Parallel()
	want := protocol.Preview{StreamPrefix: "a:b", Action: protocol.PreviewReshard, FromShardCount: 2, ToShardCount: 4, ShardsAdded: []int{2, 3}}
	var calls atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			answer(w, http.StatusBadGateway, nil) // whether it was done is unknown, and does not matter
			return
		}
		var body protocol.PutStreamRequest
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.ShardCount == nil || *body.ShardCount != 4 {
			t.Errorf("body %+v, %v", body, err)
		}
		if r.Method != http.MethodPut || r.URL.EscapedPath() != "/coord/v1/streams/a:b" || r.URL.RawQuery != "dryRun=true" || r.Header.Get("If-Match") != `"7"` {
			t.Errorf("%s %s?%s, If-Match %q", r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("If-Match"))
		}
		answer(w, http.StatusOK, want)
	})
	c := connect(t, client.Config{Endpoints: []string{url}})
	count := int64(4)
	got, err := c.PreviewStream(t.Context(), "a:b", protocol.PutStreamRequest{ShardCount: &count}, client.Call{IfMatch: 7})
	if err != nil || !reflect.DeepEqual(got, want) || calls.Load() != 2 {
		t.Errorf("got %+v, %v after %d calls", got, err, calls.Load())
	}
}

// An answer that is no preview is not taken for one: something has ignored dryRun.
func TestPreviewStreamIsAPreview(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, protocol.Stream{StreamPrefix: "orders", Generation: 3})
	})
	c := connect(t, client.Config{Endpoints: []string{url}})
	count := int64(4)
	if _, err := c.PreviewStream(t.Context(), "orders", protocol.PutStreamRequest{ShardCount: &count}, client.Call{}); !errors.Is(err, client.ErrUnexpectedAnswer) {
		t.Errorf("got %v", err)
	}
}
