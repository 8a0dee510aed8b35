package stream

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// backlog is what one consumer group has left on the shards that a change drains.
type backlog struct {
	name             string
	managed, ignored bool
	pending          int64
	undelivered      int64 // as far as it was counted
	more             bool
	lag              int64 // by Redis's own counters, never too low
	lagKnown         bool
	shards           []int // that have some of it
	missing          []int // that lack the group although it is registered
	silent           []int // that did not answer
	seen             seenAcks
}

// seenAcks is what two looks tell of a group's acknowledgements.
type seenAcks struct {
	count     int64
	perSecond float64
	over      time.Duration // between the looks, the longest of all shards
	unknown   []int         // shards whose counters do not tell
}

// left is how many entries the group has to acknowledge, at most; more says that even this may
// be too few.
func (b *backlog) left() (n int64, more bool) {
	switch {
	case !b.more:
		return b.pending + b.undelivered, false
	case b.lagKnown:
		return b.pending + max(b.lag, b.undelivered), false
	}
	return b.pending + b.undelivered, true
}

func (b *backlog) empty() bool { return b.pending == 0 && b.undelivered == 0 && !b.more }

// has says whether a group has something left on a shard.
func has(g protocol.GroupEvidence) bool {
	return g.Pending > 0 || g.Undelivered > 0 || g.UndeliveredMore || g.EntryAfter
}

// add counts what one look shows of the group on a shard.
func (b *backlog) add(index int, g protocol.GroupEvidence) {
	b.pending += g.Pending
	b.undelivered += g.Undelivered
	b.more = b.more || g.UndeliveredMore
	if g.Lag == nil {
		b.lagKnown = false
	} else {
		b.lag += *g.Lag
	}
	if has(g) {
		b.shards = append(b.shards, index)
	}
}

// observe compares two looks at a shard on which the group has something left.
func (b *backlog) observe(index int, first, second Reply) {
	acks, ok := acknowledged(first, second, b.name)
	over := second.At.Sub(first.At)
	if !ok || over <= 0 {
		b.seen.unknown = append(b.seen.unknown, index)
		return
	}
	b.seen.count += acks
	b.seen.perSecond += float64(acks) / over.Seconds()
	b.seen.over = max(b.seen.over, over)
}

// acknowledged is how many entries the group acknowledged between two looks at a shard: what was
// delivered meanwhile less what pending has grown by. Deliveries are counted from what is left
// after the last delivered id, which is exact unless entries were removed meanwhile; or by
// Redis's own counters, where these tell; else it is not known.
func acknowledged(first, second Reply, group string) (int64, bool) {
	a, okA := groupOn(first, group)
	b, okB := groupOn(second, group)
	if !okA || !okB {
		return 0, false
	}
	added := second.Control.EntriesAdded - first.Control.EntriesAdded
	grown := second.Control.Length - first.Control.Length
	var delivered int64
	switch {
	case !a.UndeliveredMore && !b.UndeliveredMore && added == grown:
		delivered = added - (b.Undelivered - a.Undelivered)
	case a.Lag != nil && b.Lag != nil:
		delivered = added - (*b.Lag - *a.Lag)
	default:
		return 0, false
	}
	acks := delivered - (b.Pending - a.Pending)
	return acks, delivered >= 0 && acks >= 0
}

// groupOn is what a look shows of a group.
func groupOn(rep Reply, group string) (protocol.GroupEvidence, bool) {
	if rep.Code != shardscript.OK || rep.Evidence == nil {
		return protocol.GroupEvidence{}, false
	}
	i := slices.IndexFunc(rep.Evidence.Groups, func(g protocol.GroupEvidence) bool { return g.Group == group })
	if i < 0 {
		return protocol.GroupEvidence{}, false
	}
	return rep.Evidence.Groups[i], true
}

// estimate is how long the group takes for what it has left, once appends have stopped, and what
// that rests on; nil when it is not known. live is the number of its members that are alive,
// negative when nobody knows.
func (b *backlog) estimate(live int) (rate *float64, ms *int64, basis string) {
	zero := int64(0)
	left, unsure := b.left()
	switch {
	case b.ignored:
		return nil, &zero, "it is ignored by name: nothing waits for it"
	case len(b.silent) > 0:
		return nil, nil, fmt.Sprintf("%s did not answer", shardList(b.silent))
	case len(b.missing) > 0:
		return nil, nil, fmt.Sprintf("it is missing on %s, and what is missing never counts as drained", shardList(b.missing))
	case b.empty():
		return nil, &zero, "nothing is left to drain"
	case len(b.seen.unknown) > 0:
		return nil, nil, fmt.Sprintf("the counters of %s do not tell how much is being acknowledged", shardList(b.seen.unknown))
	case b.seen.over == 0:
		return nil, nil, "its acknowledgements were not observed"
	case b.seen.count == 0 && live == 0:
		return nil, nil, fmt.Sprintf("no acknowledgement was seen within %d ms, and no member is alive", b.seen.over.Milliseconds())
	case b.seen.count == 0:
		return nil, nil, fmt.Sprintf("no acknowledgement was seen within %d ms", b.seen.over.Milliseconds())
	}
	perSecond := math.Round(b.seen.perSecond*10) / 10
	seen := fmt.Sprintf("%d acknowledgements were seen within %d ms", b.seen.count, b.seen.over.Milliseconds())
	if unsure {
		return &perSecond, nil, fmt.Sprintf("%s, but more than %d entries are left", seen, left)
	}
	took := int64(math.Ceil(float64(left) / b.seen.perSecond * 1000))
	count := fmt.Sprintf("%d entries", left)
	if b.more {
		count = fmt.Sprintf("at most %d entries, by Redis's own counters,", left)
	}
	return &perSecond, &took, fmt.Sprintf("%s; %s are left, and none come while publishing is paused", seen, count)
}
