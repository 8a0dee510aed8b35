package producer

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/appendflow"
	"github.com/redisstream/terraform-provider-redisstream/sdk/internal/shard"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// send sends what is ready until the producer stops.
func (p *Producer) send() {
	for {
		select {
		case <-p.toSend:
		case <-p.work.Done():
			return
		}
		if batches := p.nextPipeline(); len(batches) > 0 {
			p.sendBatches(batches)
		}
	}
}

// nextPipeline takes batches that are ready: small ones together, which saves round trips, full
// ones apart, so that one is made while another is executed.
func (p *Producer) nextPipeline() []*appendflow.Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	entries, n := 0, 0
	for n < len(p.ready) && entries < p.cfg.MaxBatch {
		entries += len(p.ready[n].Entries)
		n++
	}
	batches := p.ready[:n:n]
	if p.ready = p.ready[n:]; len(p.ready) > 0 {
		notify(p.toSend) // the next sender's
	} else {
		p.ready = nil
	}
	return batches
}

// sendBatches runs under a context of its own: an append that is under way is not cut off.
func (p *Producer) sendBatches(batches []*appendflow.Batch) {
	ctx := context.WithoutCancel(p.work)
	begin := time.Now()
	var bare shard.BareAppends
	var calls []*shard.Call
	for _, b := range batches {
		if b.Plain {
			bare.Grow(len(b.Entries))
			for _, e := range b.Entries {
				bare.Add(ctx, p.shards.Key(b.Shard), p.cfg.MaxLen, entryOf(e).fields)
			}
			continue
		}
		entries := make([][]any, len(b.Entries))
		for i, e := range b.Entries {
			entries[i] = entryOf(e).fields
		}
		calls = append(calls, &shard.Call{
			Name: shardscript.Append, Index: b.Shard,
			Args: shardscript.AppendArgs(b.Layout.Epoch, b.Layout.Count, p.cfg.MaxLen, entries...),
		})
	}
	if len(calls) > 0 {
		p.shards.Run(ctx, calls...)
	}
	if len(calls) < len(batches) {
		p.shards.RunBare(ctx, &bare)
	}
	took := time.Since(begin)
	inputs := make([]appendflow.Input, len(batches))
	nextCall, nextBare := 0, 0
	for i, b := range batches {
		var reply appendflow.Reply
		if b.Plain {
			reply = bareReply(b, &bare, nextBare)
			nextBare += len(b.Entries)
		} else {
			reply = scriptReply(b, calls[nextCall])
			nextCall++
		}
		inputs[i] = appendflow.Replied{Batch: b, Reply: reply}
		p.observe(b, reply, took)
	}
	p.step(inputs...)
}

func entryOf(e *appendflow.Entry) *pending {
	return e.Value.(*pending) //nolint:forcetypeassert // nothing else is pushed
}

// scriptReply reads the answer of APPEND, and notes the ids of what landed.
func scriptReply(b *appendflow.Batch, c *shard.Call) appendflow.Reply {
	v, err := c.Value()
	if err != nil {
		return failedReply(err)
	}
	r, err := shardscript.ParseAppend(v)
	if err != nil {
		return appendflow.Reply{Err: err, Lost: true}
	}
	reply := appendflow.Reply{
		Code: r.Code, InForce: appendflow.Layout{Epoch: r.Epoch, Count: r.Count}, Gate: r.Gate, Until: r.Until, Hold: r.Hold,
		Remaining: -1,
	}
	if last := max(r.Until, r.Hold); last > 0 && r.At > 0 {
		reply.Remaining = max(time.Duration(last-r.At)*time.Millisecond, 0)
	}
	for i, id := range r.IDs {
		a := entryOf(b.Entries[i])
		a.result.Shard, a.result.ID = b.Shard, id
	}
	if r.Code == shardscript.Failed {
		reply.Landed = len(r.IDs)
		reply.Sealed = exhausted(r.Error)
		reply.Err = errors.New(r.Error)
	}
	return reply
}

func failedReply(err error) appendflow.Reply {
	kind := shard.FailureOf(err)
	return appendflow.Reply{Err: err, Lost: kind == shard.Lost, Retriable: kind == shard.Retriable}
}

// exhausted is how Redis refuses an append to a sealed stream.
func exhausted(text string) bool { return strings.Contains(text, "exhausted the last possible ID") }

// bareReply reads the answers of a plain batch.
func bareReply(b *appendflow.Batch, bare *shard.BareAppends, first int) appendflow.Reply {
	fates := make([]appendflow.Fate, len(b.Entries))
	for i, e := range b.Entries {
		id, err := bare.Result(first + i)
		switch {
		case err == nil:
			a := entryOf(e)
			a.result.Shard, a.result.ID = b.Shard, id
		case errors.Is(err, redis.Nil), exhausted(err.Error()), shard.FailureOf(err) == shard.Retriable:
			fates[i].Refused = true
		default:
			fates[i] = appendflow.Fate{Err: err, Lost: shard.FailureOf(err) == shard.Lost}
		}
	}
	return appendflow.Reply{Fates: fates}
}

// observe calls the hook, one call at a time.
func (p *Producer) observe(b *appendflow.Batch, r appendflow.Reply, took time.Duration) {
	if p.cfg.Hooks.Batch == nil {
		return
	}
	landed, refusal := 0, string(r.Code)
	switch {
	case r.Code == shardscript.OK:
		landed, refusal = len(b.Entries), ""
	case r.Code == shardscript.Failed:
		landed = r.Landed
	case r.Err != nil:
		refusal = r.Err.Error()
	}
	for _, f := range r.Fates {
		if !f.Refused && f.Err == nil {
			landed++
		} else {
			refusal = "some bare appends were refused"
		}
	}
	p.hooks.Lock()
	defer p.hooks.Unlock()
	p.cfg.Hooks.Batch(b.Shard, len(b.Entries), landed, took, refusal)
}
