package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// world is one stream on a real Redis, with replicas that can be stopped before the passes of a
// phase, producers' scripts, and a consumer of group "g".
type world struct {
	t            *testing.T
	rdb          redis.UniversalClient
	keys, prefix string

	consumed sync.Map // "key/id" → true
}

func newWorld(t *testing.T, rdb redis.UniversalClient) *world {
	return &world{t: t, rdb: rdb, keys: redistest.KeyPrefix(t), prefix: redistest.Prefix(t)}
}

// gate stops a replica before the passes of one phase, as a process that is frozen between
// computing a command and sending it.
type gate struct {
	mu      sync.Mutex
	phase   protocol.Phase
	reached chan struct{}
	open    chan struct{}
}

// at stops the next pass of the phase. The returned channel is closed when it stands there.
func (g *gate) at(phase protocol.Phase) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase, g.reached, g.open = phase, make(chan struct{}), make(chan struct{})
	return g.reached
}

// next lets it go on to the next pass of the phase, and stops it there.
func (g *gate) next(phase protocol.Phase) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.phase, g.reached, g.open = phase, make(chan struct{}), make(chan struct{})
	return g.reached
}

// release lets it go on, and stops nothing any more.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
	}
	g.phase, g.open = "", nil
}

func (g *gate) pass(p stream.Pass) {
	g.mu.Lock()
	if p.Phase == "" || p.Phase != g.phase {
		g.mu.Unlock()
		return
	}
	reached, open := g.reached, g.open
	g.mu.Unlock()
	select {
	case <-reached:
	default:
		close(reached)
	}
	<-open
}

// start runs a replica with a gate of its own.
func (w *world) start(id string) (*engine.Engine, *gate, func()) {
	w.t.Helper()
	log := zaptest.NewLogger(w.t, zaptest.Level(zap.ErrorLevel))
	store, err := redisstore.New(redisstore.Config{Client: w.rdb, KeyPrefix: w.keys, Logger: log})
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: store, CoordinatorID: id, Logger: log, SweepInterval: 300 * time.Millisecond, TickerTTL: 600 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	g := &gate{}
	engine.BeforePass(e, g.pass)
	if err := e.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		g.release()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(e.Stop(ctx), store.Close()); err != nil {
			w.t.Errorf("stop of replica %s: %v", id, err)
		}
	})
	w.t.Cleanup(stop)
	return e, g, stop
}

func (w *world) eventually(what string, within time.Duration, ok func() (bool, string)) {
	w.t.Helper()
	deadline := time.Now().Add(within)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		done, last := ok()
		if done {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			tick.Stop()
			w.t.Fatalf("%s did not happen within %s; last seen: %s", what, within, last)
		}
	}
}

var scripts = func() map[shardscript.Name]*redis.Script {
	all := map[shardscript.Name]*redis.Script{}
	for _, name := range shardscript.Names() {
		all[name] = redis.NewScript(shardscript.Source(name))
	}
	return all
}()

func (w *world) run(name shardscript.Name, shard int, args ...any) any {
	w.t.Helper()
	v, err := scripts[name].Run(w.t.Context(), w.rdb, []string{protocol.ShardKey(w.prefix, shard), protocol.ControlKey(w.prefix, shard)}, args...).Result()
	if err != nil {
		w.t.Fatalf("%s on shard %d: %v", name, shard, err)
	}
	return v
}

// append is what a fenced producer sends under a layout; the id is "" when it was refused.
func (w *world) append(shard int, epoch int64, count int) (shardscript.AppendReply, string) {
	w.t.Helper()
	reply, err := shardscript.ParseAppend(w.run(shardscript.Append, shard, shardscript.AppendArgs(epoch, count, 0, []any{"f", fmt.Sprint(shard)})...))
	if err != nil {
		w.t.Fatal(err)
	}
	if reply.Code == shardscript.OK {
		return reply, reply.IDs[0]
	}
	return reply, ""
}

// control reads a control hash, nil when there is none.
func (w *world) control(shard int) map[string]string {
	w.t.Helper()
	m, err := w.rdb.HGetAll(w.t.Context(), protocol.ControlKey(w.prefix, shard)).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) exists(shard int) bool {
	w.t.Helper()
	n, err := w.rdb.Exists(w.t.Context(), protocol.ShardKey(w.prefix, shard)).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return n == 1
}

// keep takes a copy of keys; the returned function puts it back: Redis lost what was written since.
func (w *world) keep(keys ...string) (lose func()) {
	w.t.Helper()
	copies := map[string]string{}
	for _, key := range keys {
		dump, err := w.rdb.Dump(w.t.Context(), key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			w.t.Fatal(err)
		}
		copies[key] = dump
	}
	return func() {
		w.t.Helper()
		for _, key := range keys {
			if err := w.rdb.Del(w.t.Context(), key).Err(); err != nil {
				w.t.Fatal(err)
			}
			if copies[key] == "" {
				continue
			}
			if err := w.rdb.Restore(w.t.Context(), key, 0, copies[key]).Err(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// aggregates are the keys of the coordinator's state of the stream.
func (w *world) aggregates() []string {
	at := w.keys + ":{" + w.prefix + "}:"
	return []string{at + "stream", at + "group:g", at + "leases:g"}
}

// shardKeys are the keys of one shard.
func (w *world) shardKeys(shard int) []string {
	return []string{protocol.ShardKey(w.prefix, shard), protocol.ControlKey(w.prefix, shard)}
}

// consume runs one member of group g that reads and acknowledges whatever it owns, until the
// returned function is called.
func (w *world) consume(e *engine.Engine, id string) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := memberOf(e, w.prefix, id)
		for ctx.Err() == nil {
			resp := m.beat(ctx, 20*time.Millisecond)
			switch resp.Status {
			case protocol.StatusFencedMemberEpoch, protocol.StatusUnknownMemberID:
				m.epoch, m.owned = 0, nil
			}
			for _, shard := range m.owned {
				w.drain(ctx, shard, id)
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

// drain handles what there is on one shard.
func (w *world) drain(ctx context.Context, shard int, consumer string) {
	key := protocol.ShardKey(w.prefix, shard)
	res, err := w.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{key, ">"}, Count: 100, Block: -1}).Result()
	switch {
	case err == nil:
	case errors.Is(err, redis.Nil), ctx.Err() != nil, strings.Contains(err.Error(), "NOGROUP"), strings.Contains(err.Error(), "UNBLOCKED"):
		return
	default:
		w.t.Errorf("read of %s: %v", key, err)
		return
	}
	for _, m := range res[0].Messages {
		w.consumed.Store(key+"/"+m.ID, true)
		if err := w.rdb.XAck(ctx, key, "g", m.ID).Err(); err != nil && ctx.Err() == nil {
			w.t.Errorf("ack on %s: %v", key, err)
		}
	}
}

func (w *world) handled(shard int, id string) bool {
	_, ok := w.consumed.Load(protocol.ShardKey(w.prefix, shard) + "/" + id)
	return ok
}

// create makes a stream of count shards with group g.
func (w *world) create(e *engine.Engine, count int) {
	w.t.Helper()
	put(w.t, e, w.prefix, spec(count))
	if _, _, err := e.PutGroup(w.t.Context(), w.prefix, "g", quick, mutation("PUT_GROUP")); err != nil {
		w.t.Fatal(err)
	}
}

// scale asks for another count and returns the id of the resharding.
func (w *world) scale(e *engine.Engine, count int, policy protocol.ReshardingPolicy) string {
	w.t.Helper()
	res, err := e.PutStream(w.t.Context(), w.prefix, protocol.StreamSpec{ShardCount: count, Resharding: policy}, mutation("SCALE"))
	if err != nil || res.ReshardingID == "" {
		w.t.Fatalf("scale to %d: %+v, %v", count, res, err)
	}
	return res.ReshardingID
}

// layout is what the stream says of itself.
func (w *world) layout(e *engine.Engine) (epoch int64, count int) {
	w.t.Helper()
	r, err := e.Routing(w.t.Context(), w.prefix, 0, 0, "", true)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.LayoutEpoch, r.ShardCount
}

// healthy checks what must hold after everything: the layout has count shards, every one of
// them accepts appends of that layout and of no other, none beyond it exists, publishing is open.
func (w *world) healthy(e *engine.Engine, count int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("a healthy stream of %d shards", count), 15*time.Second, func() (bool, string) {
		s, err := e.Stream(w.t.Context(), w.prefix)
		if err != nil {
			return false, err.Error()
		}
		if s.Status.ActiveReshardingID != "" || s.Status.PublishState != protocol.PublishOpen || s.Status.ShardCount != count {
			return false, fmt.Sprintf("%+v", s.Status)
		}
		for i := range count + 3 {
			if i >= count {
				if w.exists(i) {
					return false, fmt.Sprintf("shard %d exists", i)
				}
				continue
			}
			if reply, id := w.append(i, s.Status.LayoutEpoch, count); id == "" {
				return false, fmt.Sprintf("append to shard %d: %+v; control %v", i, reply, w.control(i))
			}
			if reply, _ := w.append(i, s.Status.LayoutEpoch-1, count); reply.Code == shardscript.OK {
				w.t.Fatalf("shard %d takes appends of an older layout", i)
			}
		}
		return true, ""
	})
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(15 * time.Second):
		t.Fatalf("%s was not reached", what)
	}
}

func phases(r protocol.Resharding) (all []protocol.Phase) {
	for _, p := range r.Phases {
		all = append(all, p.Phase)
	}
	return slices.Compact(all)
}
