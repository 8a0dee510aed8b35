package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A group is deleted with force under a running consumer: it lets go, and makes no consumer group
// again that it misses. Registered anew the group starts anew, and the same consumer reads on.
func TestGroupIsDeletedUnderAConsumer(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
	b.group("g", protocol.GroupSpec{})
	j := newJournal(t)
	made := make(chan int, 100)
	b.run("c1", j, func(c *consumer.Config) {
		c.Hooks.GroupRecreated = func(shard int) { made <- shard }
	})
	b.add(2, 0, 20)
	b.await("all entries", func() (bool, any) { return j.distinct() == 40, j.distinct() })
	err := b.client.DeleteGroup(t.Context(), b.prefix, "g", protocol.DeleteGroupRequest{RequestedBy: "t", Reason: "t", Force: true}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	groups := func() (names []string) {
		for shard := range 2 {
			list, err := b.rdb.XInfoGroups(t.Context(), protocol.ShardKey(b.prefix, shard)).Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range list {
				names = append(names, g.Name)
			}
		}
		return names
	}
	if got := groups(); len(got) != 0 {
		t.Fatalf("groups %v", got)
	}
	b.add(2, 20, 5)                        // the doorbell rings for whoever still waits
	hear := time.NewTimer(4 * time.Second) // longer than the lease: by then it has heard of the end
	defer hear.Stop()
	for waiting := true; waiting; {
		select {
		case <-hear.C:
			waiting = false
		case shard := <-made:
			t.Fatalf("the consumer made the group again on shard %d", shard)
		}
	}
	if got := groups(); len(got) != 0 {
		t.Fatalf("groups %v came back", got)
	}
	b.group("g", protocol.GroupSpec{})
	b.await("the group to start anew", func() (bool, any) {
		return j.distinct() == 50 && len(j.list()) == 90, []any{j.distinct(), len(j.list())}
	})
	b.await("nothing to be pending", func() (bool, any) { n := b.pending(2, "g"); return n == 0, n })
}

// Retention removes entries while their owner handles them: it goes on, and nothing stays pending.
func TestRetentionUnderAConsumer(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
	b.group("g", protocol.GroupSpec{})
	j := newJournal(t)
	enter, goOn := make(chan struct{}, 1), make(chan struct{})
	b.run("c1", j, func(c *consumer.Config) {
		c.Handler = func(ctx context.Context, d consumer.Delivery) error {
			j.begin("c1", d)
			defer j.end(d)
			select {
			case enter <- struct{}{}:
			default:
			}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	})
	b.add(1, 0, 500)
	<-enter
	one := int64(1)
	_, err := b.client.PutStream(t.Context(), b.prefix, protocol.PutStreamRequest{
		ShardCount: &one, Retention: protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 10},
	}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	b.await("the shard to be short", func() (bool, any) {
		n := b.rdb.XLen(t.Context(), protocol.ShardKey(b.prefix, 0)).Val()
		return n == 10, n
	})
	close(goOn)
	b.add(1, 500, 5)
	b.await("the newest entries", func() (bool, any) {
		list := j.list()
		return len(list) > 0 && list[len(list)-1].n == 504, len(list)
	})
	b.await("nothing to be pending", func() (bool, any) { n := b.pending(1, "g"); return n == 0, n })
	report, err := b.client.Retention(t.Context(), b.prefix)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Groups) != 1 || report.Groups[0].Trimmed != 490 || report.Groups[0].Gone != 0 {
		t.Errorf("%+v", report)
	}
}
