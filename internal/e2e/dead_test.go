package e2e_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// TestNobodyLeftWhilePaused: every coordinator is killed while publishing is paused. The producers end
// the pause by what shard 0 says once its deadline has passed, and go on; the first coordinator that is
// back follows. Nothing is lost and the order of every key is kept.
func TestNobodyLeftWhilePaused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, c := range []struct {
		name, fault string
		end         protocol.Phase
	}{
		{"half-the-shards-sealed", "SEAL#3", protocol.PhaseRolledBack},
		{"all-sealed", "DECIDE#1", protocol.PhaseRolledBack},
		{"decided", "DECIDE#1/after", protocol.PhaseCompleted},
		{"half-the-shards-open", "OPEN#4", protocol.PhaseCompleted},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); nobodyLeft(t, server, c.fault, c.end) })
	}
}

func nobodyLeft(t *testing.T, server *redistest.Server, fault string, end protocol.Phase) {
	const from, to = 5, 7
	const pauseTimeout = 3 * time.Second
	rdb := server.Client(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	c := startCoordinator(t, server.URL(), keyPrefix, "")
	api := connect(t, c.url())
	for _, n := range []int64{from - 1, from} { // Redis knows the scripts then: none has to be sent twice
		declare(t, api, prefix, n, protocol.ReshardingPolicy{})
	}
	putGroup(t, api, prefix, "g", protocol.GroupSpec{})
	tr := startTraffic(t, rdb, prefix, "g", trafficConfig{producers: 2, consumers: 1, keys: 60, perSecond: 400}, func() *client.Client { return connect(t, c.url()) })
	tr.until("traffic", 30*time.Second, func(t ledger.Tally) bool { return t.Handled > 100 })

	c.kill()
	c.conf.Env = []string{"RSC_KEY_PREFIX=" + keyPrefix, "RSC_FAULT=" + fault}
	c.start()
	putOnce(t, c, prefix, to, protocol.ReshardingPolicy{PauseTimeoutMs: pauseTimeout.Milliseconds()})
	c.awaitDeath(60 * time.Second)
	died := time.Now()
	until, id := int64(0), ""
	for i := range from { // the same on each shard that is sealed
		control, err := rdb.HGetAll(t.Context(), protocol.ControlKey(prefix, i)).Result()
		if err != nil {
			t.Fatal(err)
		}
		if control["until"] != "" {
			until, _ = strconv.ParseInt(control["until"], 10, 64)
			id = control["gate"]
		}
	}
	if until == 0 {
		t.Fatal("no shard is sealed any more: the coordinator died too late")
	}

	// Without any coordinator, appends land again on every shard of the layout that shard 0 has.
	count := from
	if end == protocol.PhaseCompleted {
		count = to
	}
	err := waitFor(t.Context(), 60*time.Second, func(ctx context.Context) error {
		for i := range count {
			info, err := rdb.XInfoStream(ctx, protocol.ShardKey(prefix, i)).Result()
			if err != nil {
				return err
			}
			at, err := strconv.ParseInt(strings.Split(info.LastGeneratedID, "-")[0], 10, 64)
			if err != nil || at < until { // a sealed shard has an id that is no int64
				return fmt.Errorf("shard %d: last id %s, deadline %d: %w", i, info.LastGeneratedID, until, errNotYet)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("producers do not go on after the deadline: %v", err)
	}
	late := time.Since(time.UnixMilli(until))
	t.Logf("appends to all %d shards %s after the deadline, %s after the death", count, late.Round(time.Millisecond), time.Since(died).Round(time.Millisecond))
	if late > 10*time.Second { // within round trips; the machine may be busy
		t.Errorf("appends went on only %s after the deadline", late)
	}

	c.conf.Env = []string{"RSC_KEY_PREFIX=" + keyPrefix}
	c.start()
	r := follow(t, api, prefix, id, 60*time.Second)
	if r.Phase != end {
		t.Errorf("the change ended %s (%s), want %s", r.Phase, r.Error, end)
	}
	from0 := tr.book.Count().Handled
	tr.until("traffic after it", 60*time.Second, func(t ledger.Tally) bool { return t.Handled > from0+100 })
	tr.finish()
	s, err := api.Stream(t.Context(), prefix)
	if err != nil || s.Status.ShardCount != count || s.Status.PublishState != protocol.PublishOpen {
		t.Errorf("the stream afterwards: %+v, %v", s.Status, err)
	}
	checkShards(t, rdb, prefix, count, to)
}

// putOnce asks a coordinator that will die for a change; it may die before it answers.
func putOnce(t *testing.T, c *coordinator, prefix string, count int64, policy protocol.ReshardingPolicy) {
	t.Helper()
	once, err := client.New(client.Config{Endpoints: []string{c.url()}, Username: username, Password: password, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer once.Close()
	if _, err := once.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &count, Resharding: policy}, client.Call{}); err != nil {
		t.Logf("the call that started it: %v", err)
	}
}

// TestForeignAppend: somebody who knows nothing of the coordinator appends without NOMKSTREAM. During
// the pause the seal refuses it. After the retirement it makes a stream that nobody owns: that is
// reported with its length within one sweep, never deleted, and a later change that needs the name is
// refused with a list.
func TestForeignAppend(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	rdb := server.Client(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	c := connect(t, startServer(t, server.URL(), keyPrefix).URL())
	declare(t, c, prefix, 3, protocol.ReshardingPolicy{})
	foreign := func(shard int) error {
		return rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ShardKey(prefix, shard), Values: []string{"who", "knows"}}).Err()
	}
	// A group that nobody reads keeps the change in the pause.
	if err := foreign(0); err != nil {
		t.Fatal(err)
	}
	if err := rdb.XGroupCreate(t.Context(), protocol.ShardKey(prefix, 0), "nobody", "0").Err(); err != nil {
		t.Fatal(err)
	}
	target := int64(2)
	put, err := c.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &target}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t.Context(), time.Minute, func(ctx context.Context) error {
		r, err := c.Resharding(ctx, prefix, put.ReshardingID, "", 0)
		if err == nil && r.Phase != protocol.PhaseDraining {
			err = fmt.Errorf("%s: %w", r.Phase, errNotYet)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := foreign(i); err == nil || !strings.Contains(err.Error(), "exhausted") {
			t.Errorf("append to shard %d during the pause: %v", i, err)
		}
	}
	if err := rdb.XGroupDestroy(t.Context(), protocol.ShardKey(prefix, 0), "nobody").Err(); err != nil {
		t.Fatal(err)
	}
	if r := follow(t, c, prefix, put.ReshardingID, time.Minute); r.Phase != protocol.PhaseCompleted {
		t.Fatalf("the change ended %s: %s", r.Phase, r.Error)
	}
	key := protocol.ShardKey(prefix, 2)
	if n, err := rdb.Exists(t.Context(), key).Result(); err != nil || n != 0 {
		t.Fatalf("shard 2 is not retired: %d, %v", n, err)
	}
	for range 2 {
		if err := foreign(2); err != nil {
			t.Fatal(err)
		}
	}
	reported := key + " (2 entries)"
	if err := waitFor(t.Context(), 30*time.Second, func(ctx context.Context) error {
		s, err := c.Stream(ctx, prefix)
		if err != nil {
			return err
		}
		for _, cond := range s.Status.Conditions {
			if cond.Type == "Converged" && strings.Contains(cond.Message, reported) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v: %w", s.Status.Conditions, errNotYet)
	}); err != nil {
		t.Fatalf("the orphan is not reported: %v", err)
	}
	more := int64(4)
	_, err = c.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &more}, client.Call{})
	refusedWithList(t, err, reported)
	if n, err := rdb.XLen(t.Context(), key).Result(); err != nil || n != 2 {
		t.Errorf("%s has %d entries, %v; it is not ours to touch", key, n, err)
	}
	checkShards(t, rdb, prefix, 2, 2)
}

// refusedWithList wants FOREIGN_KEYS_EXIST that names a key with its length.
func refusedWithList(t *testing.T, err error, key string) {
	t.Helper()
	var refused *protocol.Error
	if !asRefusal(err, &refused) || refused.Code != protocol.CodeForeignKeys || refused.Code.HTTPStatus() != 409 || !strings.Contains(refused.Message, key) {
		t.Errorf("a change over %s: %v; want 409 %s with its name", key, err, protocol.CodeForeignKeys)
	}
}
