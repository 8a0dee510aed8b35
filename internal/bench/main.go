// Command bench measures what docs promise about speed, each number beside a bare reference in
// the same run, prints a table and writes build/bench.json. Coordinator, reference server and
// Redis are processes of their own on loopback; nothing else should run on the machine.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
)

const username = "bench"

var (
	password = rand.Text()
	quiet    = slog.New(slog.DiscardHandler)
	noCall   client.Call
)

// bench is what the benchmarks share.
type bench struct {
	dir             string
	program         string // of the coordinator
	redisServer     *child.Redis
	redis           *redis.Client
	coordinator     *child.Process
	coordinatorAddr string
	reference       *child.Process
	referenceAddr   string
	client          *client.Client

	span   time.Duration // of one measurement
	rounds int           // measurements of subject and reference, in turns
}

// benchmarks in the order in which they run. A stream of one does not disturb the next.
func (b *bench) benchmarks() []struct {
	name string
	run  func(context.Context) ([]result, error)
} {
	return []struct {
		name string
		run  func(context.Context) ([]result, error)
	}{
		{"assign", b.assignment},
		{"start", b.startToReady},
		{"heartbeat-100", func(ctx context.Context) ([]result, error) { return b.steadyHeartbeats(ctx, 100) }},
		{"heartbeat-1000", func(ctx context.Context) ([]result, error) { return b.steadyHeartbeats(ctx, 1000) }},
		{"waiting-10000", func(ctx context.Context) ([]result, error) { return b.waiting(ctx, 10_000) }},
		{"handover", b.handover},
		{"publish", b.publish},
		{"consume", b.consume},
		{"pause", b.pauseWindow},
		{"shards", b.thousandShards},
		{"thousands", b.thousands},
		{"plan", b.manyStreams},
	}
}

func main() {
	if filepath.Base(os.Args[0]) == providerProgram { // Terraform has started it
		if err := serveBareProvider(context.Background()); err != nil {
			log.Fatal(err)
		}
		return
	}
	b := &bench{}
	var pattern, output, serve, profile string
	flag.StringVar(&pattern, "run", "", "only benchmarks that match this `pattern`")
	flag.StringVar(&output, "o", "build/bench.json", "`file` of the results")
	flag.DurationVar(&b.span, "span", 2*time.Second, "`duration` of one measurement")
	flag.IntVar(&b.rounds, "rounds", 3, "`number` of measurements of each side, in turns")
	flag.StringVar(&profile, "cpuprofile", "", "write a CPU profile of this process, the SDK's side, to this `file`")
	flag.StringVar(&serve, "serve-reference", "", "serve the bare twin on this `address` (the benchmark starts itself so)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() error {
		if serve != "" {
			return serveReference(ctx, serve)
		}
		if profile != "" {
			f, err := os.Create(profile)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		return b.main(ctx, pattern, output)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) main(ctx context.Context, pattern, output string) error {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.start(ctx); err != nil {
		return err
	}
	var all []result
	for _, m := range b.benchmarks() {
		if !match.MatchString(m.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", m.name)
		results, err := m.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		all = append(all, results...)
	}
	if err := printTable(os.Stdout, all); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	return writeJSON(output, all)
}

func (b *bench) start(ctx context.Context) error {
	redisPath, err := toolchain.RedisServer(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "redisstream-bench-"); err != nil {
		return err
	}
	if b.program, err = filepath.Abs("build/redis-stream-coordinator"); err != nil {
		return err
	}
	if _, err := child.Run(ctx, ".", nil, "go", "build", "-trimpath", "-o", b.program, "./cmd/redis-stream-coordinator"); err != nil {
		return err
	}
	if b.redisServer, err = child.StartRedis(ctx, redisPath, b.dir); err != nil {
		return err
	}
	b.redis = b.redisServer.Client()
	if b.coordinatorAddr, _, err = child.FreeAddress(ctx); err != nil {
		return err
	}
	if b.coordinator, err = child.StartCoordinator(ctx, b.coordinatorSettings(b.coordinatorAddr)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if b.referenceAddr, _, err = child.FreeAddress(ctx); err != nil {
		return err
	}
	if b.reference, err = child.Start(ctx, b.dir, "reference", nil, self, "-serve-reference", b.referenceAddr); err != nil {
		return err
	}
	if err := b.reference.WaitFor(ctx, 10*time.Second, func(ctx context.Context) error {
		return child.OK(ctx, "http://"+b.referenceAddr+"/livez")
	}); err != nil {
		return err
	}
	b.client, err = newClient(b.coordinatorAddr)
	return err
}

func newClient(addr string) (*client.Client, error) {
	return client.New(client.Config{Endpoints: []string{"http://" + addr}, Username: username, Password: password})
}

func (b *bench) coordinatorSettings(addr string) child.Coordinator {
	return child.Coordinator{
		Program: b.program, Dir: b.dir, Addr: addr, RedisURL: b.redisServer.URL(),
		Username: username, Password: password, Env: []string{"RSC_LOG_LEVEL=warn"},
	}
}

func (b *bench) close() {
	for _, p := range []*child.Process{b.coordinator, b.reference} {
		if p != nil {
			p.Stop()
		}
	}
	if b.redis != nil {
		b.redis.Close()
	}
	if b.redisServer != nil {
		b.redisServer.Stop()
	}
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

// startToReady measures from the start of the process to the first 200 of /readyz.
func (b *bench) startToReady(ctx context.Context) ([]result, error) {
	var took []time.Duration
	for range 5 {
		addr, _, err := child.FreeAddress(ctx)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		p, err := child.StartCoordinator(ctx, b.coordinatorSettings(addr))
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
		p.Stop()
	}
	return []result{within("server start to ready", median(took), 300*time.Millisecond, 0)}, nil
}
