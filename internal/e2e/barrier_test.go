package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// restricted is a Redis whose user for coordinator and clients may not run XSETID.
type restricted struct {
	url string
	rdb *redis.Client // of that user
}

func startRestricted(t *testing.T) restricted {
	t.Helper()
	s := redistest.Start(t)
	const user, secret = "app", "a password of the tests"
	if err := s.Client(t).Do(t.Context(), "ACL", "SETUSER", user, "on", ">"+secret, "~*", "&*", "+@all", "-xsetid").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, Username: user, Password: secret, MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	if err := rdb.Do(t.Context(), "XSETID", "x", "1-1").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Fatalf("XSETID: %v", err)
	}
	return restricted{url: "redis://" + user + ":" + url.QueryEscape(secret) + "@" + s.Addr + "/0", rdb: rdb}
}

// Without XSETID a change goes up and down under traffic as with it, and the certificate says
// what the barrier was.
func TestBarrierWithoutXSETID(t *testing.T) {
	t.Parallel()
	r := startRestricted(t)
	prefix := redistest.Prefix(t)
	s := startServer(t, strings.ReplaceAll(r.url, "+", "%20"), redistest.KeyPrefix(t))
	api := connect(t, s.URL())
	declare(t, api, prefix, 2, protocol.ReshardingPolicy{})
	putGroup(t, api, prefix, "g", protocol.GroupSpec{MemberLeaseMs: 2500, HeartbeatIntervalMs: 500})
	tr := startTraffic(t, r.rdb, prefix, "g", trafficConfig{producers: 2, consumers: 2, keys: 40, perSecond: 200}, func() *client.Client { return connect(t, s.URL()) })
	for _, to := range []int64{5, 1, 3} {
		from := tr.book.Count().Handled
		tr.until("traffic", 30*time.Second, func(t ledger.Tally) bool { return t.Handled > from+60 })
		done := declare(t, api, prefix, to, protocol.ReshardingPolicy{})
		if done.Certificate == nil || done.Certificate.Barrier != "LEASE" {
			t.Errorf("certificate of the change to %d: %+v", to, done.Certificate)
		}
	}
	checkShards(t, r.rdb, prefix, 3, 5)
	tr.finish()
}

// Without XSETID a pause stops the SDK's producers at once, but not a bare XADD: while one goes on
// nothing is decided, and the reason names the shard that grows. What it appended is handled.
func TestLeaseBarrierWaitsForPlainProducers(t *testing.T) {
	t.Parallel()
	r := startRestricted(t)
	prefix := redistest.Prefix(t)
	s := startServer(t, strings.ReplaceAll(r.url, "+", "%20"), redistest.KeyPrefix(t))
	api := connect(t, s.URL())
	declare(t, api, prefix, 2, protocol.ReshardingPolicy{})
	putGroup(t, api, prefix, "g", protocol.GroupSpec{MemberLeaseMs: 2500, HeartbeatIntervalMs: 500})
	tr := startTraffic(t, r.rdb, prefix, "g", trafficConfig{producers: 1, consumers: 1, keys: 8, perSecond: 100}, func() *client.Client { return connect(t, s.URL()) })
	tr.until("traffic", 30*time.Second, func(t ledger.Tally) bool { return t.Handled > 20 })

	// Each bare entry is handled soon, so that the shard is drained again and again.
	appending, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-appending.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			// Numbers of the traffic's own ledger: its consumers know them.
			number := tr.book.Publish(0)
			if err := r.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ShardKey(prefix, 1), NoMkStream: true, Values: []any{"key", "0", "number", fmt.Sprint(number)}}).Err(); err != nil {
				t.Errorf("bare XADD: %v", err)
				return
			}
			tr.book.Landed(0, number)
		}
	}()
	t.Cleanup(func() { stop(); <-stopped })

	three := int64(3)
	res, err := api.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &three, RequestedBy: "e2e"}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	growing := 0
	if err := waitFor(t.Context(), 60*time.Second, func(ctx context.Context) error {
		got, err := api.Resharding(ctx, prefix, res.ReshardingID, "", 0)
		if err != nil {
			return err
		}
		if got.Phase.Terminal() || got.Phase == protocol.PhaseActivating || got.Phase == protocol.PhaseOpening {
			t.Fatalf("%s while a plain producer appends", got.Phase)
		}
		for _, text := range got.WaitingFor {
			if strings.HasPrefix(text, "shard 1: still grows") {
				growing++
			}
			if strings.HasPrefix(text, "shard 0: still grows") {
				t.Errorf("the SDK's producers go on: %s", text)
			}
		}
		if growing < 5 {
			return fmt.Errorf("%s waits for %q", got.Phase, got.WaitingFor)
		}
		return nil
	}); err != nil {
		t.Fatalf("the shard that grows as a reason: %v", err)
	}
	// The SDK's producers are held: nothing but bare appends lands.
	counts := func() (zero, one int64) {
		pipe := r.rdb.Pipeline()
		a, b := pipe.XLen(t.Context(), protocol.ShardKey(prefix, 0)), pipe.XLen(t.Context(), protocol.ShardKey(prefix, 1))
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a.Val(), b.Val()
	}
	zero, one := counts()
	if err := waitFor(t.Context(), 30*time.Second, func(context.Context) error {
		if now, more := counts(); now != zero {
			t.Fatalf("shard 0 grew from %d to %d entries though publishing is paused", zero, now)
		} else if more < one+20 {
			return fmt.Errorf("shard 1 has %d entries", more)
		}
		return nil
	}); err != nil {
		t.Fatalf("bare appends: %v", err)
	}
	stop()
	<-stopped
	done := follow(t, api, prefix, res.ReshardingID, 60*time.Second)
	if done.Phase != protocol.PhaseCompleted || done.Certificate.Barrier != "LEASE" {
		t.Errorf("ended %s: %s; %+v", done.Phase, done.Error, done.Certificate)
	}
	tr.finishUnordered()
}

// A Redis that is full while shards are sealed: the pause ends all the same, by the coordinator's
// release, and, with no coordinator, by the producers once there is room for an entry.
func TestPauseEndsOnAFullRedis(t *testing.T) {
	t.Parallel()
	for _, coordinator := range []bool{true, false} {
		name := "by release"
		if !coordinator {
			name = "by producers"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pauseEndsOnAFullRedis(t, coordinator)
		})
	}
}

func pauseEndsOnAFullRedis(t *testing.T, coordinator bool) {
	redisServer := redistest.Start(t, "--maxmemory-policy", "noeviction")
	rdb, prefix := redisServer.Client(t), redistest.Prefix(t)
	s := startServerAt(t, "127.0.0.1:0", redisServer.URL(), redistest.KeyPrefix(t))
	api := connect(t, s.URL())
	declare(t, api, prefix, 2, protocol.ReshardingPolicy{})
	p, err := producer.New(producer.Config{Client: connect(t, s.URL()), Redis: rdb, StreamPrefix: prefix, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close of the producer: %v", err)
		}
	})
	for _, key := range []string{"a", "b", "c", "d"} {
		if _, err := p.Append(t.Context(), key, producer.Fields{"k", key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.XGroupCreate(t.Context(), protocol.ShardKey(prefix, 0), "abandoned", "0").Err(); err != nil {
		t.Fatal(err)
	}
	three := int64(3)
	res, err := api.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &three, Resharding: protocol.ReshardingPolicy{PauseTimeoutMs: 4000}, RequestedBy: "e2e"}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t.Context(), 30*time.Second, func(ctx context.Context) error {
		r, err := api.Resharding(ctx, prefix, res.ReshardingID, "", 0)
		if err == nil && r.Phase != protocol.PhaseDraining {
			err = fmt.Errorf("it is in %s: %s", r.Phase, r.Error)
		}
		return err
	}); err != nil {
		t.Fatalf("draining: %v", err)
	}
	if !coordinator {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(t.Context(), "full", "?", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("a write to a full Redis: %v", err)
	}

	if coordinator {
		r := follow(t, api, prefix, res.ReshardingID, 60*time.Second)
		if r.Phase != protocol.PhaseRolledBack || !strings.Contains(r.Error, "pause timeout of 4s") {
			t.Errorf("ended %s: %s", r.Phase, r.Error)
		}
		checkShards(t, rdb, prefix, 2, 3) // while it is full
	} else {
		// The deadline passes with nobody to act on it.
		if err := waitFor(t.Context(), 30*time.Second, func(ctx context.Context) error {
			until, err := rdb.HGet(ctx, protocol.ControlKey(prefix, 1), "until").Int64()
			if err != nil {
				return err
			}
			now, err := rdb.Time(ctx).Result()
			if err == nil && now.UnixMilli() <= until {
				err = fmt.Errorf("%d ms are left", until-now.UnixMilli())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := p.Append(ctx, key, producer.Fields{"k", key})
		cancel()
		if err != nil {
			t.Errorf("append behind the pause: %v", err)
		}
	}
	checkShards(t, rdb, prefix, 2, 2)
}
