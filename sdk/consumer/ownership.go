package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/membership"
	"github.com/redisstream/terraform-provider-redisstream/sdk/internal/shard"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// ownership is one shard while it is owned under one ownership epoch. One goroutine, run, reads
// and handles; revoke and drop come from the member.
type ownership struct {
	m      *member
	shard  shard.Ownership
	key    string
	before *ownership // of the same shard in this process

	ctx     context.Context // ends with drop
	cancel  context.CancelCauseFunc
	reading context.Context // ends with revoke and with drop
	endRead context.CancelFunc
	revoked chan struct{}
	once    sync.Once
	done    chan struct{} // nothing of it runs any more

	assigned bool     // the hook was called
	unacked  []string // handled, not acknowledged
	oldest   time.Time
	handled  handled
	lastID   string // newest entry that the group has read, "" while unknown
	rang     string // id that the doorbell told of
	failures int    // of Redis, in a row
	probed   time.Duration

	mu               sync.Mutex // of what is shown in progress
	delivered, acked string
	inFlight         int64
	changed          time.Time
}

func newOwnership(m *member, index int, epoch int64, before *ownership) *ownership {
	o := &ownership{
		m: m, key: m.c.shards.Key(index), before: before, revoked: make(chan struct{}), done: make(chan struct{}),
		shard: shard.NewOwnership(index, m.c.cfg.Group, shardscript.Owner{
			Epoch: epoch, MemberID: m.id, Incarnation: m.machine.Incarnation(),
		}),
	}
	o.ctx, o.cancel = context.WithCancelCause(m.work)
	o.reading, o.endRead = context.WithCancel(o.ctx)
	return o
}

// revoke ends the reading; running handlers are awaited.
func (o *ownership) revoke() {
	o.once.Do(func() { close(o.revoked) })
	o.endRead()
}

// drop ends everything at once.
func (o *ownership) drop(cause error) { o.cancel(cause) }

// wasRevoked says whether the member has asked for an orderly end.
func (o *ownership) wasRevoked() bool {
	select {
	case <-o.revoked:
		return true
	default:
		return false
	}
}

// stopped says that nothing more is to be read or dispatched.
func (o *ownership) stopped() bool { return o.reading.Err() != nil || !o.m.alive() }

func (o *ownership) run() {
	defer close(o.done)
	defer o.end()
	if o.before != nil { // its last handler may still run
		select {
		case <-o.before.done:
		case <-o.ctx.Done():
			<-o.before.done // the next one waits for this one alone
			return
		}
		o.before = nil
	}
	for o.takeover() == again && o.pause() {
	}
	for !o.stopped() {
		o.turn()
	}
}

// end acknowledges what was handled, if that is still allowed, and reports.
func (o *ownership) end() {
	for len(o.unacked) > 0 && o.ctx.Err() == nil && o.m.alive() {
		if o.ack() != again || !o.pauseToAck() {
			break
		}
	}
	cause := context.Cause(o.ctx)
	if cause == nil && (!o.wasRevoked() || len(o.unacked) > 0 && !o.m.alive()) {
		// The lease ended and the member has not said so yet: what was handled last may come again.
		cause = errors.Join(ErrOwnershipLost, errors.New(string(membership.LeaseEnded)))
	}
	o.cancel(ErrOwnershipLost)
	o.endRead()
	if o.assigned {
		if hook := o.m.c.cfg.Hooks.Revoked; hook != nil {
			o.m.c.hook(func() { hook(o.shard.Index, o.shard.Owner.Epoch, cause) })
		}
	}
	o.m.post(membership.Drained{Shard: o.shard.Index, Epoch: o.shard.Owner.Epoch})
}

// outcome of one exchange with the shard.
type outcome int

const (
	fine  outcome = iota
	again         // after a pause
	lost          // there is another owner; the member is told and ends this ownership
)

// turn reads once, acknowledging what was handled since the read before, and handles what came.
func (o *ownership) turn() {
	sent := o.unacked
	entries, check, err := o.m.c.shards.Read(o.ctx, o.shard, o.m.c.cfg.BatchSize, sent)
	if err != nil {
		o.trouble("shard cannot be read", err)
		o.pause()
		return
	}
	switch o.judge(check, sent) {
	case again:
		o.pause()
		return
	case lost:
		o.awaitEnd()
		return
	case fine:
	}
	o.failures = 0
	if n := len(entries); n > 0 {
		o.lastID = entries[n-1].ID
	} else if o.rang != "" { // the group does not get what the doorbell told of: it was deleted
		o.lastID = o.rang
	}
	o.rang = ""
	if check.Elsewhere > 0 || check.Own > int64(len(entries)) {
		// What a late read of an earlier owner took, or what a node lost the acknowledgement of.
		// It comes with what was read just now, all in the order of the ids.
		if o.takeover() == again {
			o.pause()
		}
		return
	}
	if len(entries) == 0 {
		o.idle()
		return
	}
	batch := make([]Delivery, len(entries))
	for i, e := range entries {
		batch[i] = o.delivery(e.ID, e.Values, 1)
	}
	o.handle(batch)
}

// judge acts upon a check that acknowledged ids.
func (o *ownership) judge(check shardscript.CheckAckReply, ids []string) outcome {
	switch check.Code {
	case shardscript.OK:
		o.handled.add(ids)
		o.unacked = o.unacked[len(ids):]
		if len(o.unacked) == 0 {
			o.unacked = nil
		}
		if len(ids) > 0 {
			o.mu.Lock()
			o.acked, o.changed = ids[len(ids)-1], time.Now()
			o.mu.Unlock()
		}
		return fine
	case shardscript.NotOwner:
		o.refused(check.Stored)
		return lost
	case shardscript.LostOwner: // the node lost writes: the same epoch is taken up again (D5)
		o.trouble("the shard's node lost the ownership", fmt.Errorf("stored epoch %d", check.Stored))
		if r := o.claim(""); r.result != fine {
			return r.result
		}
		return again
	default:
		return o.missing(check.Code)
	}
}

// refused: a higher epoch, or another session's, is stored.
func (o *ownership) refused(stored int64) {
	if n := len(o.unacked); n > 0 {
		if hook := o.m.c.cfg.Hooks.AckRefused; hook != nil {
			o.m.c.hook(func() { hook(o.shard.Index, n) })
		}
		o.m.log.Warn("acknowledgement refused: the shard has another owner",
			"shard", o.shard.Index, "ownershipEpoch", o.shard.Owner.Epoch, "stored", stored, "entries", n)
		o.unacked = nil
	}
	// An equal epoch of another session has to be outbid as well.
	o.m.post(membership.Seen{Shard: o.shard.Index, Epoch: max(stored, o.shard.Owner.Epoch+1)})
}

// missing: there is no such group, shard or stream.
func (o *ownership) missing(code shardscript.Code) outcome {
	switch code {
	case shardscript.Retired: // nothing is left; the coordinator will say so
		return lost
	case shardscript.NoGroup:
		made, err := o.m.c.shards.MakeGroup(o.ctx, o.shard)
		if err == nil && made == shardscript.OK {
			o.m.log.Warn("the consumer group was lost and is made again", "shard", o.shard.Index)
			if hook := o.m.c.cfg.Hooks.GroupRecreated; hook != nil {
				o.m.c.hook(func() { hook(o.shard.Index) })
			}
			if r := o.claim(""); r.result != fine {
				return r.result
			}
			return again
		}
		o.trouble("the consumer group is missing", errors.Join(err, errors.New(string(made))))
	default: // a consumer never creates a stream: the coordinator repairs it
		o.trouble("the shard is missing", errors.New(string(code)))
	}
	return again
}

// ack acknowledges what was handled.
func (o *ownership) ack() outcome {
	ids := o.unacked
	check, err := o.m.c.shards.Ack(o.ctx, o.shard, ids...)
	if err != nil {
		o.trouble("acknowledgement failed", err)
		return again
	}
	return o.judge(check, ids)
}

type claim struct {
	result outcome
	reply  shardscript.TakeoverReply
}

// claim takes one slice of what is pending.
func (o *ownership) claim(after string) claim {
	r, err := o.m.c.shards.Takeover(o.ctx, o.shard, after)
	if err != nil {
		o.trouble("shard cannot be taken over", err)
		return claim{result: again}
	}
	switch r.Code {
	case shardscript.OK:
		return claim{reply: r}
	case shardscript.NotOwner:
		o.refused(r.Stored)
		return claim{result: lost}
	default:
		return claim{result: o.missing(r.Code)}
	}
}

// takeover becomes the owner, or stays it, and handles all that is pending, slice by slice.
func (o *ownership) takeover() outcome {
	for after := ""; ; {
		if o.stopped() {
			return fine
		}
		r := o.claim(after)
		switch r.result {
		case again:
			return again
		case lost:
			o.awaitEnd()
			return lost
		case fine:
		}
		if !o.assigned {
			o.assigned = true
			if hook := o.m.c.cfg.Hooks.Assigned; hook != nil {
				o.m.c.hook(func() { hook(o.shard.Index, o.shard.Owner.Epoch) })
			}
		}
		if len(r.reply.Lost) > 0 {
			o.m.log.Warn("pending entries without a body were acknowledged", "shard", o.shard.Index, "entries", len(r.reply.Lost))
			if hook := o.m.c.cfg.Hooks.EntriesLost; hook != nil {
				o.m.c.hook(func() { hook(o.shard.Index, r.reply.Lost) })
			}
		}
		o.handle(o.unhandled(r.reply.Entries))
		if len(o.unacked) > 0 && !o.stopped() {
			switch o.ack() {
			case again:
				return again
			case lost:
				o.awaitEnd()
				return lost
			case fine:
			}
		}
		if after = r.reply.Next; after == "" {
			return fine
		}
	}
}

// unhandled leaves out what this ownership has handled already, which is only acknowledged.
func (o *ownership) unhandled(claimed []shardscript.Claimed) []Delivery {
	if len(claimed) == 0 {
		return nil
	}
	done := o.handled.set()
	for _, id := range o.unacked {
		done[id] = true
	}
	batch := make([]Delivery, 0, len(claimed))
	for _, e := range claimed {
		if done[e.ID] {
			o.keep(e.ID)
			continue
		}
		values := make(map[string]any, len(e.Fields)/2)
		for i := 0; i+1 < len(e.Fields); i += 2 {
			values[e.Fields[i]] = e.Fields[i+1]
		}
		batch = append(batch, o.delivery(e.ID, values, e.Deliveries))
	}
	return batch
}

// keep puts an id among those to be acknowledged.
func (o *ownership) keep(id string) {
	if len(o.unacked) == 0 {
		o.oldest = time.Now()
		o.unacked = make([]string, 0, o.m.c.cfg.BatchSize)
	}
	o.unacked = append(o.unacked, id)
}

func (o *ownership) delivery(id string, values map[string]any, deliveries int64) Delivery {
	return Delivery{
		StreamPrefix: o.m.c.cfg.StreamPrefix, Group: o.m.c.cfg.Group, Stream: o.key, Shard: o.shard.Index,
		ID: id, Values: values, Deliveries: deliveries, OwnershipEpoch: o.shard.Owner.Epoch, owned: o.ctx,
	}
}

// awaitEnd waits for the member to end this ownership.
func (o *ownership) awaitEnd() { <-o.reading.Done() }

// pause backs off after a failure of Redis; false when the ownership has stopped.
func (o *ownership) pause() bool {
	o.failures++
	return o.sleep(o.reading, backoff(o.failures, 20*time.Millisecond, 2*time.Second))
}

// pauseToAck backs off while only acknowledgements are left.
func (o *ownership) pauseToAck() bool {
	o.failures++
	return o.sleep(o.ctx, backoff(o.failures, 20*time.Millisecond, 500*time.Millisecond))
}

func (o *ownership) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil && o.m.alive()
	case <-ctx.Done():
		return false
	}
}

// backoff doubles from first to last, spread over its upper half.
func backoff(failures int, first, last time.Duration) time.Duration {
	d := last
	if failures < 16 {
		d = min(d, first<<max(failures-1, 0))
	}
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// trouble logs what is wrong with the shard, at most once in ten seconds.
func (o *ownership) trouble(what string, err error) {
	if o.ctx.Err() != nil {
		return
	}
	if o.m.c.mayLog(fmt.Sprint(what, " ", o.shard.Index)) {
		o.m.log.Warn("trouble with a shard", "what", what, "shard", o.shard.Index, "error", err)
	}
}

// progress is what the coordinator is shown.
func (o *ownership) progress() protocol.ShardProgress {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := protocol.ShardProgress{
		Shard: protocol.Shard{ShardIndex: o.shard.Index}, StreamKey: o.key, PendingCount: o.inFlight,
	}
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	p.LastDeliveredID, p.LastAckedID = text(o.delivered), text(o.acked)
	if !o.changed.IsZero() {
		at := o.changed.UTC()
		p.UpdatedAt = &at
	}
	return p
}
