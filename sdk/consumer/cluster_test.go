package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

// On a cluster: producers and consumers go on through reshardings outwards and inwards. Nothing
// is lost, and each key is handled in order.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	rdb := cluster.Client(t)
	srv, err := server.New(server.Config{
		Listen: "127.0.0.1:0", RedisURL: "redis+cluster://" + strings.Join(cluster.Addrs(), ","),
		KeyPrefix: redistest.KeyPrefix(t), InsecureAllowAnonymous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, server: srv, prefix: redistest.Prefix(t)}
	t.Cleanup(b.stopServer)
	if b.client, err = client.New(client.Config{Endpoints: []string{srv.URL()}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.client.Close)
	scale := func(to int64) {
		t.Helper()
		if _, err := b.client.PutStream(t.Context(), b.prefix, protocol.PutStreamRequest{ShardCount: &to}, client.Call{}); err != nil {
			t.Fatal(err)
		}
		b.await(fmt.Sprint(to, " shards"), func() (bool, any) {
			s, err := b.client.Stream(t.Context(), b.prefix)
			return err == nil && s.Status.ShardCount == int(to) && s.Status.ActiveReshardingID == "", []any{s.Status, err}
		})
	}
	scale(3)
	b.group("g", protocol.GroupSpec{})

	var mu sync.Mutex
	next := map[string]int{}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	run := func(who string) {
		c, err := consumer.New(consumer.Config{
			Client: b.client, Redis: rdb, StreamPrefix: b.prefix, Group: "g", MemberID: who, Block: time.Second, Logger: logger,
			Handler: func(_ context.Context, d consumer.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				key, n := d.Text("key"), 0
				_, _ = fmt.Sscan(d.Text("n"), &n)
				if n > next[key] {
					t.Errorf("key %s: entry %d is handled, %d is due", key, n, next[key])
				}
				next[key] = max(next[key], n+1)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Errorf("consumer %s: %v", who, err)
			}
		})
	}
	run("a")
	run("b")
	p, err := producer.New(producer.Config{Client: b.client, Redis: rdb, StreamPrefix: b.prefix, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	sent := make([]int, 8)
	for w := range sent {
		wg.Go(func() {
			key := fmt.Sprint("k", w)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := p.Append(context.Background(), key, producer.Fields{"key", key, "n", fmt.Sprint(sent[w])}); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				sent[w]++
			}
		})
	}
	scale(5)
	scale(2)
	close(stop)
	wg.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	b.await("all entries to be handled", func() (bool, any) {
		mu.Lock()
		defer mu.Unlock()
		for w, n := range sent {
			if next[fmt.Sprint("k", w)] != n {
				return false, fmt.Sprint(next, sent)
			}
		}
		return true, nil
	})
}
