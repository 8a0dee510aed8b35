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
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// groups lists the Redis consumer groups of a shard.
func (w *world) groups(shard int) string {
	w.t.Helper()
	list, err := w.rdb.XInfoGroups(w.t.Context(), protocol.ShardKey(w.prefix, shard)).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, g := range list {
		names = append(names, g.Name)
	}
	return strings.Join(names, ",")
}

func refusal(err error) protocol.Error {
	if p, ok := errors.AsType[*protocol.Error](err); ok {
		return *p
	}
	return protocol.Error{Message: fmt.Sprint(err)}
}

func TestDeleteGroup(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 3)
		register := func(name string) {
			t.Helper()
			if _, _, err := e.PutGroup(t.Context(), w.prefix, name, quick, mutation("PUT_GROUP")); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(name string, force bool) error {
			_, err := e.DeleteGroup(t.Context(), w.prefix, name, force, mutation("DELETE_GROUP"))
			return err
		}
		register("old")
		w.pour(1, 5)
		w.readAndAck(1, "old", 3, 2)

		// It has not finished: refused, with shards and counts, and nothing is changed.
		refused := refusal(remove("old", false))
		if refused.Code != protocol.CodeGroupNotEmpty || !strings.Contains(refused.Message, "shard 1: 2 pending, 2 undelivered") ||
			len(refused.Details) != 1 || refused.Details[0].Field != "shards[1]" {
			t.Fatalf("%+v", refused)
		}
		if w.groups(1) != "g,old" || w.control(1)["by"] == "group/RMGROUP" {
			t.Fatalf("groups %s, control %v", w.groups(1), w.control(1))
		}
		if g, err := e.Group(t.Context(), w.prefix, "old"); err != nil || !g.Ready {
			t.Fatalf("%+v, %v", g, err)
		}

		// A live member comes first.
		m := &member{e: e, prefix: w.prefix, group: "old", id: "m"}
		if resp := m.beat(t.Context(), 0); resp.Status != protocol.StatusOK {
			t.Fatalf("join: %+v", resp)
		}
		if refused := refusal(remove("old", false)); refused.Code != protocol.CodeGroupHasMembers {
			t.Fatalf("%+v", refused)
		}

		// With force it goes at once, on every shard, and the log says what was given up.
		if err := remove("old", true); err != nil {
			t.Fatal(err)
		}
		for shard := range 3 {
			if got := w.groups(shard); got != "g" {
				t.Errorf("shard %d has groups %s", shard, got)
			}
		}
		if n := w.length(1); n != 5 {
			t.Errorf("%d entries are left", n)
		}
		events, err := e.AuditEvents(t.Context(), redisstore.AuditQuery{Prefix: w.prefix, Limit: 1})
		if err != nil || len(events.Events) != 1 || events.Events[0].Action != "DELETE_GROUP" || events.Events[0].Summary != "pending=2 undelivered=2 shards=1" {
			t.Fatalf("%+v, %v", events, err)
		}
		if resp := m.beat(t.Context(), 0); resp.Status != protocol.StatusUnknownMemberID {
			t.Errorf("a member of it is told %s", resp.Status)
		}
		if refused := refusal(remove("old", false)); refused.Code != protocol.CodeGroupNotFound {
			t.Errorf("a second time: %+v", refused)
		}

		// Registered anew it starts anew.
		register("old")
		w.readAndAck(1, "old", 10, 0)
		if p := rdb.XPending(t.Context(), protocol.ShardKey(w.prefix, 1), "old").Val(); p.Count != 0 {
			t.Errorf("%+v", p)
		}
		// What has finished goes without force.
		if err := remove("old", false); err != nil {
			t.Fatal(err)
		}
		// It holds up no drain: g has to read what is left, nobody else.
		w.readAndAck(1, "g", 10, 0)
		put(t, e, w.prefix, spec(2))
		w.healthy(e, 2)
	})
}

// What an abandoned group has left does not hold a running drain up once the group is deleted.
func TestDeleteGroupWhileDraining(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	e, _, _ := w.start("a")
	w.create(e, 2)
	if _, _, err := e.PutGroup(t.Context(), w.prefix, "abandoned", quick, mutation("PUT_GROUP")); err != nil {
		t.Fatal(err)
	}
	w.pour(0, 3)
	w.readAndAck(0, "g", 3, 0)
	w.readAndAck(0, "abandoned", 1, 1)
	id := w.scale(e, 3, protocol.ReshardingPolicy{})
	w.eventually("the drain waits for the group", 30*time.Second, func() (bool, string) {
		r, err := e.Resharding(t.Context(), w.prefix, id, "", 0)
		return err == nil && strings.Contains(strings.Join(r.WaitingFor, " "), "abandoned"), fmt.Sprintf("%s %v %v", r.Phase, r.WaitingFor, err)
	})
	if _, err := e.DeleteGroup(t.Context(), w.prefix, "abandoned", true, mutation("DELETE_GROUP")); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, e, w.prefix, id); r.Phase != protocol.PhaseCompleted {
		t.Fatalf("%s: %s", r.Phase, r.Error)
	}
	w.healthy(e, 3)
	if got := w.groups(2); got != "g" {
		t.Errorf("the new shard has groups %s", got)
	}
}

// The replica dies between the commit and its effects: the group is unknown at once, its name is
// taken until another replica has removed the rest, and who asks again waits for that.
func TestDeleteGroupSurvivesTheReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	frozen, release := make(chan struct{}), make(chan struct{})
	var once, letGo sync.Once
	a := w.keeper("a", time.Hour, time.Hour, func(p stream.Pass) {
		if p.Kind == stream.PassRemove {
			once.Do(func() { close(frozen) })
			<-release
		}
	})
	defer letGo.Do(func() { close(release) })
	w.create(a.Engine, 2)
	w.pour(0, 2)
	w.readAndAck(0, "g", 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := a.DeleteGroup(ctx, w.prefix, "g", true, mutation("DELETE_GROUP"))
		first <- err
	}()
	await(t, "the pass of replica a", frozen)
	cancel()
	if err := <-first; err == nil {
		t.Error("answered as done while the groups were there")
	}
	if _, err := a.Group(t.Context(), w.prefix, "g"); refusal(err).Code != protocol.CodeGroupNotFound {
		t.Errorf("%v", err)
	}
	_, _, err := a.PutGroup(t.Context(), w.prefix, "g", quick, mutation("PUT_GROUP"))
	if refused := refusal(err); refused.Code != protocol.CodeStateVersionConflict || !strings.Contains(refused.Message, "is being deleted") {
		t.Errorf("%+v", refused)
	}
	if w.groups(0) != "g" {
		t.Fatalf("groups %s", w.groups(0))
	}

	b := w.keeper("b", time.Hour, time.Hour, nil)
	if _, err := b.DeleteGroup(t.Context(), w.prefix, "g", false, mutation("DELETE_GROUP")); refusal(err).Code != protocol.CodeGroupNotFound {
		t.Errorf("%v", err)
	}
	if w.groups(0)+w.groups(1) != "" {
		t.Errorf("groups %s, %s", w.groups(0), w.groups(1))
	}
	if _, _, err := b.PutGroup(t.Context(), w.prefix, "g", quick, mutation("PUT_GROUP")); err != nil {
		t.Fatal(err)
	}
	letGo.Do(func() { close(release) }) // replica a's pass meets newer marks
	w.healthy(b.Engine, 2)
	if w.groups(0) != "g" || w.groups(1) != "g" {
		t.Errorf("groups %s, %s", w.groups(0), w.groups(1))
	}
}

// sluggish is a line to Redis on which one script takes its time.
type sluggish struct {
	script string // digest
	takes  time.Duration
}

func (s sluggish) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s sluggish) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s sluggish) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(s.script)) }) {
			<-time.After(s.takes)
		}
		return err
	}
}

// What is seen of the shards decides only while it is fresh; force does not ask for it.
func TestDeleteGroupOfSlowShards(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	client.AddHook(sluggish{script: redis.NewScript(shardscript.Source(shardscript.Probe)).Hash(), takes: redisstore.EffectLease + 50*time.Millisecond})
	w := newWorld(t, client)
	e, _, _ := w.start("a")
	w.create(e, 1)
	_, err := e.DeleteGroup(t.Context(), w.prefix, "g", false, mutation("DELETE_GROUP"))
	if refused := refusal(err); refused.Code != protocol.CodeStateVersionConflict || !strings.Contains(refused.Message, "took longer than 2s to answer") {
		t.Errorf("%v", err)
	}
	if _, err := e.DeleteGroup(t.Context(), w.prefix, "g", true, mutation("DELETE_GROUP")); err != nil {
		t.Fatal(err)
	}
	if got := w.groups(0); got != "" {
		t.Errorf("groups %s", got)
	}
}

// A group that was deleted and registered again is told from the one before by when it was made.
func TestGroupMadeAnewIsAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	e, _, _ := w.start("a")
	w.create(e, 1)
	register := func(lease int64) protocol.Group {
		t.Helper()
		if _, _, err := e.PutGroup(t.Context(), w.prefix, "old", protocol.GroupSpec{MemberLeaseMs: lease}.WithDefaults(), mutation("PUT_GROUP")); err != nil {
			t.Fatal(err)
		}
		g, err := e.Group(t.Context(), w.prefix, "old")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first, changed := register(5000), register(6000)
	if first.CreatedAt.IsZero() || !changed.CreatedAt.Equal(first.CreatedAt) || changed.Generation != 2 {
		t.Errorf("made %v, changed %+v", first.CreatedAt, changed)
	}
	if _, err := e.DeleteGroup(t.Context(), w.prefix, "old", false, mutation("DELETE_GROUP")); err != nil {
		t.Fatal(err)
	}
	if anew := register(5000); !anew.CreatedAt.After(first.CreatedAt) || anew.Generation != 1 {
		t.Errorf("made at %v, anew: %+v", first.CreatedAt, anew)
	}
}
