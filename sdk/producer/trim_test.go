package producer_test

import (
	"fmt"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A producer removes nothing unless it is told to, by script or by bare XADD: what nobody has read
// yet is all there. Retention is the stream's affair.
func TestTrimsNothingByDefault(t *testing.T) {
	t.Parallel()
	const entries = 3000 // many nodes of a stream, so that trimming "about" to a length would show
	for _, plain := range []bool{false, true} {
		for _, most := range []int64{0, 100} {
			t.Run(fmt.Sprintf("plain=%v MaxLen=%d", plain, most), func(t *testing.T) {
				t.Parallel()
				b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
				p := b.producer(func(c *producer.Config) { c.Plain, c.MaxLen = plain, most })
				for n := range entries {
					if err := p.AppendAsync(t.Context(), "k", content("k", n), func(_ producer.Result, err error) {
						if err != nil {
							t.Error(err)
						}
					}); err != nil {
						t.Fatal(err)
					}
				}
				if err := p.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				got, err := b.rdb.XLen(t.Context(), protocol.ShardKey(b.prefix, 0)).Result()
				if err != nil {
					t.Fatal(err)
				}
				if most == 0 && got != entries || most > 0 && got >= entries {
					t.Errorf("%d of %d entries are left", got, entries)
				}
			})
		}
	}
}
