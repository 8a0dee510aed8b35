package stream

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// arrears are what one consumer group has left on the shards that a change drains, summed, for a
// preview; Backlog is the same for the deletion of a group.
type arrears struct {
	name             string
	managed, ignored bool
	pending          int64
	undelivered      int64 // as far as it was counted
	more             bool
	lag              int64 // by Redis's own counters, never too low
	lagKnown         bool
	shards           []shardArrears // that have some of it
	missing          []int          // that lack the group although it is registered
	silent           []int          // that did not answer
	gone             []int          // whose stream is missing
}

// shardArrears is what a group has left on one shard, and what two looks tell of its
// acknowledgements there.
type shardArrears struct {
	index    int
	left     int64 // entries to acknowledge, at most
	unsure   bool  // even left may be too few
	lagged   bool  // left is by Redis's own counters
	observed bool  // there was a second look
	untold   bool  // whose counters do not tell
	acks     int64 // between the looks
	over     time.Duration
}

func (b *arrears) empty() bool { return b.pending == 0 && b.undelivered == 0 && !b.more }

// indexes lists the shards on which something is left.
func (b *arrears) indexes() []int {
	list := make([]int, len(b.shards))
	for i, s := range b.shards {
		list[i] = s.index
	}
	return list
}

// text is what the group has left, in words.
func (b *arrears) text() string { return entriesLeft(b.pending, b.undelivered, b.more) }

// has says whether a group has something left on a shard.
func has(g protocol.GroupEvidence) bool {
	return g.Pending > 0 || g.Undelivered > 0 || g.UndeliveredMore || g.EntryAfter
}

// add counts what one look shows of the group on a shard; again is a second look at it, nil when
// there was none.
func (b *arrears) add(index int, g protocol.GroupEvidence, first Reply, again *Reply) {
	b.pending += g.Pending
	b.undelivered += g.Undelivered
	b.more = b.more || g.UndeliveredMore
	if g.Lag == nil {
		b.lagKnown = false
	} else {
		b.lag += *g.Lag
	}
	if !has(g) {
		return
	}
	s := shardArrears{index: index, left: g.Pending + g.Undelivered}
	switch {
	case g.UndeliveredMore && g.Lag == nil:
		s.unsure = true
	case g.UndeliveredMore:
		s.left, s.lagged = g.Pending+max(*g.Lag, g.Undelivered), true
	}
	if again != nil {
		acks, ok := acknowledged(first, *again, b.name)
		s.observed, s.acks, s.over = true, acks, again.At.Sub(first.At)
		s.untold = !ok || s.over <= 0
	}
	b.shards = append(b.shards, s)
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
func (b *arrears) estimate(live int) (rate *float64, ms *int64, basis string) {
	zero := int64(0)
	switch {
	case b.ignored:
		return nil, &zero, "it is ignored by name: nothing waits for it"
	case len(b.silent) > 0:
		return nil, nil, fmt.Sprintf("%s did not answer", shardList(b.silent))
	case len(b.gone) > 0:
		return nil, nil, fmt.Sprintf("%s %s missing, and what is missing never counts as drained", shardList(b.gone), are(b.gone))
	case len(b.missing) > 0:
		return nil, nil, fmt.Sprintf("it is missing on %s, and what is missing never counts as drained", shardList(b.missing))
	case b.empty():
		return nil, &zero, "nothing is left to drain"
	}
	return b.forecast(live)
}

// forecast takes the shard that needs the longest: the readers of one shard do not help another.
func (b *arrears) forecast(live int) (rate *float64, ms *int64, basis string) {
	var (
		untold, idle   []int
		observed       bool
		unsure, lagged bool
		left, acks     int64
		perSecond      float64
		over           time.Duration // the longest between two looks
		slowest        float64       // ms that the slowest shard needs
	)
	for _, s := range b.shards {
		left += s.left
		unsure, lagged = unsure || s.unsure, lagged || s.lagged
		observed = observed || s.observed
		if s.untold || !s.observed {
			untold = append(untold, s.index)
			continue
		}
		if s.acks == 0 {
			idle = append(idle, s.index)
		}
		acks += s.acks
		perSecond += float64(s.acks) / s.over.Seconds()
		over = max(over, s.over)
		slowest = max(slowest, float64(s.left)/float64(max(s.acks, 1))*s.over.Seconds()*1000)
	}
	switch {
	case !observed:
		return nil, nil, "its acknowledgements were not observed"
	case len(untold) > 0:
		return nil, nil, fmt.Sprintf("the counters of %s do not tell how much is being acknowledged", shardList(untold))
	case acks == 0 && live == 0:
		return nil, nil, fmt.Sprintf("no acknowledgement was seen within %d ms, and no member is alive", over.Milliseconds())
	case acks == 0:
		return nil, nil, fmt.Sprintf("no acknowledgement was seen within %d ms", over.Milliseconds())
	}
	perSecond = math.Round(perSecond*10) / 10
	seen := fmt.Sprintf("%s seen within %d ms", Counted(acks, "acknowledgement"), over.Milliseconds())
	if len(idle) > 0 {
		seen += fmt.Sprintf(", none of them on %s, which is taken for one", shardList(idle))
		if len(idle) > 1 {
			seen += " each"
		}
	}
	if unsure {
		return &perSecond, nil, fmt.Sprintf("%s, but more than %s left", seen, Counted(left, "entry"))
	}
	took := int64(math.Ceil(slowest))
	count := Counted(left, "entry") + " left"
	if lagged {
		count = fmt.Sprintf("at most %s, by Redis's own counters", count)
	}
	basis = fmt.Sprintf("%s; %s, and none come while publishing is paused", seen, count)
	if len(b.shards) > 1 {
		basis += "; the slowest shard counts"
	}
	return &perSecond, &took, basis
}
