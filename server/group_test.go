package server_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

// Two who create, change or delete one group at two replicas: of those that presuppose the same
// generation exactly one gets it done, each time.
func TestGroupPreconditionsRace(t *testing.T) {
	t.Parallel()
	keys := redistest.KeyPrefix(t)
	var replicas []*client.Client
	for range 2 {
		s := start(t, func(c *server.Config) { c.KeyPrefix = keys })
		c, err := client.New(client.Config{Endpoints: []string{s.URL()}, Username: "admin", Password: "admin-password"})
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, c)
	}
	prefix, ctx, count := redistest.Prefix(t), testContext(t), int64(1)
	if _, err := replicas[0].PutStream(ctx, prefix, protocol.PutStreamRequest{ShardCount: &count}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	// race lets every racer ask at once, at alternating replicas, and gives who won.
	race := func(what string, ask func(c *client.Client, n int64) error) (winner int64) {
		t.Helper()
		const racers = 6
		var (
			mu   sync.Mutex
			all  sync.WaitGroup
			wins []int64
			gate = make(chan struct{})
		)
		for n := range int64(racers) {
			all.Go(func() {
				<-gate
				err := ask(replicas[n%2], n)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					wins = append(wins, n)
				case !errors.Is(err, protocol.ErrGenerationMismatch) && !errors.Is(err, protocol.ErrGroupNotFound):
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		close(gate)
		all.Wait()
		if len(wins) != 1 {
			t.Fatalf("%s: %d of %d won", what, len(wins), racers)
		}
		return wins[0]
	}
	put := func(ifMatch int64) func(c *client.Client, n int64) error {
		return func(c *client.Client, n int64) error {
			_, err := c.PutGroup(ctx, prefix, "billing", protocol.PutGroupRequest{GroupSpec: protocol.GroupSpec{RebalanceTimeoutMs: 1000*ifMatch + 5000 + n}}, client.Call{IfMatch: ifMatch})
			return err
		}
	}
	is := func(generation, timeout int64) {
		t.Helper()
		for i, c := range replicas {
			g, err := c.Group(ctx, prefix, "billing")
			if err != nil || g.Generation != generation || g.Spec.RebalanceTimeoutMs != timeout {
				t.Fatalf("replica %d: %+v, %v; want generation %d with %d ms", i, g, err, generation, timeout)
			}
		}
	}
	is(1, 4000+race("creation", put(client.MustBeNew)))
	for generation := int64(1); generation <= 3; generation++ {
		is(generation+1, 1000*generation+5000+race(fmt.Sprintf("change of generation %d", generation), put(generation)))
	}
	remove := func(ifMatch int64) error {
		return replicas[1].DeleteGroup(ctx, prefix, "billing", protocol.DeleteGroupRequest{RequestedBy: "ann", Reason: "over"}, client.Call{IfMatch: ifMatch})
	}
	for _, ifMatch := range []int64{3, client.MustBeNew} {
		if err := remove(ifMatch); !errors.Is(err, protocol.ErrGenerationMismatch) {
			t.Errorf("deletion of generation %d: %v", ifMatch, err)
		}
	}
	race("deletion", func(c *client.Client, _ int64) error {
		return c.DeleteGroup(ctx, prefix, "billing", protocol.DeleteGroupRequest{RequestedBy: "ann", Reason: "over"}, client.Call{IfMatch: 4})
	})
	if err := put(4)(replicas[0], 0); !errors.Is(err, protocol.ErrGenerationMismatch) {
		t.Errorf("a change of the deleted group: %v", err)
	}
	if err := remove(client.MustBeNew); !errors.Is(err, protocol.ErrGroupNotFound) {
		t.Errorf("the end of its removal: %v", err)
	}
}
