package stream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Of one shard so many undelivered entries of a group are counted; of a stream with many shards
// and groups fewer, since they are read to be counted.
const (
	backlogCount, backlogCountLeast = 1000, 100
	backlogTotal                    = 100_000
	backlogNamed                    = 20 // shards that a refusal or an audit entry names
)

// Backlog is what a group has not finished, shard by shard. Zero is nothing at all.
type Backlog struct {
	Shards  []ShardBacklog // those on which something is left, ascending
	Unknown []ShardBacklog // those that did not say
}

// ShardBacklog is what is left on one shard. More says that there is more undelivered than counted.
type ShardBacklog struct {
	Index                int
	Pending, Undelivered int64
	More                 bool
	Error                string // why it is unknown
}

// PlanBacklog looks at every shard of both layouts for what a group has left there.
func PlanBacklog(s *State, name string) Pass {
	most := min(max(backlogTotal/max(s.span()*(len(s.Groups)+1), 1), backlogCountLeast), backlogCount)
	steps := make([]Step, s.span())
	for i := range steps {
		steps[i] = Step{Script: shardscript.Probe, Index: i, ID: "group", Epoch: s.Layout.Epoch, Count: s.Layout.Count, Groups: []string{name}, Most: most}
	}
	return Pass{Kind: PassProbe, Stages: stages(steps)}
}

// BacklogOf reads the outcome of PlanBacklog. A shard without the stream or without the group has
// nothing that could be lost; one that did not answer is unknown.
func BacklogOf(s *State, name string, res PassResult) Backlog {
	var b Backlog
	o := newOutcome(res)
	for i := range s.span() {
		rep, ok := o.reply(shardscript.Probe, i)
		if !ok || rep.Code != shardscript.OK {
			text := rep.Err
			if text == "" {
				text = "no answer"
			}
			b.Unknown = append(b.Unknown, ShardBacklog{Index: i, Error: text})
			continue
		}
		if rep.Evidence == nil {
			continue
		}
		for _, g := range rep.Evidence.Groups {
			if g.Group == name && has(g) {
				b.Shards = append(b.Shards, ShardBacklog{Index: i, Pending: g.Pending, Undelivered: g.Undelivered, More: g.UndeliveredMore})
			}
		}
	}
	return b
}

// Refusal is why a group that has this left is not deleted without force; nil when it has nothing
// left and every shard has said so.
func (b Backlog) Refusal(group string) *protocol.Error {
	switch {
	case len(b.Shards) > 0:
		var details []protocol.Detail
		var texts []string
		for _, shard := range b.Shards[:min(len(b.Shards), backlogNamed)] {
			details = append(details, protocol.Detail{Field: fmt.Sprintf("shards[%d]", shard.Index), Message: shard.text()})
			texts = append(texts, fmt.Sprintf("shard %d: %s", shard.Index, shard.text()))
		}
		if n := len(b.Shards) - backlogNamed; n > 0 {
			texts = append(texts, fmt.Sprintf("and %s", Counted(n, "more shard")))
		}
		return protocol.NewError(protocol.CodeGroupNotEmpty, fmt.Sprintf(
			"group %q has not finished (%s): let its consumers do so, or delete it by force, which gives that up for this group", group, strings.Join(texts, "; ")), details...)
	case len(b.Unknown) > 0:
		code := protocol.CodeRedisUnavailable
		if damaged(b.Unknown[0].Error) {
			code = protocol.CodeShardControlDamaged
		}
		return protocol.NewError(code, fmt.Sprintf(
			"whether group %q has finished is not known of %s (%s): repeat the request; nothing was changed", group, shardList(indexesOf(b.Unknown)), b.Unknown[0].Error))
	}
	return nil
}

func (s ShardBacklog) text() string {
	undelivered := strconv.FormatInt(s.Undelivered, 10)
	if s.More {
		undelivered = "more than " + undelivered
	}
	return fmt.Sprintf("%d pending, %s undelivered", s.Pending, undelivered)
}

// Summary is the backlog for an audit entry: "pending=3 undelivered=1000+ shards=0,2". The plus
// says that no more were counted.
func (b Backlog) Summary() string {
	var pending, undelivered int64
	more := ""
	var shards []string
	for i, shard := range b.Shards {
		pending += shard.Pending
		undelivered += shard.Undelivered
		if shard.More {
			more = "+"
		}
		if i < backlogNamed {
			shards = append(shards, strconv.Itoa(shard.Index))
		}
	}
	if len(b.Shards) > backlogNamed {
		shards = append(shards, "…")
	}
	text := fmt.Sprintf("pending=%d undelivered=%d%s", pending, undelivered, more)
	if len(shards) > 0 {
		text += " shards=" + strings.Join(shards, ",")
	}
	if len(b.Unknown) > 0 {
		text += fmt.Sprintf(" unknownShards=%d", len(b.Unknown))
	}
	return text
}
