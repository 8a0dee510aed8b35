package stream_test

import (
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// What is left for a group on a shard whose control hash is damaged is not known, and why is in the code.
func TestBacklogOfADamagedShard(t *testing.T) {
	t.Parallel()
	text := stream.ControlDamaged("{orders:1}:control", "it is a list")
	for reason, want := range map[string]protocol.Code{text: protocol.CodeShardControlDamaged, "i/o timeout": protocol.CodeRedisUnavailable} {
		err := stream.Backlog{Unknown: []stream.ShardBacklog{{Index: 1, Error: reason}}}.Refusal("g")
		if err == nil || err.Code != want || !strings.Contains(err.Message, reason) {
			t.Errorf("%s: refused as %v, want %s", reason, err, want)
		}
	}
}
