package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

// patient is a group whose members live as long as a test.
var patient = protocol.GroupSpec{MemberLeaseMs: 600_000, HeartbeatIntervalMs: 3000, RebalanceTimeoutMs: 5000}

// removeAsPreviewed makes the dry run of a removal and then the removal: the first must change
// nothing, and the second do what the first has said.
func (w *world) removeAsPreviewed(e *engine.Engine, group string, force bool) protocol.RemovalPreview {
	t := w.t
	t.Helper()
	before := w.everything()
	p, err := e.PreviewGroupRemoval(t.Context(), w.prefix, group, force, 0)
	if after := w.everything(); !maps.Equal(before, after) {
		t.Errorf("the dry run has changed something:\n%v\n%v", before, after)
	}
	_, really := e.DeleteGroup(t.Context(), w.prefix, group, force, mutation("DELETE_GROUP"))
	what := fmt.Sprintf("preview %+v, %v", p, err)
	switch {
	case err != nil:
		if said, done := refusal(err), refusal(really); said.Code != done.Code || said.Message != done.Message {
			t.Fatalf("%s\nbut the removal was answered %v", what, really)
		}
		return p
	case really != nil:
		if done := refusal(really); len(p.Blockers) == 0 || p.Blockers[0] != (protocol.PreviewNote{Code: string(done.Code), Message: done.Message}) {
			t.Fatalf("%s\nbut the removal was refused: %v", what, really)
		}
		return p
	case len(p.Blockers) > 0:
		t.Fatalf("%s\nbut the group was removed", what)
	}
	// The audit entry says what was given up: what the dry run had said.
	more := ""
	if p.UndeliveredMore {
		more = "+"
	}
	given := fmt.Sprintf("pending=%d undelivered=%d%s", p.Pending, p.Undelivered, more)
	events, err := e.AuditEvents(t.Context(), redisstore.AuditQuery{Prefix: w.prefix, Limit: 1})
	if err != nil || len(events.Events) != 1 || events.Events[0].Action != "DELETE_GROUP" || !strings.HasPrefix(events.Events[0].Summary, given) {
		t.Errorf("%s\nbut the log has %+v, %v", what, events, err)
	}
	return p
}

// What the dry run of a removal says is what the removal then does.
func TestRemovalPreviewSaysWhatHappens(t *testing.T) {
	t.Parallel()
	missing := func(t *testing.T, w *world, shard int) {
		t.Helper()
		if err := w.rdb.XGroupDestroy(t.Context(), protocol.ShardKey(w.prefix, shard), "old").Err(); err != nil {
			t.Fatal(err)
		}
	}
	join := func(t *testing.T, w *world, e *engine.Engine) {
		t.Helper()
		m := &member{e: e, prefix: w.prefix, group: "old", id: "m"}
		if resp := m.beat(t.Context(), 0); resp.Status != protocol.StatusOK {
			t.Fatalf("join: %+v", resp)
		}
	}
	notEmpty, alive := string(protocol.CodeGroupNotEmpty), string(protocol.CodeGroupHasMembers)
	for _, c := range []struct {
		name    string
		group   string // "old" unless given
		arrange func(t *testing.T, w *world, e *engine.Engine)
		force   bool
		want    protocol.RemovalPreview // counts and shards
		blocked []string                // codes
		risks   []string
		missing bool // the group is not known
	}{
		{name: "empty"},
		{name: "finished", arrange: func(t *testing.T, w *world, _ *engine.Engine) {
			w.pour(1, 3)
			w.readAndAck(1, "old", 3, 0)
		}},
		{name: "pending", arrange: func(t *testing.T, w *world, _ *engine.Engine) {
			w.pour(2, 3)
			w.readAndAck(2, "old", 3, 2)
		}, want: protocol.RemovalPreview{Pending: 2, Shards: []protocol.ShardBacklog{{ShardIndex: 2, Pending: 2}}}, blocked: []string{notEmpty}},
		{name: "undelivered", arrange: func(t *testing.T, w *world, _ *engine.Engine) { w.pour(0, 3) },
			want: protocol.RemovalPreview{Undelivered: 3, Shards: []protocol.ShardBacklog{{ShardIndex: 0, Undelivered: 3}}}, blocked: []string{notEmpty}},
		{name: "more than is counted", arrange: func(t *testing.T, w *world, _ *engine.Engine) {
			w.pour(0, 1500)
			w.readAndAck(0, "old", 1, 0) // what nothing was ever read of is counted at once
			w.pour(1, 4)
			w.readAndAck(1, "old", 3, 1)
		}, want: protocol.RemovalPreview{Pending: 1, Undelivered: 1001, UndeliveredMore: true, Shards: []protocol.ShardBacklog{
			{ShardIndex: 0, Undelivered: 1000, UndeliveredMore: true}, {ShardIndex: 1, Pending: 1, Undelivered: 1},
		}}, blocked: []string{notEmpty}},
		{name: "live member", arrange: join, want: protocol.RemovalPreview{LiveMembers: 1}, blocked: []string{alive}},
		{name: "live member and undelivered", arrange: func(t *testing.T, w *world, e *engine.Engine) {
			join(t, w, e)
			w.pour(0, 1)
		}, want: protocol.RemovalPreview{LiveMembers: 1, Undelivered: 1, Shards: []protocol.ShardBacklog{{ShardIndex: 0, Undelivered: 1}}}, blocked: []string{alive, notEmpty}},
		{name: "forced", arrange: func(t *testing.T, w *world, e *engine.Engine) {
			join(t, w, e)
			w.pour(1, 5)
			w.readAndAck(1, "old", 3, 2)
		}, force: true, want: protocol.RemovalPreview{LiveMembers: 1, Pending: 2, Undelivered: 2, Shards: []protocol.ShardBacklog{{ShardIndex: 1, Pending: 2, Undelivered: 2}}},
			risks: []string{protocol.NoteBacklogLost, protocol.NoteMembersFenced}},
		{name: "forced and empty", force: true},
		{name: "unknown group", group: "nobody", missing: true},
		{name: "unknown group by force", group: "nobody", force: true, missing: true},
		{name: "missing on a shard", arrange: func(t *testing.T, w *world, _ *engine.Engine) { missing(t, w, 1) }},
		{name: "missing on a shard with entries", arrange: func(t *testing.T, w *world, _ *engine.Engine) {
			w.pour(1, 2) // nothing of it can be lost to a group that is not there
			missing(t, w, 1)
			w.pour(2, 1)
		}, want: protocol.RemovalPreview{Undelivered: 1, Shards: []protocol.ShardBacklog{{ShardIndex: 2, Undelivered: 1}}}, blocked: []string{notEmpty}},
		{name: "a shard is gone", arrange: func(t *testing.T, w *world, _ *engine.Engine) {
			if err := w.rdb.Del(t.Context(), protocol.ShardKey(w.prefix, 1)).Err(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			backends(t, func(t *testing.T, rdb redis.UniversalClient) {
				w := newWorld(t, rdb)
				e := w.keeper("a", time.Hour, time.Hour, nil).Engine
				w.create(e, 3)
				if _, _, err := e.PutGroup(t.Context(), w.prefix, "old", patient, mutation("PUT_GROUP")); err != nil {
					t.Fatal(err)
				}
				if c.arrange != nil {
					c.arrange(t, w, e)
				}
				group := "old"
				if c.group != "" {
					group = c.group
				}
				p := w.removeAsPreviewed(e, group, c.force)
				if c.missing {
					if p.ConsumerGroup != "" {
						t.Errorf("there is a preview of a group that there is not: %+v", p)
					}
					return
				}
				if p.StreamPrefix != w.prefix || p.ConsumerGroup != group || p.Force != c.force || p.TakenAt.IsZero() || len(p.Unknown) != 0 {
					t.Errorf("got %+v", p)
				}
				if p.LiveMembers != c.want.LiveMembers || p.Pending != c.want.Pending || p.Undelivered != c.want.Undelivered || p.UndeliveredMore != c.want.UndeliveredMore || !slices.Equal(p.Shards, c.want.Shards) {
					t.Errorf("got  %+v\nwant %+v", p, c.want)
				}
				var blocked []string
				for _, n := range p.Blockers {
					blocked = append(blocked, n.Code)
				}
				if risks := noteCodes(p.Risks); !slices.Equal(blocked, c.blocked) || !slices.Equal(risks, c.risks) {
					t.Errorf("blockers %v, risks %v; want %v, %v", blocked, risks, c.blocked, c.risks)
				}
			})
		})
	}
}

// Without the stream there is no group either, and a group that is being removed is gone.
func TestRemovalPreviewOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	e := w.keeper("a", time.Hour, time.Hour, nil).Engine
	w.removeAsPreviewed(e, "g", false)
	w.create(e, 1)
	w.removeAsPreviewed(e, "g", false)
	if _, err := e.PreviewGroupRemoval(t.Context(), w.prefix, "g", true, 0); refusal(err).Code != protocol.CodeGroupNotFound {
		t.Errorf("after the removal: %v", err)
	}
}

// A resharding that runs changes nothing of that: what is on the shards of both layouts counts.
func TestRemovalPreviewWhileResharding(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, g, _ := w.start("a")
		w.create(e, 2)
		for _, name := range []string{"abandoned", "done"} {
			if _, _, err := e.PutGroup(t.Context(), w.prefix, name, patient, mutation("PUT_GROUP")); err != nil {
				t.Fatal(err)
			}
		}
		w.pour(0, 3)
		w.readAndAck(0, "g", 3, 0)
		w.readAndAck(0, "done", 3, 0)
		w.readAndAck(0, "abandoned", 2, 1)
		draining := g.at(protocol.PhaseDraining)
		id := w.scale(e, 3, protocol.ReshardingPolicy{})
		await(t, "DRAINING", draining)
		want := []protocol.ShardBacklog{{ShardIndex: 0, Pending: 1, Undelivered: 1}}
		if p := w.previewRemoval(e, "abandoned", false); !slices.Equal(p.Shards, want) || !slices.Equal(noteCodes(p.Blockers), []string{string(protocol.CodeGroupNotEmpty)}) || len(p.Risks) != 0 {
			t.Errorf("abandoned: %+v", p)
		}
		if p := w.previewRemoval(e, "abandoned", true); !slices.Equal(p.Shards, want) || len(p.Blockers) != 0 || !slices.Equal(noteCodes(p.Risks), []string{protocol.NoteBacklogLost}) {
			t.Errorf("abandoned, by force: %+v", p)
		}
		if p := w.previewRemoval(e, "done", false); len(p.Shards)+len(p.Blockers) != 0 {
			t.Errorf("done: %+v", p)
		}
		g.release()
		w.eventually("the drain waits for the group", 30*time.Second, func() (bool, string) {
			r, err := e.Resharding(t.Context(), w.prefix, id, "", 0)
			return err == nil && strings.Contains(strings.Join(r.WaitingFor, " "), "abandoned"), fmt.Sprintf("%s %v %v", r.Phase, r.WaitingFor, err)
		})
		for _, remove := range []struct {
			group string
			force bool
			code  protocol.Code
		}{{"done", false, ""}, {"abandoned", false, protocol.CodeGroupNotEmpty}, {"abandoned", true, ""}} {
			if _, err := e.DeleteGroup(t.Context(), w.prefix, remove.group, remove.force, mutation("DELETE_GROUP")); (err != nil || remove.code != "") && refusal(err).Code != remove.code {
				t.Errorf("%+v: %v", remove, err)
			}
		}
		if r := finish(t, e, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("%s: %s", r.Phase, r.Error)
		}
		w.healthy(e, 3)
	})
}

func (w *world) previewRemoval(e *engine.Engine, group string, force bool) protocol.RemovalPreview {
	w.t.Helper()
	p, err := e.PreviewGroupRemoval(w.t.Context(), w.prefix, group, force, 0)
	if err != nil {
		w.t.Fatalf("preview of the removal of %s: %v", group, err)
	}
	return p
}

// What slow shards say does not count in the removal, and the dry run says so; force does not ask.
func TestRemovalPreviewOfSlowShards(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	client.AddHook(sluggish{script: redis.NewScript(shardscript.Source(shardscript.Probe)).Hash(), takes: redisstore.EffectLease + 50*time.Millisecond})
	w := newWorld(t, client)
	e, _, _ := w.start("a")
	w.create(e, 1)
	if p := w.previewRemoval(e, "g", false); !slices.Equal(noteCodes(p.Blockers), []string{string(protocol.CodeStateVersionConflict)}) {
		t.Errorf("%+v", p)
	}
	if p := w.previewRemoval(e, "g", true); len(p.Blockers) != 0 {
		t.Errorf("by force: %+v", p)
	}
}

// A removal that presupposes another generation is refused, and the dry run says what else is in
// the way; the generation that it names is the one that is accepted.
func TestRemovalPreviewOfAGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	e := w.keeper("a", time.Hour, time.Hour, nil).Engine
	w.create(e, 1)
	w.pour(0, 1)
	for _, ifMatch := range []int64{7, engine.MustBeNew} {
		p, err := e.PreviewGroupRemoval(t.Context(), w.prefix, "g", false, ifMatch)
		if err != nil || p.Generation != 1 || len(p.Blockers) != 2 || p.Blockers[0].Code != string(protocol.CodeGenerationMismatch) || p.Blockers[1].Code != string(protocol.CodeGroupNotEmpty) {
			t.Errorf("generation %d: %+v, %v", ifMatch, p, err)
		}
		m := mutation("DELETE_GROUP")
		m.IfMatch = ifMatch
		if _, err := e.DeleteGroup(t.Context(), w.prefix, "g", true, m); refusal(err).Code != protocol.CodeGenerationMismatch {
			t.Errorf("generation %d: %v", ifMatch, err)
		}
	}
	p, err := e.PreviewGroupRemoval(t.Context(), w.prefix, "g", true, 1)
	if err != nil || len(p.Blockers) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	m := mutation("DELETE_GROUP")
	m.IfMatch = p.Generation
	if _, err := e.DeleteGroup(t.Context(), w.prefix, "g", true, m); err != nil {
		t.Error(err)
	}
}
