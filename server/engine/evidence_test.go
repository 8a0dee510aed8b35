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

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

// cut is a line to Redis on which commands that name one key get no answer while it is set.
type cut struct {
	mu  sync.Mutex
	key string
}

func (c *cut) set(key string) { c.mu.Lock(); defer c.mu.Unlock(); c.key = key }

func (c *cut) hits(cmd redis.Cmder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.key != "" && slices.ContainsFunc(cmd.Args(), func(a any) bool { return a == c.key })
}

var errCut = errors.New("the line is cut")

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.hits(cmd) {
			cmd.SetErr(errCut)
			return errCut
		}
		return next(ctx, cmd)
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		through := slices.DeleteFunc(slices.Clone(cmds), c.hits)
		var err error
		if len(through) > 0 {
			err = next(ctx, through)
		}
		for _, cmd := range cmds {
			if c.hits(cmd) {
				cmd.SetErr(errCut)
				err = errCut
			}
		}
		return err
	}
}

// withCut is a world whose coordinators come as a user ("": the default one) and may lose the line to
// one shard. The world's own client does not.
func withCut(t *testing.T, server *redistest.Server, user string) (w, coordinators *world, line *cut) {
	t.Helper()
	line = &cut{}
	opts := &redis.Options{Addr: server.Addr}
	if user != "" {
		opts.Username, opts.Password = user, "any"
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(line)
	w = newWorld(t, server.Client(t))
	return w, &world{t: t, rdb: client, keys: w.keys, prefix: w.prefix}, line
}

// waitsFor polls until the resharding waits for something with every part in it.
func (w *world) waitsFor(e *engine.Engine, id string, phase protocol.Phase, parts ...string) protocol.Resharding {
	w.t.Helper()
	var r protocol.Resharding
	w.eventually(fmt.Sprintf("%s waits for %q", phase, parts), 30*time.Second, func() (bool, string) {
		var err error
		if r, err = e.Resharding(w.t.Context(), w.prefix, id, "", 0); err != nil {
			return false, err.Error()
		}
		text := strings.Join(r.WaitingFor, "; ")
		missing := slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return strings.Contains(text, p) })
		return r.Phase == phase && len(missing) == 0, fmt.Sprintf("%s: %s %s", r.Phase, text, r.Error)
	})
	return r
}

// Evidence that is missing, for whatever reason, is unknown: it blocks, with reason and age, nothing
// is decided or retired, and when it is back the change completes.
func TestMissingEvidenceBlocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client(t).Do(t.Context(), "ACL", "SETUSER", "coord", "on", "nopass", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lose   func(w *world, line *cut) (restore func())
		reason string
	}{
		"the key is deleted": {func(w *world, _ *cut) func() {
			restore := w.keep(protocol.ShardKey(w.prefix, 2))
			w.must("DEL", protocol.ShardKey(w.prefix, 2))
			return restore
		}, "the stream is missing"},
		"one of two groups is destroyed": {func(w *world, _ *cut) func() {
			w.must("XGROUP", "DESTROY", protocol.ShardKey(w.prefix, 2), "h")
			return func() { w.must("XGROUP", "CREATE", protocol.ShardKey(w.prefix, 2), "h", "0") }
		}, "consumer group h is missing"},
		"the list of groups is empty": {func(w *world, _ *cut) func() {
			for _, g := range []string{"g", "h"} {
				w.must("XGROUP", "DESTROY", protocol.ShardKey(w.prefix, 2), g)
			}
			return func() {
				for _, g := range []string{"g", "h"} {
					w.must("XGROUP", "CREATE", protocol.ShardKey(w.prefix, 2), g, "0")
				}
			}
		}, "consumer group g; h is missing"},
		"XINFO is denied": {func(w *world, _ *cut) func() {
			w.must("ACL", "SETUSER", "coord", "-xinfo")
			return func() { w.must("ACL", "SETUSER", "coord", "+xinfo") }
		}, "can't run this command"},
		"the line is cut": {func(w *world, line *cut) func() {
			line.set(protocol.ShardKey(w.prefix, 2))
			return func() { line.set("") }
		}, "no answer: the line is cut"},
	} {
		t.Run(name, func(t *testing.T) { // one after the other: the user is the server's
			w, coordinators, line := withCut(t, server, "coord")
			e, gate, _ := coordinators.start("a")
			w.create(e, 3)
			if _, _, err := e.PutGroup(t.Context(), w.prefix, "h", quick, mutation("PUT_GROUP")); err != nil {
				t.Fatal(err)
			}
			stopped := gate.at(protocol.PhaseDraining)
			id := w.scale(e, 2, quiesce)
			await(t, "DRAINING", stopped)
			restore := c.lose(w, line)
			gate.release()
			r := w.waitsFor(e, id, protocol.PhaseDraining, "shard 2: blocked: evidence unknown (", c.reason, "unknown since ")
			if r.Certificate != nil {
				t.Errorf("a certificate with unknown evidence: %+v", r.Certificate)
			}
			restore()
			if r = finish(t, e, w.prefix, id); r.Phase != protocol.PhaseCompleted {
				t.Fatalf("ended %s: %s", r.Phase, r.Error)
			}
			w.healthy(e, 2)
		})
	}
}

// must runs a command.
func (w *world) must(args ...any) {
	w.t.Helper()
	if err := w.rdb.Do(w.t.Context(), args...).Err(); err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
}

// add appends n entries to a shard under the layout in force.
func (w *world) add(e *engine.Engine, shard, n int) (ids []string) {
	w.t.Helper()
	epoch, count := w.layout(e)
	for range n {
		reply, id := w.append(shard, epoch, count)
		if id == "" {
			w.t.Fatalf("append to shard %d: %+v", shard, reply)
		}
		ids = append(ids, id)
	}
	return ids
}

// takeOver is a new owner that handles what is pending of group g.
func (w *world) takeOver(shard int) (handled, lost []string) {
	w.t.Helper()
	owner := shardscript.Owner{Epoch: 1_000_000, MemberID: "m", Incarnation: "i"}
	slice := shardscript.TakeoverSlice{Group: "g", Owner: owner, Consumer: "m~1000000", Max: 100}
	r, err := shardscript.ParseTakeover(w.run(shardscript.Takeover, shard, slice.Args()...))
	if err != nil || r.Code != shardscript.OK {
		w.t.Fatalf("%+v, %v", r, err)
	}
	for _, entry := range r.Entries {
		handled = append(handled, entry.ID)
	}
	w.run(shardscript.CheckAck, shard, shardscript.CheckAckArgs("g", owner, slice.Consumer, handled...)...)
	return handled, r.Lost
}

// Entries that were removed before a group had acknowledged them do not hold a drain up; the
// certificate and the warnings of the resharding have their counts.
func TestLossesAreReported(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 2)
		// Shard 0: five are read and not acknowledged, two of them lose their body.
		key := protocol.ShardKey(w.prefix, 0)
		ids := w.add(e, 0, 5)
		w.must("XREADGROUP", "GROUP", "g", "dead", "COUNT", 10, "STREAMS", key, ">")
		w.must("XDEL", key, ids[1], ids[3])
		// Shard 1: one of five is read and acknowledged, three are trimmed, the last one is read.
		key = protocol.ShardKey(w.prefix, 1)
		ids = append(ids, w.add(e, 1, 5)...)
		w.must("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", key, ">")
		w.must("XTRIM", key, "MAXLEN", 1)
		w.must("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", key, ">")
		w.must("XACK", key, "g", ids[5], ids[9])

		id := w.scale(e, 3, quiesce)
		w.waitsFor(e, id, protocol.PhaseDraining, "shard 0: group g has 5 pending")
		handled, lost := w.takeOver(0)
		if !slices.Equal(handled, []string{ids[0], ids[2], ids[4]}) || !slices.Equal(lost, []string{ids[1], ids[3]}) {
			t.Fatalf("took over %v and %v of %v", handled, lost, ids[:5])
		}
		r := finish(t, e, w.prefix, id)
		if r.Phase != protocol.PhaseCompleted || r.Certificate == nil || len(r.Certificate.Shards) != 2 {
			t.Fatalf("ended %s: %s; %+v", r.Phase, r.Error, r.Certificate)
		}
		first, second := r.Certificate.Shards[0], r.Certificate.Shards[1]
		if g := first.Groups[0]; first.Verdict != "DRAINED" || g.Gone != 2 || g.Pending != 0 {
			t.Errorf("shard 0: %+v", first)
		}
		if g := second.Groups[0]; second.Verdict != "DRAINED" || g.PossibleLoss == nil || *g.PossibleLoss != 3 || g.Gone != 0 {
			t.Errorf("shard 1: %+v", second)
		}
		want := []string{
			"shard 0: group g may have lost at least 2 entries, removed before it had acknowledged them: 2 while pending",
			"shard 1: group g may have lost at least 3 entries, removed before it had acknowledged them: 3 before delivery, by Redis's counters",
		}
		if !slices.Equal(r.Warnings, want) {
			t.Errorf("warnings %q", r.Warnings)
		}
	})
}

// A busy shard names group and counts.
func TestWaitingNamesTheCounts(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 4)
		w.add(e, 3, 19)
		w.must("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", protocol.ShardKey(w.prefix, 3), ">")
		read := w.add(e, 1, 102)[0]
		w.must("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", protocol.ShardKey(w.prefix, 1), ">")
		w.must("XACK", protocol.ShardKey(w.prefix, 1), "g", read)
		id := w.scale(e, 5, quiesce)
		w.waitsFor(e, id, protocol.PhaseDraining, "shard 3: group g has 2 pending and 17 undelivered", "shard 1: group g has more than 100 undelivered")
		if _, err := e.Rollback(t.Context(), w.prefix, id, mutation("ROLLBACK")); err != nil {
			t.Fatal(err)
		}
		if r := finish(t, e, w.prefix, id); r.Phase != protocol.PhaseRolledBack {
			t.Fatalf("ended %s", r.Phase)
		}
	})
}

// To no shard at all, with a backlog that nobody reads: it waits, says for whom and how much, and
// ends when somebody has read it all.
func TestToZeroWaitsForTheBacklog(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]protocol.ReshardingPolicy{"quiesced": quiesce, "online": {Strategy: protocol.StrategyOnline}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backends(t, func(t *testing.T, rdb redis.UniversalClient) {
				w := newWorld(t, rdb)
				e, _, _ := w.start("a")
				w.create(e, 2)
				ids := w.add(e, 1, 3)
				w.must("XREADGROUP", "GROUP", "g", "dead", "COUNT", 1, "STREAMS", protocol.ShardKey(w.prefix, 1), ">")
				phase := protocol.PhaseDraining
				if policy.Strategy == protocol.StrategyOnline {
					phase = protocol.PhaseDrainingRemoved
				}
				id := w.scale(e, 0, policy)
				r := w.waitsFor(e, id, phase, "shard 1: group g has 1 pending and 2 undelivered")
				if slices.ContainsFunc(r.WaitingFor, func(text string) bool { return strings.HasPrefix(text, "shard 0") }) {
					t.Errorf("waits for a shard that is empty: %v", r.WaitingFor)
				}
				w.consume(e, "m")
				w.takeOver(1) // of what the dead one had; the world's own consumer takes nothing over
				if r = finish(t, e, w.prefix, id); r.Phase != protocol.PhaseCompleted {
					t.Fatalf("ended %s: %s", r.Phase, r.Error)
				}
				if !w.handled(1, ids[1]) || !w.handled(1, ids[2]) {
					t.Error("the backlog was not handled")
				}
				for i := range 2 {
					if w.exists(i) {
						t.Errorf("shard %d is still there", i)
					}
				}
			})
		})
	}
}
