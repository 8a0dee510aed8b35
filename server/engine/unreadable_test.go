package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
)

// One stream whose state cannot be read does not hide the others.
func TestListNamesUnreadableStreams(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	keyPrefix, good, bad := redistest.KeyPrefix(t), redistest.Prefix(t), redistest.Prefix(t)
	r := startReplica(t, redis.Client(t), keyPrefix, "a")
	put(t, r.Engine, good, spec(1))
	put(t, r.Engine, bad, spec(1))
	if err := redis.Client(t).HSet(t.Context(), keyPrefix+":{"+bad+"}:stream", "state", "{", "json", "{", "aggregate", "{").Err(); err != nil {
		t.Fatal(err)
	}
	other := startReplica(t, redis.Client(t), keyPrefix, "b") // it has no cache
	for deadline := time.Now().Add(30 * time.Second); ; {
		list, err := other.Streams(t.Context())
		if err == nil && len(list.Streams) == 1 && list.Streams[0].StreamPrefix == good && slices.Equal(list.Unreadable, []string{bad}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("streams %d, unreadable %q, %v", len(list.Streams), list.Unreadable, err)
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}
