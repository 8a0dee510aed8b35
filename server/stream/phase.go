package stream

import (
	"fmt"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The phase machine (1.5). A phase is entered by a commit; its effects follow, derived by Plan.

// enter moves r to phase. The time of the span before ends where the new one starts.
func (r *Resharding) enter(phase protocol.Phase, now protocol.Instant) {
	if n := len(r.Phases); n > 0 && r.Phases[n-1].Ended == 0 {
		r.Phases[n-1].Ended = now
	}
	if len(r.Phases) >= maxSpans {
		r.Phases = slices.Delete(r.Phases, 1, 2)
	}
	span := PhaseSpan{Phase: phase, Started: now}
	if phase.Terminal() {
		span.Ended = now
	}
	r.Phases = append(r.Phases, span)
	r.Phase = phase
	r.Entry++
	r.WaitingFor, r.UnknownSince = nil, 0
	r.UpdatedAt = now
}

// accept makes r's record of a change to count shards the active one. It gives out the epoch:
// higher than any before, also than those of changes that were rolled back (1.2.1).
func (s *State) accept(kind Kind, count int, policy protocol.ReshardingPolicy, req Request, now protocol.Instant) {
	s.LastEpoch = max(s.LastEpoch, s.Layout.Epoch) + 1
	s.HighCount = max(s.HighCount, s.Layout.Count, count)
	r := &Resharding{
		ID: req.ID, Kind: kind,
		From: s.Layout, To: Layout{Epoch: s.LastEpoch, Count: count}, Old: s.Layout.Count,
		Policy: policy, Expected: s.readyGroups(), Ignored: slices.Clone(policy.IgnoreGroups),
		RequestedBy: req.RequestedBy, Reason: req.Reason, CreatedAt: now,
	}
	r.Order = OrderNotPromised
	if r.keepsOrder() {
		r.Order = OrderKept
	}
	r.enter(protocol.PhaseProvisioning, now)
	s.Active = r
}

// force makes a record that starts after its decision: the shards have it already.
func (s *State) force(kind Kind, to Layout, old int, skip []int, id string, reason string, now protocol.Instant) {
	r := &Resharding{
		ID: id, Kind: kind, From: s.Layout, To: to, Old: old, Skip: skip,
		Policy: s.Spec.Resharding, Expected: s.readyGroups(), Ignored: slices.Clone(s.Spec.Resharding.IgnoreGroups),
		Reason: reason, Order: OrderNotPromised, CreatedAt: now,
	}
	s.Active = r
	s.open(now)
}

// enterSealing pauses publishing. The deadline is set once: a second entry goes on with the
// first one, so that the pause never grows (1.5).
func (r *Resharding) enterSealing(now protocol.Instant) {
	if r.PausedAt == 0 {
		r.PausedAt = now
		r.Deadline = now.Add(r.pauseTimeout())
	}
	r.EvidenceAt, r.Snapshot, r.SnapshotAt = 0, nil, 0
	r.enter(protocol.PhaseSealing, now)
}

// afterProvisioning is the phase behind PROVISIONING, and where a change without seals goes
// back to when shard 0 turns out not to be held.
func (r *Resharding) afterProvisioning(now protocol.Instant) {
	if r.seals() {
		r.enterSealing(now)
		return
	}
	r.enter(protocol.PhaseActivating, now)
}

// reseal is where a change that lost its hold on a shard goes on.
func (r *Resharding) reseal(now protocol.Instant) {
	if r.seals() {
		r.enterSealing(now)
		return
	}
	r.enter(protocol.PhaseProvisioning, now)
}

// open is the OPENING commit: shard 0 shows (epoch to, to), so the layout is that.
func (s *State) open(now protocol.Instant) {
	r := s.Active
	s.Layout = r.To
	s.LastEpoch = max(s.LastEpoch, r.To.Epoch)
	s.HighCount = max(s.HighCount, r.To.Count)
	s.MetadataVersion++
	if r.pausing() {
		r.ResumedAt = now
	}
	if r.DecidedAt == 0 {
		r.DecidedAt = r.firstEntered(protocol.PhaseActivating) // shard 0 had not decided before
	}
	r.TooLate, r.Released0, r.Unfenced, r.Snapshot, r.SnapshotAt = false, false, nil, nil, 0
	r.enter(protocol.PhaseOpening, now)
}

// afterOpening is the phase behind OPENING.
func (r *Resharding) afterOpening(now protocol.Instant) {
	r.Reopen, r.Remake = nil, nil
	if r.Removed() {
		r.enterDrainingRemoved(now)
		return
	}
	r.enter(protocol.PhaseConverging, now)
}

// enterDrainingRemoved starts the deadline of the drain anew: a shard that comes back here from
// RETIRING is assigned to members again. What the shards themselves forced has nowhere to go
// back to and waits until it is drained.
func (r *Resharding) enterDrainingRemoved(now protocol.Instant) {
	if r.Kind != KindRepair && r.Kind != KindAdopt {
		r.DrainBy = now.Add(r.drainTimeout())
	}
	r.enter(protocol.PhaseDrainingRemoved, now)
}

// rollBack starts the way back; reason is what the record says.
func (r *Resharding) rollBack(reason string, fail bool, now protocol.Instant) {
	r.Error = reason
	r.FailInstead = fail
	r.Released0, r.TooLate, r.Unfenced = false, false, nil
	r.enter(protocol.PhaseRollingBack, now)
}

// failsOnTimeout says how a change that a deadline ended finishes.
func (r *Resharding) failsOnTimeout() bool { return r.Policy.OnTimeout == protocol.OnTimeoutFail }

// timeoutReason says what a change was waiting for when its time was up.
func (r *Resharding) timeoutReason() string {
	text := fmt.Sprintf("drain timeout of %s passed in %s", r.drainTimeout(), r.Phase)
	if r.Deadline != 0 {
		text = fmt.Sprintf("pause timeout of %s passed in %s", r.pauseTimeout(), r.Phase)
	}
	if len(r.WaitingFor) > 0 {
		text += ": " + joinTexts(r.WaitingFor)
	}
	return text
}

// finish moves the active record to the history. The spec says what is so afterwards: a change
// that came to nothing must not start again by itself, so the wanted shard count goes back to
// the one in force, as a new generation (a client that still wants the other count sees the
// difference and asks again).
func (s *State) finish(phase protocol.Phase, now protocol.Instant) {
	r := s.Active
	if r.pausing() {
		r.ResumedAt = now
	}
	r.enter(phase, now)
	r.Snapshot, r.SnapshotAt, r.Unfenced, r.Reopen, r.Remake = nil, 0, nil, nil, nil
	s.Active = nil
	s.History = append(s.History, r)
	if extra := len(s.History) - MaxHistory; extra > 0 {
		s.History = slices.Clone(s.History[extra:])
	}
	s.trimCertificates()
	s.want(s.Layout.Count)
}

// mostEvidence bounds the rows of evidence (one for each group of each shard) that finished
// records keep: every commit of the aggregate writes them again.
const mostEvidence = 4096

// trimCertificates drops the rows of the oldest certificates beyond mostEvidence. The newest
// certificate stays whole, whatever its size; of the others time, barrier and confirmation stay.
func (s *State) trimCertificates() {
	rows := 0
	for i := len(s.History) - 1; i >= 0; i-- {
		r := s.History[i]
		if r.Certificate == nil || len(r.Certificate.Shards) == 0 {
			continue
		}
		before := rows
		for _, shard := range r.Certificate.Shards {
			rows += 1 + len(shard.Groups)
		}
		if before == 0 || rows <= mostEvidence {
			continue
		}
		trimmed, c := r.clone(), *r.Certificate
		c.Shards = nil
		trimmed.Certificate = &c
		s.History[i] = trimmed
	}
}

// want changes the wanted shard count.
func (s *State) want(count int) {
	if s.Spec.ShardCount != count {
		s.Spec.ShardCount = count
		s.Generation++
	}
}

// alert records something that an operator has to know. It stays until sweeps have found
// nothing for a while.
func (s *State) alert(text string, now protocol.Instant) {
	s.Alert, s.AlertSince = text, now
}
