package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/balancer"
	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// What a run works with.
const (
	streamPrefix = "orders"
	username     = "chaos"
	keyCount     = 120
	memberLease  = 5 * time.Second
	heartbeat    = 800 * time.Millisecond
)

// groupNames are the consumer groups; the last consumer reads the second one alone.
var groupNames = []string{"billing", "audit"}

// world is what a run started: programs, a balancer, a client, and the journal of what they do.
type world struct {
	dir       string // of logs
	self      string // this program
	rate      int    // entries a second, of all producers
	password  string
	redis     *child.Redis
	rdb       *redis.Client
	replicas  []*replica
	balancer  *balancer.Balancer
	api       *client.Client
	workers   []*worker
	journal   *ledger.Journal
	processes atomic.Int64    // that were started
	noted     atomic.Int64    // lines
	known     map[string]bool // resharding ids whose records were taken
	records   []protocol.Resharding

	stalls    sync.WaitGroup
	stalled   int // how often the machine was too busy; read when stalls are over
	endStalls context.CancelFunc
}

// replica is one place for a coordinator.
type replica struct {
	fate sync.Mutex // one fault at a time
	conf child.Coordinator
	proc *child.Process
}

// build makes the program under test; it is not part of the run.
func build(ctx context.Context, rate int) (*world, error) {
	w := &world{rate: rate, password: rand.Text(), known: map[string]bool{}, journal: ledger.NewJournal(keyCount, len(groupNames))}
	var err error
	if w.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "redisstream-chaos-"); err != nil {
		return nil, err
	}
	if _, err := child.Run(ctx, ".", nil, "go", "build", "-o", w.program(), "./cmd/redis-stream-coordinator"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.dir))
	}
	return w, nil
}

func (w *world) program() string { return filepath.Join(w.dir, "redis-stream-coordinator") }

// start brings up Redis, the coordinators, the balancer, the stream with its groups, and the workers.
func (w *world) start(ctx context.Context, shards int64) error {
	server, err := toolchain.RedisServer(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if w.redis, err = child.StartRedis(ctx, server, w.dir); err != nil {
		return err
	}
	w.rdb = w.redis.Client()
	var urls []string
	for i := range howMany[coordinators] {
		addr, _, err := child.FreeAddress(ctx)
		if err != nil {
			return err
		}
		dir := filepath.Join(w.dir, fmt.Sprint("coordinator-", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		r := &replica{conf: child.Coordinator{
			Program: w.program(), Dir: dir, Addr: addr, RedisURL: w.redis.URL(), Username: username, Password: w.password,
			Env: []string{fmt.Sprint("RSC_COORDINATOR_ID=coordinator-", i)},
		}}
		if r.proc, err = child.StartCoordinator(ctx, r.conf); err != nil {
			return err
		}
		w.replicas = append(w.replicas, r)
		urls = append(urls, "http://"+addr)
	}
	if w.balancer, err = balancer.Start(ctx, urls...); err != nil {
		return err
	}
	if w.api, err = client.New(client.Config{Endpoints: []string{w.balancer.URL}, Username: username, Password: w.password, CallTimeout: 3 * time.Second}); err != nil {
		return err
	}
	if _, err := w.api.PutStream(ctx, streamPrefix, protocol.PutStreamRequest{ShardCount: &shards, RequestedBy: "chaos"}, client.Call{}); err != nil {
		return fmt.Errorf("create the stream: %w", err)
	}
	for _, g := range groupNames {
		spec := protocol.GroupSpec{MemberLeaseMs: memberLease.Milliseconds(), HeartbeatIntervalMs: heartbeat.Milliseconds()}
		if _, err := w.api.PutGroup(ctx, streamPrefix, g, protocol.PutGroupRequest{GroupSpec: spec, RequestedBy: "chaos"}, client.Call{}); err != nil {
			return fmt.Errorf("create group %s: %w", g, err)
		}
	}
	for _, kind := range []victim{consumers, producers} {
		for i := range howMany[kind] {
			k := &worker{w: w, kind: kind, index: i}
			if kind == consumers && i == howMany[consumers]-1 {
				k.group = 1
			}
			if err := k.start(ctx); err != nil {
				return err
			}
			w.workers = append(w.workers, k)
		}
	}
	watching, stop := context.WithCancel(ctx)
	w.endStalls = stop
	w.stalls.Go(func() { w.watchStalls(watching) })
	return nil
}

// watchStalls notes when the machine is too busy to run what is due: members may lose their leases
// then, as they may when a coordinator is away.
func (w *world) watchStalls(ctx context.Context) {
	const every, stall = 20 * time.Millisecond, 150 * time.Millisecond
	last := time.Now()
	for pause(ctx, every) {
		if at := time.Now(); at.Sub(last) > stall {
			w.stalled++
			w.journal.Disturb(ledger.Window{From: last, To: at})
		}
		last = time.Now()
	}
}

// workersOf are the workers of a kind, in order.
func (w *world) workersOf(kind victim) []*worker {
	var list []*worker
	for _, k := range w.workers {
		if k.kind == kind {
			list = append(list, k)
		}
	}
	return list
}

// inflict carries out a fault to its end.
func (w *world) inflict(ctx context.Context, f fault) error {
	if f.victim == coordinators {
		return w.inflictReplica(ctx, f)
	}
	k := w.workersOf(f.victim)[f.index]
	k.fate.Lock()
	defer k.fate.Unlock()
	if f.freeze {
		return k.freeze(ctx, f.lasts)
	}
	k.kill(ctx)
	if !pause(ctx, f.lasts) {
		return ctx.Err()
	}
	return k.start(ctx)
}

func (w *world) inflictReplica(ctx context.Context, f fault) (err error) {
	r := w.replicas[f.index]
	r.fate.Lock()
	defer r.fate.Unlock()
	from := time.Now()
	// Twice: what happens meanwhile may be judged before it has ended.
	defer func() { w.journal.Disturb(ledger.Window{From: from, To: time.Now()}) }()
	if f.freeze {
		if err := r.proc.Freeze(); err != nil {
			return err
		}
		pause(ctx, f.lasts)
		return r.proc.Thaw()
	}
	r.proc.Kill()
	if !pause(ctx, f.lasts) {
		return ctx.Err()
	}
	r.proc, err = child.StartCoordinator(ctx, r.conf)
	return err
}

// pendingOf is what Redis holds as delivered to a worker and not acknowledged, on every shard.
func (w *world) pendingOf(ctx context.Context, group, name string) (map[ledger.Place]bool, error) {
	pipe := w.rdb.Pipeline()
	asked := make([]*redis.XPendingExtCmd, maxShards+1)
	for i := range asked {
		asked[i] = pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: protocol.ShardKey(streamPrefix, i), Group: group, Start: "-", End: "+", Count: 100_000})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	all := map[ledger.Place]bool{}
	for i, cmd := range asked {
		list, err := cmd.Result()
		switch {
		case redis.HasErrorPrefix(err, "NOGROUP"): // there is no such shard
			continue
		case err != nil:
			return all, err
		}
		for _, p := range list {
			if !strings.HasPrefix(p.Consumer, name+"-") && !strings.HasPrefix(p.Consumer, name+"~") {
				continue
			}
			id, err := ledger.ParseEntryID(p.ID)
			if err != nil {
				return all, err
			}
			all[ledger.Place{Shard: i, ID: id}] = true
		}
	}
	return all, nil
}

// close ends everything, whatever state it is in.
func (w *world) close() {
	if w.endStalls != nil {
		w.endStalls()
		w.stalls.Wait()
	}
	for _, k := range w.workers {
		if k.proc != nil {
			k.mu.Lock()
			k.ending = true
			k.mu.Unlock()
			k.proc.In.Close()
			k.proc.Kill()
			<-k.read
		}
	}
	for _, r := range w.replicas {
		if r.proc != nil {
			r.proc.Kill()
		}
	}
	if w.balancer != nil {
		w.balancer.Close()
	}
	if w.api != nil {
		w.api.Close()
	}
	if w.redis != nil {
		w.rdb.Close()
		w.redis.Stop()
	}
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
