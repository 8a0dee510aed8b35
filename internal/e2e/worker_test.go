package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
)

// workerEnv makes this test binary a worker: a process with one producer or consumer of the SDK, which
// can be frozen.
const workerEnv = "RSC_E2E_WORKER"

// workerSettings are the first line that a worker reads.
type workerSettings struct {
	Kind                 string // producer or consumer
	Coordinator, Redis   string // URL; host:port
	Prefix, Group, Name  string
	HandlingMs, MaxBatch int
}

// workAs is the main function of a worker. It ends with its standard input.
func workAs(in io.Reader) int {
	lines := bufio.NewScanner(in)
	var s workerSettings
	if !lines.Scan() {
		return 1
	}
	if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
		fmt.Fprintln(os.Stderr, "settings:", err)
		return 1
	}
	c, err := client.New(client.Config{Endpoints: []string{s.Coordinator}, Username: username, Password: password})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	// Replies that come late are waited for: what becomes of a command on its way is the question.
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis, ReadTimeout: time.Minute})
	defer rdb.Close()
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, strings.ReplaceAll(format, "\n", " ")+"\n", args...)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if s.Kind == "producer" {
		err = workAsProducer(ctx, s, c, rdb, lines, say)
	} else {
		go func() {
			defer stop()
			for lines.Scan() { // its end is all that counts
			}
		}()
		err = workAsConsumer(ctx, s, c, rdb, say)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// workAsProducer appends an entry for each line that it reads, which is the key; it says "ready",
// "accepted key" and "result key shard id event error".
func workAsProducer(ctx context.Context, s workerSettings, c *client.Client, rdb *redis.Client, lines *bufio.Scanner, say func(string, ...any)) error {
	ready := sync.OnceFunc(func() { say("ready") })
	p, err := producer.New(producer.Config{
		Client: c, Redis: rdb, StreamPrefix: s.Prefix, ProducerID: s.Name, MaxBatch: s.MaxBatch, EventIDField: "event",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Hooks: producer.Hooks{Layout: func(int64, int) { ready() }},
	})
	if err != nil {
		return err
	}
	p.Start()
	for lines.Scan() {
		key := lines.Text()
		err := p.AppendAsync(ctx, key, producer.Fields{"key", key}, func(r producer.Result, err error) {
			say("result %s %d %s %s %v", key, r.Shard, r.ID, r.EventID, err)
		})
		if err != nil {
			return err
		}
		say("accepted %s", key)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return p.Close(ctx)
}

// workAsConsumer says "begin shard epoch id" and "end shard epoch id" around each handling,
// "assigned shard epoch", "cut shard epoch cause", "refused shard entries" and "health error".
func workAsConsumer(ctx context.Context, s workerSettings, c *client.Client, rdb *redis.Client, say func(string, ...any)) error {
	one, err := consumer.New(consumer.Config{
		Client: c, Redis: rdb, StreamPrefix: s.Prefix, Group: s.Group, MemberID: s.Name, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Handler: func(_ context.Context, d consumer.Delivery) error {
			say("begin %d %d %s", d.Shard, d.OwnershipEpoch, d.ID)
			time.Sleep(time.Duration(s.HandlingMs) * time.Millisecond) // its work
			say("end %d %d %s", d.Shard, d.OwnershipEpoch, d.ID)
			return nil
		},
		Hooks: consumer.Hooks{
			Assigned: func(shard int, epoch int64) { say("assigned %d %d", shard, epoch) },
			Revoked: func(shard int, epoch int64, cause error) {
				if cause != nil {
					say("cut %d %d %s", shard, epoch, strings.ReplaceAll(cause.Error(), "\n", "; "))
				}
			},
			AckRefused: func(shard, entries int) { say("refused %d %d", shard, entries) },
			Health:     func(_ string, err error) { say("health %v", err) },
		},
	})
	if err != nil {
		return err
	}
	return one.Run(ctx)
}

// workerProcess is a worker as its test sees it.
type workerProcess struct {
	t    *testing.T
	proc *child.Worker
	read chan struct{}

	mu    sync.Mutex
	lines []string // that it said
}

func startWorker(t *testing.T, s workerSettings) *workerProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := child.StartWorker(t.Context(), dir, s.Name, []string{workerEnv + "=1"}, self)
	if err != nil {
		t.Fatal(err)
	}
	w := &workerProcess{t: t, proc: p, read: make(chan struct{})}
	go func() {
		defer close(w.read)
		in := bufio.NewScanner(p.Out)
		for in.Scan() {
			w.mu.Lock()
			w.lines = append(w.lines, in.Text())
			w.mu.Unlock()
		}
		p.Out.Close()
	}()
	t.Cleanup(func() {
		p.In.Close()
		p.Stop()
		<-w.read
		if t.Failed() {
			log, _ := os.ReadFile(dir + "/" + s.Name + ".log")
			t.Logf("%s said %d lines, the last ones %q, and logged\n%s", s.Name, len(w.since(0)), tail(w.since(0), 10), log)
		}
	})
	settings, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	w.tell(string(settings))
	return w
}

// tell writes one line to the worker.
func (w *workerProcess) tell(line string) {
	w.t.Helper()
	if _, err := w.proc.In.WriteString(line + "\n"); err != nil {
		w.t.Fatalf("tell a worker: %v", err)
	}
}

// since is what the worker has said, from line n on.
func (w *workerProcess) since(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines[min(n, len(w.lines)):]...)
}

// count is how many lines the worker has said.
func (w *workerProcess) count() int { return len(w.since(0)) }

// said lists the fields of the lines of a kind, from line n on.
func (w *workerProcess) said(n int, kind string) [][]string {
	var list [][]string
	for _, line := range w.since(n) {
		if rest, ok := strings.CutPrefix(line, kind+" "); ok {
			list = append(list, strings.Fields(rest))
		}
	}
	return list
}

// await waits until yes holds.
func (w *workerProcess) await(what string, yes func() bool) {
	w.t.Helper()
	err := waitFor(w.t.Context(), time.Minute, func(context.Context) error {
		select {
		case <-w.proc.Done():
			return fmt.Errorf("the worker ended: %w", w.proc.Err())
		default:
		}
		if !yes() {
			return errNotYet
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("%s: %v; last heard %q", what, err, tail(w.since(0), 5))
	}
}

func (w *workerProcess) freeze() {
	w.t.Helper()
	if err := w.proc.Freeze(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workerProcess) thaw() {
	w.t.Helper()
	if err := w.proc.Thaw(); err != nil {
		w.t.Fatal(err)
	}
}
