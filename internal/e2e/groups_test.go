package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// manyGroups is a stream of four shards with twenty consumer groups:
// live ones with SDK consumers, idle ones of the registry without any member, foreign ones that
// only Redis knows, and one of them that was abandoned with a backlog on a kept and on a removed
// shard.
type manyGroups struct {
	t        *testing.T
	rdb      *redis.Client
	api      *client.Client
	prefix   string
	producer *producer.Producer
	handled  map[string]*handledSet
	sent     []string // bodies
}

const (
	manyShards = 4
	abandoned  = "abandoned"
)

var (
	liveGroups    = numbered("live", 6)
	idleGroups    = numbered("idle", 7)
	foreignGroups = numbered("foreign", 6)
)

func numbered(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return names
}

// handledSet is what one group has handled.
type handledSet struct {
	mu    sync.Mutex
	times map[string]int
}

func (h *handledSet) add(body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times[body]++
}

func newManyGroups(t *testing.T) *manyGroups {
	redisServer := redistest.Shared(t)
	m := &manyGroups{t: t, rdb: redisServer.Client(t), prefix: redistest.Prefix(t), handled: map[string]*handledSet{}}
	s := startServer(t, redisServer.URL(), redistest.KeyPrefix(t))
	m.api = connect(t, s.URL())
	declare(t, m.api, m.prefix, manyShards, protocol.ReshardingPolicy{})
	for _, g := range slices.Concat(liveGroups, idleGroups) {
		putGroup(t, m.api, m.prefix, g, protocol.GroupSpec{})
	}
	for _, g := range append(slices.Clone(foreignGroups), abandoned) {
		for i := range manyShards {
			if err := m.rdb.XGroupCreate(t.Context(), protocol.ShardKey(m.prefix, i), g, "0").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	for _, g := range liveGroups {
		set := &handledSet{times: map[string]int{}}
		m.handled[g] = set
		c, err := consumer.New(consumer.Config{
			Client: connect(t, s.URL()), Redis: m.rdb, StreamPrefix: m.prefix, Group: g, MemberID: g + "-member", Logger: quiet, Block: time.Second,
			Handler: func(_ context.Context, d consumer.Delivery) error { set.add(d.Text("body")); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Errorf("consumer of %s: %v", g, err)
			}
		})
	}
	p, err := producer.New(producer.Config{Client: connect(t, s.URL()), Redis: m.rdb, StreamPrefix: m.prefix, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	m.producer = p
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close of the producer: %v", err)
		}
	})
	return m
}

// send appends n entries to all shards.
func (m *manyGroups) send(n int) {
	m.t.Helper()
	for range n {
		body := fmt.Sprint("body-", len(m.sent))
		ctx, cancel := context.WithTimeout(m.t.Context(), 60*time.Second)
		_, err := m.producer.Append(ctx, body, producer.Fields{"body", body})
		cancel()
		if err != nil {
			m.t.Fatalf("append: %v", err)
		}
		m.sent = append(m.sent, body)
	}
}

// drain reads and acknowledges everything for groups on the shards of the layout.
func (m *manyGroups) drain(shards int, groups ...string) {
	m.t.Helper()
	for i := range shards {
		for _, g := range groups {
			m.drainShard(i, g)
		}
	}
}

func (m *manyGroups) drainShard(index int, group string) {
	m.t.Helper()
	key := protocol.ShardKey(m.prefix, index)
	for {
		ids := m.read(key, group, 1000)
		if len(ids) == 0 {
			return
		}
		if err := m.rdb.XAck(m.t.Context(), key, group, ids...).Err(); err != nil {
			m.t.Fatal(err)
		}
	}
}

// read delivers up to n entries of a shard to a group.
func (m *manyGroups) read(key, group string, n int64) []string {
	m.t.Helper()
	res, err := m.rdb.XReadGroup(m.t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "x", Streams: []string{key, ">"}, Count: n, Block: -1}).Result()
	if err == redis.Nil { //nolint:errorlint // the reply itself
		return nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	var ids []string
	for _, msg := range res[0].Messages {
		ids = append(ids, msg.ID)
	}
	return ids
}

// awaitHandled waits until every live group has handled everything that was sent.
func (m *manyGroups) awaitHandled() {
	m.t.Helper()
	for g, set := range m.handled {
		if err := waitFor(m.t.Context(), 60*time.Second, func(context.Context) error {
			set.mu.Lock()
			defer set.mu.Unlock()
			for _, body := range m.sent {
				if set.times[body] == 0 {
					return fmt.Errorf("%s was not handled; %d of %d were", body, len(set.times), len(m.sent))
				}
			}
			return nil
		}); err != nil {
			m.t.Fatalf("group %s: %v", g, err)
		}
	}
}

// shardState is what a rollback must leave as it was.
type shardState struct {
	Length  int64
	LastID  string
	Groups  map[string]string
	Control map[string]string
}

func (m *manyGroups) shardStates(shards int) []shardState {
	m.t.Helper()
	var all []shardState
	for i := range shards {
		key := protocol.ShardKey(m.prefix, i)
		info, err := m.rdb.XInfoStream(m.t.Context(), key).Result()
		if err != nil {
			m.t.Fatal(err)
		}
		groups, err := m.rdb.XInfoGroups(m.t.Context(), key).Result()
		if err != nil {
			m.t.Fatal(err)
		}
		control, err := m.rdb.HGetAll(m.t.Context(), protocol.ControlKey(m.prefix, i)).Result()
		if err != nil {
			m.t.Fatal(err)
		}
		for field := range control {
			// Versions and history are not restored, ownership is the groups' own.
			if field == "rev" || field == "by" || field == "aborted" || strings.HasPrefix(field, "owner:") {
				delete(control, field)
			}
		}
		st := shardState{Length: info.Length, LastID: info.LastGeneratedID, Groups: map[string]string{}, Control: control}
		for _, g := range groups {
			st.Groups[g.Name] = fmt.Sprintf("pending %d, last delivered %s", g.Pending, g.LastDeliveredID)
		}
		all = append(all, st)
	}
	return all
}

// Twenty groups of every sort on one stream. The one that nobody reads for keeps a quiesced
// change from its decision, by name, shard and number; the rollback by itself restores what was;
// ignored by name it stands in the certificate and in the audit log, and the change goes through.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	m := newManyGroups(t)
	m.send(80)
	m.awaitHandled()
	m.drain(manyShards, slices.Concat(idleGroups, foreignGroups)...)
	// A backlog on a shard that is kept and on one that is removed; the others it has read.
	type backlog struct{ pending, undelivered int64 }
	left := map[int]backlog{}
	for i := range manyShards {
		key := protocol.ShardKey(m.prefix, i)
		n, err := m.rdb.XLen(t.Context(), key).Result()
		if err != nil || n < 5 {
			t.Fatalf("%d entries on shard %d, %v", n, i, err)
		}
		if i%2 == 0 {
			m.drainShard(i, abandoned)
			continue
		}
		m.read(key, abandoned, 3)
		left[i] = backlog{3, n - 3}
	}
	before := m.shardStates(manyShards)

	// It blocks, and says why.
	policy := protocol.ReshardingPolicy{PauseTimeoutMs: 5000}
	two := int64(2)
	res, err := m.api.PutStream(t.Context(), m.prefix, protocol.PutStreamRequest{ShardCount: &two, Resharding: policy, RequestedBy: "e2e"}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, i := range []int{1, 3} {
		want = append(want, fmt.Sprintf("shard %d: group %s has %d pending and %d undelivered", i, abandoned, left[i].pending, left[i].undelivered))
	}
	if err := waitFor(t.Context(), 30*time.Second, func(ctx context.Context) error {
		r, err := m.api.Resharding(ctx, m.prefix, res.ReshardingID, "", 0)
		if err == nil && !slices.Equal(r.WaitingFor, want) {
			err = fmt.Errorf("%s waits for %q, want %q; %s", r.Phase, r.WaitingFor, want, r.Error)
		}
		return err
	}); err != nil {
		t.Fatalf("the reason: %v", err)
	}
	// A producer is held meanwhile and goes on by itself.
	held := make(chan error, 1)
	m.sent = append(m.sent, "held")
	go func() {
		_, err := m.producer.Append(t.Context(), "held", producer.Fields{"body", "held"})
		held <- err
	}()
	r := follow(t, m.api, m.prefix, res.ReshardingID, 60*time.Second)
	if r.Phase != protocol.PhaseRolledBack || !strings.Contains(r.Error, "pause timeout of 5s") || !strings.Contains(r.Error, want[0]) {
		t.Errorf("ended %s: %q", r.Phase, r.Error)
	}
	if r.PausedMs < 5000 {
		t.Errorf("publishing was paused for %d ms", r.PausedMs)
	}
	if err := <-held; err != nil {
		t.Errorf("the append that was held: %v", err)
	}
	m.awaitHandled()
	s, err := m.api.Stream(t.Context(), m.prefix)
	if err != nil || s.Status.ShardCount != manyShards || s.Spec.ShardCount != manyShards || s.Status.PublishState != protocol.PublishOpen {
		t.Errorf("after the rollback: %+v, %+v, %v", s.Spec, s.Status, err)
	}
	m.drain(manyShards, slices.Concat(idleGroups, foreignGroups)...)
	after := m.shardStates(manyShards)
	for i := range before {
		if after[i].Length > before[i].Length { // the entry that was held: every group but the abandoned one has read it
			before[i].Length++
			before[i].LastID = after[i].LastID
			for g := range before[i].Groups {
				if g != abandoned {
					before[i].Groups[g] = "pending 0, last delivered " + after[i].LastID
				}
			}
			left[i] = backlog{left[i].pending, left[i].undelivered + 1}
		}
		if !reflect.DeepEqual(before[i], after[i]) {
			t.Errorf("shard %d after the rollback:\n%+v\nbefore:\n%+v", i, after[i], before[i])
		}
	}

	// By name it lets the change pass.
	policy.IgnoreGroups, policy.PauseTimeoutMs = []string{abandoned}, 60_000
	done := declare(t, m.api, m.prefix, 2, policy)
	seen := 0
	for _, shard := range done.Certificate.Shards {
		if len(shard.Groups) != len(liveGroups)+len(idleGroups)+len(foreignGroups)+1 {
			t.Errorf("certificate: shard %d has %d groups", shard.ShardIndex, len(shard.Groups))
		}
		for _, g := range shard.Groups {
			b := left[shard.ShardIndex]
			switch {
			case g.Group != abandoned:
				if g.Ignored || g.Pending != 0 || g.Undelivered != 0 || g.EntryAfter {
					t.Errorf("certificate: shard %d, %+v", shard.ShardIndex, g)
				}
			case !g.Ignored || g.Pending != b.pending || g.Undelivered != b.undelivered:
				t.Errorf("certificate: shard %d, %+v; want it ignored with %+v", shard.ShardIndex, g, b)
			default:
				seen++
			}
		}
	}
	if seen != manyShards {
		t.Errorf("the ignored group stands in %d of %d shards of the certificate", seen, manyShards)
	}
	if !slices.Equal(done.IgnoreGroups, []string{abandoned}) {
		t.Errorf("the record ignores %q", done.IgnoreGroups)
	}
	events, err := m.api.AuditEvents(t.Context(), client.AuditQuery{StreamPrefix: m.prefix, ReshardingID: done.ReshardingID})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events.Events, func(e protocol.AuditEvent) bool {
		return e.Method == "PUT" && strings.Contains(e.Summary, "ignoreGroups="+abandoned)
	}) {
		t.Errorf("no audit entry names the ignored group: %+v", events.Events)
	}
	m.send(10)
	m.awaitHandled()
	checkShards(t, m.rdb, m.prefix, 2, manyShards)
}
