package consumer

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// handle gives entries to the handler, in order. What was not begun when the shard is revoked
// stays pending, for the next owner.
func (o *ownership) handle(batch []Delivery) {
	if len(batch) == 0 {
		return
	}
	o.mu.Lock()
	o.delivered, o.inFlight, o.changed = batch[len(batch)-1].ID, int64(len(batch)), time.Now()
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.inFlight = 0
		o.mu.Unlock()
	}()
	if o.m.c.cfg.BatchHandler != nil {
		o.handleTogether(batch)
		return
	}
	for i := range batch {
		if !o.handleOne(batch[i]) {
			return
		}
		o.keep(batch[i].ID)
		if i+1 < len(batch) && time.Since(o.oldest) > o.m.c.cfg.AckInterval {
			if o.ack() == lost {
				o.endRead() // whatever is left of the batch is the other owner's
				return
			}
			o.oldest = time.Now() // a failure waits as long as any other
		}
	}
}

// handleOne tries until the entry is handled or given up; false when the shard was let go.
func (o *ownership) handleOne(d Delivery) bool {
	for failed := 1; ; failed++ {
		if o.stopped() {
			return false
		}
		err := o.call(func(ctx context.Context) error { return o.m.c.cfg.Handler(ctx, d) })
		if err == nil {
			return o.ctx.Err() == nil
		}
		if o.ctx.Err() != nil {
			return false
		}
		o.trouble("handler failed", fmt.Errorf("entry %s, delivery %d: %w", d.ID, d.Deliveries, err))
		if o.giveUp(d, err) {
			return true
		}
		if !o.sleep(o.reading, backoff(failed, o.m.c.cfg.MinBackoff, o.m.c.cfg.MaxBackoff)) {
			return false
		}
		d.Deliveries++
	}
}

// handleTogether gives the batch to the batch handler until it is handled. An entry of it that
// has failed too often is given up; the others are tried without it.
func (o *ownership) handleTogether(batch []Delivery) {
	for failed := 1; len(batch) > 0; failed++ {
		if o.stopped() {
			return
		}
		err := o.call(func(ctx context.Context) error { return o.m.c.cfg.BatchHandler(ctx, batch) })
		if o.ctx.Err() != nil {
			return
		}
		if err == nil {
			for _, d := range batch {
				o.keep(d.ID)
			}
			return
		}
		o.trouble("handler failed", fmt.Errorf("%d entries from %s: %w", len(batch), batch[0].ID, err))
		rest := make([]Delivery, 0, len(batch))
		for _, d := range batch {
			if o.giveUp(d, err) {
				o.keep(d.ID)
				continue
			}
			d.Deliveries++
			rest = append(rest, d)
		}
		batch = rest
		if len(batch) > 0 && !o.sleep(o.reading, backoff(failed, o.m.c.cfg.MinBackoff, o.m.c.cfg.MaxBackoff)) {
			return
		}
	}
}

// giveUp hands an entry that has failed too often to the dead-letter hook; true when that has
// kept it.
func (o *ownership) giveUp(d Delivery, cause error) bool {
	if o.m.c.cfg.MaxDeliveries == 0 || d.Deliveries < o.m.c.cfg.MaxDeliveries {
		return false
	}
	err := o.call(func(ctx context.Context) error { return o.m.c.cfg.DeadLetter(ctx, d, cause) })
	if err != nil {
		o.trouble("entry was not given up", fmt.Errorf("entry %s: %w", d.ID, err))
		return false
	}
	o.m.log.Warn("entry given up", "shard", o.shard.Index, "id", d.ID, "deliveries", d.Deliveries, "error", cause)
	return true
}

// call runs code of the user under the context of the ownership; a panic is an error.
func (o *ownership) call(user func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return user(o.ctx)
}
