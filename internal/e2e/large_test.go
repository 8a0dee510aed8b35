package e2e_test

import (
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

var largeShards = flag.Int64("large", 1000, "shards that TestThousandsOfShards begins with; it goes to twice as many and then to one")

// A thousand shards, two thousand, one: with a consumer that owns them all and traffic on some.
func TestThousandsOfShards(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	rdb, prefix := redisServer.Client(t), redistest.Prefix(t)
	keyPrefix := redistest.KeyPrefix(t)
	s := startServer(t, redisServer.URL(), keyPrefix)
	api := connect(t, s.URL())
	first := *largeShards
	begin := time.Now()
	declare(t, api, prefix, first, protocol.ReshardingPolicy{})
	t.Logf("0 → %d: %s", first, time.Since(begin).Round(time.Millisecond))
	putGroup(t, api, prefix, "g", protocol.GroupSpec{})
	tr := startTraffic(t, rdb, prefix, "g", trafficConfig{producers: 1, consumers: 1, keys: 100, perSecond: 50, concurrency: 4}, func() *client.Client { return connect(t, s.URL()) })
	tr.until("traffic", 60*time.Second, func(t ledger.Tally) bool { return t.Handled > 50 })
	from := first
	for _, to := range []int64{2 * first, 1} {
		begin := time.Now()
		r := declare(t, api, prefix, to, protocol.ReshardingPolicy{})
		took := time.Since(begin)
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		size, err := rdb.MemoryUsage(t.Context(), keyPrefix+":{"+prefix+"}:stream", 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d → %d: %s, paused %d ms; heap %d MiB, system %d MiB; aggregate %d KiB", from, to, took.Round(time.Millisecond), r.PausedMs, memory.HeapAlloc>>20, memory.Sys>>20, size>>10)
		for _, p := range r.Phases {
			if p.EndedAt != nil {
				t.Logf("  %-16s %s", p.Phase, p.EndedAt.Sub(p.StartedAt).Round(time.Millisecond))
			}
		}
		checkCertificate(t, *r)
		if n := len(r.Certificate.Shards); n != int(from) {
			t.Errorf("certificate of %d shards, want %d", n, from)
		}
		from = to
		before := tr.book.Count().Handled
		tr.until("traffic", 60*time.Second, func(t ledger.Tally) bool { return t.Handled > before+50 })
	}
	left, err := rdb.Keys(t.Context(), prefix+":*").Result()
	if err != nil || !slices.Equal(left, []string{protocol.ShardKey(prefix, 0)}) {
		t.Errorf("%d shards are left, %v", len(left), err)
	}
	tr.finish()
}
