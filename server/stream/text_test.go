package stream_test

import (
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

func TestCounted(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 shards": stream.Counted(0, "shard"), "1 shard": stream.Counted(1, "shard"), "2 shards": stream.Counted(2, "shard"),
		"0 entries": stream.Counted(int64(0), "entry"), "1 pending entry": stream.Counted(1, "pending entry"), "9 pending entries": stream.Counted(9, "pending entry"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
