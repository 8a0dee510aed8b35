package stream

import (
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// RemovalFacts is what the shell has found out for the dry run of a group's removal.
type RemovalFacts struct {
	At         protocol.Instant
	Generation int64             // of the group
	Refused    []*protocol.Error // why the call would be refused, the first one as it would be
	Left       Backlog
	Live       int      // members that are alive
	Unknown    []string // what could not be found out besides, in sentences
}

// RemovalPreview says what the removal of a group would do, as far as the facts tell.
func RemovalPreview(prefix, group string, force bool, f RemovalFacts) protocol.RemovalPreview {
	p := protocol.RemovalPreview{
		StreamPrefix: prefix, ConsumerGroup: group, TakenAt: f.At.Time(), Generation: f.Generation, Force: force, LiveMembers: f.Live,
		Shards: []protocol.ShardBacklog{}, Blockers: []protocol.PreviewNote{}, Risks: []protocol.PreviewNote{}, Unknown: listed(f.Unknown),
	}
	for _, s := range f.Left.Shards {
		p.Pending += s.Pending
		p.Undelivered += s.Undelivered
		p.UndeliveredMore = p.UndeliveredMore || s.More
		p.Shards = append(p.Shards, protocol.ShardBacklog{ShardIndex: s.Index, Pending: s.Pending, Undelivered: s.Undelivered, UndeliveredMore: s.More})
	}
	for _, e := range f.Refused {
		p.Blockers = append(p.Blockers, protocol.PreviewNote{Code: string(e.Code), Message: e.Message})
	}
	silent := f.Left.silence(group)
	if silent != "" {
		p.Unknown = append(p.Unknown, silent)
	}
	if !force {
		return p
	}
	risk := func(code, format string, args ...any) {
		p.Risks = append(p.Risks, protocol.PreviewNote{Code: code, Message: fmt.Sprintf(format, args...)})
	}
	if f.Live > 0 {
		risk(protocol.NoteMembersFenced, "group %q has %s: the removal takes all shards away at once, whatever is being worked on", group, Counted(f.Live, "live member"))
	}
	if len(f.Left.Shards) > 0 {
		risk(protocol.NoteBacklogLost, "group %q gives up %s on %s; the entries stay on the shards, for other groups", group,
			entriesLeft(p.Pending, p.Undelivered, p.UndeliveredMore), shardList(indexesOf(f.Left.Shards)))
	}
	if silent != "" {
		risk(protocol.NoteShardUnreadable, "%s; it is given up all the same, and the name of the group is taken until every shard has answered", silent)
	}
	return p
}

// silence says which shards did not tell what the group has left, "" when all did.
func (b Backlog) silence(group string) string {
	if len(b.Unknown) == 0 {
		return ""
	}
	silent := indexesOf(b.Unknown)
	return fmt.Sprintf("%s did not answer: what group %q has left on %s is not known (%s)", shardList(silent), group, themOrIt(silent), b.Unknown[0].Error)
}

func indexesOf(shards []ShardBacklog) []int {
	indexes := make([]int, len(shards))
	for i, s := range shards {
		indexes[i] = s.Index
	}
	return indexes
}
