package redisstore

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zaptest"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// fixture is a store on a real server, with a stream prefix of its own.
type fixture struct {
	*Store
	t      *testing.T
	ctx    context.Context
	c      redis.UniversalClient
	prefix string
}

// everywhere runs a test on a standalone server and on a cluster.
func everywhere(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		test(t, newFixture(t, redistest.Shared(t).Client(t)))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, newFixture(t, redistest.SharedCluster(t).Client(t)))
	})
}

func newFixture(t *testing.T, c redis.UniversalClient) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	f := &fixture{t: t, ctx: ctx, c: c, prefix: redistest.Prefix(t)}
	f.Store = f.another(redistest.KeyPrefix(t))
	return f
}

// another is a second store on the same keys: another replica.
func (f *fixture) another(keyPrefix string) *Store {
	f.t.Helper()
	s, err := New(Config{Client: f.c, KeyPrefix: keyPrefix, Logger: zaptest.NewLogger(f.t)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (f *fixture) replica() *Store { f.t.Helper(); return f.another(string(f.keys)) }

var nonceCounter atomic.Int64

func nonce() string { return "nonce-" + strconv.FormatInt(nonceCounter.Add(1), 10) }

// streamState is a small aggregate; generation tells one from another.
func (f *fixture) streamState(generation int64, groups ...string) *stream.State {
	s := &stream.State{SchemaVersion: 1, Prefix: f.prefix, Generation: generation, Groups: map[string]*stream.GroupEntry{}}
	for _, g := range groups {
		s.Groups[g] = &stream.GroupEntry{StartPosition: protocol.StartEarliest}
	}
	return s
}

func (f *fixture) groupState(name string, epoch int64) *group.State {
	g := group.New(f.prefix, name, protocol.GroupSpec{}, 2, 1)
	g.GroupEpoch = epoch
	return g
}

// must makes a commit that has to succeed.
func (f *fixture) must(c Commit) CommitResult {
	f.t.Helper()
	if c.Prefix == "" {
		c.Prefix = f.prefix
	}
	if c.Nonce == "" {
		c.Nonce = nonce()
	}
	res, err := f.Commit(f.ctx, c)
	if err != nil {
		f.t.Fatal(err)
	}
	return res
}

// refused makes a commit that must fail, and change nothing.
func (f *fixture) refused(c Commit) error {
	f.t.Helper()
	c.Prefix, c.Nonce = f.prefix, nonce()
	before := f.dump()
	_, err := f.Commit(f.ctx, c)
	if err == nil {
		f.t.Fatal("the commit was not refused")
	}
	if after := f.dump(); before != after {
		f.t.Fatalf("a refused commit (%v) changed something:\n%s\n%s", err, before, after)
	}
	return err
}

// dump is everything that is stored of the stream.
func (f *fixture) dump() string {
	f.t.Helper()
	hash := func(key string) any { return f.c.HGetAll(f.ctx, key).Val() } // printed in the order of its fields
	return fmt.Sprintln(
		hash(f.keys.stream(f.prefix)), hash(f.keys.group(f.prefix, "g")), hash(f.keys.progress(f.prefix, "g")),
		f.c.ZRangeWithScores(f.ctx, f.keys.leases(f.prefix, "g"), 0, -1).Val(),
		f.c.XRange(f.ctx, f.keys.audit(f.prefix), "-", "+").Val(), f.c.Get(f.ctx, f.keys.auditHead(f.prefix)).Val(),
	)
}

func (f *fixture) load() *Unit {
	f.t.Helper()
	u, err := f.Load(f.ctx, f.prefix)
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

// created stores a stream with one group "g".
func (f *fixture) created() (CommitResult, Commit) {
	f.t.Helper()
	c := Commit{
		Stream: &StreamWrite{Next: f.streamState(1, "g")},
		Groups: map[string]*GroupWrite{"g": {Next: f.groupState("g", 1), Lease: 15 * time.Second}},
	}
	return f.must(c), c
}

// eventually polls until done returns "" or the time is up; then it fails with what was last seen.
func eventually(t *testing.T, done func() string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		seen := done()
		if seen == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in time; last seen: %s", seen)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
