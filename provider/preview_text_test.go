package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The plan's warning, fact by fact, in the words that a user reads: each case names all lines.
func TestPreviewText(t *testing.T) {
	t.Parallel()
	estimate := int64(1500)
	archive := protocol.ReshardingPolicy{Retire: protocol.RetireArchive}
	paused := protocol.PreviewPublishing{Paused: true, LimitMs: 300_000, Basis: "why"}
	estimated := protocol.PreviewPublishing{Paused: true, EstimateMs: &estimate, LimitMs: 300_000, Basis: "two seen"}
	for name, tt := range map[string]struct {
		preview protocol.Preview
		title   string
		lines   []string
	}{
		"scale-out, paused for a time that is known": {
			protocol.Preview{Action: protocol.PreviewReshard, FromShardCount: 2, ToShardCount: 4, ShardsAdded: []int{2, 3}, MovedFraction: 0.5, Publishing: estimated},
			`Stream "orders" will be resharded from 2 to 4 shards`,
			[]string{
				"- added: shards 2 and 3",
				"- keys that move to another shard: about 50 %",
				"- publishing: paused for about 1.5s, at most 5m (two seen)",
			},
		},
		"scale-in, paused for a time that is not known": {
			protocol.Preview{Action: protocol.PreviewReshard, FromShardCount: 4, ToShardCount: 1, ShardsRemoved: []int{1, 2, 3}, MovedFraction: 0.754, Publishing: paused},
			`Stream "orders" will be resharded from 4 to 1 shard`,
			[]string{
				"- removed: shards 1 to 3; a removed shard is deleted once every consumer group has read and acknowledged all of its entries",
				"- keys that move to another shard: about 75 %",
				"- publishing: paused for at most 5m; for how long is not known (why)",
			},
		},
		"online, with removed shards that are archived": {
			protocol.Preview{Action: protocol.PreviewReshard, FromShardCount: 3, ToShardCount: 2, ShardsRemoved: []int{2}, MovedFraction: 0.333, Resharding: archive},
			`Stream "orders" will be resharded from 3 to 2 shards`,
			[]string{
				"- removed: shard 2; a removed shard is archived once every consumer group has read and acknowledged all of its entries",
				"- keys that move to another shard: about 33 %",
				"- publishing: goes on, is not paused",
			},
		},
		"to nothing": {
			protocol.Preview{Action: protocol.PreviewReshard, FromShardCount: 2, ShardsRemoved: []int{0, 1}, MovedFraction: 1, Publishing: estimated},
			`Stream "orders" will be resharded from 2 to 0 shards`,
			[]string{
				"- removed: shards 0 and 1; a removed shard is deleted once every consumer group has read and acknowledged all of its entries",
				"- publishing: ends for good",
			},
		},
		"every kind of group, and what is not known": {
			protocol.Preview{
				Action: protocol.PreviewReshard, FromShardCount: 1, ToShardCount: 2, ShardsAdded: []int{1}, MovedFraction: 0.5,
				Groups: []protocol.PreviewGroup{
					{Group: "billing", Managed: true, LiveMembers: 2, AffectedCount: 1, Pending: 3, Undelivered: 40, DrainEstimateMs: &estimate, Basis: "20 a second"},
					{Group: "slow", Managed: true, Pending: 1, Basis: "nobody reads"},
					{Group: "old", Ignored: true, Undelivered: 7, UndeliveredMore: true},
					{Group: "script", Pending: 2, DrainEstimateMs: &estimate, Basis: "seen"},
				},
				Unknown: []string{"shard 0 did not answer", "how long group slow takes"},
			},
			`Stream "orders" will be resharded from 1 to 2 shards`,
			[]string{
				"- added: shard 1",
				"- keys that move to another shard: about 50 %",
				"- publishing: goes on, is not paused",
				"- group billing: 3 pending and 40 undelivered entries, drained in about 1.5s (20 a second); 2 live members, 1 with other shards afterwards",
				"- group slow: 1 pending entry, drained in an unknown time (nobody reads); 0 live members",
				"- unmanaged Redis group old: ignored, with more than 7 undelivered entries",
				"- unmanaged Redis group script: 2 pending entries, drained in about 1.5s (seen)",
				"- not known: shard 0 did not answer",
				"- not known: how long group slow takes",
			},
		},
		"one that runs already": {
			protocol.Preview{Action: protocol.PreviewAttach, ReshardingID: "rs-7", FromShardCount: 2, ToShardCount: 3, ShardsAdded: []int{2}, MovedFraction: 0.333, Publishing: paused},
			`Stream "orders" is already on its way to 3 shards`,
			[]string{
				"- resharding: rs-7",
				"- added: shard 2",
				"- keys that move to another shard: about 33 %",
				"- publishing: paused for at most 5m; for how long is not known (why)",
			},
		},
		"one that is undone": {
			protocol.Preview{Action: protocol.PreviewCancel, ReshardingID: "rs-7", FromShardCount: 2, ToShardCount: 2, Publishing: paused},
			`The running resharding of stream "orders" will be cancelled`,
			[]string{"- resharding rs-7 is rolled back: the layout stays as it is, and publishing is open again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tt.preview
			p.StreamPrefix = "orders"
			if got := previewTitle(p); got != tt.title {
				t.Errorf("title %q, want %q", got, tt.title)
			}
			if got := strings.Split(previewText(p), "\n"); !slices.Equal(got, tt.lines) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.lines, "\n"))
			}
		})
	}
}
