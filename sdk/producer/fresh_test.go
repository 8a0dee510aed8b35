package producer_test

import (
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A stream that the coordinator has just answered 201 for takes appends, though its shards are only
// being made.
func TestAppendToAStreamThatWasJustMade(t *testing.T) {
	t.Parallel()
	rs := redistest.Shared(t)
	b := &bundle{t: t, redis: rs, rdb: rs.Client(t)}
	b.startServer(redistest.KeyPrefix(t))
	shards := int64(16)
	for range 5 {
		b.prefix = redistest.Prefix(t)
		if _, err := b.client.PutStream(t.Context(), b.prefix, protocol.PutStreamRequest{ShardCount: &shards}, client.Call{}); err != nil {
			t.Fatal(err)
		}
		p, err := producer.New(producer.Config{Client: b.client, Redis: b.rdb, StreamPrefix: b.prefix})
		if err != nil {
			t.Fatal(err)
		}
		p.Start()
		if _, err := p.Append(t.Context(), "customer-1", producer.Fields{"order", "1"}); err != nil {
			t.Errorf("append: %v", err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
