// Package consumer reads the shards of a stream as a member of a consumer group: it owns
// shards exclusively, hands them over without loss, and acknowledges what its handler has
// done.
//
// Processing is at-least-once. The entries of a shard are handled one at a time in the order of
// their ids; shards are handled concurrently. An entry that was not acknowledged (the process
// died, the handler failed, the lease ended) is handled again, by whoever owns the shard then,
// before anything newer of that shard.
//
// A consumer fences itself: when its lease has ended it reads, dispatches and acknowledges
// nothing, and the contexts of its handlers are cancelled. What a handler does after that may
// happen twice. Beside each shard an ownership epoch refuses what comes late all the same.
//
//	c, err := consumer.New(consumer.Config{
//		Client: coordinator, Redis: rdb, StreamPrefix: "orders", Group: "billing",
//		Handler: func(ctx context.Context, d consumer.Delivery) error { return bill(ctx, d.Text("order")) },
//	})
//	…
//	err = c.Run(ctx) // until ctx ends: then it drains, gives its shards back and leaves
package consumer
