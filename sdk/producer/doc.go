// Package producer appends entries to the shards of a stream: it routes by key, batches, waits
// out pauses and follows layout changes by itself.
//
// Entries of one key are appended in the order of the calls, also across a resharding. An
// entry that may have landed is never sent again: its append ends with ErrOutcomeUnknown, and
// the caller decides. What is certain not to have landed is repeated, under the same event id.
//
// By default appends are fenced: a script beside the shard compares the layout, so that no
// entry lands where nobody will look for it. Config.Plain sends bare XADD commands instead,
// which is a little faster and keeps neither promise through a change of layout.
//
//	p, err := producer.New(producer.Config{Client: coordinator, Redis: rdb, StreamPrefix: "orders"})
//	…
//	p.Start()
//	defer p.Close(context.Background())
//	result, err := p.Append(ctx, order.ID, producer.Fields{"type", "created", "body", body})
package producer
