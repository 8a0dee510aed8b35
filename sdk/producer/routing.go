package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/appendflow"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

const (
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 5 * time.Second
	redisTimeout = 5 * time.Second // of one question to a shard
)

// keepRouting holds a routing request at the coordinator, and asks anew when the machine wants.
func (p *Producer) keepRouting() {
	version := int64(0)
	failures := 0
	for p.work.Err() == nil {
		query := client.RoutingQuery{
			Version: version, MaxWait: p.cfg.RoutingHold, ProducerID: p.cfg.ProducerID, Fenced: !p.cfg.Plain, Once: true,
		}
		if version == 0 {
			query.MaxWait = 0
		}
		asked := p.now()
		routing, again, err := p.ask(query)
		switch {
		case again: // without a hold this time
			version = 0
			continue
		case p.isClosed():
			return
		case err != nil:
			failures++
			version = 0
			if failures == 1 {
				p.cfg.Logger.Warn("no routing from the coordinator", "stream", p.cfg.StreamPrefix, "error", err)
			}
			p.step(appendflow.RoutingFailed{Err: err, Permanent: client.Permanent(err)})
			p.wait(failures)
			continue
		}
		if failures > 0 {
			p.cfg.Logger.Info("routing from the coordinator again", "stream", p.cfg.StreamPrefix)
		}
		failures, version = 0, routing.RoutingVersion
		p.step(p.routingInput(routing, asked))
		if version == 0 { // a coordinator that cannot hold: do not ask in a loop
			p.wait(4)
		}
	}
}

// ask sends one request. again says that it was given up because the machine wants an answer now.
func (p *Producer) ask(q client.RoutingQuery) (r protocol.Routing, again bool, err error) {
	ctx, cancel := context.WithCancel(p.work)
	defer cancel()
	type outcome struct {
		r   protocol.Routing
		err error
	}
	done := make(chan outcome, 1)
	if q.MaxWait == 0 {
		select {
		case <-p.toRefresh: // this is it
		default:
		}
		r, err = p.cfg.Client.Routing(ctx, p.cfg.StreamPrefix, q)
		return r, false, err
	}
	go func() {
		r, err := p.cfg.Client.Routing(ctx, p.cfg.StreamPrefix, q)
		done <- outcome{r, err}
	}()
	select {
	case o := <-done:
		return o.r, false, o.err
	case <-p.toRefresh:
		cancel()
		<-done
		return r, true, nil
	}
}

// wait backs off, but no longer than until the machine wants an answer.
func (p *Producer) wait(failures int) {
	most := lastBackoff
	if failures < 6 {
		most = min(most, firstBackoff<<(failures-1))
	}
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.toRefresh:
	case <-p.work.Done():
	}
}

func (p *Producer) routingInput(r protocol.Routing, asked time.Duration) appendflow.Input {
	switch {
	case r.StreamPrefix != p.cfg.StreamPrefix:
		return appendflow.RoutingFailed{Err: fmt.Errorf("the routing is that of stream %q", r.StreamPrefix)}
	case r.Hash != protocol.HashName:
		return appendflow.Routing{Err: fmt.Errorf("the stream is routed by hash %q, which this version does not know", r.Hash)}
	}
	return appendflow.Routing{
		Layout:   appendflow.Layout{Epoch: r.LayoutEpoch, Count: r.ShardCount},
		Open:     r.PublishState == protocol.PublishOpen,
		Awaited:  r.MetadataVersion == 0, // layouts are counted from 1
		LeaseEnd: asked + time.Duration(r.LeaseMs)*time.Millisecond,
	}
}

// look reads the layout at shard 0.
func (p *Producer) look() {
	ctx, cancel := context.WithTimeout(p.work, redisTimeout)
	defer cancel()
	c, err := p.shards.Control(ctx, 0)
	if err != nil && !p.isClosed() {
		p.cfg.Logger.Warn("layout cannot be read from shard 0", "stream", p.cfg.StreamPrefix, "error", err)
	}
	p.step(appendflow.Shard0{
		Layout: appendflow.Layout{Epoch: c.Epoch, Count: c.Count}, Found: err == nil && c.HasLayout,
	})
}

// resolve ends a pause that is overdue, at shard 0.
func (p *Producer) resolve(a appendflow.Resolve) {
	ctx, cancel := context.WithTimeout(p.work, redisTimeout)
	defer cancel()
	r, err := p.shards.Resolve(ctx, a.Gate, a.Until, a.Epoch)
	in := appendflow.Resolved{Shard: a.Shard}
	switch {
	case err == nil:
		in.Code, in.Layout = r.Code, appendflow.Layout{Epoch: r.Control.Epoch, Count: r.Control.Count}
		if r.Code == shardscript.InForce {
			p.cfg.Logger.Warn("overdue pause ended", "stream", p.cfg.StreamPrefix, "resharding", a.Gate, "epoch", in.Layout.Epoch)
		}
	case !errors.Is(err, context.Canceled):
		p.cfg.Logger.Warn("overdue pause not ended", "stream", p.cfg.StreamPrefix, "resharding", a.Gate, "error", err)
	}
	p.step(in)
}

// bring takes a layout to a shard.
func (p *Producer) bring(a appendflow.Bring) {
	ctx, cancel := context.WithTimeout(p.work, redisTimeout)
	defer cancel()
	_, err := p.shards.Bring(ctx, a.Shard, a.Layout.Epoch, a.Layout.Count, a.Gate)
	if err != nil && !p.isClosed() {
		p.cfg.Logger.Warn("layout not brought", "stream", p.cfg.StreamPrefix, "shard", a.Shard, "error", err)
	}
	p.step(appendflow.Brought{Shard: a.Shard, Failed: err != nil})
}
