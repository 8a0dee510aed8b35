package stream

import (
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Why no shard can miss a registered group (1.8). A group becomes ready only by a pass in which
// *every* index of both layouts, as the state has them when the replies are applied, answered
// OK (it exists now) or RETIRED (there is nothing left to read). A shard that is made after
// that pass is made by PROVISION or OPEN, and those carry every name of the registry, ready or
// not; applyProvisioning refuses the replies of a pass that was planned with fewer names, so
// the phase is not left before each new shard has them all. The stamp of MKGROUP makes any
// older PROVISION, OPEN or RETIRE on that shard AHEAD.

// RegisterGroup adds a group to the registry, not ready yet. One that exists is left as it is, and
// so is one that is still being removed.
func (t *Turn) RegisterGroup(name string, start protocol.StartPosition, now protocol.Instant) {
	s := t.State()
	_, exists := s.Groups[name]
	if _, goes := s.Removing[name]; exists || goes {
		return
	}
	if start == "" {
		start = protocol.StartEarliest
	}
	s = t.edit(now)
	s.GroupEntries++
	s.Groups[name] = &GroupEntry{StartPosition: start, Since: now, Entry: s.GroupEntries}
	s.RetryAt, s.Retries = 0, 0
	t.settle(now)
}

// expected lists the groups whose absence from a shard is UNKNOWN: those that are ready, and
// those that the running change recorded. all adds the ones that are being registered: before a
// shard is removed for good they must have been made there.
func (s *State) expected(all bool) []string {
	names := s.readyGroups()
	if all {
		names = s.GroupNames()
	}
	if s.Active != nil {
		names = append(names, s.Active.Expected...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// startID is where MKGROUP starts a group. "$" on a sealed shard stands at the maximum id;
// settle moves such a group to the restored id when it unseals (1.4).
func (g *GroupEntry) startID() string {
	if g.StartPosition == protocol.StartLatest {
		return "$"
	}
	return "0"
}

// sideSteps bounds the steps of one pass of MKGROUP or RMGROUP.
const sideSteps = 4000

// atOnce are the first of the groups, as many as one pass can be done with: a group counts only
// when every shard has answered for it in one pass, which has no longer than the effect lease. Of
// a pass over all of them nothing might ever count.
func atOnce(names []string, shards int) []string {
	return names[:min(len(names), max(sideSteps/max(shards, 1), 1))]
}

// makesGroups says whether groups are to be made now. Between the evidence and the decision that
// rests on it none is: it would have everything to read that the evidence had found read, and get
// what comes after the change before it. The phase is short, and goes back to DRAINING where a
// group counts as soon as it is there.
func (s *State) makesGroups() bool {
	r := s.Active
	return s.hasUnreadyGroup() && (r == nil || r.Phase != protocol.PhaseActivating || !r.seals())
}

// planGroups makes the groups that are not ready on every shard of both layouts.
func planGroups(s *State) Pass {
	names := atOnce(s.unreadyGroups(), s.span())
	steps := make([]Step, 0, len(names)*s.span())
	for i := range s.span() {
		for _, name := range names {
			steps = append(steps, Step{
				Script: shardscript.MkGroup, Index: i, ID: "group", Epoch: s.Layout.Epoch, Count: s.Layout.Count,
				Groups: []string{name}, Start: s.Groups[name].startID(), Entry: s.Groups[name].Entry,
			})
		}
	}
	return Pass{Kind: PassGroup, Stages: stages(steps), Groups: names, Backoff: true}
}

// applyGroups marks the groups that every shard has now.
func (t *Turn) applyGroups(o outcome, now protocol.Instant) {
	s := t.State()
	var made []string
	missed := false
	for _, name := range s.unreadyGroups() {
		if !slices.Contains(o.res.Pass.Groups, name) {
			continue
		}
		if t.madeEverywhere(o, name) {
			made = append(made, name)
		} else {
			missed = true
		}
	}
	if len(made) > 0 {
		s = t.edit(now)
		for _, name := range made {
			s.Groups[name].Ready = true
			s.Groups[name].Since = now
		}
	}
	if missed {
		t.retryLater(now)
	}
	t.settle(now)
}

func (t *Turn) madeEverywhere(o outcome, name string) bool {
	s := t.State()
	for i := range s.span() {
		rep, ok := o.group(i, name)
		if !ok || rep.Step.Entry != s.Groups[name].Entry { // of a registration before this one
			return false
		}
		if !o.done(rep) && rep.Code != shardscript.Retired {
			return false
		}
	}
	return true
}

// Back-off of MKGROUP, RMGROUP and HOLD.
const (
	retryFirst = time.Second
	retryMost  = 15 * time.Second
)

// retryLater lets the passes of the resharding go first for a while.
func (t *Turn) retryLater(now protocol.Instant) {
	s := t.edit(now)
	wait := retryMost
	if s.Retries < 4 {
		wait = retryFirst << s.Retries
	}
	s.Retries++
	s.RetryAt = now.Add(wait)
	t.settle(now)
}
