// Command demo shows the whole product on one machine, from nothing: a private Redis server, a
// coordinator, producers, consumers, and Terraform, which changes the number of shards while
// they run. An oracle checks every entry of every key. It exits with 1 when one entry is lost
// or, across a quiesced change, one key is out of order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
)

// What the demo runs.
const (
	streamPrefix  = "orders"
	consumerGroup = "billing"
	username      = "demo"
)

// settings of a run.
type settings struct {
	keys      int
	producers int
	consumers int
	rate      int           // entries a second, of all producers together
	settle    time.Duration // traffic before, between and after the changes
}

// step is one terraform apply.
type step struct {
	shards   int
	strategy string
	reason   string
}

func (s step) strict() bool { return s.strategy == "quiesce" }

var steps = []step{
	{4, "quiesce", "create the stream"},
	{8, "quiesce", "more consumers"},
	{3, "quiesce", "fewer consumers"},
	{6, "online", "order does not matter here"},
}

func main() {
	var s settings
	flag.IntVar(&s.keys, "keys", 2000, "`number` of keys")
	flag.IntVar(&s.producers, "producers", 3, "`number` of producers")
	flag.IntVar(&s.consumers, "consumers", 4, "`number` of consumers")
	flag.IntVar(&s.rate, "rate", 6000, "`entries` a second")
	flag.DurationVar(&s.settle, "settle", 4*time.Second, "`duration` of traffic around each change")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	good, err := run(ctx, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if !good {
		os.Exit(1)
	}
}

// run gives back whether nothing was lost and no promise of order was broken.
func run(ctx context.Context, s settings) (good bool, err error) {
	world, err := build(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		world.close()
		if good {
			os.RemoveAll(world.dir)
		} else {
			fmt.Fprintln(os.Stderr, "logs are in", world.dir)
		}
	}()
	show := &screen{begin: time.Now(), tty: terminal()}
	if err := world.start(ctx, show); err != nil {
		return false, err
	}

	book := ledger.New(s.keys)
	var changes []change

	// The stream has to be there before anybody can use it.
	c, err := world.change(ctx, show, steps[0])
	if err != nil {
		return false, err
	}
	changes = append(changes, c)

	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		show.watch(watching, world.client, streamPrefix)
	}()
	defer func() {
		stopWatching()
		<-watched
	}()

	consumers, err := startConsumers(ctx, world, s, book)
	if err != nil {
		return false, err
	}
	defer func() { _ = consumers.stop() }() // its error is that of the call below
	producers, err := startProducers(ctx, world, s, book)
	if err != nil {
		return false, err
	}
	defer func() { _ = producers.stop() }()
	show.line("%d producers append %d entries/s to %d keys; %d consumers share the shards", s.producers, s.rate, s.keys, s.consumers)
	status := startStatus(ctx, show, book)
	defer status.stop()

	for _, next := range steps[1:] {
		if err := pause(ctx, s.settle); err != nil {
			return false, err
		}
		producers.resetGap()
		end := book.Change(fmt.Sprintf("→ %d", next.shards), next.strict())
		c, err := world.change(ctx, show, next)
		end()
		if err != nil {
			return false, err
		}
		c.gap = producers.longestGap()
		changes = append(changes, c)
	}
	if err := pause(ctx, s.settle); err != nil {
		return false, err
	}

	if err := producers.stop(); err != nil {
		return false, err
	}
	trafficEnd := time.Now()
	show.line("producers have stopped; waiting until everything is handled")
	if err := caughtUp(ctx, book); err != nil {
		show.line("%v", err)
	}
	if err := consumers.stop(); err != nil {
		return false, err
	}
	status.stop()
	if err := world.terraform.plan(ctx, steps[len(steps)-1].shards, steps[len(steps)-1].strategy, steps[len(steps)-1].reason); err != nil {
		return false, fmt.Errorf("a plan after the last apply is not empty: %w", err)
	}
	show.line("terraform plan: no changes")
	if err := world.collect(ctx, changes); err != nil {
		return false, err
	}
	events, err := world.client.AuditEvents(ctx, client.AuditQuery{StreamPrefix: streamPrefix, Limit: 100})
	if err != nil {
		return false, fmt.Errorf("audit: %w", err)
	}
	stopWatching()
	<-watched
	show.say("")
	return report(os.Stdout, changes, events.Events, book.Count(), producers.numbers(trafficEnd)), nil
}

// caughtUp waits until no published entry is unhandled, for as long as the number shrinks.
func caughtUp(ctx context.Context, book *ledger.Ledger) error {
	least, since := -1, time.Now()
	for {
		t := book.Count()
		switch {
		case t.Lost == 0:
			return nil
		case least < 0 || t.Lost < least:
			least, since = t.Lost, time.Now()
		case time.Since(since) > 20*time.Second:
			return fmt.Errorf("%d entries were not handled for 20 s", t.Lost)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// world is what the demo started: programs, a Terraform working directory, a client.
type world struct {
	dir       string
	bin       string
	redisPath string
	tfPath    string
	redis     *child.Redis
	coord     *child.Process
	endpoint  string
	password  string
	terraform *terraform
	client    *client.Client
	log       *slog.Logger
	logFile   *os.File
}

// build makes the programs; it is not part of the demo's time.
func build(ctx context.Context) (*world, error) {
	w := &world{}
	var err error
	if w.redisPath, err = toolchain.RedisServer(ctx, os.Stderr); err != nil {
		return nil, err
	}
	if w.tfPath, err = toolchain.Terraform(ctx, "build", os.Stderr); err != nil {
		return nil, err
	}
	if w.bin, err = filepath.Abs("build"); err != nil {
		return nil, err
	}
	fmt.Println("building the coordinator and the provider into build/")
	if _, err := child.Run(ctx, ".", nil, "go", "build", "-o", w.bin+string(filepath.Separator), "./cmd/..."); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "redisstream-demo-"); err != nil {
		return nil, err
	}
	return w, nil
}

// start brings Redis and the coordinator up, and makes the working directory of Terraform.
func (w *world) start(ctx context.Context, show *screen) (err error) {
	if w.logFile, err = os.Create(filepath.Join(w.dir, "clients.log")); err != nil {
		return err
	}
	w.log = slog.New(slog.NewTextHandler(w.logFile, nil))
	if w.redis, err = child.StartRedis(ctx, w.redisPath, w.dir); err != nil {
		return err
	}
	show.line("redis on %s", w.redis.Addr)
	addr, _, err := child.FreeAddress(ctx)
	if err != nil {
		return err
	}
	w.endpoint, w.password = "http://"+addr, randomPassword()
	if w.coord, err = child.StartCoordinator(ctx, child.Coordinator{
		Program: filepath.Join(w.bin, "redis-stream-coordinator"), Dir: w.dir, Addr: addr,
		RedisURL: w.redis.URL(), Username: username, Password: w.password,
	}); err != nil {
		return err
	}
	show.line("coordinator on %s", w.endpoint)
	if w.client, err = w.newClient(); err != nil {
		return err
	}
	work := filepath.Join(w.dir, "terraform")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	w.terraform, err = newTerraform(w.tfPath, work, w.bin, w.endpoint, username, w.password)
	return err
}

func (w *world) close() {
	if w.coord != nil {
		w.coord.Stop()
	}
	if w.redis != nil {
		w.redis.Stop()
	}
	if w.logFile != nil {
		w.logFile.Close()
	}
}

// change lets Terraform make one change.
func (w *world) change(ctx context.Context, show *screen, s step) (change, error) {
	show.line("terraform apply  shard_count = %d, strategy = %q", s.shards, s.strategy)
	begin := time.Now()
	out, err := w.terraform.apply(ctx, s.shards, s.strategy, s.reason)
	if err != nil {
		return change{}, err
	}
	c := change{step: s, apply: time.Since(begin)}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Apply complete!") {
			show.line("%s (%s)", strings.TrimSpace(line), short(c.apply))
		}
	}
	return c, nil
}

// collect asks the coordinator for the record of each change.
func (w *world) collect(ctx context.Context, changes []change) error {
	list, err := w.client.Reshardings(ctx, streamPrefix)
	if err != nil {
		return fmt.Errorf("reshardings: %w", err)
	}
	if len(list.Reshardings) != len(changes) {
		return fmt.Errorf("the coordinator has %d reshardings on record, Terraform made %d", len(list.Reshardings), len(changes))
	}
	for i := range changes {
		changes[i].record = list.Reshardings[len(changes)-1-i]
	}
	return nil
}

// pause waits, or says that the demo was interrupted.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errors.New("interrupted")
	}
}

// terminal says whether standard output is one.
func terminal() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
