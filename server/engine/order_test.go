package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

// numbered is an entry of a key: the seq-th one, appended at (ms of its node).
type numbered struct {
	key string
	seq int
	at  int64
}

// produce appends the entries first … of each key in turn, under the layout that routing shows, until
// stop is closed; it returns how many of each key have landed.
func (w *world) produce(e *engine.Engine, keys []string, first int, stop <-chan struct{}) (landed int, err error) {
	epoch, count := int64(0), 0
	for seq := first; ; seq++ {
		for _, key := range keys {
			for {
				select {
				case <-stop:
					if key == keys[0] {
						return seq - 1, nil
					}
				default:
				}
				if count == 0 {
					r, err := e.Routing(w.t.Context(), w.prefix, 0, 0, "", true)
					if err != nil {
						return 0, err
					}
					epoch, count = r.LayoutEpoch, r.ShardCount
				}
				shard, _ := protocol.ShardIndex([]byte(key), count)
				v, err := scripts[shardscript.Append].Run(w.t.Context(), w.rdb, []string{protocol.ShardKey(w.prefix, shard), protocol.ControlKey(w.prefix, shard)},
					shardscript.AppendArgs(epoch, count, 0, []any{"key", key, "seq", strconv.Itoa(seq)})...).Result()
				if err != nil {
					return 0, err
				}
				reply, err := shardscript.ParseAppend(v)
				if err != nil {
					return 0, err
				}
				if reply.Code == shardscript.OK {
					break
				}
				count = 0 // another layout
			}
		}
	}
}

// consumeInOrder is one member that reads few entries of each shard at a time, new shards first, and
// hands them to handle one by one, until the context ends.
func (w *world) consumeInOrder(ctx context.Context, e *engine.Engine, handle func(numbered)) error {
	m := memberOf(e, w.prefix, "m")
	for ctx.Err() == nil {
		if resp := m.beat(ctx, 0); resp.Status == protocol.StatusFencedMemberEpoch || resp.Status == protocol.StatusUnknownMemberID {
			m.epoch, m.owned = 0, nil
		}
		for i := range m.owned {
			key := protocol.ShardKey(w.prefix, m.owned[len(m.owned)-1-i])
			res, err := w.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "m", Streams: []string{key, ">"}, Count: 10, Block: -1}).Result()
			if err != nil {
				if errors.Is(err, redis.Nil) || ctx.Err() != nil {
					continue
				}
				return err
			}
			for _, entry := range res[0].Messages {
				seq, err := strconv.Atoi(entry.Values["seq"].(string))
				if err != nil {
					return err
				}
				ms, _, _ := strings.Cut(entry.ID, "-")
				at, err := strconv.ParseInt(ms, 10, 64)
				if err != nil {
					return err
				}
				handle(numbered{entry.Values["key"].(string), seq, at})
				if err := w.rdb.XAck(ctx, key, "g", entry.ID).Err(); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	}
	return nil
}

// An online change may reorder keys. Of two entries that are handled in the wrong order, the older was
// appended by the end of the window that the change reports, and the newer since its start.
func TestOnlineOrderWindow(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 2)
		const producers = 3
		var (
			running sync.WaitGroup
			stop    = make(chan struct{})
			total   [producers]int
			keys    [producers][]string
			failed  = make(chan error, producers+1)
		)
		for p := range producers {
			for k := range 8 {
				keys[p] = append(keys[p], fmt.Sprintf("p%d-k%d", p, k))
			}
			running.Go(func() {
				n, err := w.produce(e, keys[p], 1, stop)
				total[p] = n
				if err != nil {
					failed <- fmt.Errorf("producer %d: %w", p, err)
				}
			})
		}
		end := sync.OnceFunc(func() { close(stop); running.Wait() })
		t.Cleanup(end)
		backlog := func() (n int64) {
			for i := range 2 {
				n += w.rdb.XLen(t.Context(), protocol.ShardKey(w.prefix, i)).Val()
			}
			return n
		}
		w.eventually("a backlog", 30*time.Second, func() (bool, string) { n := backlog(); return n >= 400, fmt.Sprint(n) })

		id := w.scale(e, 5, protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline})
		var (
			mu      sync.Mutex
			handled = map[string][]numbered{}
			count   int
		)
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		consumer := make(chan struct{})
		go func() {
			defer close(consumer)
			if err := w.consumeInOrder(ctx, e, func(n numbered) {
				mu.Lock()
				defer mu.Unlock()
				handled[n.key] = append(handled[n.key], n)
				count++
			}); err != nil {
				failed <- fmt.Errorf("consumer: %w", err)
			}
		}()
		r := finish(t, e, w.prefix, id)
		if r.Phase != protocol.PhaseCompleted || r.OrderWindow == nil || r.OrderWindow.To == nil {
			t.Fatalf("ended %s (%s) with window %+v", r.Phase, r.Error, r.OrderWindow)
		}
		w.eventually("appends go on under the new layout", 30*time.Second, func() (bool, string) {
			n := w.rdb.XLen(t.Context(), protocol.ShardKey(w.prefix, 4)).Val()
			return n >= 20, fmt.Sprint(n)
		})
		end()
		want := 0
		for p := range producers {
			want += total[p] * len(keys[p])
		}
		w.eventually("everything is handled", 60*time.Second, func() (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			return count >= want || len(failed) > 0, fmt.Sprintf("%d of %d", count, want)
		})
		cancel()
		<-consumer
		for len(failed) > 0 {
			t.Error(<-failed)
		}

		from, to := r.OrderWindow.From.UnixMilli(), r.OrderWindow.To.UnixMilli()
		inversions, waited := 0, 0
		for key, entries := range handled {
			for i, older := range entries {
				for _, newer := range entries[:i] {
					if newer.seq <= older.seq {
						continue
					}
					inversions++
					if older.at < from {
						waited++
					}
					if older.at > to || newer.at < from {
						t.Fatalf("key %s: %d (at %d) was handled after %d (at %d); the window is %d to %d", key, older.seq, older.at, newer.seq, newer.at, from, to)
					}
				}
			}
		}
		t.Logf("%d entries, %d pairs in the wrong order, %d of them with an older one from before the window of %d ms", count, inversions, waited, to-from)
		if inversions == 0 || waited == 0 {
			t.Error("no pair was in the wrong order: the test shows nothing")
		}
	})
}
