package consumer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// gate is a way to the coordinator that can be closed: requests then wait and fail.
type gate struct {
	closed atomic.Bool
	next   http.RoundTripper
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.closed.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	resp, err := g.next.RoundTrip(r)
	if g.closed.Load() && err == nil { // cut off while the answer was on its way
		_ = resp.Body.Close()
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return resp, err
}

// gated is a client behind a gate of its own.
func (b *bundle) gated() (*client.Client, *gate) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	b.t.Cleanup(transport.CloseIdleConnections)
	g := &gate{next: transport}
	c, err := client.New(client.Config{Endpoints: []string{b.server.URL()}, HTTPClient: &http.Client{Transport: g}})
	if err != nil {
		b.t.Fatal(err)
	}
	return c, g
}

// epochOf is the group epoch.
func (b *bundle) epochOf(group string) int64 {
	g, err := b.client.Group(context.Background(), b.prefix, group)
	if err != nil {
		b.t.Fatal(err)
	}
	return g.GroupEpoch
}

// shardsOf lists the shards whose entries from number n on were handled by who alone.
func shardsOf(j *journal, who string, n int) map[int]bool {
	out := map[int]bool{}
	for _, e := range j.list() {
		if e.n >= n && e.who == who {
			out[e.shard] = true
		}
	}
	return out
}

func TestScenario(t *testing.T) {
	t.Parallel()

	t.Run("basic-handover", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{MemberLeaseMs: 15000, HeartbeatIntervalMs: 3000, RebalanceTimeoutMs: 60000})
		j := newJournal(t)
		a := b.run("a", j, nil)
		b.add(2, 0, 1)
		b.await("a to read both", func() (bool, any) { return len(shardsOf(j, "a", 0)) == 2, j.list() })
		var epoch atomic.Int64
		begin := time.Now()
		c := b.run("b", j, func(c *consumer.Config) {
			c.Hooks.Assigned = func(_ int, e int64) { epoch.Store(e) }
		})
		b.await("b to be assigned one", func() (bool, any) { return epoch.Load() != 0, nil })
		took := time.Since(begin)
		b.add(2, 1, 1)
		b.await("both to read one", func() (bool, any) {
			return len(shardsOf(j, "a", 1)) == 1 && len(shardsOf(j, "b", 1)) == 1, j.list()
		})
		for _, e := range j.list() {
			if e.who == "b" && e.n == 1 {
				for _, f := range j.list() {
					if f.shard == e.shard && f.who == "a" && f.epoch >= e.epoch {
						t.Errorf("ownership epochs %d then %d", f.epoch, e.epoch)
					}
				}
			}
		}
		t.Logf("join to takeover: %v", took)
		if took > time.Second {
			t.Errorf("the hand-over took %v, not round trips", took)
		}
		if err := errors.Join(c.end(), a.end()); err != nil {
			t.Error(err)
		}
	})

	// A is cut off from the coordinator, not from Redis, while its handler is at work.
	t.Run("pause-past-lease", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{MemberLeaseMs: 2000, HeartbeatIntervalMs: 400, RebalanceTimeoutMs: 5000})
		way, g := b.gated()
		j := newJournal(t)
		release := make(chan struct{})
		var cancelled, inFirst atomic.Bool
		b.run("a", j, func(c *consumer.Config) {
			c.Client = way
			c.Handler = func(ctx context.Context, d consumer.Delivery) error {
				if d.Text("n") == "0" && !inFirst.Swap(true) {
					<-ctx.Done() // the lease ends
					cancelled.Store(errors.Is(context.Cause(ctx), consumer.ErrOwnershipLost) && d.OwnershipLost())
					<-release // a handler that does not care
					return nil
				}
				j.begin("a", d)
				j.end(d)
				return nil
			}
		})
		b.add(1, 0, 3)
		b.await("a to handle entry 0", func() (bool, any) { return inFirst.Load(), nil })
		g.closed.Store(true)
		begin := time.Now()
		b.run("b", j, nil)
		b.await("b to handle all of them", func() (bool, any) { return len(shardsOf(j, "b", 0)) == 1 && j.distinct() == 3, j.list() })
		if d := time.Since(begin); d < 1200*time.Millisecond {
			t.Errorf("b read after %v, before a's lease had ended", d)
		}
		if !cancelled.Load() {
			t.Error("a's handler was not told")
		}
		before := b.epochOf("g")
		close(release)
		g.closed.Store(false)
		b.await("a to be a member again", func() (bool, any) { e := b.epochOf("g"); return e > before, e })
		b.add(1, 3, 3)
		b.await("the later entries", func() (bool, any) { return j.distinct() == 6, j.list() })
		count := map[int]int{}
		for _, e := range j.list() {
			count[e.n]++
		}
		for n, c := range count {
			if c > 1 {
				t.Errorf("entry %d was handled %d times after the hand-over", n, c)
			}
		}
	})

	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{MemberLeaseMs: 15000, HeartbeatIntervalMs: 500, RebalanceTimeoutMs: 1000})
		j := newJournal(t)
		release := make(chan struct{})
		var stuck atomic.Int32
		b.run("a", j, func(c *consumer.Config) {
			c.Handler = func(_ context.Context, d consumer.Delivery) error {
				if d.Text("n") == "0" {
					stuck.Add(1)
					<-release
					return nil
				}
				j.begin("a", d)
				j.end(d)
				return nil
			}
		})
		b.add(2, 0, 1)
		b.await("both handlers to hang", func() (bool, any) { return stuck.Load() == 2, stuck.Load() })
		begin := time.Now()
		b.run("b", j, nil)
		// The shard that a drains is b's at the deadline, long before a's lease ends.
		b.await("b to get one", func() (bool, any) { return len(shardsOf(j, "b", 0)) >= 1, j.list() })
		if d := time.Since(begin); d < 900*time.Millisecond || d > 5*time.Second {
			t.Errorf("b got it after %v", d)
		}
		close(release)
		b.await("every entry to be acknowledged", func() (bool, any) { n := b.pending(2, "g"); return n == 0, n })
	})

	t.Run("leave-draining", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{})
		j := newJournal(t)
		release := make(chan struct{})
		var busy atomic.Int32
		busy.Store(-1)
		a := b.run("a", j, func(c *consumer.Config) {
			c.Handler = func(_ context.Context, d consumer.Delivery) error {
				j.begin("a", d)
				defer j.end(d)
				if d.Text("n") == "0" && busy.CompareAndSwap(-1, int32(d.Shard)) {
					<-release
				}
				return nil
			}
		})
		b.add(2, 0, 1)
		b.await("a to be at work", func() (bool, any) { return busy.Load() >= 0 && len(shardsOf(j, "a", 0)) == 2, j.list() })
		var given sync.Map // shards that b was given
		b.run("b", j, func(c *consumer.Config) { c.Hooks.Assigned = func(shard int, _ int64) { given.Store(shard, true) } })
		a.stop()
		b.await("b to be given the shard that does not drain", func() (bool, any) {
			_, ok := given.Load(1 - int(busy.Load()))
			return ok, busy.Load()
		})
		b.add(2, 1, 1)
		b.await("b to read the shard that does not drain", func() (bool, any) { return len(shardsOf(j, "b", 1)) >= 1, j.list() })
		if shardsOf(j, "b", 1)[int(busy.Load())] {
			t.Error("b reads the shard that a drains")
		}
		close(release)
		if err := a.end(); err != nil {
			t.Error(err)
		}
		b.await("b to read both", func() (bool, any) { return len(shardsOf(j, "b", 1)) == 2, j.list() })
		b.await("all acknowledged", func() (bool, any) { n := b.pending(2, "g"); return n == 0, n })
		for _, e := range j.list() {
			if e.n == 0 && e.who == "b" {
				t.Errorf("entry 0 of shard %d was handled again", e.shard)
			}
		}
	})

	t.Run("static-leave", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{})
		j := newJournal(t)
		static := func(c *consumer.Config) { c.Static = true }
		var has [2]atomic.Int32 // shards of a and of b
		counted := func(who int) func(*consumer.Config) {
			return func(c *consumer.Config) {
				static(c)
				c.Hooks.Assigned = func(int, int64) { has[who].Add(1) }
				c.Hooks.Revoked = func(int, int64, error) { has[who].Add(-1) }
			}
		}
		a := b.run("a", j, counted(0))
		b.run("b", j, counted(1))
		b.add(2, 0, 1)
		b.await("entry 0, and a shard for each", func() (bool, any) {
			return j.distinct() == 2 && has[0].Load() == 1 && has[1].Load() == 1, j.list()
		})
		b.add(2, 1, 1)
		b.await("one each", func() (bool, any) { return len(shardsOf(j, "a", 1)) == 1 && len(shardsOf(j, "b", 1)) == 1, j.list() })
		mine := shardsOf(j, "a", 1)
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		b.run("a", j, static)
		b.add(2, 2, 1)
		b.await("one each again", func() (bool, any) { return j.distinct() == 6, j.list() })
		if got := shardsOf(j, "a", 2); fmt.Sprint(got) != fmt.Sprint(mine) {
			t.Errorf("a had %v and got %v", mine, got)
		}
	})

	t.Run("same-id-two-processes", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{MemberLeaseMs: 2000, HeartbeatIntervalMs: 400, RebalanceTimeoutMs: 5000})
		j := newJournal(t)
		b.run("a", j, nil)
		b.add(2, 0, 1)
		b.await("a to read", func() (bool, any) { return j.distinct() == 2, j.list() })
		epoch := b.epochOf("g")
		for round := range 2 {
			begin := time.Now()
			second := b.run("a", j, func(c *consumer.Config) {
				c.Handler = func(context.Context, consumer.Delivery) error { t.Error("the second process reads"); return nil }
			})
			err := <-second.done
			second.done <- err
			if !errors.Is(err, consumer.ErrDuplicateID) {
				t.Fatalf("round %d: %v", round, err)
			}
			if d := time.Since(begin); d > 4*time.Second {
				t.Errorf("round %d: it took %v to find out", round, d)
			}
			b.add(2, round+1, 1)
			b.await("a to read on", func() (bool, any) { return j.distinct() == 2*(round+2), j.list() })
		}
		if now := b.epochOf("g"); now != epoch {
			t.Errorf("the group epoch went from %d to %d", epoch, now)
		}
	})

	t.Run("restart", func(t *testing.T) {
		t.Parallel()
		for _, named := range []bool{false, true} {
			t.Run(fmt.Sprintf("names its predecessor=%v", named), func(t *testing.T) {
				t.Parallel()
				b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
				b.group("g", protocol.GroupSpec{MemberLeaseMs: 4000, HeartbeatIntervalMs: 500, RebalanceTimeoutMs: 5000})
				file := ""
				if named {
					file = filepath.Join(t.TempDir(), "incarnation")
				}
				first := b.process(file)
				b.add(2, 0, 1)
				first.await("0", 2)
				first.kill()
				b.add(2, 1, 1)
				begin := time.Now()
				second := b.process(file)
				second.await("1", 2)
				took := time.Since(begin)
				t.Logf("back at work after %v", took)
				if named && took > 2*time.Second {
					t.Errorf("it waited for the lease of its predecessor: %v", took)
				}
				if !named && (took < time.Second || took > 7*time.Second) {
					t.Errorf("it read after %v; the lease of its predecessor runs for 4 s", took)
				}
			})
		}
	})

	// A process is stopped for three leases and then goes on.
	t.Run("pause-past-lease/SIGSTOP", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{MemberLeaseMs: 1500, HeartbeatIntervalMs: 300, RebalanceTimeoutMs: 5000})
		p := b.process("")
		b.add(1, 0, 1)
		p.await("0", 1)
		b.await("the acknowledgement", func() (bool, any) { n := b.pending(1, "g"); return n == 0, n })
		p.signal(syscall.SIGSTOP)
		b.await("the process to stand still", func() (bool, any) { state := p.state(); return strings.HasPrefix(state, "T"), state })
		j := newJournal(t)
		b.run("b", j, nil)
		b.add(1, 1, 5)
		b.await("b to take over", func() (bool, any) { return j.distinct() == 5, j.list() })
		for end := time.Now().Add(4500 * time.Millisecond); time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // three leases
		}
		p.signal(syscall.SIGCONT)
		p.await("joined", 2) // a new session
		b.add(1, 6, 5)
		b.await("the later entries", func() (bool, any) {
			return j.distinct()+len(p.handled()) == 11, []any{j.list(), p.handled()}
		})
		for _, line := range p.handled() {
			for _, e := range j.list() {
				if line == fmt.Sprintf("handled 0 %d", e.n) {
					t.Errorf("entry %d was handled by both", e.n)
				}
			}
		}
	})

	t.Run("ownership-falls-back", func(t *testing.T) {
		t.Parallel()
		start := func(t *testing.T) (*bundle, *journal, string, string) {
			b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
			b.group("g", protocol.GroupSpec{})
			j := newJournal(t)
			return b, j, protocol.ControlKey(b.prefix, 0), protocol.ShardKey(b.prefix, 0)
		}
		t.Run("the shard knows a higher epoch", func(t *testing.T) {
			t.Parallel()
			b, j, control, _ := start(t)
			ahead := time.Now().Add(time.Hour).UnixMilli()
			if err := b.rdb.HSet(t.Context(), control, "owner:g", fmt.Sprintf("%d x y", ahead)).Err(); err != nil {
				t.Fatal(err)
			}
			b.run("a", j, nil)
			b.add(1, 0, 3)
			b.await("the entries", func() (bool, any) { return j.distinct() == 3, j.list() })
			if e := j.list()[0]; e.epoch <= ahead {
				t.Errorf("read under epoch %d, not above %d", e.epoch, ahead)
			}
		})
		t.Run("the node loses the takeover", func(t *testing.T) {
			t.Parallel()
			b, j, control, _ := start(t)
			b.run("a", j, nil)
			b.add(1, 0, 1)
			b.await("entry 0", func() (bool, any) { return j.distinct() == 1 && b.pending(1, "g") == 0, j.list() })
			if err := b.rdb.HDel(t.Context(), control, "owner:g").Err(); err != nil {
				t.Fatal(err)
			}
			b.add(1, 1, 3)
			b.await("the others", func() (bool, any) { return j.distinct() == 4 && b.pending(1, "g") == 0, j.list() })
			owner, err := b.rdb.HGet(t.Context(), control, "owner:g").Result()
			if o, perr := shardscript.ParseOwner(owner); err != nil || perr != nil || o.Epoch != j.list()[0].epoch {
				t.Errorf("owner %q, %v %v; it began under %d", owner, err, perr, j.list()[0].epoch)
			}
		})
		t.Run("the node loses an acknowledgement", func(t *testing.T) {
			t.Parallel()
			b, j, _, key := start(t)
			b.run("a", j, nil)
			b.add(1, 0, 1)
			b.await("entry 0", func() (bool, any) { return j.distinct() == 1 && b.pending(1, "g") == 0, j.list() })
			list, err := b.rdb.XRange(t.Context(), key, "-", "+").Result()
			if err != nil {
				t.Fatal(err)
			}
			name := protocol.ConsumerName("a", j.list()[0].epoch)
			if err := b.rdb.Do(t.Context(), "XCLAIM", key, "g", name, 0, list[0].ID, "FORCE", "JUSTID").Err(); err != nil {
				t.Fatal(err)
			}
			b.await("it to be swept", func() (bool, any) { n := b.pending(1, "g"); return n == 0, n })
			if l := j.list(); len(l) != 1 {
				t.Errorf("it was handled again: %v", l)
			}
		})
	})

	// What an earlier owner reads late is found by the check, claimed and handled in order.
	t.Run("zombie-read", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{})
		key := protocol.ShardKey(b.prefix, 0)
		j := newJournal(t)
		b.run("b", j, nil)
		total := 0
		for range 30 {
			// The zombie's group read takes what the owner has not read yet.
			p := b.rdb.Pipeline()
			for range 4 {
				p.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"n", total}})
				total++
			}
			p.XReadGroup(t.Context(), &redis.XReadGroupArgs{
				Group: "g", Consumer: "zombie~1", Streams: []string{key, ">"}, Count: 2, Block: -1,
			})
			if _, err := p.Exec(t.Context()); err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			b.await("all of them", func() (bool, any) { return j.distinct() == total, j.list() })
		}
		b.await("all acknowledged", func() (bool, any) { n := b.pending(1, "g"); return n == 0, n })
		list := j.list()
		for i, e := range list {
			if e.n != i {
				t.Fatalf("%d-th handled was entry %d: %v", i, e.n, list)
			}
		}
		names, err := b.rdb.XInfoConsumers(t.Context(), key, "g").Result()
		if err != nil || len(names) != 1 {
			t.Errorf("consumer names %v, %v", names, err)
		}
	})
}

// process is a consumer in a process of its own.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
	seen  []string
}

// process starts this test binary as a consumer with member id "a".
func (b *bundle) process(incarnationFile string) *process {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CONSUMER_PROCESS="+strings.Join([]string{b.server.URL(), b.redis.Addr, b.prefix, incarnationFile}, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	p := &process{t: b.t, cmd: cmd, lines: make(chan string, 1000)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	b.t.Cleanup(p.kill)
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// state is that of the process as the kernel says: T is stopped. A signal takes a moment. Where
// there is no /proc it is taken to have arrived.
func (p *process) state() string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return "T"
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return rest
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for line := range p.lines {
		p.seen = append(p.seen, line)
	}
	_ = p.cmd.Wait()
}

// handled lists "handled <shard> <n>" lines so far.
func (p *process) handled() []string {
	for {
		select {
		case line, ok := <-p.lines:
			if ok {
				p.seen = append(p.seen, line)
				continue
			}
		default:
		}
		var out []string
		for _, l := range p.seen {
			if strings.HasPrefix(l, "handled") {
				out = append(out, l)
			}
		}
		return out
	}
}

// await waits until so many lines end with, or are, what.
func (p *process) await(what string, count int) {
	p.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		n := 0
		for _, l := range p.seen {
			if l == what || strings.HasSuffix(l, " "+what) {
				n++
			}
		}
		if n >= count {
			return
		}
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the process has ended: %q", p.seen)
			}
			p.seen = append(p.seen, line)
		case <-deadline:
			p.t.Fatalf("waited for %d × %q: %q", count, what, p.seen)
		}
	}
}

// runProcess is the other side of process.
func runProcess(spec string) error {
	part := strings.Split(spec, " ")
	c, err := client.New(client.Config{Endpoints: part[:1]})
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: part[1]})
	run, err := consumer.New(consumer.Config{
		Client: c, Redis: rdb, StreamPrefix: part[2], Group: "g", MemberID: "a", Block: time.Second, IncarnationFile: part[3],
		Handler: func(_ context.Context, d consumer.Delivery) error {
			fmt.Println("handled", d.Shard, d.Text("n"))
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
		Hooks: consumer.Hooks{Health: func(_ string, err error) {
			if err == nil {
				fmt.Println("joined")
			}
		}},
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run.Run(ctx)
}
