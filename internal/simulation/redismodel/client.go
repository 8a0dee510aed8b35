package redismodel

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// ClientReply is the reply of a client's script: a code and the control hash as it stood.
type ClientReply struct {
	Code    shardscript.Code
	At      protocol.Instant
	Epoch   int64
	Count   int
	Gate    string
	Until   protocol.Instant
	Hold    protocol.Instant
	IDs     []ID    // APPEND: of the entries that landed
	Entries []Entry // TAKEOVER: what was pending, in id order
	Owner   int64   // TAKEOVER, CHECKACK: the stored ownership epoch
	// CHECKACK: how many of the ids were pending, and what is still pending under the
	// owner's name and under others.
	Acked, Own, Elsewhere int
}

func (r *Redis) reply(s *Shard, code shardscript.Code) ClientReply {
	out := ClientReply{Code: code, At: r.TimeOf(s.Index)}
	if c := s.Control; c != nil {
		out.Epoch, out.Count, out.Gate, out.Until, out.Hold = c.Epoch, c.Count, c.Gate, c.Until, c.Hold
	}
	return out
}

// Append is APPEND: values land on the shard only under the layout in force there.
func (r *Redis) Append(index int, epoch int64, count int, values []string) ClientReply {
	s := r.Shard(index)
	now := r.TimeOf(index)
	c := s.Control
	switch {
	case c == nil || !c.HasEpoch:
		return r.reply(s, shardscript.Unfenced)
	case c.Retired != "":
		return r.reply(s, shardscript.Retired)
	case c.Epoch < epoch:
		return r.reply(s, shardscript.Behind)
	case c.Epoch != epoch || c.Count != count:
		return r.reply(s, shardscript.Stale)
	case c.Until != 0 || c.Hold != 0:
		if (c.Until == 0 || now >= c.Until) && (c.Hold == 0 || now >= c.Hold) {
			return r.reply(s, shardscript.Overdue)
		}
		return r.reply(s, shardscript.Sealed)
	case s.Stream == nil:
		return r.reply(s, shardscript.NoShard)
	}
	var ids []ID
	for _, v := range values {
		id, ok := s.Stream.add(v, uint64(now))
		if !ok {
			return r.reply(s, shardscript.Sealed)
		}
		ids = append(ids, id)
	}
	out := r.reply(s, shardscript.OK)
	out.IDs = ids
	return out
}

// Add is a plain XADD NOMKSTREAM: ok is false when it was refused, missing when there is no key.
func (r *Redis) Add(index int, value string) (id ID, ok, missing bool) {
	s := r.Shard(index)
	if s.Stream == nil {
		return ID{}, false, true
	}
	id, ok = s.Stream.add(value, uint64(r.TimeOf(index)))
	return id, ok, false
}

// Resolve is RESOLVE on shard 0: id, until and epoch are as met at an overdue shard.
func (r *Redis) Resolve(id string, until protocol.Instant, epoch int64) ClientReply {
	s := r.Shard(0)
	c := s.Control
	if c == nil || !c.HasEpoch {
		return r.reply(s, shardscript.Unfenced)
	}
	c.By = by(id, shardscript.Resolve)
	now := r.TimeOf(0)
	if c.Gate != "" && c.Gate != id {
		return r.reply(s, shardscript.Wait)
	}
	if c.Gate == id || c.Epoch == epoch && c.Aborted != id {
		if c.Gate != "" {
			until = max(until, c.Until)
		}
		if now < until {
			return r.reply(s, shardscript.Wait)
		}
		c.Aborted, c.Gate, c.Until = id, "", 0
		if code := s.settle(now); code != shardscript.OK {
			return r.reply(s, code)
		}
	}
	return r.reply(s, shardscript.InForce)
}

// Bring is BRING: the layout of shard 0 is brought to the shard; id is that met there, or "".
func (r *Redis) Bring(index int, epoch int64, count int, id string) ClientReply {
	s := r.Shard(index)
	c := s.Control
	now := r.TimeOf(index)
	switch {
	case c == nil || !c.HasEpoch:
		return r.reply(s, shardscript.Unfenced)
	case c.Epoch > epoch, c.Retired != "", s.Stream == nil:
		return r.reply(s, shardscript.Nothing)
	case c.Until != 0 && (c.Gate != id || now < c.Until):
		return r.reply(s, shardscript.Nothing)
	}
	c.By = by(id, shardscript.Bring)
	c.Epoch, c.Count = epoch, count
	if c.Until != 0 {
		c.Gate, c.Until = "", 0
	}
	if c.Hold != 0 && now >= c.Hold {
		c.Hold = 0
	}
	if code := s.settle(now); code != shardscript.OK {
		return r.reply(s, code)
	}
	return r.reply(s, shardscript.OK)
}

// Takeover is rule D3: the shard's owner is written when epoch is higher than the stored one, or
// the owner is the stored one; everything pending in the group is claimed and returned.
func (r *Redis) Takeover(index int, group string, want Owner) ClientReply {
	s := r.Shard(index)
	switch {
	case s.Control != nil && s.Control.Retired != "":
		return r.reply(s, shardscript.Retired)
	case s.Stream == nil:
		return r.reply(s, shardscript.NoShard)
	case s.Stream.Group(group) == nil:
		return r.reply(s, shardscript.NoGroup)
	}
	c := s.control()
	have, owned := c.Owners[group]
	if owned && have != want && want.Epoch <= have.Epoch {
		out := r.reply(s, shardscript.NotOwner)
		out.Owner = have.Epoch
		return out
	}
	if c.Owners == nil {
		c.Owners = map[string]Owner{}
	}
	c.Owners[group] = want
	g := s.Stream.Group(group)
	s.Stream.claim(g, protocol.ConsumerName(want.MemberID, want.Epoch))
	out := r.reply(s, shardscript.OK)
	out.Owner = want.Epoch
	for _, p := range g.Pending {
		if e, ok := s.Stream.entry(p.ID); ok {
			out.Entries = append(out.Entries, e)
		}
	}
	return out
}

// MakeGroup is MKGROUP by the owner of a shard whose group is lost: it starts at 0 again.
func (r *Redis) MakeGroup(index int, group string, owner Owner) ClientReply {
	s := r.Shard(index)
	have, owned := Owner{}, false
	if s.Control != nil {
		have, owned = s.Control.Owners[group]
	}
	switch {
	case owned && (have.Epoch > owner.Epoch || have.Epoch == owner.Epoch && have != owner):
		out := r.reply(s, shardscript.NotOwner)
		out.Owner = have.Epoch
		return out
	case s.Control != nil && s.Control.Retired != "":
		return r.reply(s, shardscript.Retired)
	case s.Stream == nil:
		return r.reply(s, shardscript.Unknown)
	}
	s.Stream.createGroup(group, ID{})
	return r.reply(s, shardscript.OK)
}

// ReadGroup is XREADGROUP … COUNT n … > without blocking: nil when the key or group is missing.
func (r *Redis) ReadGroup(index int, group, consumer string, n int) []Entry {
	s := r.Shard(index)
	if s.Stream == nil || s.Stream.Group(group) == nil {
		return nil
	}
	return s.Stream.read(s.Stream.Group(group), consumer, n)
}

// Ack is a bare XACK, as clients of the reference send it.
func (r *Redis) Ack(index int, group string, ids []ID) {
	s := r.Shard(index)
	if s.Stream == nil || s.Stream.Group(group) == nil {
		return
	}
	for _, id := range ids {
		s.Stream.Group(group).ack(id)
	}
}

// CheckAck is rules D4 and D5 in one script: ids are acknowledged if owner still owns the shard,
// and the reply tells how much is pending under other names.
func (r *Redis) CheckAck(index int, group string, owner Owner, ids []ID) ClientReply {
	s := r.Shard(index)
	if s.Control != nil && s.Control.Retired != "" {
		return r.reply(s, shardscript.Retired)
	}
	have, owned := Owner{}, false
	if s.Control != nil {
		have, owned = s.Control.Owners[group]
	}
	if !owned || have != owner {
		code := shardscript.NotOwner
		if !owned || have.Epoch < owner.Epoch {
			code = shardscript.LostOwner
		}
		out := r.reply(s, code)
		out.Owner = have.Epoch
		return out
	}
	switch {
	case s.Stream == nil:
		return r.reply(s, shardscript.NoShard)
	case s.Stream.Group(group) == nil:
		return r.reply(s, shardscript.NoGroup)
	}
	g := s.Stream.Group(group)
	out := r.reply(s, shardscript.OK)
	for _, id := range ids {
		if g.ack(id) {
			out.Acked++
		}
	}
	name := protocol.ConsumerName(owner.MemberID, owner.Epoch)
	for _, p := range g.Pending {
		if p.Consumer == name {
			out.Own++
		} else {
			out.Elsewhere++
		}
	}
	return out
}

// Pending lists what is pending in the group under any name, in id order (rule D8, and what the
// oracle counts).
func (r *Redis) Pending(index int, group string) []Entry {
	s := r.Shard(index)
	if s.Stream == nil || s.Stream.Group(group) == nil {
		return nil
	}
	var out []Entry
	for _, p := range s.Stream.Group(group).Pending {
		if e, ok := s.Stream.entry(p.ID); ok {
			out = append(out, e)
		}
	}
	return out
}
