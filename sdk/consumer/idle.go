package consumer

import (
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// idle waits until there may be something to read. The read after it checks the ownership and
// what is pending, so that a shard is swept at least once in Config.Block (rule D8).
func (o *ownership) idle() {
	if o.lastID == "" || strings.HasPrefix(o.lastID, "18446744073709551615-") {
		// Not read by this owner yet, or the group stood at the end of a sealed shard.
		id, err := o.m.c.shards.LastDelivered(o.ctx, o.shard)
		if err != nil {
			o.trouble("position of the group is unknown", err)
			o.pause()
			return
		}
		o.lastID = id
	}
	o.endOverduePause()
	if o.stopped() {
		return
	}
	o.rang = o.m.c.bell.wait(o.reading, o.key, o.lastID)
}

// endOverduePause ends a pause that outlived its deadline, once per lease: producers that are
// not ours cannot do it, and no coordinator may be alive.
func (o *ownership) endOverduePause() {
	const every = 15 * time.Second
	now := o.m.c.clock.Now()
	if now-o.probed < every {
		return
	}
	o.probed = now
	ctx, index := o.ctx, o.shard.Index
	c, err := o.m.c.shards.Control(ctx, index)
	if err != nil || (c.Until == 0 && c.Hold == 0) || !c.HasLayout || c.Retired != "" {
		return // what cannot be read now can be later
	}
	r, err := o.m.c.shards.Probe(ctx, index, c.Epoch, c.Count)
	if err != nil || r.Code != shardscript.Overdue {
		return
	}
	epoch, count, gate := r.Epoch, r.Count, ""
	if r.Until != 0 {
		resolved, err := o.m.c.shards.Resolve(ctx, r.Gate, r.Until, r.Epoch)
		if err != nil || resolved.Code != shardscript.InForce {
			return
		}
		epoch, count, gate = resolved.Control.Epoch, resolved.Control.Count, r.Gate
	}
	code, err := o.m.c.shards.Bring(ctx, index, epoch, count, gate)
	if err != nil {
		o.trouble("overdue pause not ended", err)
		return
	}
	o.m.log.Warn("overdue pause ended", "shard", index, "reply", string(code))
}
