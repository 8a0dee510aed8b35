package stream

import (
	"fmt"
	"slices"

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
		text := fmt.Sprintf("shard %d: evidence is unknown: no answer", index)
		if rep.Err != "" {
			text += ": " + rep.Err
		}
		return verdict{unknown: true, texts: []string{text}}
	case rep.Code == shardscript.Drained && rep.Evidence != nil && rep.Evidence.Verdict == string(shardscript.Drained):
		return verdict{drained: true}
	case rep.Code == shardscript.Busy:
		return verdict{texts: busyTexts(index, rep)}
	}
	return verdict{unknown: true, texts: []string{fmt.Sprintf("shard %d: evidence is unknown: %s", index, unknownReason(rep))}}
}

func busyTexts(index int, rep Reply) []string {
	var texts []string
	if rep.Evidence != nil {
		for _, g := range rep.Evidence.Groups {
			switch {
			case g.Ignored:
			case g.Pending > 0 && g.EntryAfter:
				texts = append(texts, fmt.Sprintf("shard %d: group %s has %d pending and entries after %s", index, g.Group, g.Pending, g.LastDeliveredID))
			case g.Pending > 0:
				texts = append(texts, fmt.Sprintf("shard %d: group %s has %d pending", index, g.Group, g.Pending))
			case g.EntryAfter:
				texts = append(texts, fmt.Sprintf("shard %d: group %s has entries after %s", index, g.Group, g.LastDeliveredID))
			}
		}
	}
	if len(texts) == 0 {
		texts = []string{fmt.Sprintf("shard %d: is not drained", index)}
	}
	return texts
}

func unknownReason(rep Reply) string {
	if !rep.Control.StreamExists && rep.Evidence == nil {
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

// still says that nothing was appended between two looks.
func still(before, after []protocol.ShardEvidence) bool {
	return slices.EqualFunc(before, after, func(a, b protocol.ShardEvidence) bool {
		return a.ShardIndex == b.ShardIndex && a.LastID == b.LastID && a.EntriesAdded == b.EntriesAdded
	})
}
