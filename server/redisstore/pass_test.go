package redisstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// steps is one step of a script for each index from..to-1.
func steps(script shardscript.Name, from, to int, fill func(*stream.Step)) []stream.Step {
	var list []stream.Step
	for i := from; i < to; i++ {
		st := stream.Step{Script: script, Index: i, ID: "change"}
		if fill != nil {
			fill(&st)
		}
		list = append(list, st)
	}
	return list
}

// run runs a pass whose aggregate was checked just now.
func (f *fixture) run(revision int64, confirm bool, stages ...[]stream.Step) stream.PassResult {
	f.t.Helper()
	at, err := f.SampleTime(f.ctx, f.prefix)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.RunPass(f.ctx, f.prefix, revision, at, stream.Pass{Stages: stages, Confirm: confirm})
}

// runStages is run for a pass of the test's own.
func (f *fixture) runStages(revision int64, p stream.Pass) stream.PassResult {
	f.t.Helper()
	at, err := f.SampleTime(f.ctx, f.prefix)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.RunPass(f.ctx, f.prefix, revision, at, p)
}

// codes counts the replies by code.
func codes(res stream.PassResult) map[shardscript.Code]int {
	n := map[shardscript.Code]int{}
	for _, r := range res.Replies {
		n[r.Code]++
	}
	return n
}

func wantCodes(t *testing.T, res stream.PassResult, code shardscript.Code, n int) {
	t.Helper()
	if got := codes(res); len(res.Replies) != n || got[code] != n {
		t.Fatalf("replies %v, want %d × %s; first %+v", got, n, code, res.Replies[0])
	}
}

func TestRunPass(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		const count = 40
		provision := func(st *stream.Step) { st.ToEpoch, st.ToCount, st.High, st.Groups = 1, count, count, []string{"g"} }
		res := f.run(1, true, steps(shardscript.Provision, 0, 1, provision), steps(shardscript.Provision, 1, count, provision))
		wantCodes(t, res, shardscript.OK, count)
		if res.Barrier != stream.BarrierSeal || res.StartedAt == 0 || res.Unconfirmed {
			t.Fatalf("result %+v", res)
		}
		if _, cluster := f.cluster(); cluster == (res.Confirmed < 0) {
			t.Fatalf("confirmed by %d", res.Confirmed) // the cluster has a replica for each node, the other server none
		}
		decide := steps(shardscript.Decide, 0, 1, func(st *stream.Step) { st.ToEpoch, st.ToCount, st.Quiesced = 1, count, true })
		wantCodes(t, f.run(2, true, decide), shardscript.OK, 1)
		wantCodes(t, f.run(2, true, decide), shardscript.Decided, 1)
		open := func(st *stream.Step) { st.Epoch, st.Count = 1, count }
		wantCodes(t, f.run(3, false, steps(shardscript.Open, 0, count, open)), shardscript.OK, count)

		// Evidence as the core sees it.
		key := protocol.ShardKey(f.prefix, 3)
		id := f.c.XAdd(f.ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Val()
		res = f.run(3, false, steps(shardscript.Evidence, 0, count, func(st *stream.Step) { st.Groups = []string{"g"} }))
		if n := codes(res); n[shardscript.Drained] != count-1 || n[shardscript.Busy] != 1 {
			t.Fatalf("evidence %v", n)
		}
		i := slices.IndexFunc(res.Replies, func(r stream.Reply) bool { return r.Code == shardscript.Busy })
		busy := res.Replies[i]
		ev := busy.Evidence
		if ev == nil || ev.ShardIndex != 3 || ev.Sealed || ev.LastID != id || ev.EntriesAdded != 1 || ev.Verdict != "BUSY" || len(ev.Groups) != 1 ||
			!ev.Groups[0].EntryAfter || ev.Groups[0].Lag == nil || *ev.Groups[0].Lag != 1 || ev.Groups[0].LastDeliveredID != "0-0" {
			t.Fatalf("evidence %+v", ev)
		}
		if c := busy.Control; !c.Present || !c.HasEpoch || c.Epoch != 1 || c.Count != count || c.Rev != 3 || !c.StreamExists || c.Length != 1 || busy.At == 0 {
			t.Fatalf("control %+v", c)
		}

		// A lower revision is refused, and the next stage does not run.
		res = f.run(2, false, steps(shardscript.Hold, 0, 5, nil), steps(shardscript.Hold, 5, 10, nil))
		if n := codes(res); n[shardscript.Ahead] != 5 || len(res.Replies) != 5 {
			t.Fatalf("replies %v", n)
		}
		// So is what was checked too long ago.
		at, _ := f.SampleTime(f.ctx, f.prefix)
		late := f.RunPass(f.ctx, f.prefix, 9, at.Add(-EffectLease), stream.Pass{Stages: [][]stream.Step{steps(shardscript.Hold, 0, 5, nil)}})
		wantCodes(t, late, shardscript.Late, 5)
		// And a step with a limit of its own.
		narrow := steps(shardscript.Hold, 0, 1, func(st *stream.Step) { st.NotAfter = at })
		wantCodes(t, f.run(9, false, narrow), shardscript.Late, 1)

		survey := f.run(3, false, steps(shardscript.Survey, 0, count+3, nil))
		wantCodes(t, survey, shardscript.OK, count+3)
		for _, r := range survey.Replies {
			if inside := r.Step.Index < count; r.Control.Present != inside || r.Control.StreamExists != inside {
				t.Fatalf("survey of shard %d: %+v", r.Step.Index, r.Control)
			}
		}

		// A server that has forgotten the scripts is told them again.
		if err := f.forEachPrimary(f.ctx, func(ctx context.Context, n *redis.Client) error { return n.ScriptFlush(ctx).Err() }); err != nil {
			t.Fatal(err)
		}
		wantCodes(t, f.run(3, true, steps(shardscript.Survey, 0, count, nil)), shardscript.OK, count)
	})
}

// A dead node is unknown: its steps have no code, and the others are done.
func TestRunPassNodeDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFixture(t, server.Client(t))
	at, err := f.SampleTime(f.ctx, f.prefix)
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	res := f.RunPass(f.ctx, f.prefix, 1, at, stream.Pass{Confirm: true, Stages: [][]stream.Step{steps(shardscript.Survey, 0, 3, nil), steps(shardscript.Survey, 3, 4, nil)}})
	if n := codes(res); n[""] != 3 || len(res.Replies) != 3 || !res.Unconfirmed {
		t.Fatalf("replies %v, unconfirmed %v", n, res.Unconfirmed)
	}
	for _, r := range res.Replies {
		if r.Err == "" {
			t.Fatalf("no reason for %+v", r)
		}
	}
}

// Confirmation by replicas: given, refused while the replica is frozen, and not needed without one.
func TestRunPassConfirmed(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.StartReplicated(t)
	f := newFixture(t, primary.Client(t))
	provision := steps(shardscript.Provision, 0, 3, func(st *stream.Step) { st.ToEpoch, st.ToCount, st.High = 1, 3, 3 })
	if res := f.run(1, true, provision); res.Confirmed != 1 || res.Unconfirmed {
		t.Fatalf("confirmed %d, unconfirmed %v", res.Confirmed, res.Unconfirmed)
	}
	replica.Pause(t)
	if res := f.run(1, true, provision); res.Confirmed != 0 || !res.Unconfirmed {
		t.Fatalf("a frozen replica: confirmed %d, unconfirmed %v", res.Confirmed, res.Unconfirmed)
	}
	// Of two stages only the first is to be confirmed, and without that the second is not begun.
	first := stream.Pass{ConfirmFirst: true, Stages: [][]stream.Step{provision[:1], provision[1:]}}
	if res := f.runStages(1, first); !res.Unconfirmed || len(res.Replies) != 1 {
		t.Fatalf("a frozen replica: unconfirmed %v, %d replies", res.Unconfirmed, len(res.Replies))
	}
	replica.Continue(t)
	eventually(t, func() string {
		if res := f.runStages(1, first); res.Confirmed != 1 || res.Unconfirmed || len(res.Replies) != 3 {
			return fmt.Sprint("confirmed ", res.Confirmed, ", replies ", len(res.Replies))
		}
		return ""
	})
	eventually(t, func() string { // a repeat writes its stamp, so that there is something to wait for
		if res := f.run(1, true, provision); res.Confirmed != 1 || res.Unconfirmed {
			return fmt.Sprint("confirmed ", res.Confirmed)
		}
		return ""
	})
	if res := f.run(1, false, provision); res.Confirmed != -1 || res.Unconfirmed {
		t.Fatalf("without confirmation: %d, %v", res.Confirmed, res.Unconfirmed)
	}
}

// Two replicas are required and there is one: never confirmed, however many are connected.
func TestRunPassWaitReplicas(t *testing.T) {
	t.Parallel()
	primary, _ := redistest.StartReplicated(t)
	c := primary.Client(t)
	f := newFixture(t, c)
	s, err := New(Config{Client: c, KeyPrefix: string(f.keys), WaitReplicas: 2})
	if err != nil {
		t.Fatal(err)
	}
	f.Store = s
	provision := steps(shardscript.Provision, 0, 3, func(st *stream.Step) { st.ToEpoch, st.ToCount, st.High = 1, 3, 3 })
	if res := f.run(1, true, provision); res.Confirmed != 1 || !res.Unconfirmed {
		t.Fatalf("confirmed %d, unconfirmed %v", res.Confirmed, res.Unconfirmed)
	}
}

// A failover of a shard's node: the pass finds the new one.
func TestRunPassFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	f := newFixture(t, cluster.Client(t))
	const count = 20
	provision := steps(shardscript.Provision, 0, count, func(st *stream.Step) { st.ToEpoch, st.ToCount, st.High = 1, count, count })
	wantCodes(t, f.run(1, true, provision), shardscript.OK, count)
	victim := cluster.Master(t, protocol.ShardKey(f.prefix, 0))
	if cluster.Master(t, f.keys.stream(f.prefix)) == victim {
		// The stream's own keys should stay reachable: take another victim.
		for i := 1; i < count && victim == cluster.Master(t, f.keys.stream(f.prefix)); i++ {
			victim = cluster.Master(t, protocol.ShardKey(f.prefix, i))
		}
	}
	victim.Kill()
	eventually(t, func() string {
		at, err := f.SampleTime(f.ctx, f.prefix)
		if err != nil {
			return err.Error()
		}
		res := f.RunPass(f.ctx, f.prefix, 1, at, stream.Pass{Stages: [][]stream.Step{provision}})
		if n := codes(res); n[shardscript.OK] != count {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// A slot is on its way to another node: half moved, the step is unknown and not done; all moved,
// it follows; done, it finds the new node.
func TestRunPassSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	f := newFixture(t, cluster.Client(t))
	provision := steps(shardscript.Provision, 0, 4, func(st *stream.Step) { st.ToEpoch, st.ToCount, st.High = 1, 4, 4 })
	wantCodes(t, f.run(1, false, provision), shardscript.OK, 4)

	key, control := protocol.ShardKey(f.prefix, 0), protocol.ControlKey(f.prefix, 0)
	from := cluster.Master(t, key)
	to := cluster.Nodes[slices.IndexFunc(cluster.Nodes[:3], func(n *redistest.Server) bool { return n != from })]
	source, target := from.Client(t), to.Client(t)
	slot := protocol.RedisSlot(key)
	do := func(c *redis.Client, args ...any) string {
		t.Helper()
		v, err := c.Do(f.ctx, args...).Text()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}
	sourceID, targetID := do(source, "CLUSTER", "MYID"), do(target, "CLUSTER", "MYID")
	do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", sourceID)
	do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetID)
	host, port, _ := net.SplitHostPort(to.Addr)
	do(source, "MIGRATE", host, port, control, 0, 5000)
	if n := codes(f.run(2, false, provision)); n[shardscript.OK] != 3 || n[""] != 1 {
		t.Fatalf("half moved: %v", n)
	}
	do(source, "MIGRATE", host, port, key, 0, 5000)
	res := f.run(3, true, provision)
	wantCodes(t, res, shardscript.OK, 4)
	if !res.Unconfirmed {
		t.Fatal("a step that was redirected counts as confirmed")
	}
	for _, n := range cluster.Nodes[:3] {
		do(n.Client(t), "CLUSTER", "SETSLOT", slot, "NODE", targetID)
	}
	wantCodes(t, f.run(4, false, provision), shardscript.OK, 4)
	if cluster.Master(t, key) != to {
		t.Fatal("the slot has not moved")
	}
}

// A thousand shards: far below a second on loopback.
func TestRunPassThousandShards(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		const count = 1000
		groups := []string{"a", "b", "c"}
		layout := func(epoch int64, n int) func(*stream.Step) {
			return func(st *stream.Step) { st.Epoch, st.Count, st.Groups, st.High = epoch, n, groups, count }
		}
		started := time.Now()
		wantCodes(t, f.run(1, true, steps(shardscript.Provision, 0, count, layout(0, 0))), shardscript.OK, count)
		provisioned := time.Since(started)
		wantCodes(t, f.run(2, false, steps(shardscript.Open, 0, count, layout(1, count))), shardscript.OK, count)
		wantCodes(t, f.run(3, false, steps(shardscript.Open, 0, count, layout(2, 0))), shardscript.OK, count)
		started = time.Now()
		wantCodes(t, f.run(4, true, steps(shardscript.RetireOne, 0, count, layout(2, 0))), shardscript.OK, count)
		t.Logf("1,000 shards: provisioned in %v, retired in %v", provisioned, time.Since(started))
	})
}

func TestPing(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		if warnings, err := f.Ping(f.ctx); err != nil || len(warnings) != 0 {
			t.Fatalf("%v, %v", warnings, err)
		}
	})
	t.Run("warns", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
		c := server.Client(t)
		if err := c.Do(t.Context(), "ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", "-xsetid").Err(); err != nil {
			t.Fatal(err)
		}
		limited := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "plain", Password: "pw", MaxRetries: -1})
		defer func() { _ = limited.Close() }()
		s, err := New(Config{Client: limited})
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := s.Ping(t.Context())
		if err != nil || len(warnings) != 2 {
			t.Fatalf("%q, %v", warnings, err)
		}
		server.Kill()
		if _, err := s.Ping(t.Context()); err == nil {
			t.Fatal("a dead server answers")
		}
	})
}
