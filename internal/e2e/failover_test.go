package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

// failoverMatrix runs every case of TestFailoverInEachPhase with -failover=all.
var failoverMatrix = flag.String("failover", "some", `how many failovers TestFailoverInEachPhase tries: "some" or "all"`)

// lostFrom says which writes a failover loses.
type lostFrom string

// The commit that enters the phase and all behind it; or only what the phase did to the shards
// and all behind that.
const (
	lostCommit  lostFrom = "commit"
	lostEffects lostFrom = "effects"
)

// killAt says when the primary is killed: when the phase would be left, so that little is lost;
// some traffic after the whole resharding has ended on the primary, so that its history is lost;
// or while a replica that is still connected confirms nothing.
type killAt string

const (
	killLeaving   killAt = "leaving"
	killEnded     killAt = "ended"
	killUnheeding killAt = "unconfirmed"
)

type failoverCase struct {
	from, to int
	phase    protocol.Phase
	lost     lostFrom
	kill     killAt
	retire   protocol.Retire
	strategy protocol.Strategy
	fresh    bool // the coordinator dies as well: the next one knows nothing of what was lost
	often    bool // in every run of the tests
}

func (c failoverCase) String() string {
	return fmt.Sprintf("%s/%d-%d/%s/%s-%s/%s", c.strategy, c.from, c.to, c.phase, c.lost, c.kill, c.retire)
}

// failoverCases is the matrix: every phase of both directions × what is lost × when.
func failoverCases() []failoverCase {
	up := []protocol.Phase{
		protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating,
		protocol.PhaseOpening, protocol.PhaseConverging, protocol.PhaseRollingBack,
	}
	down := append(slices.Clone(up), protocol.PhaseDrainingRemoved, protocol.PhaseRetiring)
	var all []failoverCase
	for _, way := range []struct {
		from, to int
		phases   []protocol.Phase
	}{{2, 3, up}, {3, 2, down}} {
		for i, phase := range way.phases {
			for j, lost := range []lostFrom{lostCommit, lostEffects} {
				for k, kill := range []killAt{killLeaving, killEnded} {
					retire := protocol.RetireDelete
					if (i+j+k)%2 == 1 {
						retire = protocol.RetireArchive
					}
					all = append(all, failoverCase{from: way.from, to: way.to, phase: phase, lost: lost, kill: kill, retire: retire, strategy: protocol.StrategyQuiesce, fresh: (i+j)%2 == 0})
				}
			}
		}
		for _, phase := range []protocol.Phase{protocol.PhaseSealing, protocol.PhaseActivating} { // those that replicas confirm
			all = append(all, failoverCase{from: way.from, to: way.to, phase: phase, lost: lostEffects, kill: killUnheeding, retire: protocol.RetireDelete, strategy: protocol.StrategyQuiesce})
		}
		for _, phase := range []protocol.Phase{protocol.PhaseActivating, protocol.PhaseOpening, protocol.PhaseRetiring} {
			if slices.Contains(way.phases, phase) {
				all = append(all, failoverCase{from: way.from, to: way.to, phase: phase, lost: lostEffects, kill: killLeaving, retire: protocol.RetireDelete, strategy: protocol.StrategyOnline})
			}
		}
	}
	often := []string{
		"QUIESCE/2-3/SEALING/effects-leaving/DELETE", "QUIESCE/2-3/ACTIVATING/effects-ended/DELETE", "QUIESCE/2-3/ACTIVATING/effects-unconfirmed/DELETE",
		"QUIESCE/3-2/OPENING/commit-leaving/DELETE", "QUIESCE/3-2/RETIRING/effects-leaving/ARCHIVE", "QUIESCE/3-2/ROLLING_BACK/commit-leaving/DELETE",
		"QUIESCE/3-2/PROVISIONING/commit-ended/ARCHIVE", "ONLINE/3-2/OPENING/effects-leaving/DELETE",
	}
	for i := range all {
		all[i].often = slices.Contains(often, all[i].String())
	}
	return all
}

// effectsOf are the scripts that a phase begins its work on the shards with.
var effectsOf = map[protocol.Phase]shardscript.Name{
	protocol.PhaseProvisioning: shardscript.Prepare, protocol.PhaseSealing: shardscript.Seal, protocol.PhaseDraining: shardscript.Evidence,
	protocol.PhaseActivating: shardscript.Decide, protocol.PhaseOpening: shardscript.Open, protocol.PhaseDrainingRemoved: shardscript.Evidence,
	protocol.PhaseConverging: shardscript.Survey, protocol.PhaseRetiring: shardscript.RetireOne, protocol.PhaseRollingBack: shardscript.Release,
}

// The case that no other has: Redis's primary is SIGKILLed and the replica, which has missed the
// last writes, is promoted, in each phase of 2 → 3 and 3 → 2 under traffic. Whatever the survivor
// knows of the resharding, it ends or is rolled back; publishing is open; no entry that the
// survivor had or got is lost; and the next resharding works.
func TestFailoverInEachPhase(t *testing.T) {
	t.Parallel()
	// Not all at once: each has two servers, a coordinator and its clients.
	slots := make(chan struct{}, 4)
	for _, c := range failoverCases() {
		if *failoverMatrix != "all" && !c.often {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			newFailover(t, c).run()
		})
	}
}

// failover is one case at work.
type failover struct {
	t         *testing.T
	c         failoverCase
	pair      *redistest.Pair
	keyPrefix string
	prefix    string
	server    *server.Server
	api       *client.Client
	tr        *traffic
	oracle    *survivors
	policy    protocol.ReshardingPolicy

	mu      sync.Mutex // guards what the watcher uses
	armed   bool
	entered bool // the commit that enters the phase was seen
	cut     bool // the replica misses writes from here on
	over    bool
	seen    []string
	hit     chan struct{} // closed when the primary is to be killed
}

const (
	failoverPause = 8 * time.Second
	failoverWait  = 60 * time.Second
)

func newFailover(t *testing.T, c failoverCase) *failover {
	f := &failover{
		t: t, c: c, pair: redistest.StartPair(t), keyPrefix: redistest.KeyPrefix(t), prefix: redistest.Prefix(t), hit: make(chan struct{}),
		policy: protocol.ReshardingPolicy{Strategy: c.strategy, Retire: c.retire, PauseTimeoutMs: failoverPause.Milliseconds(), DrainTimeoutMs: 30_000},
	}
	f.oracle = newSurvivors(f.prefix, f.keyPrefix)
	f.server = startServerAt(t, "127.0.0.1:0", f.pair.URL(), f.keyPrefix)
	url := f.server.URL()
	f.api = connect(t, url)
	declare(t, f.api, f.prefix, int64(c.from), f.policy)
	putGroup(t, f.api, f.prefix, "g", protocol.GroupSpec{MemberLeaseMs: 1500, HeartbeatIntervalMs: 300})
	f.tr = startTraffic(t, f.pair.Client(t), f.prefix, "g", trafficConfig{producers: 2, consumers: 2, keys: 24, perSecond: 120, handling: 15 * time.Millisecond}, func() *client.Client { return connect(t, url) })
	f.tr.until("traffic", failoverWait, func(t ledger.Tally) bool { return t.Handled > 60 })
	return f
}

func (f *failover) run() {
	t := f.t
	blocked := f.c.phase == protocol.PhaseRollingBack
	if blocked {
		f.block()
	}
	f.pair.Watch(f.watch)
	f.mu.Lock()
	f.armed = true
	f.mu.Unlock()

	to := int64(f.c.to)
	res, err := f.api.PutStream(t.Context(), f.prefix, protocol.PutStreamRequest{ShardCount: &to, Resharding: f.policy, RequestedBy: "e2e", Reason: t.Name()}, client.Call{})
	if err != nil {
		t.Logf("the call that started it: %v", err) // it is what was cut
	}
	id := res.ReshardingID
	if blocked {
		f.askRollback(id)
	}
	f.await(id)

	// The primary is gone; the replica takes over.
	f.pair.Promote(t)
	f.pair.Watch(f.oracle.watch(f.pair.Replica.Client(t)))
	f.oracle.collect(t, f.pair.Replica.Client(t))
	from := f.tr.book.Count()
	if f.c.fresh {
		f.replaceCoordinator()
	} else {
		f.pair.Reconnect()
	}

	// Publishing goes on by itself, with or without the end of the resharding.
	f.tr.until("publishing behind the failover", failoverPause+failoverWait, func(t ledger.Tally) bool { return t.Published > from.Published+20 })
	for _, r := range atRest(t, f.api, f.prefix) {
		t.Logf("afterwards: %d → %d (%s) %s: %s %s", r.FromShardCount, r.ToShardCount, r.ReshardingID, r.Phase, r.Reason, r.Error)
		checkCertificate(t, r)
	}
	if blocked {
		f.unblock()
	}
	f.tr.until("handling behind the failover", failoverWait, func(t ledger.Tally) bool { return t.Handled > from.Handled+20 })

	// What is there now is a stream like any other.
	s, err := f.api.Stream(t.Context(), f.prefix)
	if err != nil {
		t.Fatal(err)
	}
	next := int64(f.c.from + f.c.to - s.Status.ShardCount)
	// What producers queued in a pause that was used up lies on the shards now, and these consumers
	// take as long for it as the pause was: this change has to be given the time.
	policy := f.policy
	policy.PauseTimeoutMs = 4 * failoverPause.Milliseconds()
	if r := declare(t, f.api, f.prefix, next, policy); r == nil {
		t.Errorf("the stream has %d shards, and %d are no change", s.Status.ShardCount, next)
	} else {
		checkCertificate(t, *r)
	}
	f.finish()
	f.pair.Watch(nil)
	checkShards(t, f.pair.Client(t), f.prefix, int(next), 3)
}

// block keeps DRAINING from ending: a Redis consumer group that nobody reads for.
func (f *failover) block() {
	if err := f.pair.Client(f.t).XGroupCreate(f.t.Context(), protocol.ShardKey(f.prefix, 0), "abandoned", "0").Err(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *failover) unblock() {
	if err := f.pair.Client(f.t).XGroupDestroy(f.t.Context(), protocol.ShardKey(f.prefix, 0), "abandoned").Err(); err != nil {
		f.t.Fatal(err)
	}
}

// askRollback rolls back when the resharding drains, in vain.
func (f *failover) askRollback(id string) {
	err := waitFor(f.t.Context(), failoverWait, func(ctx context.Context) error {
		r, err := f.api.Resharding(ctx, f.prefix, id, protocol.PhaseSealing, time.Second)
		if err == nil && r.Phase != protocol.PhaseDraining && r.Phase != protocol.PhaseRollingBack {
			err = fmt.Errorf("it is in %s", r.Phase)
		}
		return err
	})
	if err != nil {
		f.t.Fatalf("draining: %v", err)
	}
	if _, err := f.api.Rollback(f.t.Context(), f.prefix, id, protocol.RollbackRequest{RequestedBy: "e2e", Reason: "failover"}, client.Call{}); err != nil {
		f.t.Logf("the rollback: %v", err) // it is what was cut
	}
}

// await waits for the moment at which the primary is to be killed.
func (f *failover) await(id string) {
	t := f.t
	if f.c.kill == killUnheeding {
		f.awaitUnconfirmed(id)
		return
	}
	select {
	case <-f.hit:
	case <-time.After(failoverWait):
		f.mu.Lock()
		defer f.mu.Unlock()
		t.Fatalf("the moment did not come: entered %v, cut %v; phases seen: %v", f.entered, f.cut, f.seen)
	}
	if f.c.kill == killEnded {
		from := f.tr.book.Count().Handled
		f.tr.until("traffic that will be lost", failoverWait, func(t ledger.Tally) bool { return t.Handled > from+30 })
	}
}

// replaceCoordinator ends the coordinator while it cannot tell Redis anything, and starts one that
// knows nothing at the same address.
func (f *failover) replaceCoordinator() {
	addr := f.server.Addr()
	ctx, cancel := context.WithTimeout(f.t.Context(), failoverWait)
	defer cancel()
	if err := f.server.Stop(ctx); err != nil {
		f.t.Fatalf("stop of the coordinator: %v", err)
	}
	f.pair.Reconnect()
	f.server = startServerAt(f.t, addr, f.pair.URL(), f.keyPrefix)
}

// startServerAt is startServer with an address, and a Redis that may be away when it ends.
func startServerAt(t *testing.T, addr, redisURL, keyPrefix string) *server.Server {
	t.Helper()
	s, err := server.New(server.Config{
		Listen: addr, RedisURL: redisURL, KeyPrefix: keyPrefix, AdminUsername: username, AdminPassword: password,
		TokenSecret: "a secret of the tests, 32 bytes or more", Logger: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), failoverWait)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop of the coordinator: %v", err)
		}
	})
	return s
}

// awaitUnconfirmed: a replica that is connected and confirms nothing keeps the seals from
// counting and the decision from being built upon.
func (f *failover) awaitUnconfirmed(id string) {
	var last protocol.Resharding
	err := waitFor(f.t.Context(), failoverWait, func(ctx context.Context) error {
		r, err := f.api.Resharding(ctx, f.prefix, id, "", 0)
		if err != nil {
			return err
		}
		last = r
		if r.Phase == f.c.phase && strings.Contains(strings.Join(r.WaitingFor, " "), "replica") {
			return nil
		}
		return fmt.Errorf("%s waits for %v", r.Phase, r.WaitingFor)
	})
	if err != nil {
		f.t.Fatalf("a record that waits for a replica: %v", err)
	}
	f.t.Logf("%s waits for %v", last.Phase, last.WaitingFor)
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.pair.Cut()
}

// watch sees every command before Redis does.
func (f *failover) watch(cmd redistest.Command) redistest.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.over:
		return redistest.Drop
	case !f.armed:
		return redistest.Forward
	}
	if phase, ok := committedPhase(cmd); ok {
		if n := len(f.seen); n == 0 || f.seen[n-1] != string(phase) {
			f.seen = append(f.seen, string(phase))
		}
		switch {
		case phase == f.c.phase && !f.entered:
			f.entered = true
			if f.c.lost == lostCommit {
				f.detach()
			}
		case phase != f.c.phase && f.entered && f.c.kill == killLeaving:
			f.detach()
			f.over = true
			close(f.hit)
			f.pair.Cut()
			return redistest.Drop
		case phase == "" && f.entered && f.c.kill == killEnded:
			f.detach()
			f.armed = false
			close(f.hit)
		}
	}
	if f.entered && f.c.lost == lostEffects && isScript(cmd, effectsOf[f.c.phase]) {
		f.detach()
	}
	return redistest.Forward
}

// detach makes the replica miss everything from here on.
func (f *failover) detach() {
	if f.cut {
		return
	}
	f.cut = true
	if f.c.kill == killUnheeding {
		f.pair.Freeze()
		return
	}
	if err := f.pair.Detach(); err != nil {
		f.t.Errorf("detach the replica: %v", err)
	}
}

// committedPhase is the phase of the active resharding in a commit of a stream, "" for none.
func committedPhase(cmd redistest.Command) (protocol.Phase, bool) {
	for _, arg := range cmd {
		if !bytes.HasPrefix(arg, []byte(`{"`)) || !bytes.Contains(arg, []byte(`"publishState"`)) {
			continue
		}
		var state struct {
			Active *struct {
				Phase protocol.Phase `json:"phase"`
			} `json:"active"`
		}
		if err := json.Unmarshal(arg, &state); err != nil {
			continue
		}
		if state.Active == nil {
			return "", true
		}
		return state.Active.Phase, true
	}
	return "", false
}

var scriptDigests = func() map[shardscript.Name]string {
	all := map[shardscript.Name]string{}
	for _, name := range shardscript.Names() {
		all[name] = redis.NewScript(shardscript.Source(name)).Hash()
	}
	return all
}()

// isScript says whether cmd runs a script beside a shard.
func isScript(cmd redistest.Command, name shardscript.Name) bool {
	if len(cmd) < 5 || !strings.EqualFold(string(cmd[0]), "evalsha") {
		return false
	}
	return string(cmd[1]) == scriptDigests[name]
}

// atRest waits until no resharding runs and publishing is open, and returns what is recorded.
func atRest(t *testing.T, api *client.Client, prefix string) []protocol.Resharding {
	t.Helper()
	var last protocol.Stream
	var list protocol.ReshardingList
	err := waitFor(t.Context(), 2*failoverWait, func(ctx context.Context) error {
		s, err := api.Stream(ctx, prefix)
		if err != nil {
			return err
		}
		last = s
		if id := s.Status.ActiveReshardingID; id != "" {
			r, err := api.Resharding(ctx, prefix, id, "", 0)
			return fmt.Errorf("%s: %s waits for %v: %w", id, r.Phase, r.WaitingFor, errors.Join(err, errNotYet))
		}
		if s.Status.PublishState != protocol.PublishOpen {
			return fmt.Errorf("publishing is %s: %w", s.Status.PublishState, errNotYet)
		}
		list, err = api.Reshardings(ctx, prefix)
		return err
	})
	if err != nil {
		t.Fatalf("rest behind the failover: %v; last seen %+v", err, last.Status)
	}
	return list.Reshardings
}

// finish stops the traffic and counts.
func (f *failover) finish() {
	t := f.t
	f.tr.stopProducing()
	f.oracle.collect(t, f.pair.Client(t))
	f.oracle.await(t, f.tr)
	tally := f.tr.book.Count()
	// Order is promised through a failover only where replicas had to confirm (resharding.md 1.1).
	if tally.Strict > 0 && f.c.strategy == protocol.StrategyQuiesce && f.c.kill == killUnheeding {
		t.Errorf("%d order violations: %+v", tally.Strict, tally.Examples)
	}
	t.Logf("published %d (unknown %d), handled %d, duplicates %d, lost by Redis %d, order violations %d; the oracle knows %d", tally.Published, tally.Unknown, tally.Handled, tally.Duplicates, tally.Lost, tally.Strict, f.oracle.count())
}

// await waits until every entry that the oracle knows was handled, and ends the consumers.
func (s *survivors) await(t *testing.T, tr *traffic) {
	t.Helper()
	if err := waitFor(t.Context(), failoverWait, func(context.Context) error {
		if left := s.unhandled(tr.book); len(left) > 0 {
			return fmt.Errorf("%d of %d entries were not handled, among them %v", len(left), s.count(), left[:min(len(left), 5)])
		}
		return nil
	}); err != nil {
		t.Errorf("entries that Redis kept: %v", err)
	}
	tr.stopConsuming()
	for _, fault := range s.faults() {
		t.Error(fault)
	}
	tr.failures.Range(func(key, _ any) bool {
		// An append whose answer the failover took has an unknown outcome, and who had read what was
		// lost may not acknowledge it.
		if text, ok := key.(string); ok && !strings.HasPrefix(text, "append: ") && !strings.Contains(text, "was refused") {
			t.Errorf("%s", text)
		}
		return true
	})
}

// checkCertificate: what a resharding was decided on is free of backlog, but for what was ignored.
func checkCertificate(t *testing.T, r protocol.Resharding) {
	t.Helper()
	if r.Certificate == nil {
		return
	}
	for _, s := range r.Certificate.Shards {
		for _, g := range s.Groups {
			if !g.Ignored && (g.Pending > 0 || g.EntryAfter) && (r.DrainScope == protocol.DrainAll || s.ShardIndex >= r.ToShardCount) {
				t.Errorf("certificate of %s: shard %d, group %s: %+v", r.ReshardingID, s.ShardIndex, g.Group, g)
			}
		}
		if !s.Sealed && r.Certificate.Barrier == "XSETID" {
			t.Errorf("certificate of %s: shard %d is not sealed", r.ReshardingID, s.ShardIndex)
		}
	}
}

// checkShards: the shards of the layout are there and accept entries; those above it are gone.
func checkShards(t *testing.T, rdb redis.Cmdable, prefix string, count, most int) {
	t.Helper()
	for i := range most {
		info, err := rdb.XInfoStream(t.Context(), protocol.ShardKey(prefix, i)).Result()
		switch {
		case i >= count && (err == nil || !strings.Contains(err.Error(), "no such key")):
			t.Errorf("removed shard %d: %+v, %v", i, info, err)
		case i < count && err != nil:
			t.Errorf("shard %d: %v", i, err)
		case i < count && strings.HasPrefix(info.LastGeneratedID, "18446744073709551615-"):
			t.Errorf("shard %d is sealed", i)
		}
	}
}

var errNotYet = errors.New("not yet")

// waitFor asks done until it returns nil; the error says what was last seen.
func waitFor(ctx context.Context, within time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, last)
		case <-tick.C:
		}
	}
}

// entry is one entry as the ledger names it.
type entry struct{ key, number int }

// survivors is the oracle of a failover: the entries that Redis had when a replica was promoted,
// or got since, wherever they are kept. What Redis itself has lost is none of them.
type survivors struct {
	prefix, keyPrefix string

	mu      sync.Mutex
	entries map[entry]bool
	wrong   []string
}

func newSurvivors(prefix, keyPrefix string) *survivors {
	return &survivors{prefix: prefix, keyPrefix: keyPrefix, entries: map[entry]bool{}}
}

// collect adds what is on all shards and archives now.
func (s *survivors) collect(t *testing.T, rdb redis.Cmdable) {
	t.Helper()
	var keys []string
	var cursor uint64
	for {
		page, next, err := rdb.ScanType(t.Context(), cursor, "*"+s.prefix+"*", 1000, "stream").Result()
		if err != nil {
			t.Fatalf("look for shards: %v", err)
		}
		keys = append(keys, page...)
		if cursor = next; next == 0 {
			break
		}
	}
	for _, key := range keys {
		if strings.HasPrefix(key, s.keyPrefix) {
			continue // an audit log
		}
		if err := s.add(t.Context(), rdb, key); err != nil {
			t.Fatal(err)
		}
	}
}

// collectCluster is collect of all nodes that serve slots.
func (s *survivors) collectCluster(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	for _, node := range cluster.Nodes {
		rdb := node.Client(t)
		if info, err := rdb.Info(t.Context(), "replication").Result(); err == nil && strings.Contains(info, "role:master") {
			s.collect(t, rdb)
		}
	}
}

// add notes the entries of one stream.
func (s *survivors) add(ctx context.Context, rdb redis.Cmdable, key string) error {
	messages, err := rdb.XRange(ctx, key, "-", "+").Result()
	if err != nil {
		return fmt.Errorf("entries of %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		k, err1 := strconv.Atoi(fmt.Sprint(m.Values["key"]))
		n, err2 := strconv.Atoi(fmt.Sprint(m.Values["number"]))
		if err1 == nil && err2 == nil {
			s.entries[entry{k, n}] = true
		}
	}
	return nil
}

// watch sees the removal of a shard before it happens, and notes what is on it.
func (s *survivors) watch(rdb redis.Cmdable) func(redistest.Command) redistest.Verdict {
	return func(cmd redistest.Command) redistest.Verdict {
		if isScript(cmd, shardscript.RetireOne) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.add(ctx, rdb, string(cmd[3])); err != nil {
				s.mu.Lock()
				s.wrong = append(s.wrong, err.Error())
				s.mu.Unlock()
			}
		}
		return redistest.Forward
	}
}

// unhandled lists what no consumer has handled.
func (s *survivors) unhandled(book *ledger.Ledger) []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []entry
	for e := range s.entries {
		if book.Times(e.key, e.number) == 0 {
			left = append(left, e)
		}
	}
	return left
}

func (s *survivors) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

func (s *survivors) faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrong)
}

// finishUnordered is finish where bare appends were made besides: no order is promised to them.
func (tr *traffic) finishUnordered() {
	tr.t.Helper()
	tr.stopProducing()
	tr.until("handling of everything that landed", failoverWait, func(t ledger.Tally) bool { return t.Lost == 0 })
	tr.stopConsuming()
	tr.failures.Range(func(text, _ any) bool {
		tr.t.Errorf("%v", text)
		return true
	})
}
