package redismodel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// world is one stream on a real server and its model. Deadlines are far in the past or in the
// future, so that the two clocks need not agree.
type world struct {
	t      *rapid.T
	ctx    context.Context
	real   *redis.Client
	model  *redismodel.Redis
	prefix string
	shards int

	values int
	ids    map[string]string        // value → id on the real server
	ours   map[string]redismodel.ID // value → id in the model
}

const (
	past   protocol.Instant = 1000
	future protocol.Instant = 4_000_000_000_000
)

// TestModelConforms runs random sequences of all scripts and of the commands of readers on the
// model and on a real server with the real Lua: every reply and every control hash agrees.
func TestModelConforms(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		n++
		w := &world{
			t: rt, ctx: ctx, real: client, prefix: fmt.Sprintf("%s-%d", redistest.Prefix(t), n), shards: 3,
			model: redismodel.New([]protocol.Instant{0}, []int{0, 0, 0}), ids: map[string]string{}, ours: map[string]redismodel.ID{},
		}
		w.model.Now = protocol.InstantOf(time.Now())
		for range rapid.IntRange(10, 60).Draw(rt, "steps") {
			w.step()
		}
	})
}

func (w *world) step() {
	w.model.Now = protocol.InstantOf(time.Now())
	draw := rapid.IntRange(0, 19).Draw(w.t, "op")
	switch {
	case draw < 11:
		w.coordinator()
	case draw < 13:
		w.append()
	case draw == 13:
		w.add()
	case draw == 14:
		w.resolve()
	case draw == 15:
		w.bring()
	case draw == 16:
		w.takeover()
	case draw == 17:
		w.read()
	default:
		w.checkAck()
	}
}

func (w *world) index() int { return rapid.IntRange(0, w.shards-1).Draw(w.t, "index") }

func (w *world) keys(i int) []string {
	return []string{protocol.ShardKey(w.prefix, i), protocol.ControlKey(w.prefix, i)}
}

func (w *world) eval(i int, script shardscript.Name, args []any) any {
	v, err := w.real.Eval(w.ctx, shardscript.Source(script), w.keys(i), args...).Result()
	if err != nil {
		w.t.Fatalf("%s on shard %d: %v", script, i, err)
	}
	return v
}

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

var coordinatorScripts = []shardscript.Name{
	shardscript.Prepare, shardscript.Provision, shardscript.Provision, shardscript.Seal, shardscript.Evidence, shardscript.Decide,
	shardscript.Look, shardscript.Open, shardscript.Open, shardscript.Release, shardscript.Undo, shardscript.RetireOne, shardscript.Hold,
	shardscript.MkGroup, shardscript.Survey,
}

func (w *world) coordinator() {
	st := stream.Step{
		Script: pick(w.t, "script", coordinatorScripts...), Index: w.index(), ID: pick(w.t, "id", "r1", "r2"),
		Epoch: rapid.Int64Range(0, 2).Draw(w.t, "epoch"), Count: rapid.IntRange(0, w.shards).Draw(w.t, "count"),
		Groups: []string{"g1"},
	}
	rev := pick(w.t, "rev", int64(5), 5, 5, 6, 4)
	notAfter := pick(w.t, "notAfter", future, future, future, future, past)
	switch st.Script {
	case shardscript.Seal:
		st.Until = pick(w.t, "until", future, future, past)
	case shardscript.Provision:
		st.Until = pick(w.t, "until", 0, future)
	case shardscript.Open, shardscript.Hold:
		st.Hold = pick(w.t, "hold", 0, 0, future, past)
	case shardscript.Decide:
		st.Index = 0
		st.ToEpoch, st.ToCount = st.Epoch+1, rapid.IntRange(0, w.shards).Draw(w.t, "toCount")
		st.Quiesced, st.Drained = rapid.Bool().Draw(w.t, "quiesced"), rapid.Bool().Draw(w.t, "drained")
	case shardscript.Look:
		st.Index = 0
	case shardscript.MkGroup:
		st.Groups, st.Start = []string{pick(w.t, "group", "g1", "g2")}, pick(w.t, "start", "0", "$")
	case shardscript.RetireOne:
		st.Archive = pick(w.t, "archive", "", "a1")
		st.Ignored = pick(w.t, "ignored", nil, []string{"g2"})
	}
	if st.Index == 0 {
		st.High = rapid.IntRange(0, w.shards).Draw(w.t, "high")
	}
	got, err := shardscript.ParseReply(w.eval(st.Index, st.Script, shardscript.Arguments{
		Revision: rev, ID: st.ID, NotAfter: int64(notAfter), Epoch: st.Epoch, Count: st.Count, ToEpoch: st.ToEpoch, ToCount: st.ToCount,
		Index: st.Index, Until: int64(st.Until), Hold: int64(st.Hold), High: st.High, Groups: st.Groups, Ignored: st.Ignored,
		Quiesced: st.Quiesced, Drained: st.Drained, Archive: st.Archive, Start: st.Start,
	}.Args()))
	if err != nil {
		w.t.Fatal(err)
	}
	want := w.model.Run(st, rev, notAfter)
	what := fmt.Sprintf("%s %d rev %d notAfter %d %+v", st.Script, st.Index, rev, notAfter, st)
	w.equal(what+": code", string(got.Code), string(want.Code))
	w.equal(what+": control", realControl(got), modelControl(want.Control))
	if want.Evidence != nil {
		w.equal(what+": verdict", string(got.Verdict), want.Evidence.Verdict)
		var actual, model []string
		for _, g := range got.Groups {
			actual = append(actual, fmt.Sprintf("%s %d %v", g.Group, g.Pending, g.EntryAfter))
		}
		for _, g := range want.Evidence.Groups {
			model = append(model, fmt.Sprintf("%s %d %v", g.Group, g.Pending, g.EntryAfter))
		}
		slices.Sort(actual)
		w.equal(what+": groups", strings.Join(actual, ", "), strings.Join(model, ", "))
	}
}

// realControl and modelControl write what both show in the same way.
func realControl(r shardscript.Reply) string {
	c := r.Control
	return fmt.Sprintf("%v %v %d/%d rev %d by %s gate %s until %d hold %d aborted %s retired %s high %d; exists %v sealed %v length %d added %d",
		c.Present, c.HasLayout, c.Epoch, c.Count, c.Rev, c.By, c.Gate, c.Until, c.Hold, c.Aborted, c.Retired, c.High, r.Exists, r.Sealed, r.Length, r.Added)
}

func modelControl(c stream.Control) string {
	return fmt.Sprintf("%v %v %d/%d rev %d by %s gate %s until %d hold %d aborted %s retired %s high %d; exists %v sealed %v length %d added %d",
		c.Present, c.HasEpoch, c.Epoch, c.Count, c.Rev, c.By, c.Gate, int64(c.Until), int64(c.Hold), c.Aborted, c.Retired, c.High, c.StreamExists, c.Sealed, c.Length, c.EntriesAdded)
}

func (w *world) equal(what, actual, model string) {
	if actual != model {
		w.t.Fatalf("%s\nreal:  %s\nmodel: %s", what, actual, model)
	}
}

func (w *world) value() string {
	w.values++
	return fmt.Sprintf("v%d", w.values)
}

func (w *world) append() {
	i, epoch, count := w.index(), rapid.Int64Range(0, 3).Draw(w.t, "epoch"), rapid.IntRange(0, w.shards).Draw(w.t, "count")
	if c := w.model.Shard(i).Control; c != nil && rapid.IntRange(0, 3).Draw(w.t, "right") > 0 {
		epoch, count = c.Epoch, c.Count
	}
	values := []string{w.value(), w.value()}
	got, err := shardscript.ParseAppend(w.eval(i, shardscript.Append, shardscript.AppendArgs(epoch, count, 0, []any{"v", values[0]}, []any{"v", values[1]})))
	if err != nil {
		w.t.Fatal(err)
	}
	want := w.model.Append(i, epoch, count, values)
	what := fmt.Sprintf("APPEND %d %d/%d", i, epoch, count)
	w.equal(what, string(got.Code), string(want.Code))
	if got.Code == shardscript.OK {
		for k, v := range values {
			w.ids[v], w.ours[v] = got.IDs[k], want.IDs[k]
		}
		return
	}
	w.equal(what+": what is in force", fmt.Sprint(got.Epoch, got.Count, got.Gate, got.Until, got.Hold),
		fmt.Sprint(want.Epoch, want.Count, want.Gate, int64(want.Until), int64(want.Hold)))
}

func (w *world) add() {
	i, v := w.index(), w.value()
	id, err := w.real.XAdd(w.ctx, &redis.XAddArgs{Stream: protocol.ShardKey(w.prefix, i), NoMkStream: true, Values: []any{"v", v}}).Result()
	ours, ok, missing := w.model.Add(i, v)
	outcome := "landed"
	switch {
	case errors.Is(err, redis.Nil):
		outcome = "no key"
	case err != nil:
		outcome = "refused"
	}
	model := "landed"
	switch {
	case missing:
		model = "no key"
	case !ok:
		model = "refused"
	}
	w.equal(fmt.Sprintf("XADD %d", i), outcome, model)
	if outcome == "landed" {
		w.ids[v], w.ours[v] = id, ours
	}
}

func (w *world) resolve() {
	id, until, epoch := pick(w.t, "id", "r1", "r2"), pick(w.t, "until", past, future), rapid.Int64Range(0, 3).Draw(w.t, "epoch")
	got, err := shardscript.ParseReply(w.eval(0, shardscript.Resolve, shardscript.Arguments{ID: id, Until: int64(until), Epoch: epoch}.Args()))
	if err != nil {
		w.t.Fatal(err)
	}
	want := w.model.Resolve(id, until, epoch)
	w.equal(fmt.Sprintf("RESOLVE %s %d %d", id, until, epoch), fmt.Sprint(got.Code, got.Control.Epoch, got.Control.Count), fmt.Sprint(want.Code, want.Epoch, want.Count))
}

func (w *world) bring() {
	i, id, epoch, count := w.index(), pick(w.t, "id", "", "r1", "r2"), rapid.Int64Range(0, 3).Draw(w.t, "epoch"), rapid.IntRange(0, w.shards).Draw(w.t, "count")
	got, err := shardscript.ParseReply(w.eval(i, shardscript.Bring, shardscript.Arguments{ID: id, Epoch: epoch, Count: count, Index: i}.Args()))
	if err != nil {
		w.t.Fatal(err)
	}
	want := w.model.Bring(i, epoch, count, id)
	w.equal(fmt.Sprintf("BRING %d %d/%d %s", i, epoch, count, id), fmt.Sprint(got.Code, got.Control.Epoch, got.Control.Count, got.Sealed),
		fmt.Sprint(want.Code, want.Epoch, want.Count, w.model.Shard(i).Stream != nil && w.model.Shard(i).Stream.Sealed()))
}

func (w *world) owner() redismodel.Owner {
	return redismodel.Owner{Epoch: rapid.Int64Range(1, 3).Draw(w.t, "ownership"), MemberID: "m", Incarnation: pick(w.t, "incarnation", "i1", "i2")}
}

func (w *world) takeover() {
	i, o := w.index(), w.owner()
	slice := shardscript.TakeoverSlice{
		Group: "g1", Owner: shardscript.Owner{Epoch: o.Epoch, MemberID: o.MemberID, Incarnation: o.Incarnation},
		Consumer: protocol.ConsumerName(o.MemberID, o.Epoch), Max: shardscript.MaxSlice,
	}
	got, err := shardscript.ParseTakeover(w.eval(i, shardscript.Takeover, slice.Args()))
	if err != nil {
		w.t.Fatal(err)
	}
	want := w.model.Takeover(i, "g1", o)
	var actual, model []string
	for _, e := range got.Entries {
		actual = append(actual, e.Fields[1])
	}
	for _, e := range want.Entries {
		model = append(model, e.Value)
	}
	stored := int64(0)
	if want.Code == shardscript.NotOwner {
		stored = want.Owner
	}
	w.equal(fmt.Sprintf("TAKEOVER %d %+v", i, o), fmt.Sprint(got.Code, got.Stored, actual), fmt.Sprint(want.Code, stored, model))
}

func (w *world) read() {
	i, name := w.index(), protocol.ConsumerName("m", rapid.Int64Range(1, 3).Draw(w.t, "ownership"))
	var actual, model []string
	streams, err := w.real.XReadGroup(w.ctx, &redis.XReadGroupArgs{
		Group: "g1", Consumer: name, Streams: []string{protocol.ShardKey(w.prefix, i), ">"}, Count: 2, Block: -1,
	}).Result()
	if err == nil {
		for _, m := range streams[0].Messages {
			actual = append(actual, fmt.Sprint(m.Values["v"]))
		}
	}
	for _, e := range w.model.ReadGroup(i, "g1", name, 2) {
		model = append(model, e.Value)
	}
	w.equal(fmt.Sprintf("XREADGROUP %d %s", i, name), fmt.Sprint(actual), fmt.Sprint(model))
}

func (w *world) checkAck() {
	i, o := w.index(), w.owner()
	var ids []string
	var ours []redismodel.ID
	for n := 1; n <= w.values; n++ {
		v := fmt.Sprintf("v%d", n)
		if id, landed := w.ids[v]; landed && rapid.IntRange(0, 2).Draw(w.t, "ack") == 0 {
			ids, ours = append(ids, id), append(ours, w.ours[v])
		}
	}
	owner := shardscript.Owner{Epoch: o.Epoch, MemberID: o.MemberID, Incarnation: o.Incarnation}
	got, err := shardscript.ParseCheckAck(w.eval(i, shardscript.CheckAck, shardscript.CheckAckArgs("g1", owner, protocol.ConsumerName(o.MemberID, o.Epoch), ids...)))
	if err != nil {
		w.t.Fatal(err)
	}
	want := w.model.CheckAck(i, "g1", o, ours)
	stored := int64(0)
	if want.Code == shardscript.NotOwner || want.Code == shardscript.LostOwner {
		stored = want.Owner
	}
	what := fmt.Sprintf("CHECKACK %d %+v", i, o)
	w.equal(what, fmt.Sprint(got.Code, got.Acked, got.Own, got.Elsewhere, got.Stored), fmt.Sprint(want.Code, want.Acked, want.Own, want.Elsewhere, stored))
}
