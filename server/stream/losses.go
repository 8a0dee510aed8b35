package stream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// PlanLosses looks at every shard of both layouts for what groups have lost there.
func PlanLosses(s *State) Pass {
	steps := make([]Step, s.span())
	for i := range steps {
		steps[i] = Step{Script: shardscript.Probe, Index: i, ID: "retention", Epoch: s.Layout.Epoch, Count: s.Layout.Count, Most: 1}
	}
	return Pass{Kind: PassProbe, Stages: stages(steps)}
}

// LossesOf reads the outcome of PlanLosses: groups by name, registered ones always.
func LossesOf(s *State, res PassResult, now protocol.Instant) protocol.RetentionReport {
	report := protocol.RetentionReport{
		StreamPrefix: s.Prefix, TakenAt: max(res.StartedAt, now).Time(), Retention: s.Spec.Retention.WithDefaults(),
		Groups: []protocol.GroupLosses{}, Unknown: []string{},
	}
	groups := map[string]*protocol.GroupLosses{}
	at := func(name string) *protocol.GroupLosses {
		if groups[name] == nil {
			groups[name] = &protocol.GroupLosses{Group: name, Managed: s.Groups[name] != nil, Shards: []protocol.ShardLosses{}}
		}
		return groups[name]
	}
	for name := range s.Groups {
		at(name)
	}
	o := newOutcome(res)
	for i := range s.span() {
		rep, ok := o.reply(shardscript.Probe, i)
		switch {
		case !ok || rep.Code != shardscript.OK:
			report.Unknown = append(report.Unknown, fmt.Sprintf("shard %d: %s", i, cmp.Or(rep.Err, "no answer")))
			continue
		case rep.Evidence == nil:
			// A shard that a change makes or has taken away has lost nothing; one of the layout in
			// force that is not there keeps its counts beside what is missing.
			if i < s.Layout.Count {
				report.Unknown = append(report.Unknown, fmt.Sprintf("shard %d: %s", i, cmp.Or(rep.Err, "the stream is missing")))
			}
			continue
		}
		for _, g := range rep.Evidence.Groups {
			l := at(g.Group)
			if g.Trimmed == 0 && g.Gone == 0 {
				continue
			}
			l.Trimmed += g.Trimmed
			l.Gone += g.Gone
			l.Shards = append(l.Shards, protocol.ShardLosses{ShardIndex: i, Trimmed: g.Trimmed, Gone: g.Gone})
		}
	}
	for _, l := range groups {
		report.Groups = append(report.Groups, *l)
	}
	slices.SortFunc(report.Groups, func(a, b protocol.GroupLosses) int { return strings.Compare(a.Group, b.Group) })
	return report
}
