package stream

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// alertLife is how long an alert stays at least.
const alertLife = 10 * time.Minute

// ApplySurvey takes the outcome of a sweep at rest (1.7.2) and starts a repair when it found
// something to repair; id is the id that the repair takes. It returns whether one was started.
// A layout that is ahead of the aggregate is adopted: should the revision be behind as well,
// the first script that is refused for it brings the higher one.
func (t *Turn) ApplySurvey(res PassResult, id string, now protocol.Instant) bool {
	s := t.State()
	if s.Active != nil || s.Deleting || res.Pass.Kind != PassSurvey {
		return false
	}
	var ahead Control
	var needed []int
	var orphans, broken []string
	answered := map[int]bool{}
	exhausted := slices.Clone(s.Exhausted)
	hold, high := false, s.HighCount
	for _, rep := range res.Replies {
		i, c := rep.Step.Index, rep.Control
		if rep.Step.Epoch != s.Layout.Epoch || rep.Step.Count != s.Layout.Count || rep.Step.ToEpoch != s.LastEpoch {
			return false // planned from another layout
		}
		if rep.Code != shardscript.OK {
			if damaged(rep.Err) {
				broken = append(broken, rep.Err)
			}
			continue
		}
		answered[i] = true
		high = max(high, c.High)
		inside := i < s.Layout.Count
		switch {
		case c.HasEpoch && c.Epoch > s.Layout.Epoch:
			if c.Epoch > ahead.Epoch {
				rev, high := max(ahead.Rev, c.Rev), max(ahead.High, c.High)
				ahead = c
				ahead.Rev, ahead.High = rev, high
			}
		case inside && s.differs(i, c):
			needed = append(needed, i)
		case inside:
			hold = hold || c.Hold != s.holdUntil()
			if !c.Sealed {
				exhausted = slices.DeleteFunc(exhausted, func(x int) bool { return x == i })
			}
		case !c.StreamExists:
		case !c.HasEpoch || c.Retired != "":
			orphans = append(orphans, fmt.Sprintf("%s (%s)", protocol.ShardKey(s.Prefix, i), Counted(c.Length, "entry")))
		default:
			needed = append(needed, i)
		}
	}
	orphans = s.mergeOrphans(orphans, answered)
	if !slices.Equal(orphans, s.Orphans) {
		t.edit(now).Orphans = orphans
	}
	if !slices.Equal(exhausted, s.Exhausted) {
		t.edit(now).Exhausted = exhausted
	}
	if high > s.HighCount {
		t.edit(now).HighCount = high // a change that the aggregate has lost: the next sweep looks there too
	}
	if hold && !s.HoldDirty {
		t.edit(now).dirtyHold()
	}
	switch text := joinTexts(broken); {
	case text != "" && (text != s.Alert || now >= s.AlertSince.Add(alertLife/2)):
		t.edit(now).alert(text, now)
	case text == "" && damaged(s.Alert) && len(answered) == len(res.Replies):
		s = t.edit(now)
		s.Alert, s.AlertSince = "", 0
	}
	defer t.settle(now)
	switch {
	case ahead.HasEpoch:
		t.Adopt(ahead, id, now)
		return true
	case len(needed) > 0:
		t.repair(needed, id, now)
		return true
	case s.Alert != "" && now >= s.AlertSince.Add(alertLife) && len(exhausted) == 0:
		s = t.edit(now)
		s.Alert, s.AlertSince = "", 0
	}
	return false
}

// differs says that a shard of the layout is not as OPEN leaves it (1.7.2). The operator's pause
// is compared apart.
func (s *State) differs(index int, c Control) bool {
	if !c.StreamExists || !c.HasEpoch || c.layout() != s.Layout || c.Gate != "" || c.Until != 0 || c.Retired != "" {
		return true
	}
	return c.Sealed && c.Hold == 0 && !slices.Contains(s.Exhausted, index)
}

// repair starts a change that has been decided already: the layout stays, every shard that is
// not as it should be is stamped, and what lies outside is drained and retired again. Old ends
// with the last shard that needs it, so that members are not assigned tombstones for nothing.
func (t *Turn) repair(needed []int, id string, now protocol.Instant) {
	s := t.edit(now)
	old := max(s.Layout.Count, slices.Max(needed)+1)
	s.force(KindRepair, s.Layout, old, s.orphanIndexes(s.Layout.Count), id, fmt.Sprintf("the sweep found %s not as the layout has it", shardList(needed)), now)
}

// mergeOrphans keeps what was known of shards that did not answer.
func (s *State) mergeOrphans(found []string, answered map[int]bool) []string {
	all := slices.Clone(found)
	for _, o := range s.Orphans {
		if i, ok := s.orphanIndex(o); ok && !answered[i] {
			all = append(all, o)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// orphanIndex is the shard index of an entry of Orphans.
func (s *State) orphanIndex(orphan string) (int, bool) {
	key, _, _ := strings.Cut(orphan, " ")
	var i int
	if _, err := fmt.Sscanf(strings.TrimPrefix(key, s.Prefix+":"), "%d", &i); err != nil {
		return 0, false
	}
	return i, protocol.ShardKey(s.Prefix, i) == key
}

// orphanIndexes lists the indexes of orphans from index from on, ascending.
func (s *State) orphanIndexes(from int) []int {
	var indexes []int
	for _, o := range s.Orphans {
		if i, ok := s.orphanIndex(o); ok && i >= from {
			indexes = append(indexes, i)
		}
	}
	slices.Sort(indexes)
	return indexes
}
