package stream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// mostWarnings bounds the warnings of one record.
const mostWarnings = 100

// Warning is something about a shard that does not hold up a resharding, but that somebody has
// to know: entries that a group may have lost.
type Warning struct {
	Shard int    `json:"shard"`
	Text  string `json:"text"`
}

// lossTexts says of each group on a shard what it may have lost: entries that were trimmed or
// deleted, by whomever, before it had them or before it had acknowledged them.
func lossTexts(ev *protocol.ShardEvidence) []string {
	var texts []string
	for _, g := range ev.Groups {
		before := int64(0)
		if g.PossibleLoss != nil {
			before = *g.PossibleLoss
		}
		// What retention took had not been delivered, which Redis counts too, or was pending; it has
		// acknowledged that, so that it is never gone as well.
		least := max(before, g.Trimmed) + g.Gone
		if least == 0 {
			continue
		}
		var parts []string
		if before > 0 {
			parts = append(parts, fmt.Sprintf("%d before delivery, by Redis's counters", before))
		}
		if g.Gone > 0 {
			parts = append(parts, fmt.Sprintf("%d while pending", g.Gone))
		}
		if g.Trimmed > 0 {
			parts = append(parts, fmt.Sprintf("%d by the stream's retention", g.Trimmed))
		}
		text := fmt.Sprintf("shard %d: group %s may have lost at least %s, removed before it had acknowledged them: %s",
			ev.ShardIndex, g.Group, Counted(least, "entry"), strings.Join(parts, ", "))
		if g.Ignored {
			text += " (the group is ignored)"
		}
		texts = append(texts, text)
	}
	return texts
}

// warn keeps what evidence shows of losses. What was seen of a shard stays until it is seen anew.
// It writes only what differs and, unless the phase ends with this pass, not more often than
// waitEvery.
func (t *Turn) warn(o outcome, last bool, now protocol.Instant) {
	r := t.State().Active
	if before := t.base.Active; !last && len(r.Warnings) > 0 && before != nil && now < before.UpdatedAt.Add(waitEvery) {
		return
	}
	seen := map[int]bool{}
	var found []Warning
	for _, rep := range o.res.Replies {
		if rep.Evidence == nil || rep.Step.Script != shardscript.Evidence && rep.Step.Script != shardscript.RetireOne {
			continue
		}
		seen[rep.Step.Index] = true
		for _, text := range lossTexts(rep.Evidence) {
			found = append(found, Warning{Shard: rep.Step.Index, Text: text})
		}
	}
	for _, w := range r.Warnings {
		if !seen[w.Shard] {
			found = append(found, w)
		}
	}
	slices.SortStableFunc(found, func(a, b Warning) int { return a.Shard - b.Shard })
	found = found[:min(len(found), mostWarnings)]
	if !slices.Equal(found, r.Warnings) {
		t.editActive(now).Warnings = found
	}
}

// warningTexts are the warnings of a record, as sentences.
func warningTexts(r *Resharding) []string {
	list := make([]string, 0, len(r.Warnings)+1)
	for _, w := range r.Warnings {
		list = append(list, w.Text)
	}
	if len(list) == mostWarnings {
		list = append(list, "and perhaps more: only so many are kept; the certificate has all counts")
	}
	return list
}
