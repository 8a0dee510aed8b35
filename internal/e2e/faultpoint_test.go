package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

var faultpoints = flag.String("faultpoints", "some", "kill at `some` fault points (each by name) or at all occurrences of all of them")

const (
	// rigWorkers is how many rigs run at once: they wait for processes and locks most of the time.
	rigWorkers = 8
	// rigTickerTTL is the soft lock's life: the successor of a dead coordinator waits for its end.
	rigTickerTTL = 400 * time.Millisecond
	// rigPatience bounds every wait for a condition; it passes only when something is wrong.
	rigPatience = 60 * time.Second

	rigKeyPrefix = "coord"
	rigPrefix    = "orders"
)

// change is what a rig's coordinators are asked for.
type change struct {
	strategy   protocol.Strategy
	from, to   int
	replicated bool // Redis has a replica that confirms
}

func (c change) String() string {
	text := fmt.Sprintf("%s-%d-%d", c.strategy, c.from, c.to)
	if c.replicated {
		text += "-replicated"
	}
	return text
}

func (c change) policy() protocol.ReshardingPolicy {
	return protocol.ReshardingPolicy{Strategy: c.strategy}
}

// rig is a Redis server with one stream at rest, and coordinators that come and go at one address.
type rig struct {
	t      *testing.T
	change change
	redis  *redistest.Server
	rdb    *redis.Client
	addr   string

	redisURL, keyPrefix, prefix string

	api    *client.Client
	once   *client.Client // that repeats nothing
	before snapshot
	runs   int // coordinators started
	proc   *child.Process
	record string // path of what the last one recorded
	armed  string // path of the file that makes it count
}

// newRig has a stream with entries on every shard that a managed and an unmanaged group have read
// and acknowledged. backlog leaves the last entry of each shard to the managed group, so that
// nothing drains.
func newRig(t *testing.T, c change, backlog bool) *rig {
	t.Helper()
	r := &rig{t: t, change: c, addr: quietAddress(t), keyPrefix: rigKeyPrefix, prefix: rigPrefix}
	if c.replicated {
		r.redis, _ = redistest.StartReplicated(t)
	} else {
		r.redis = redistest.Start(t)
	}
	r.rdb, r.redisURL = r.redis.Client(t), r.redis.URL()
	r.connect()

	r.start("")
	declare(t, r.api, rigPrefix, int64(c.from), c.policy())
	putGroup(t, r.api, rigPrefix, "g", protocol.GroupSpec{})
	r.fill(backlog)
	r.proc.Stop()
	r.before = takeSnapshot(t, r.rdb)
	// Redis knows none of the scripts, as after its own start: the ways through NOSCRIPT are taken.
	if err := r.rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// connect makes the clients of the coordinator at the rig's address.
func (r *rig) connect() {
	r.t.Helper()
	url := "http://" + r.addr
	r.api = connect(r.t, url)
	var err error
	if r.once, err = client.New(client.Config{Endpoints: []string{url}, Username: username, Password: password, Retries: -1}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.once.Close)
}

// fill gives every shard the same entries under ids that do not depend on the time.
func (r *rig) fill(backlog bool) {
	r.t.Helper()
	ctx := r.t.Context()
	for i := range r.change.from {
		key := protocol.ShardKey(rigPrefix, i)
		if err := r.rdb.XGroupCreate(ctx, key, "unmanaged", "0").Err(); err != nil {
			r.t.Fatal(err)
		}
		for n := range 4 {
			if err := r.rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, NoMkStream: true, ID: fmt.Sprintf("1-%d", n+1), Values: []any{"n", n}}).Err(); err != nil {
				r.t.Fatal(err)
			}
		}
		for _, group := range []string{"g", "unmanaged"} {
			count := int64(4)
			if backlog && group == "g" {
				count = 3
			}
			read, err := r.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{key, ">"}, Count: count, Block: -1}).Result()
			if err != nil {
				r.t.Fatal(err)
			}
			for _, m := range read[0].Messages {
				if err := r.rdb.XAck(ctx, key, group, m.ID).Err(); err != nil {
					r.t.Fatal(err)
				}
			}
		}
	}
}

// quietAddress is a loopback address that must still be free when a coordinator has died and the
// next one starts. Where all of 127.0.0.0/8 is loopback it is one that nobody else takes, not even
// as the local end of a connection.
func quietAddress(t *testing.T) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), 1+rand.IntN(254), 1+rand.IntN(254))
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a coordinator with the fault, "" for none. It counts its commands from arm on.
func (r *rig) start(fault string) {
	r.t.Helper()
	binary, err := faultyBinary()
	if err != nil {
		r.t.Fatal(err)
	}
	dir := r.t.TempDir()
	r.runs++
	r.record, r.armed = filepath.Join(dir, "record"), filepath.Join(dir, "armed")
	p, err := child.StartCoordinator(r.t.Context(), child.Coordinator{
		Program: binary, Dir: dir, Addr: r.addr, RedisURL: r.redisURL, Username: username, Password: password,
		Env: []string{
			"RSC_KEY_PREFIX=" + r.keyPrefix, "RSC_COORDINATOR_ID=" + fmt.Sprint("replica-", r.runs),
			"RSC_FAULT=" + fault, "RSC_FAULT_RECORD=" + r.record, "RSC_FAULT_ARMED=" + r.armed, "RSC_FAULT_TICKER_TTL=" + rigTickerTTL.String(),
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.proc = p
	r.t.Cleanup(p.Stop)
}

// kill ends the coordinator with SIGKILL.
func (r *rig) kill() {
	r.t.Helper()
	if err := syscall.Kill(r.proc.PID(), syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	<-r.proc.Done()
}

// arm makes the coordinator count its commands.
func (r *rig) arm() {
	r.t.Helper()
	if err := os.WriteFile(r.armed, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// eventually asks until it says yes.
func (r *rig) eventually(what string, yes func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), rigPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			r.t.Fatalf("%s did not happen within %s; recorded last: %v", what, rigPatience, tail(r.commands(), 12))
		case <-tick.C:
		}
	}
}

func tail[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// command is one line of what a coordinator recorded.
type command struct {
	point   string
	n       int // 0: before it was armed
	outcome string
}

func (c command) String() string { return fmt.Sprintf("%s#%d %s", c.point, c.n, c.outcome) }

// commands are what the last coordinator has sent until now.
func (r *rig) commands() []command { return readRecord(r.t, r.record) }

func readRecord(t *testing.T, path string) []command {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []command
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		at, outcome, _ := strings.Cut(lines.Text(), "\t")
		point, number, ok := strings.Cut(at, "#")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			t.Fatalf("recorded line %q", lines.Text())
		}
		list = append(list, command{point, n, outcome})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// settled waits until the sweep that follows a start is over.
func (r *rig) settled() {
	r.t.Helper()
	high := max(r.before.number(protocol.ControlKey(rigPrefix, 0)+" field high"), r.change.from)
	r.eventually("the first sweep", func() bool {
		seen := 0
		for _, c := range r.commands() {
			switch {
			case c.point == "SURVEY" && c.outcome == "OK":
				seen++
			case c.point == "COMMIT" && seen >= high: // that of its outcome
				return true
			}
		}
		return false
	})
}

// request is the body that asks for the change.
func (r *rig) request() protocol.PutStreamRequest {
	to := int64(r.change.to)
	return protocol.PutStreamRequest{ShardCount: &to, Resharding: r.change.policy(), RequestedBy: "e2e", Reason: r.t.Name()}
}

// put asks for the change.
func (r *rig) put(ctx context.Context) (client.PutResult, error) {
	return r.api.PutStream(ctx, rigPrefix, r.request(), client.Call{})
}

// drainsInVain brings a change of a rig with a backlog to DRAINING, and kills its coordinator there.
func (r *rig) drainsInVain() protocol.Resharding {
	r.t.Helper()
	r.start("")
	if _, err := r.put(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.eventually("DRAINING", func() bool {
		res, ok := r.mine()
		return ok && res.Phase == protocol.PhaseDraining && len(res.WaitingFor) > 0
	})
	res := r.stored()
	r.kill()
	return res
}

// another is a place for a second coordinator beside the first.
func (r *rig) another() *rig {
	r.t.Helper()
	other := *r
	other.runs, other.proc, other.addr = 100, nil, quietAddress(r.t)
	other.connect()
	return &other
}

// dies calls request and says whether the coordinator has then killed itself, or the change ended.
func (r *rig) dies(request func(ctx context.Context) error) bool {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), rigPatience)
	defer cancel()
	asked := make(chan error, 1)
	go func() { asked <- request(ctx) }()
	select {
	case <-r.proc.Done():
		cancel()
		<-asked
		return true
	case err := <-asked:
		if err != nil {
			select {
			case <-r.proc.Done():
				return true
			case <-time.After(5 * time.Second):
				r.t.Fatalf("the request: %v", err)
			}
		}
	}
	// Redis is asked, not the coordinator: a question is a command that would be counted.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !r.hasEnded() {
		select {
		case <-r.proc.Done():
			return true
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("neither death nor end within %s; recorded last: %v", rigPatience, tail(r.commands(), 12))
		}
	}
	// What is sent behind the last commit may be meant as well.
	select {
	case <-r.proc.Done():
		return true
	case <-time.After(rigTickerTTL):
		return false
	}
}

// hasEnded asks Redis whether the change is in the history.
func (r *rig) hasEnded() bool {
	r.t.Helper()
	text, err := r.rdb.HGet(r.t.Context(), rigKeyPrefix+":{"+rigPrefix+"}:stream", "aggregate").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	var s stream.State
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		r.t.Fatal(err)
	}
	return slices.ContainsFunc(s.History, func(one *stream.Resharding) bool {
		return one.From.Count == r.change.from && one.To.Count == r.change.to
	})
}

// mine reads the change's record; ok is false while there is none.
func (r *rig) mine() (res protocol.Resharding, ok bool) {
	r.t.Helper()
	list, err := r.api.Reshardings(r.t.Context(), rigPrefix)
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(list.Reshardings, r.isMine)
	if i < 0 {
		return res, false
	}
	return list.Reshardings[i], true
}

func (r *rig) isMine(one protocol.Resharding) bool {
	return one.FromShardCount == r.change.from && one.ToShardCount == r.change.to
}

// stored is mine of a change that must be there.
func (r *rig) stored() protocol.Resharding {
	r.t.Helper()
	res, ok := r.mine()
	if !ok {
		r.t.Fatal("the change is not stored")
	}
	return res
}

// decided asks Redis whether shard 0 has changed the layout.
func (r *rig) decided() bool {
	r.t.Helper()
	line := protocol.ControlKey(rigPrefix, 0) + " field epoch"
	epoch, err := r.rdb.HGet(r.t.Context(), protocol.ControlKey(rigPrefix, 0), "epoch").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return epoch != r.before[line]
}

func (r *rig) tickerKey() string { return rigKeyPrefix + ":{" + rigPrefix + "}:ticker" }

// holdTicker makes as if a further replica did the periodic work, and does not get to it: no
// coordinator goes on with the change until releaseTicker.
func (r *rig) holdTicker() {
	r.t.Helper()
	if err := r.rdb.Set(r.t.Context(), r.tickerKey(), "another", rigPatience).Err(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) releaseTicker() {
	r.t.Helper()
	if err := r.rdb.Del(r.t.Context(), r.tickerKey()).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// continues: a coordinator that comes after ends the change by itself, and the caller may repeat
// the request, which then starts nothing more.
func (r *rig) continues() {
	r.t.Helper()
	r.start("")
	if _, err := r.put(r.t.Context()); err != nil {
		r.t.Fatalf("the repeated request: %v", err)
	}
	res := r.stored()
	if res = follow(r.t, r.api, rigPrefix, res.ReshardingID, rigPatience); res.Phase != protocol.PhaseCompleted {
		r.t.Fatalf("ended %s: %s", res.Phase, res.Error)
	}
	r.isCompleted(res)
}

// rollsBack: the rollback is asked of a coordinator that comes after, before any goes on. Whether
// shard 0 has decided says how it must end.
func (r *rig) rollsBack() {
	r.t.Helper()
	decided := r.decided()
	r.holdTicker()
	r.start("")
	res, ok := r.mine()
	if !ok {
		r.releaseTicker()
		r.isBefore("")
		return
	}
	ended := res.Phase.Terminal()
	_, err := r.api.Rollback(r.t.Context(), rigPrefix, res.ReshardingID, protocol.RollbackRequest{RequestedBy: "e2e", Reason: "a test"}, client.Call{})
	r.releaseTicker()
	var refusal *protocol.Error
	switch {
	case err == nil:
	case decided && errors.As(err, &refusal) && refusal.Code == protocol.CodeRollbackNotAllowed:
	default:
		r.t.Fatalf("rollback (decided %v, in %s): %v", decided, res.Phase, err)
	}
	res = follow(r.t, r.api, rigPrefix, res.ReshardingID, rigPatience)
	switch {
	case !decided && res.Phase == protocol.PhaseRolledBack:
		r.isBefore(res.ReshardingID)
	case decided && res.Phase == protocol.PhaseCompleted:
		if !ended && err == nil && !strings.Contains(res.Reason+res.Error, "decided") {
			r.t.Errorf("completed in spite of a rollback that was accepted, and the record does not say why: reason %q, error %q", res.Reason, res.Error)
		}
		r.isCompleted(res)
	default:
		r.t.Fatalf("ended %s though decided is %v: %s", res.Phase, decided, res.Error)
	}
}

// isBefore: everything is as before the change, but for what notRestored lists.
func (r *rig) isBefore(id string) {
	r.t.Helper()
	r.atRest()
	except := notRestored(rigKeyPrefix, rigPrefix, r.change.from, r.change.to)
	now := takeSnapshot(r.t, r.rdb)
	if diff := maps.Clone(r.before).without(except).differences(now.without(except)); len(diff) > 0 {
		r.t.Errorf("not as before:\n%s", strings.Join(diff, "\n"))
	}
	checkTombstones(r.t, r.rdb, rigPrefix, id, r.change.from, r.change.to)
	r.routes(r.change.from)
	r.goesOn()
}

// isCompleted: the new layout is in force on every shard, and the shards that are kept have their
// entries, ids and groups as before.
func (r *rig) isCompleted(res protocol.Resharding) {
	r.t.Helper()
	r.atRest()
	if !res.Phase.Terminal() || r.count() != 1 {
		r.t.Errorf("%d reshardings from %d to %d: the request was carried out more than once", r.count(), r.change.from, r.change.to)
	}
	now := takeSnapshot(r.t, r.rdb)
	for i := range max(r.change.from, r.change.to) {
		key, control := protocol.ShardKey(rigPrefix, i), protocol.ControlKey(rigPrefix, i)
		for _, field := range []string{"gate", "until", "hold", "sealedLastId"} {
			if v := now[control+" field "+field]; v != "" {
				r.t.Errorf("shard %d has %s = %s", i, field, v)
			}
		}
		if i >= r.change.to {
			if now[key+" type"] != "" || now[control+" field retired"] != res.ReshardingID {
				r.t.Errorf("removed shard %d: type %q, retired %q", i, now[key+" type"], now[control+" field retired"])
			}
			continue
		}
		if got := now[control+" field epoch"] + "/" + now[control+" field count"]; got != fmt.Sprintf("%d/%d", res.ToEpoch, r.change.to) {
			r.t.Errorf("shard %d has layout %s, want %d/%d", i, got, res.ToEpoch, r.change.to)
		}
		if i >= r.change.from {
			if now[key+" type"] != "stream" || !strings.Contains(now[key+" xinfo groups"], "name:g") {
				r.t.Errorf("new shard %d: type %q, groups %s", i, now[key+" type"], now[key+" xinfo groups"])
			}
			continue
		}
		for line, v := range r.before {
			if strings.HasPrefix(line, key+" ") && now[line] != v {
				r.t.Errorf("%s: was %s, is %s", line, v, now[line])
			}
		}
	}
	r.routes(r.change.to)
	r.goesOn()
}

// count is how many records of the change there are.
func (r *rig) count() int {
	r.t.Helper()
	list, err := r.api.Reshardings(r.t.Context(), rigPrefix)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(list.Reshardings) - len(slices.DeleteFunc(slices.Clone(list.Reshardings), r.isMine))
}

// atRest: nothing runs and publishing is open.
func (r *rig) atRest() {
	r.t.Helper()
	s, err := r.api.Stream(r.t.Context(), rigPrefix)
	if err != nil {
		r.t.Fatal(err)
	}
	if s.Status.ActiveReshardingID != "" || s.Status.PublishState != protocol.PublishOpen {
		r.t.Errorf("not at rest: %+v", s.Status)
	}
	store, err := redisstore.New(redisstore.Config{Client: r.rdb, KeyPrefix: rigKeyPrefix})
	if err != nil {
		r.t.Fatal(err)
	}
	defer store.Close()
	if v, err := store.VerifyAudit(r.t.Context(), rigPrefix); err != nil || !v.Intact {
		r.t.Errorf("audit log: %+v, %v", v, err)
	}
}

// routes: the routing answer has count shards, and each of them takes entries.
func (r *rig) routes(count int) {
	r.t.Helper()
	routing, err := r.api.Routing(r.t.Context(), rigPrefix, client.RoutingQuery{Fenced: true})
	if err != nil {
		r.t.Fatal(err)
	}
	epoch, err := r.rdb.HGet(r.t.Context(), protocol.ControlKey(rigPrefix, 0), "epoch").Int64()
	if err != nil || routing.ShardCount != count || routing.PublishState != protocol.PublishOpen || routing.LayoutEpoch != epoch || len(routing.Shards) != count {
		r.t.Errorf("routing: %d shards, %s, epoch %d, listed %d; want %d, OPEN, epoch %d of shard 0 (%v)", routing.ShardCount, routing.PublishState, routing.LayoutEpoch, len(routing.Shards), count, epoch, err)
	}
	for i := range count {
		if err := r.rdb.XAdd(r.t.Context(), &redis.XAddArgs{Stream: protocol.ShardKey(rigPrefix, i), NoMkStream: true, Values: []any{"n", "behind"}}).Err(); err != nil {
			r.t.Errorf("append to shard %d: %v", i, err)
		}
	}
}

// goesOn: a change to yet another count succeeds. Online: nobody reads here.
func (r *rig) goesOn() {
	r.t.Helper()
	declare(r.t, r.api, rigPrefix, int64(max(r.change.from, r.change.to))+1, protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline})
}

// inParallel runs subtests, rigWorkers at a time: they spend their time waiting.
func inParallel[C any](t *testing.T, cases []C, name func(C) string, run func(*testing.T, C)) {
	t.Helper()
	queue := make(chan C)
	var workers sync.WaitGroup
	for range rigWorkers {
		workers.Go(func() {
			for c := range queue {
				t.Run(name(c), func(t *testing.T) { run(t, c) })
			}
		})
	}
	for _, c := range cases {
		queue <- c
	}
	close(queue)
	workers.Wait()
}

// occurrences lists the points that a coordinator passed once it was armed, each with its number.
func occurrences(list []command) []faultpoint.Fault {
	var faults []faultpoint.Fault
	for _, c := range list {
		if c.n > 0 {
			faults = append(faults, faultpoint.Fault{Point: c.point, N: c.n})
		}
	}
	return faults
}
