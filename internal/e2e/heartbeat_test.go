package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// TestSteadyHeartbeatsMoveNoRevision: 1,000 members that only stay alive for 30 s, every third
// one of them as a client that does not hold its requests, rewrite nothing.
func TestSteadyHeartbeatsMoveNoRevision(t *testing.T) {
	t.Parallel()
	const members, shards, steady = 1000, 1000, 30 * time.Second
	redis := redistest.Start(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	c := connect(t, startServer(t, redis.URL(), keyPrefix).URL())
	declare(t, c, prefix, shards, protocol.ReshardingPolicy{})
	putGroup(t, c, prefix, "g", protocol.GroupSpec{})

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var settled sync.WaitGroup
	settled.Add(members)
	for i := range members {
		wg.Go(func() {
			once := sync.OnceFunc(settled.Done)
			defer once()
			id := fmt.Sprintf("m%04d", i)
			var epoch, version int64
			var owned []protocol.Shard
			for n := 0; ctx.Err() == nil; n++ {
				req := protocol.HeartbeatRequest{
					ProtocolVersion: 1, RequestID: fmt.Sprint(id, "-", n), MemberID: id, MemberEpoch: epoch, MetadataVersion: version,
					RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1}, OwnedShards: owned, Incarnation: "i" + id,
				}
				if i%3 != 0 {
					req.MaxWaitMs = 3000
				}
				resp, _, err := c.Heartbeat(ctx, prefix, "g", req)
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					t.Errorf("heartbeat of %s: %v", id, err)
					return
				case resp.Status != protocol.StatusOK:
					t.Errorf("heartbeat of %s: %s %s", id, resp.Status, resp.Reason)
					return
				}
				epoch, version, owned = resp.MemberEpoch, resp.MetadataVersion, resp.Assignment.AssignedShards
				if len(owned) == shards/members && epoch == resp.GroupEpoch && len(resp.Assignment.PendingShards) == 0 {
					once()
				}
				if req.MaxWaitMs == 0 {
					_ = pause(ctx, 3*time.Second)
				}
			}
		})
	}
	defer func() { stop(); wg.Wait() }()
	settled.Wait()
	rdb := redis.Client(t)
	keys := []string{keyPrefix + ":{" + prefix + "}:stream", keyPrefix + ":{" + prefix + "}:group:g"}
	revisions := func() (all []string) {
		for _, key := range keys {
			rev, err := rdb.HGet(t.Context(), key, "rev").Result()
			if err != nil {
				t.Fatalf("revision of %s: %v", key, err)
			}
			all = append(all, rev)
		}
		return all
	}
	// Everybody has one shard; the last ones to hear of the newest epoch still do so.
	before := revisions()
	for deadline := time.Now().Add(15 * time.Second); ; {
		_ = pause(t.Context(), 4*time.Second)
		now := revisions()
		if fmt.Sprint(now) == fmt.Sprint(before) {
			break
		}
		if before = now; time.Now().After(deadline) {
			t.Fatal("the group does not settle")
		}
	}
	_ = pause(t.Context(), steady)
	if after := revisions(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("revisions of stream and group moved from %v to %v", before, after)
	}
}
