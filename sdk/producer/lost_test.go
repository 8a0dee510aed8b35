package producer_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// cutter is a connection that forwards the next append and loses its reply.
type cutter struct {
	net.Conn
	armed *atomic.Bool
	cut   bool
}

func (c *cutter) Write(b []byte) (int, error) {
	if c.armed.Load() && (strings.Contains(string(b), "evalsha") || strings.Contains(string(b), "xadd")) {
		if c.armed.CompareAndSwap(true, false) {
			c.cut = true
		}
	}
	return c.Conn.Write(b)
}

func (c *cutter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.cut && err == nil { // the reply is there, so the append was executed
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// The reply to an append is lost: it is not repeated, although the Redis client would.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		name := "fenced"
		if plain {
			name = "plain"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
			var armed atomic.Bool
			options := *b.rdb.Options()
			options.MaxRetries = 3
			options.PushNotificationProcessor = nil // belongs to the client that it was made for
			options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &cutter{Conn: conn, armed: &armed}, err
			}
			rdb := redis.NewClient(&options)
			t.Cleanup(func() { _ = rdb.Close() })
			p := b.producer(func(c *producer.Config) { c.Redis, c.Plain = rdb, plain })
			if _, err := p.Append(t.Context(), "k", content("k", 0)); err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			r, err := p.Append(t.Context(), "k", content("k", 1))
			if !errors.Is(err, producer.ErrOutcomeUnknown) || r.EventID == "" {
				t.Fatalf("result %+v, error %v", r, err)
			}
			if n, err := b.rdb.XLen(t.Context(), protocol.ShardKey(b.prefix, 0)).Result(); err != nil || n != 2 {
				t.Fatalf("%d entries, %v", n, err)
			}
			// The caller repeats it, under the same event id.
			again := append(content("k", 1), "event", r.EventID)
			if r2, err := p.Append(t.Context(), "k", again); err != nil || r2.EventID != r.EventID {
				t.Fatalf("result %+v, error %v", r2, err)
			}
			list, err := b.rdb.XRange(t.Context(), protocol.ShardKey(b.prefix, 0), "-", "+").Result()
			if err != nil || len(list) != 3 || list[1].Values["event"] != list[2].Values["event"] {
				t.Fatalf("entries %v, %v", list, err)
			}
		})
	}
}
