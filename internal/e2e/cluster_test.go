package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

func clusterURL(c *redistest.Cluster) string {
	return "redis+cluster://" + strings.Join(c.Addrs(), ",")
}

// On a cluster, under traffic: quiesced up and down, removing and archiving, and online, where no
// order is promised while the change runs.
func TestClusterReshards(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	rdb := cluster.Client(t)
	prefix := redistest.Prefix(t)
	s := startServer(t, clusterURL(cluster), redistest.KeyPrefix(t))
	api := connect(t, s.URL())
	declare(t, api, prefix, 2, protocol.ReshardingPolicy{})
	putGroup(t, api, prefix, "g", protocol.GroupSpec{MemberLeaseMs: 2500, HeartbeatIntervalMs: 500})
	tr := startTraffic(t, rdb, prefix, "g", trafficConfig{producers: 2, consumers: 2, keys: 40, perSecond: 200}, func() *client.Client { return connect(t, s.URL()) })
	for _, change := range []struct {
		to     int64
		policy protocol.ReshardingPolicy
	}{
		{5, protocol.ReshardingPolicy{}},
		{3, protocol.ReshardingPolicy{}},
		{7, protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline}},
		{4, protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline, Retire: protocol.RetireArchive}},
		{2, protocol.ReshardingPolicy{Retire: protocol.RetireArchive, DrainScope: protocol.DrainRemoved}},
	} {
		from := tr.book.Count().Handled
		tr.until("traffic", 30*time.Second, func(t ledger.Tally) bool { return t.Handled > from+60 })
		before, err := api.Stream(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		strict := change.policy.Strategy != protocol.StrategyOnline && change.policy.DrainScope != protocol.DrainRemoved
		end := tr.book.Change(fmt.Sprint("to ", change.to), strict)
		r := declare(t, api, prefix, change.to, change.policy)
		if !strict { // an entry from before may still wait behind the change
			tr.until("entries from before the change", 30*time.Second, func() func(ledger.Tally) bool {
				published := tr.book.Count().Published
				return func(t ledger.Tally) bool { return t.Handled > published }
			}())
		}
		end()
		checkCertificate(t, *r)
		for i := range before.Status.ShardCount {
			archive := protocol.ArchiveKey(prefix, i, r.ReshardingID)
			want := int64(0)
			if change.policy.Retire == protocol.RetireArchive && int64(i) >= change.to {
				want = 1
			}
			if n, err := rdb.Exists(t.Context(), archive).Result(); err != nil || n != want {
				t.Errorf("archive %s exists: %d, %v; want %d", archive, n, err, want)
			}
		}
		if sealed := change.policy.Strategy != protocol.StrategyOnline; sealed != (r.Certificate != nil) || sealed && r.Certificate.Barrier != "XSETID" {
			t.Errorf("certificate of the change to %d: %+v", change.to, r.Certificate)
		}
	}
	checkShards(t, rdb, prefix, 2, 7)
	tr.finish()
}

// clusterFailover is a stream on a cluster of its own whose aggregate and shard 0 are kept by
// different nodes, and its traffic.
type clusterFailover struct {
	t       *testing.T
	cluster *redistest.Cluster
	rdb     *redis.ClusterClient
	server  *server.Server
	api     *client.Client
	tr      *traffic
	oracle  *survivors

	prefix, keyPrefix string
}

func (f *clusterFailover) aggregate() *redistest.Server {
	return f.cluster.Master(f.t, f.keyPrefix+":{"+f.prefix+"}:stream")
}

func (f *clusterFailover) shard0() *redistest.Server {
	return f.cluster.Master(f.t, protocol.ShardKey(f.prefix, 0))
}

// One node of a cluster loses the last writes, all others keep them: the node of shard 0, which
// decides, or the one of the aggregate, while and after the layout changes. Nothing that was not
// lost with the node is lost, no certificate is false, and it ends.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	f := &clusterFailover{t: t, cluster: redistest.StartCluster(t), keyPrefix: redistest.KeyPrefix(t)}
	f.rdb = f.cluster.Client(t)
	for {
		f.prefix = redistest.Prefix(t)
		if f.aggregate() != f.shard0() {
			break
		}
	}
	f.oracle = newSurvivors(f.prefix, f.keyPrefix)
	f.server = startServerAt(t, "127.0.0.1:0", clusterURL(f.cluster), f.keyPrefix)
	f.api = connect(t, f.server.URL())
	declare(t, f.api, f.prefix, 2, protocol.ReshardingPolicy{})
	putGroup(t, f.api, f.prefix, "g", protocol.GroupSpec{MemberLeaseMs: 1500, HeartbeatIntervalMs: 300})
	f.tr = startTraffic(t, f.rdb, f.prefix, "g", trafficConfig{producers: 2, consumers: 2, keys: 24, perSecond: 100, handling: 10 * time.Millisecond}, func() *client.Client { return connect(t, f.server.URL()) })

	// In order: each goes on with what the one before has left.
	for _, c := range []struct {
		name  string
		node  func() *redistest.Server
		to    int64
		phase protocol.Phase // the failover comes when this phase is reached
	}{
		{"shard 0 loses the whole change", f.shard0, 3, protocol.PhaseCompleted},
		{"shard 0 loses its seal", f.shard0, 2, protocol.PhaseDraining},
		{"the aggregate loses the whole change", f.aggregate, 4, protocol.PhaseCompleted},
		{"the aggregate loses a retirement", f.aggregate, 2, protocol.PhaseCompleted},
		{"the aggregate loses the seals", f.aggregate, 3, protocol.PhaseDraining},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			f.t, f.tr.t = t, t
			f.failover(c.node(), c.to, c.phase)
		}) {
			break
		}
	}
	f.t, f.tr.t = t, t
	f.tr.stopProducing()
	f.oracle.collectCluster(t, f.cluster)
	f.oracle.await(t, f.tr)
	tally := f.tr.book.Count()
	t.Logf("published %d (unknown %d), handled %d, duplicates %d, lost by Redis %d; the oracle knows %d", tally.Published, tally.Unknown, tally.Handled, tally.Duplicates, tally.Lost, f.oracle.count())
}

func (f *clusterFailover) failover(node *redistest.Server, to int64, phase protocol.Phase) {
	t := f.t
	from := f.tr.book.Count().Handled
	f.tr.until("traffic", failoverWait, func(t ledger.Tally) bool { return t.Handled > from+40 })
	// Retired shards go to archives, where the oracle finds them.
	policy := protocol.ReshardingPolicy{Retire: protocol.RetireArchive, PauseTimeoutMs: 40_000, DrainTimeoutMs: 60_000}
	if phase == protocol.PhaseDraining {
		for i := range 2 {
			if err := f.rdb.XGroupCreate(t.Context(), protocol.ShardKey(f.prefix, i), "abandoned", "0").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	replica := f.cluster.ReplicaOf(t, node)
	f.cluster.Detach(t, node, replica)
	res, err := f.api.PutStream(t.Context(), f.prefix, protocol.PutStreamRequest{ShardCount: &to, Resharding: policy, RequestedBy: "e2e", Reason: t.Name()}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t.Context(), failoverWait, func(ctx context.Context) error {
		r, err := f.api.Resharding(ctx, f.prefix, res.ReshardingID, "", 0)
		if err == nil && r.Phase != phase {
			err = fmt.Errorf("%s waits for %v", r.Phase, r.WaitingFor)
		}
		return err
	}); err != nil {
		t.Fatalf("phase %s: %v", phase, err)
	}
	if phase.Terminal() {
		from := f.tr.book.Count().Handled
		f.tr.until("traffic under what will be lost", failoverWait, func(t ledger.Tally) bool { return t.Handled > from+40 })
	}
	f.cluster.FailOver(t, node, replica)
	f.oracle.collectCluster(t, f.cluster)
	if phase == protocol.PhaseDraining {
		for i := range 2 {
			if err := waitFor(t.Context(), failoverWait, func(ctx context.Context) error {
				return f.rdb.XGroupDestroy(ctx, protocol.ShardKey(f.prefix, i), "abandoned").Err()
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := f.tr.book.Count()
	f.tr.until("publishing behind the failover", 2*failoverWait, func(t ledger.Tally) bool { return t.Published > before.Published+20 })
	for _, r := range atRest(t, f.api, f.prefix) {
		if r.Reason == t.Name() || r.ReshardingID == res.ReshardingID || strings.Contains(r.Reason, "lost") || strings.Contains(r.Reason, "sweep") {
			t.Logf("afterwards: %d → %d (%s) %s: %s %s", r.FromShardCount, r.ToShardCount, r.ReshardingID, r.Phase, r.Reason, r.Error)
		}
		if phase == protocol.PhaseDraining && r.ReshardingID == res.ReshardingID && r.Phase != protocol.PhaseCompleted {
			t.Errorf("it ended %s: who reads the shards of the dead node has not found the new one: %s", r.Phase, r.Error)
		}
		checkCertificate(t, r)
	}
	f.cluster.Rejoin(t, node, replica)
	// The layout may be the one before or the one behind; the next change takes it to the latter.
	declare(t, f.api, f.prefix, to, policy)
	f.checkShards(int(to))
}

func (f *clusterFailover) checkShards(count int) {
	f.t.Helper()
	// The sweep may still have to find what a node has lost.
	if err := waitFor(f.t.Context(), failoverWait, func(ctx context.Context) error {
		for i := range 4 {
			fields, err := f.rdb.HGetAll(ctx, protocol.ControlKey(f.prefix, i)).Result()
			if err != nil {
				return err
			}
			exists, err := f.rdb.Exists(ctx, protocol.ShardKey(f.prefix, i)).Result()
			switch {
			case err != nil:
				return err
			case i < count && (exists == 0 || fields["count"] != fmt.Sprint(count) || fields["gate"] != "" || fields["until"] != "" || fields["retired"] != ""):
				return fmt.Errorf("shard %d of %d (there: %d): %v", i, count, exists, fields)
			case i >= count && exists != 0:
				return fmt.Errorf("removed shard %d is there: %v", i, fields)
			}
		}
		return nil
	}); err != nil {
		f.t.Error(err)
	}
}
