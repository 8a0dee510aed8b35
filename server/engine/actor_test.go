package engine

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

// bench is one actor that the test drives itself: its engine was not started, so that it hears
// nothing and does nothing by itself. other is a running replica of the same stream.
type bench struct {
	*actor
	other  *Engine
	rdb    redis.UniversalClient
	prefix string
	keys   string
}

// newBench makes a stream of two shards with group "g" and member "a", which owns both.
func newBench(t *testing.T) *bench {
	t.Helper()
	rdb, keys, prefix := redistest.Shared(t).Client(t), redistest.KeyPrefix(t), redistest.Prefix(t)
	engineOf := func(id string) *Engine {
		store, err := redisstore.New(redisstore.Config{Client: rdb, KeyPrefix: keys})
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(Config{Store: store, CoordinatorID: id, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return e
	}
	other := engineOf("other")
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := other.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	if _, err := other.CreateGroup(t.Context(), prefix, "g", 2, Mutation{}); err != nil {
		t.Fatal(err)
	}
	if resp := beat(t, other, prefix, protocol.EpochJoin); resp.Status != protocol.StatusOK || len(resp.Assignment.AssignedShards) != 2 {
		t.Fatalf("join: %+v", resp)
	}
	e := engineOf("driven")
	e.ctx = t.Context()
	return &bench{newActor(e, prefix), other, rdb, prefix, keys}
}

func beat(t *testing.T, e *Engine, prefix string, epoch int64) protocol.HeartbeatResponse {
	t.Helper()
	return e.Heartbeat(t.Context(), prefix, "g", "a", report(epoch))
}

func report(epoch int64) *protocol.HeartbeatRequest {
	return &protocol.HeartbeatRequest{
		ProtocolVersion: 1, RequestID: "r", MemberID: "a", MemberEpoch: epoch, Incarnation: "inc",
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
	}
}

// change makes a commit of the other replica that the driven actor does not hear of.
func (b *bench) change(t *testing.T, requestID string) {
	t.Helper()
	spec := protocol.DefaultGroupSpec()
	spec.RebalanceTimeoutMs += int64(len(requestID))
	if _, _, err := b.other.PutGroup(t.Context(), b.prefix, "g", spec, Mutation{Audit: protocol.AuditEvent{RequestID: requestID}}); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) key(what string) string { return b.keys + ":{" + b.prefix + "}:" + what }

// One sweep after the other finds nothing: the back-off of the last one must not make the timer
// fire without an end.
func TestBackoffOfAPassThatIsNotNeededAnyMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	b.periodic.holder = true
	b.runner.surveyAt = time.Now().Add(time.Hour)
	b.runner.due = time.Now().Add(-time.Millisecond)
	b.startPass()
	if b.runner.running || !b.runner.due.IsZero() {
		t.Errorf("running %v, next due %s ago", b.runner.running, time.Since(b.runner.due))
	}
}

func TestNoticesThatDoNotFitAreNews(t *testing.T) {
	t.Parallel()
	a := newActor(&Engine{log: zap.NewNop()}, "orders")
	a.cache = &cache{}
	a.own.add("own")
	for range cap(a.notices) {
		a.notice("own")
	}
	a.heard(<-a.notices)
	if a.cache == nil {
		t.Fatal("an own commit was taken for news")
	}
	a.notice("own")
	a.notice("foreign") // does not fit
	a.heard(<-a.notices)
	if a.cache != nil {
		t.Error("the notice that did not fit is forgotten")
	}
}

// The effect lease counts from a check of the stream's revision (resharding 1.2.4); a renewal
// checks only the group's.
func TestRenewalDoesNotProveTheStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	loaded := b.cache.checkedAt
	b.cache.streamToken.Nonce = "lost" // as if another replica had been faster
	for b.now() <= loaded.Add(time.Millisecond) {
		runtime.Gosched() // a proof of now has another time
	}
	var resp protocol.HeartbeatResponse
	b.turn([]*command{newCommand(func(turn *aggregate.Turn) *protocol.Error {
		resp = turn.Heartbeat("g", "a", report(b.cache.unit.Groups["g"].GroupEpoch))
		return nil
	})})
	if resp.Status != protocol.StatusOK || b.cache == nil || b.cache.streamToken.Nonce != "lost" {
		t.Fatalf("renewal: %+v", resp)
	}
	if b.cache.checkedAt != loaded {
		t.Errorf("checked at %s, loaded at %s", b.cache.checkedAt, loaded)
	}
}

// After a step of the clock nothing is decided before the leases have begun anew, also when
// another replica's commit comes in between.
func TestLeasesBeginAnewInSpiteOfAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	g := b.cache.unit.Groups["g"]
	row := group.Row("a", g.Members["a"].JoinEpoch)
	if err := b.rdb.ZAdd(t.Context(), b.key("leases:g"), redis.Z{Score: 1, Member: row}).Err(); err != nil {
		t.Fatal(err)
	}
	b.cache.unit.Leases["g"] = group.Leases{row: 1} // ended, by the clock that has stepped
	b.cache.groupTokens["g"] = redisstore.Token{Revision: 1, Nonce: "of before"}
	b.stepped = true
	b.turn([]*command{newCommand(func(turn *aggregate.Turn) *protocol.Error { turn.Tick("g"); return nil })})
	if b.stepped {
		t.Fatal("the leases have not begun anew")
	}
	if m := b.cache.unit.Groups["g"].Members["a"]; m.State != group.Active {
		t.Errorf("the member is %s", m.State)
	}
	end, err := b.rdb.ZScore(t.Context(), b.key("leases:g"), row).Result()
	if err != nil || end < float64(time.Now().UnixMilli()) {
		t.Errorf("its lease ends at %.0f: %v", end, err)
	}
}

// Redis lost several commits. They are made up for once; a later look at the same history, whose
// revisions are still below those that were lost, is no news.
func TestLostWritesAreMadeUpForOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	saved := map[string]map[string]string{}
	for _, what := range []string{"stream", "group:g"} {
		fields, err := b.rdb.HGetAll(t.Context(), b.key(what)).Result()
		if err != nil {
			t.Fatal(err)
		}
		saved[b.key(what)] = fields
	}
	for _, id := range []string{"1", "22", "333", "4444"} {
		b.change(t, id)
	}
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	epoch := b.cache.unit.Groups["g"].GroupEpoch
	for key, fields := range saved {
		if err := b.rdb.HSet(t.Context(), key, fields).Err(); err != nil {
			t.Fatal(err)
		}
	}
	look := func() int64 {
		b.drop()
		b.turn(nil)
		if b.cache == nil {
			t.Fatal("no state")
		}
		return b.cache.unit.Groups["g"].GroupEpoch
	}
	recovered := look()
	if recovered <= epoch {
		t.Fatalf("group epoch %d, was %d before the loss", recovered, epoch)
	}
	if again := look(); again != recovered {
		t.Errorf("recovered once more: group epoch %d, was %d", again, recovered)
	}
}

// A held command is looked at when a state was loaded, whoever loaded it: the notice of the change
// may have come while Redis was away.
func TestHeldCommandsSeeWhatWasLoaded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	revision := b.cache.groupTokens["g"].Revision
	c := newCommand(func(turn *aggregate.Turn) *protocol.Error { turn.Group("g"); return nil })
	c.group, c.deadline = "g", time.Now().Add(time.Hour)
	c.unchanged = func(aggregate.Unit) bool { return b.cache.groupTokens["g"].Revision == revision }
	b.turn([]*command{c})
	b.decideReady()
	if len(b.held) != 1 {
		t.Fatalf("%d commands are held", len(b.held))
	}
	b.change(t, "change")
	b.drop()
	b.tick()
	b.decideReady()
	select {
	case err := <-c.done:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("the command is still held")
	}
}

// What the audit log says is of the apply that was committed, not of one before it that lost the
// compare-and-set.
func TestAuditOfARepeatedApply(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	applied := 0
	err := b.other.mutate(t.Context(), b.prefix, Mutation{Audit: protocol.AuditEvent{RequestID: "repeated"}}, func(turn *aggregate.Turn, ev *protocol.AuditEvent) *protocol.Error {
		if applied++; applied == 1 {
			ev.Status, ev.ReshardingID = 201, "reshard-lost"
			if err := b.rdb.HSet(context.Background(), b.key("stream"), "nonce", "of another replica").Err(); err != nil {
				t.Error(err)
			}
		}
		turn.Stream()
		return nil
	})
	if err != nil || applied < 2 {
		t.Fatalf("applied %d times: %v", applied, err)
	}
	list, err := b.other.AuditEvents(t.Context(), redisstore.AuditQuery{Prefix: b.prefix, Limit: 1})
	if err != nil || len(list.Events) != 1 {
		t.Fatalf("%+v: %v", list, err)
	}
	if ev := list.Events[0]; ev.RequestID != "repeated" || ev.Status != 200 || ev.ReshardingID != "" {
		t.Errorf("%+v", ev)
	}
}

// The caller's context ends while a turn has the command: the outcome of the turn is the answer,
// so that what is recorded and what was done agree.
func TestCommandThatATurnHasIsNotAbandoned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := b.other.mutate(ctx, b.prefix, Mutation{Audit: protocol.AuditEvent{RequestID: "late"}}, func(turn *aggregate.Turn, _ *protocol.AuditEvent) *protocol.Error {
		cancel()
		turn.Stream()
		return nil
	})
	if err != nil {
		t.Errorf("stored, but answered %v", err)
	}
	c := newCommand(func(*aggregate.Turn) *protocol.Error { return nil })
	if !c.leave() || c.take() {
		t.Error("an abandoned command is decided")
	}
	c = newCommand(nil)
	if !c.take() || c.leave() || c.hold() {
		t.Error("a command whose caller has left is held")
	}
}

// A deletion and a look for the identity of the server in one batch.
func TestDeletedStreamHasAnIdentity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	want, out := b.cache.identity, aggregate.Outcome{StreamDeleted: true}
	b.keepCommit(out, &redisstore.Commit{Stream: &redisstore.StreamWrite{}}, redisstore.CommitResult{})
	if b.cache == nil || b.cache.identity != want || b.cache.unit.Stream != nil {
		t.Errorf("%+v", b.cache)
	}
}

// A group is ticked while another replica deletes the stream.
func TestTickOfADeletedStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	b.periodic.holder, b.periodic.lockDue = true, time.Now().Add(time.Hour)
	now := time.Now()
	for _, name := range b.cache.unit.GroupNames() {
		b.setDue(name, now.Add(-time.Second))
	}
	// The row is gone, so that the tick has something to commit.
	if err := b.rdb.Del(t.Context(), b.key("leases:g")).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.other.DeleteStream(t.Context(), b.prefix, true, Mutation{}); err != nil {
		t.Fatal(err)
	}
	b.tick()
	if !b.missing {
		t.Error("the stream is still there")
	}
	var refused *protocol.Error
	if _, err := b.other.Stream(t.Context(), b.prefix); !errors.As(err, &refused) || refused.Code != protocol.CodeStreamNotFound {
		t.Errorf("read: %v", err)
	}
}

// A member that speaks to another replica: its lease is that of the row, not what this replica
// last knew of it.
func TestMembersShowTheRowsOfNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	members := func() protocol.MemberView {
		t.Helper()
		views, err := b.other.Members(t.Context(), b.prefix, "g")
		if err != nil || len(views) != 1 {
			t.Fatalf("%+v: %v", views, err)
		}
		return views[0]
	}
	known := members()
	row := group.Row("a", known.MemberEpoch)
	end := known.MemberLeaseExpiresAt.Add(time.Second)
	if err := b.rdb.ZAdd(t.Context(), b.key("leases:g"), redis.Z{Score: float64(end.UnixMilli()), Member: row}).Err(); err != nil {
		t.Fatal(err)
	}
	if got := members(); !got.MemberLeaseExpiresAt.Equal(end) {
		t.Errorf("lease ends at %s, want %s", got.MemberLeaseExpiresAt, end)
	}
}

// The reports of members that are forgotten go too, and those of heartbeats that were refused
// are not kept at all.
func TestReportsOfNobodyAreNotKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ghost := report(1)
	ghost.MemberID, ghost.ShardProgress = "ghost", []protocol.ShardProgress{{StreamKey: "k"}}
	if resp := b.other.Heartbeat(t.Context(), b.prefix, "g", "ghost", ghost); resp.Status != protocol.StatusUnknownMemberID {
		t.Fatalf("%+v", resp)
	}
	reports := func() map[string]string {
		t.Helper()
		fields, err := b.rdb.HGetAll(t.Context(), b.key("progress:g")).Result()
		if err != nil {
			t.Fatal(err)
		}
		return fields
	}
	if got := reports(); len(got) != 1 || got["a"] == "" {
		t.Fatalf("reports: %v", got)
	}
	leave := report(protocol.EpochLeave)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	leave.MetadataVersion = b.cache.unit.Groups["g"].MetadataVersion
	if resp := b.other.Heartbeat(t.Context(), b.prefix, "g", "a", leave); resp.Status != protocol.StatusOK {
		t.Fatalf("%+v", resp)
	}
	b.drop()
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	left := *b.cache.unit.Groups["g"].Members["a"]
	left.Since = 1 // long ago
	b.cache.unit.Groups["g"].Members["a"] = &left
	b.turn([]*command{newCommand(func(turn *aggregate.Turn) *protocol.Error { turn.Tick("g"); return nil })})
	if got := reports(); len(got) != 0 {
		t.Errorf("reports: %v", got)
	}
}
