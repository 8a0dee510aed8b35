package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// TestDamagedControlHash: somebody writes nonsense to a control hash, under traffic: at rest, while
// the groups drain until the deadline of the pause, and behind the decision. Nothing is done there and the reason
// names the key; when the hash is put aside it is made again, nothing is lost, the order of keys is
// kept, and an earlier owner is refused as before.
func TestDamagedControlHash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		shard  int
		damage func(*lab, string)
		begin  func(*lab) // what runs when it happens
		stuck  func(*lab)
		ends   func(*lab) int // after the repair; the shards there are
	}{
		{
			name: "at rest", shard: 1,
			damage: func(l *lab, key string) {
				l.must(l.rdb.Del(l.t.Context(), key))
				l.must(l.rdb.Set(l.t.Context(), key, "x", 0))
			},
			begin: func(*lab) {},
			stuck: func(l *lab) {
				l.says("alert: SHARD_CONTROL_DAMAGED: "+protocol.ControlKey(l.stream, 1)+" is damaged (it is a string)", true)
			},
			ends: func(l *lab) int {
				l.says("SHARD_CONTROL_DAMAGED", false)
				return 3
			},
		},
		{
			name: "draining, shard 0", shard: 0,
			damage: func(l *lab, key string) { l.must(l.rdb.HSet(l.t.Context(), key, "count", "three", "rev", "?")) },
			begin: func(l *lab) {
				l.must(l.rdb.XGroupCreate(l.t.Context(), l.key(2), "abandoned", "0"))
				l.ask(5, protocol.ReshardingPolicy{PauseTimeoutMs: 6000})
				l.waits(protocol.PhaseDraining, "group abandoned has")
			},
			stuck: func(l *lab) {
				l.waits(protocol.PhaseRollingBack, "shard 0: no answer to RELEASE: SHARD_CONTROL_DAMAGED: "+protocol.ControlKey(l.stream, 0))
			},
			ends: func(l *lab) int {
				l.waits(protocol.PhaseRolledBack, "")
				l.must(l.rdb.XGroupDestroy(l.t.Context(), l.key(2), "abandoned"))
				return 3
			},
		},
		{
			name: "draining of removed shards", shard: 2,
			damage: func(l *lab, key string) { l.must(l.rdb.HSet(l.t.Context(), key, "epoch", "")) },
			begin: func(l *lab) {
				l.must(l.rdb.XGroupCreate(l.t.Context(), l.key(2), "abandoned", "0"))
				l.ask(2, protocol.ReshardingPolicy{DrainScope: protocol.DrainRemoved, Strategy: protocol.StrategyOnline})
				l.waits(protocol.PhaseDrainingRemoved, "group abandoned has")
			},
			stuck: func(l *lab) {
				l.waits(protocol.PhaseDrainingRemoved, "SHARD_CONTROL_DAMAGED: "+protocol.ControlKey(l.stream, 2))
				l.must(l.rdb.XGroupDestroy(l.t.Context(), l.key(2), "abandoned"))
			},
			ends: func(l *lab) int { return 2 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			shared := redistest.Shared(t)
			l := &lab{t: t, stream: redistest.Prefix(t), rdb: shared.Client(t)}
			s := startServer(t, shared.URL(), redistest.KeyPrefix(t))
			l.api = connect(t, s.URL())
			declare(t, l.api, l.stream, 3, protocol.ReshardingPolicy{})
			putGroup(t, l.api, l.stream, "g", protocol.GroupSpec{MemberLeaseMs: 2500, HeartbeatIntervalMs: 500})
			tr := startTraffic(t, l.rdb, l.stream, "g", trafficConfig{producers: 2, consumers: 2, keys: 30, perSecond: 100}, func() *client.Client { return connect(t, s.URL()) })
			tr.until("traffic", 60*time.Second, func(t ledger.Tally) bool { return t.Handled > 60 })
			c.begin(l)
			key := protocol.ControlKey(l.stream, c.shard)
			before := l.owner(c.shard)
			c.damage(l, key)
			c.stuck(l)
			if again, err := l.rdb.Dump(t.Context(), key).Result(); err != nil || again == "" {
				t.Errorf("the damaged key is gone: %v", err)
			}
			l.must(l.rdb.Rename(t.Context(), key, key+"-damaged"))
			count := c.ends(l)
			l.at(count)
			if c.shard < count {
				l.until("the control hash is made again, with its owner", func() (string, bool) {
					seen, err := l.rdb.HMGet(t.Context(), key, "epoch", "count", "owner:g").Result()
					return fmt.Sprint(seen, err), err == nil && seen[0] != nil && seen[1] == fmt.Sprint(count) && seen[2] != nil
				})
				l.refusesStale(c.shard, before)
			}
			at := tr.book.Count().Handled
			tr.until("traffic behind the repair", 60*time.Second, func(t ledger.Tally) bool { return t.Handled > at+100 })
			if c.shard >= count { // that change was an online one
				tr.finishUnordered()
			} else {
				tr.finish()
			}
		})
	}
}

// owner is the ownership of group g on a shard.
func (l *lab) owner(shard int) shardscript.Owner {
	l.t.Helper()
	var owner shardscript.Owner
	l.until(fmt.Sprintf("shard %d has an owner", shard), func() (string, bool) {
		text, err := l.rdb.HGet(l.t.Context(), protocol.ControlKey(l.stream, shard), "owner:g").Result()
		if err == nil {
			owner, err = shardscript.ParseOwner(text)
		}
		return fmt.Sprint(text, err), err == nil
	})
	return owner
}

// refusesStale: whoever owned the shard before the given ownership does not get it.
func (l *lab) refusesStale(shard int, owner shardscript.Owner) {
	l.t.Helper()
	stale := shardscript.Owner{Epoch: owner.Epoch - 1, MemberID: "stale", Incarnation: strings.Repeat("2", 32)}
	args := shardscript.TakeoverSlice{Group: "g", Owner: stale, Consumer: protocol.ConsumerName(stale.MemberID, stale.Epoch), Max: 10}.Args()
	v, err := redis.NewScript(shardscript.Source(shardscript.Takeover)).Run(l.t.Context(), l.rdb, []string{l.key(shard), protocol.ControlKey(l.stream, shard)}, args...).Result()
	if err != nil {
		l.t.Fatal(err)
	}
	if r, err := shardscript.ParseTakeover(v); err != nil || r.Code != shardscript.NotOwner {
		l.t.Errorf("an earlier owner of shard %d is answered %+v, %v", shard, r, err)
	}
}
