package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

// What the plan of a destroy says is what happens: which timeout ends the wait, and which groups count.
func TestRemovalText(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]string{
		"quiesce": "after pause_timeout (5m), the removal is undone, publishing is open again",
		"online":  "after drain_timeout (1h), the coordinator brings the shards back",
	} {
		m := shardCountModel{
			StreamPrefix: types.StringValue("orders"), ShardCount: countOf(1), Strategy: types.StringValue(strategy), Retire: types.StringValue("delete"),
			PauseTimeout: durationOfMs(300_000), DrainTimeout: durationOfMs(3_600_000),
		}
		text := m.removalText()
		for _, part := range []string{want, "its 1 shard (retire: delete)", "that is then on the stream", "removed unread: stop the producers first"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is missing in %s", strategy, part, text)
			}
		}
	}
}
