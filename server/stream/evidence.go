package stream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// verdict is what one reply of EVIDENCE says. Anything that is missing is unknown, and unknown
// is never drained.
type verdict struct {
	drained bool
	unknown bool
	texts   []string // why not
}

// judge reads the reply of EVIDENCE on a shard; ok false: it did not answer.
func judge(index int, rep Reply, ok bool) verdict {
	switch {
	case !ok || rep.Code == "":
		reason := "no answer"
		if rep.Err != "" {
			reason += ": " + rep.Err
		}
		return verdict{unknown: true, texts: []string{unknownText(index, reason)}}
	case rep.Code == shardscript.Drained && rep.Evidence != nil && rep.Evidence.Verdict == string(shardscript.Drained):
		return verdict{drained: true}
	case rep.Code == shardscript.Busy:
		return verdict{texts: busyTexts(index, rep)}
	}
	return verdict{unknown: true, texts: []string{unknownText(index, unknownReason(rep))}}
}

func unknownText(index int, reason string) string {
	return fmt.Sprintf("shard %d: blocked: evidence unknown (%s)", index, reason)
}

func busyTexts(index int, rep Reply) []string {
	var texts []string
	if rep.Evidence != nil {
		for _, g := range rep.Evidence.Groups {
			if left := leftTo(g); left != "" && !g.Ignored {
				texts = append(texts, fmt.Sprintf("shard %d: group %s has %s", index, g.Group, left))
			}
		}
	}
	if len(texts) == 0 {
		texts = []string{fmt.Sprintf("shard %d: is not drained", index)}
	}
	return texts
}

// leftTo is what a group has not finished: "2 pending and 17 undelivered", "" for nothing.
func leftTo(g protocol.GroupEvidence) string {
	var parts []string
	if g.Pending > 0 {
		parts = append(parts, fmt.Sprintf("%d pending", g.Pending))
	}
	switch {
	case g.UndeliveredMore:
		parts = append(parts, fmt.Sprintf("more than %d undelivered", g.Undelivered))
	case g.Undelivered > 0:
		parts = append(parts, fmt.Sprintf("%d undelivered", g.Undelivered))
	case g.EntryAfter:
		parts = append(parts, "entries undelivered after "+g.LastDeliveredID)
	}
	return strings.Join(parts, " and ")
}

func unknownReason(rep Reply) string {
	if !rep.Control.StreamExists {
		return "the stream is missing"
	}
	if rep.Evidence != nil {
		if missing := missingGroups(rep); len(missing) > 0 {
			return fmt.Sprintf("consumer group %s is missing", joinTexts(missing))
		}
	}
	if rep.Err != "" {
		return rep.Err
	}
	return fmt.Sprintf("the shard answered %s", rep.Code)
}

// missingGroups lists the groups that were expected on the shard and are not there.
func missingGroups(rep Reply) []string {
	var missing []string
	for _, name := range rep.Step.Groups {
		there := slices.ContainsFunc(rep.Evidence.Groups, func(g protocol.GroupEvidence) bool { return g.Group == name })
		if !there && !slices.Contains(rep.Step.Ignored, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// snapshots collects the evidence of a pass by index.
func (o outcome) snapshots(indexes int) []protocol.ShardEvidence {
	var all []protocol.ShardEvidence
	for i := range indexes {
		if rep, ok := o.reply(shardscript.Evidence, i); ok && rep.Evidence != nil {
			all = append(all, *rep.Evidence)
		}
	}
	return all
}

// moving says what was appended to between two looks, none when nothing was.
func moving(before, after []protocol.ShardEvidence) []string {
	if len(before) != len(after) {
		return []string{fmt.Sprintf("shards to stay as they are for %s: without XSETID only that shows that bare appends have stopped", stillFor)}
	}
	var texts []string
	for i, a := range after {
		b := before[i]
		if a.ShardIndex == b.ShardIndex && a.LastID == b.LastID && a.EntriesAdded == b.EntriesAdded {
			continue
		}
		texts = append(texts, fmt.Sprintf("shard %d: still grows (%s added to it so far, %d before): without XSETID bare appends are not refused",
			a.ShardIndex, Counted(a.EntriesAdded, "entry"), b.EntriesAdded))
	}
	return texts
}
