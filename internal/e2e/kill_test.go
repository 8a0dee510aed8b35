package e2e_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

var builtCoordinator = flag.String("coordinator", "", "`path` of a coordinator that was built with -tags faults; default: it is built")

// faultyBinary is the coordinator built with fault points, once for all tests.
var faultyBinary = sync.OnceValues(func() (string, error) {
	if *builtCoordinator != "" {
		return *builtCoordinator, nil
	}
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "redis-stream-coordinator")
	out, err := exec.Command("go", "build", "-tags", "faults", "-o", path, "github.com/redisstream/terraform-provider-redisstream/cmd/redis-stream-coordinator").CombinedOutput()
	if err != nil {
		return "", &buildError{err, out}
	}
	return path, nil
})

type buildError struct {
	err error
	out []byte
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + string(e.out) }

// coordinator is a process that can be killed and started again at the same address.
type coordinator struct {
	t    *testing.T
	conf child.Coordinator
	proc *child.Process
}

func startCoordinator(t *testing.T, redisURL, keyPrefix, fault string) *coordinator {
	t.Helper()
	binary, err := faultyBinary()
	if err != nil {
		t.Fatal(err)
	}
	addr, _, err := child.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &coordinator{t: t, conf: child.Coordinator{
		Program: binary, Dir: t.TempDir(), Addr: addr, RedisURL: redisURL, Username: username, Password: password,
		Env: []string{"RSC_KEY_PREFIX=" + keyPrefix, "RSC_FAULT=" + fault},
	}}
	c.start()
	t.Cleanup(func() { c.proc.Stop() })
	return c
}

func (c *coordinator) start() {
	c.t.Helper()
	p, err := child.StartCoordinator(c.t.Context(), c.conf)
	if err != nil {
		c.t.Fatal(err)
	}
	c.proc = p
}

func (c *coordinator) url() string { return "http://" + c.conf.Addr }

// awaitDeath waits until the process has killed itself.
func (c *coordinator) awaitDeath(within time.Duration) {
	c.t.Helper()
	select {
	case <-c.proc.Done():
	case <-time.After(within):
		c.t.Fatalf("the coordinator did not reach the fault point %v", c.conf.Env)
	}
}

func (c *coordinator) kill() {
	_ = syscall.Kill(c.proc.PID(), syscall.SIGKILL)
	<-c.proc.Done()
}

// TestKillInEachPhase: the only coordinator is SIGKILLed in each phase of 8 → 3, before its first
// effect on a shard and behind it, under load. Started again, it ends the resharding by itself;
// nothing is lost and the order of every key is kept. What TestKillAtEveryFaultPoint does without
// traffic, at fewer points.
func TestKillInEachPhase(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, fault := range []string{
		"PREPARE#1", "PREPARE#5/after", "SEAL#1", "SEAL#3/after", "EVIDENCE#1", "EVIDENCE#8/after", "DECIDE#1", "DECIDE#1/after",
		"OPEN#1", "OPEN#4/after", "SURVEY#1", "SURVEY#4/after", "RETIRE#1", "RETIRE#2/after",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			killIn(t, redis, fault)
		})
	}
}

func killIn(t *testing.T, redis *redistest.Server, fault string) {
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	// The stream is made by a coordinator without a fault: a creation passes phases too.
	c := startCoordinator(t, redis.URL(), keyPrefix, "")
	api := connect(t, c.url())
	declare(t, api, prefix, 8, protocol.ReshardingPolicy{})
	putGroup(t, api, prefix, "g", protocol.GroupSpec{})
	tr := startTraffic(t, redis.Client(t), prefix, "g", trafficConfig{producers: 2, consumers: 2, keys: 64, perSecond: 800}, func() *client.Client { return connect(t, c.url()) })
	tr.until("traffic", 20*time.Second, func(t ledger.Tally) bool { return t.Handled > 200 })

	c.kill()
	armed := filepath.Join(t.TempDir(), "armed")
	c.conf.Env = []string{"RSC_KEY_PREFIX=" + keyPrefix, "RSC_FAULT=" + fault, "RSC_FAULT_ARMED=" + armed}
	c.start()
	if err := os.WriteFile(armed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	target := int64(3)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { // the coordinator may die before it answers
		_, _ = api.PutStream(ctx, prefix, protocol.PutStreamRequest{ShardCount: &target, RequestedBy: "e2e", Reason: fault}, client.Call{})
	})
	c.awaitDeath(60 * time.Second)
	cancel()
	asking.Wait()
	c.conf.Env = []string{"RSC_KEY_PREFIX=" + keyPrefix}
	c.start()

	// The caller repeats the request, since it has no answer.
	if _, err := api.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &target, RequestedBy: "e2e", Reason: fault}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	list, err := api.Reshardings(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Reshardings, func(r protocol.Resharding) bool { return r.ToShardCount == 3 })
	if i < 0 {
		t.Fatalf("the resharding is not stored: %+v", list.Reshardings)
	}
	if r := follow(t, api, prefix, list.Reshardings[i].ReshardingID, 60*time.Second); r.Phase != protocol.PhaseCompleted {
		t.Fatalf("ended %s: %s", r.Phase, r.Error)
	}
	tr.until("traffic after it", 30*time.Second, func() func(ledger.Tally) bool {
		from := tr.book.Count().Handled
		return func(t ledger.Tally) bool { return t.Handled > from+200 }
	}())
	tr.finish()
	s, err := api.Stream(t.Context(), prefix)
	if err != nil || s.Status.ShardCount != 3 || s.Status.PublishState != protocol.PublishOpen {
		t.Errorf("the stream afterwards: %+v, %v", s.Status, err)
	}
	for i := range 8 {
		n, err := redis.Client(t).Exists(t.Context(), protocol.ShardKey(prefix, i)).Result()
		if want := int64(0); err != nil || i >= 3 && n != want {
			t.Errorf("removed shard %d exists: %v", i, err)
		}
	}
}

// TestThreeReplicas: three coordinators on one Redis, every call to another one in turn, killed
// one after the other in the middle of 4 → 8 → 3: the same promises.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	var replicas []*coordinator
	for range 3 {
		replicas = append(replicas, startCoordinator(t, redis.URL(), keyPrefix, ""))
	}
	balancer := startBalancer(t, replicas)
	api := connect(t, balancer)
	declare(t, api, prefix, 4, protocol.ReshardingPolicy{})
	putGroup(t, api, prefix, "g", protocol.GroupSpec{})
	tr := startTraffic(t, redis.Client(t), prefix, "g", trafficConfig{producers: 2, consumers: 3, keys: 200, perSecond: 1000, concurrency: 2}, func() *client.Client { return connect(t, balancer) })
	tr.until("traffic", 20*time.Second, func(t ledger.Tally) bool { return t.Handled > 500 })
	for i, target := range []int64{8, 3} {
		res, err := api.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &target, RequestedBy: "e2e"}, client.Call{})
		if err != nil {
			t.Fatal(err)
		}
		replicas[i].kill()
		if r := follow(t, api, prefix, res.ReshardingID, 60*time.Second); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("to %d: %s: %s", target, r.Phase, r.Error)
		}
		replicas[i].start()
		from := tr.book.Count().Handled
		tr.until("traffic", 30*time.Second, func(t ledger.Tally) bool { return t.Handled > from+500 })
	}
	tr.finish()
}
