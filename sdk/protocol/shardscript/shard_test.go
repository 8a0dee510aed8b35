package shardscript_test

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

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

const (
	maxID = "18446744073709551615-18446744073709551615"
	never = int64(1) << 52 // an instant that no test reaches
)

// everywhere runs a test on a standalone server and on a cluster.
func everywhere(t *testing.T, test func(t *testing.T, c redis.UniversalClient)) {
	t.Helper()
	t.Parallel()
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Shared(t).Client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.SharedCluster(t).Client(t))
	})
}

// shards is a stream prefix on a real server, and what a test does to its shards.
type shards struct {
	t      *testing.T
	ctx    context.Context
	c      redis.UniversalClient
	prefix string
}

func newShards(t *testing.T, c redis.UniversalClient) *shards {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &shards{t: t, ctx: ctx, c: c, prefix: redistest.Prefix(t)}
}

func (s *shards) key(i int) string     { return protocol.ShardKey(s.prefix, i) }
func (s *shards) control(i int) string { return protocol.ControlKey(s.prefix, i) }

func (s *shards) eval(name shardscript.Name, i int, args []any) (any, error) {
	return redis.NewScript(shardscript.Source(name)).Run(s.ctx, s.c, []string{s.key(i), s.control(i)}, args...).Result()
}

// send runs a script and returns its reply. Index is set; NotAfter 0 is never.
func (s *shards) send(name shardscript.Name, i int, a shardscript.Arguments) shardscript.Reply {
	s.t.Helper()
	a.Index = i
	if a.NotAfter == 0 {
		a.NotAfter = never
	}
	v, err := s.eval(name, i, a.Args())
	if err != nil {
		s.t.Fatalf("%s on shard %d: %v", name, i, err)
	}
	r, err := shardscript.ParseReply(v)
	if err != nil {
		s.t.Fatalf("%s on shard %d: %v", name, i, err)
	}
	return r
}

// expect is send with the code that it must answer.
func (s *shards) expect(want shardscript.Code, name shardscript.Name, i int, a shardscript.Arguments) shardscript.Reply {
	s.t.Helper()
	r := s.send(name, i, a)
	if r.Code != want {
		s.t.Fatalf("%s on shard %d answered %s %s, want %s; control %+v", name, i, r.Code, r.Error, want, r.Control)
	}
	return r
}

// untouched is expect, and the refusal must have left shard and control hash as they were.
func (s *shards) untouched(want shardscript.Code, name shardscript.Name, i int, a shardscript.Arguments) shardscript.Reply {
	s.t.Helper()
	before := s.dump(i)
	r := s.expect(want, name, i, a)
	if after := s.dump(i); before != after {
		s.t.Fatalf("%s answered %s but changed shard %d:\n%s\n%s", name, want, i, before, after)
	}
	return r
}

func (s *shards) dump(i int) string {
	s.t.Helper()
	return s.do("DUMP", s.key(i)) + "\n" + s.do("HGETALL", s.control(i))
}

// do runs a command and gives its reply as text.
func (s *shards) do(args ...any) string {
	s.t.Helper()
	v, err := s.c.Do(s.ctx, args...).Result()
	if errors.Is(err, redis.Nil) {
		return "(nil)"
	}
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return text(v)
}

func text(v any) string {
	switch v := v.(type) {
	case map[any]any:
		list := make([]string, 0, len(v))
		for k, e := range v {
			list = append(list, text(k)+"="+text(e))
		}
		slices.Sort(list)
		return strings.Join(list, " ")
	case []any:
		list := make([]string, len(v))
		for i, e := range v {
			list[i] = text(e)
		}
		return "[" + strings.Join(list, " ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// append sends one batch through APPEND.
func (s *shards) append(i int, epoch int64, count int, values ...string) shardscript.AppendReply {
	s.t.Helper()
	entries := make([][]any, len(values))
	for j, v := range values {
		entries[j] = []any{"v", v}
	}
	v, err := s.eval(shardscript.Append, i, shardscript.AppendArgs(epoch, count, 0, entries...))
	if err != nil {
		s.t.Fatalf("APPEND to shard %d: %v", i, err)
	}
	r, err := shardscript.ParseAppend(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *shards) expectAppend(want shardscript.Code, i int, epoch int64, count int, values ...string) shardscript.AppendReply {
	s.t.Helper()
	r := s.append(i, epoch, count, values...)
	if r.Code != want {
		s.t.Fatalf("APPEND to shard %d under (%d, %d) answered %+v, want %s", i, epoch, count, r, want)
	}
	return r
}

// info is the stream as a fact.
func (s *shards) info(i int) shardscript.Reply {
	s.t.Helper()
	return s.expect(shardscript.OK, shardscript.Survey, i, shardscript.Arguments{})
}

func (s *shards) sealed(i int, want bool) {
	s.t.Helper()
	if got := s.c.XInfoStream(s.ctx, s.key(i)).Val().LastGeneratedID == maxID; got != want {
		s.t.Fatalf("shard %d sealed: %v, want %v; control %s", i, got, want, s.do("HGETALL", s.control(i)))
	}
}

func (s *shards) exists(i int, want bool) {
	s.t.Helper()
	if got := s.c.Exists(s.ctx, s.key(i)).Val() == 1; got != want {
		s.t.Fatalf("shard %d exists: %v, want %v", i, got, want)
	}
}

// now is the time of the shard's node in ms.
func (s *shards) now(i int) int64 { s.t.Helper(); return s.info(i).At }

// create makes a stream of count shards, open under epoch 1, at revision 1.
func (s *shards) create(count int, groups ...string) {
	s.t.Helper()
	a := shardscript.Arguments{Revision: 1, ID: "create", ToEpoch: 1, ToCount: count, High: count, Groups: groups, Quiesced: true}
	for i := range count {
		s.expect(shardscript.OK, shardscript.Provision, i, a)
		s.sealed(i, true)
	}
	s.expect(shardscript.OK, shardscript.Decide, 0, a)
	a.Epoch, a.Count = 1, count
	for i := range count {
		s.expect(shardscript.OK, shardscript.Open, i, a)
		s.sealed(i, false)
	}
}

// change is a resharding as its commands are computed.
type change struct {
	id       string
	from, to shardscript.Arguments // Epoch and Count of the two layouts
	groups   []string
	until    int64
}

func layout(epoch int64, count int) shardscript.Arguments {
	return shardscript.Arguments{Epoch: epoch, Count: count}
}

// at are the arguments of the change's scripts that carry the old layout, at a revision.
func (c change) at(rev int64) shardscript.Arguments {
	return shardscript.Arguments{
		Revision: rev, ID: c.id, Epoch: c.from.Epoch, Count: c.from.Count, ToEpoch: c.to.Epoch, ToCount: c.to.Count,
		Groups: c.groups, Until: c.until, High: max(c.from.Count, c.to.Count), Quiesced: true, Drained: true,
	}
}

// after are those of the scripts that carry the new one.
func (c change) after(rev int64) shardscript.Arguments {
	a := c.at(rev)
	a.Epoch, a.Count, a.Until = c.to.Epoch, c.to.Count, 0
	return a
}

// union is how many indexes the two layouts have.
func (c change) union() int { return max(c.from.Count, c.to.Count) }

// provision to release run one phase on all its shards.
func (s *shards) provision(c change, rev int64) {
	s.t.Helper()
	for i := range c.from.Count {
		s.expect(shardscript.OK, shardscript.Prepare, i, c.at(rev))
	}
	for i := c.from.Count; i < c.to.Count; i++ {
		s.expect(shardscript.OK, shardscript.Provision, i, c.at(rev))
	}
}

func (s *shards) seal(c change, rev int64) {
	s.t.Helper()
	for i := range c.from.Count {
		s.expect(shardscript.OK, shardscript.Seal, i, c.at(rev))
	}
}

func (s *shards) decide(c change, rev int64) {
	s.t.Helper()
	s.expect(shardscript.OK, shardscript.Decide, 0, c.at(rev))
}

func (s *shards) open(c change, rev int64) {
	s.t.Helper()
	for i := range c.union() {
		s.expect(shardscript.OK, shardscript.Open, i, c.after(rev))
	}
}

func (s *shards) retire(c change, rev int64) {
	s.t.Helper()
	for i := c.to.Count; i < c.from.Count; i++ {
		s.expect(shardscript.OK, shardscript.RetireOne, i, c.after(rev))
	}
}

func (s *shards) rollback(c change, rev int64) {
	s.t.Helper()
	for i := range c.from.Count {
		s.expect(shardscript.OK, shardscript.Release, i, c.at(rev))
	}
	for i := c.from.Count; i < c.to.Count; i++ {
		s.expect(shardscript.OK, shardscript.Undo, i, c.at(rev))
	}
}

// complete runs a whole change, at revisions from rev on; it returns the next revision.
func (s *shards) complete(c change, rev int64) int64 {
	s.t.Helper()
	s.provision(c, rev)
	s.seal(c, rev+1)
	s.decide(c, rev+2)
	s.open(c, rev+3)
	s.retire(c, rev+4)
	return rev + 5
}
