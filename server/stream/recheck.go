package stream

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// States of a shard in a re-check.
const (
	checkKept     = "KEPT"
	checkRetired  = "RETIRED"
	checkArchived = "ARCHIVED"
	checkReplaced = "REPLACED"
	checkUnknown  = "UNKNOWN"
)

// certified lists the evidence that says DRAINED: what a certificate states. Shards outside the
// scope of the drain are in it with what was seen of them, and nothing is stated of those.
func (r *Resharding) certified() []protocol.ShardEvidence {
	if r.Certificate == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Certificate.Shards), func(e protocol.ShardEvidence) bool {
		return e.Verdict != string(shardscript.Drained)
	})
}

// PlanRecheck is the pass that looks at every certified shard of a resharding; it only reads, and
// its result is for Recheck. Refused with MIGRATION_NOT_FOUND, or with CERTIFICATE_NOT_FOUND
// where there is nothing to compare.
func PlanRecheck(s *State, id string) (Pass, *protocol.Error) {
	r := s.find(id)
	switch {
	case r == nil:
		return Pass{}, protocol.NewError(protocol.CodeMigrationNotFound, fmt.Sprintf("no resharding %q of stream %q", id, s.Prefix))
	case r.Certificate == nil && !r.seals():
		return Pass{}, protocol.NewError(protocol.CodeCertificateNotFound, fmt.Sprintf("resharding %q is in phase %s and drains nothing before it is decided: there is no certificate", id, r.Phase))
	case r.Certificate == nil:
		return Pass{}, protocol.NewError(protocol.CodeCertificateNotFound, fmt.Sprintf("resharding %q is in phase %s and has no certificate: its shards were not drained", id, r.Phase))
	case len(r.Certificate.Shards) == 0:
		return Pass{}, protocol.NewError(protocol.CodeCertificateNotFound, fmt.Sprintf("resharding %q is in phase %s; the evidence of its certificate is no longer kept, since newer ones are", id, r.Phase))
	}
	certified := r.certified()
	steps := make([]Step, len(certified))
	for i, ev := range certified {
		st := r.step(shardscript.Recheck, ev.ShardIndex)
		st.LastID, st.Ignored = ev.LastID, r.Ignored
		for _, g := range ev.Groups {
			if !g.Ignored {
				st.Groups = append(st.Groups, g.Group)
			}
		}
		if r.Policy.Retire == protocol.RetireArchive {
			st.Archive, st.Most = r.ID, r.Archives+1
		}
		steps[i] = st
	}
	return Pass{Kind: PassProbe, ReshardingID: id, Stages: stages(steps)}, nil
}

// Recheck compares the certificate of resharding id with what its pass saw; see
// protocol.CertificateCheck. s is the state that the pass was planned from.
func Recheck(s *State, id string, res PassResult, now protocol.Instant) protocol.CertificateCheck {
	check := protocol.CertificateCheck{CheckedAt: now.Time(), Holds: true, Shards: []protocol.ShardCheck{}}
	r := s.find(id)
	if r == nil {
		check.Holds = false
		return check
	}
	o := newOutcome(res)
	for _, ev := range r.certified() {
		rep, _ := o.reply(shardscript.Recheck, ev.ShardIndex)
		c := s.recheckShard(r, ev, rep)
		if c.Problems == nil {
			c.Problems = []string{}
		}
		c.ShardIndex, c.Holds = ev.ShardIndex, len(c.Problems) == 0
		check.Holds = check.Holds && c.Holds
		check.Shards = append(check.Shards, c)
	}
	return check
}

// recheckShard judges one shard.
func (s *State) recheckShard(r *Resharding, ev protocol.ShardEvidence, rep Reply) protocol.ShardCheck {
	var c protocol.ShardCheck
	switch rep.Code {
	case shardscript.OK:
		return s.recheckPresent(r, ev, rep)
	case shardscript.Archived:
		c.State = checkArchived
		if !rep.Control.Sealed {
			c.Problems = append(c.Problems, "the archive is not sealed any more")
		}
		c.Problems = append(c.Problems, groupProblems(ev, rep)...)
	case shardscript.Retired:
		c.State = checkRetired
		c.Problems = s.recheckTombstone(r, ev, rep.Control.Retired)
	case "":
		c.State = checkUnknown
		c.Problems = []string{noAnswer(ev.ShardIndex, string(shardscript.Recheck), rep.Err)}
	default:
		c.State = checkUnknown
		c.Problems = []string{rep.Err}
	}
	return c
}

// recheckTombstone: this change retired the shard, or one of our own after it did, which drained
// it anew for every group that it did not ignore.
func (s *State) recheckTombstone(r *Resharding, ev protocol.ShardEvidence, by string) []string {
	if by == r.ID {
		return nil
	}
	later := s.find(by)
	if later == nil || later.To.Epoch <= r.To.Epoch {
		return []string{fmt.Sprintf("the shard was retired by %s, of which nothing is known", by)}
	}
	return unprovenBy(later, ev)
}

// unprovenBy lists the certified groups of which a later change that removed the shard says
// nothing.
func unprovenBy(later *Resharding, ev protocol.ShardEvidence) []string {
	var problems []string
	for _, g := range ev.Groups {
		if !g.Ignored && slices.Contains(later.Ignored, g.Group) {
			problems = append(problems, fmt.Sprintf("resharding %s removed the shard and ignored group %s", later.ID, g.Group))
		}
	}
	return problems
}

// recheckPresent: the shard is there, as it was certified or made anew since then.
func (s *State) recheckPresent(r *Resharding, ev protocol.ShardEvidence, rep Reply) protocol.ShardCheck {
	if later := s.removedLater(r, ev.ShardIndex); later != nil {
		return protocol.ShardCheck{State: checkReplaced, Problems: unprovenBy(later, ev)}
	}
	if rep.Control.EntriesAdded < ev.EntriesAdded {
		return protocol.ShardCheck{State: checkReplaced, Problems: []string{fmt.Sprintf(
			"the shard has had %s and the certified one %d: it was made anew, and what became of the certified one cannot be seen",
			Counted(rep.Control.EntriesAdded, "entry"), ev.EntriesAdded)}}
	}
	return protocol.ShardCheck{State: checkKept, Problems: groupProblems(ev, rep)}
}

// removedLater is the first change behind r that completed without the shard of this index, so
// that one which is there now was made anew; nil for none.
func (s *State) removedLater(r *Resharding, index int) *Resharding {
	behind := false
	for _, h := range s.History {
		if behind && h.Phase == protocol.PhaseCompleted && slices.Contains(h.removed(), index) {
			return h
		}
		behind = behind || h.ID == r.ID
	}
	if r.Phase == protocol.PhaseCompleted && slices.Contains(r.removed(), index) && s.Layout.Epoch > r.To.Epoch {
		return r // this very change removed it, and one after it has it again
	}
	return nil
}

// groupProblems compares the certified groups with those that are there. A group that was ignored
// is not certified.
func groupProblems(ev protocol.ShardEvidence, rep Reply) []string {
	var problems []string
	for _, want := range ev.Groups {
		if want.Ignored {
			continue
		}
		i := -1
		if rep.Evidence != nil {
			i = slices.IndexFunc(rep.Evidence.Groups, func(g protocol.GroupEvidence) bool { return g.Group == want.Group })
		}
		if i < 0 {
			problems = append(problems, fmt.Sprintf("group %s is gone, and what it had cannot be seen any more", want.Group))
			continue
		}
		have := rep.Evidence.Groups[i]
		// Of a group that stood behind the last id (one made while the shard was sealed) only that counts.
		if least := earlier(want.LastDeliveredID, ev.LastID); idLess(have.LastDeliveredID, least) {
			problems = append(problems, fmt.Sprintf("group %s stands at %s, before the certified %s: it was set back or made anew", want.Group, have.LastDeliveredID, least))
		}
		if have.Pending > 0 {
			problems = append(problems, fmt.Sprintf("group %s has %d pending up to the certified %s", want.Group, have.Pending, ev.LastID))
		}
		if have.EntryAfter {
			problems = append(problems, fmt.Sprintf("group %s was not given an entry up to the certified %s", want.Group, ev.LastID))
		}
	}
	return problems
}

// earlier is the lower of two stream ids.
func earlier(a, b string) string {
	if idLess(b, a) {
		return b
	}
	return a
}

// idLess compares stream ids. What is no id is higher than all: nothing follows from it.
func idLess(a, b string) bool {
	am, as := splitID(a)
	bm, bs := splitID(b)
	return am < bm || am == bm && as < bs
}

func splitID(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseUint(left, 10, 64)
	if err != nil {
		return math.MaxUint64, math.MaxUint64
	}
	if seq, err = strconv.ParseUint(right, 10, 64); err != nil {
		return math.MaxUint64, math.MaxUint64
	}
	return ms, seq
}
