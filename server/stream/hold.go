package stream

import (
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Pause is the operator's pause until the deadline; Resume ends it. A second pause replaces the
// deadline of the first. Publishing counts as paused from the commit on; it is in force on
// every shard when State.HoldDirty is false again (1.8).
func (t *Turn) Pause(until protocol.Instant, req Request, now protocol.Instant) *protocol.Error {
	s := t.State()
	if err := s.admits(req); err != nil {
		return err
	}
	if until <= now {
		return protocol.Invalid("timeoutMs", "has passed already")
	}
	if s.Hold != nil && s.Hold.Until == until {
		return nil
	}
	s = t.edit(now)
	s.Hold = &Hold{Until: until, RequestedBy: req.RequestedBy, Reason: req.Reason}
	s.dirtyHold()
	t.settle(now)
	return nil
}

// Resume removes only the operator's pause.
func (t *Turn) Resume(req Request, now protocol.Instant) *protocol.Error {
	if err := t.State().admits(req); err != nil {
		return err
	}
	t.lift(now)
	return nil
}

// dirtyHold makes the pause, or its absence, be stamped on every shard again. Passes that were
// planned before say nothing of that, even if the pause is the same.
func (s *State) dirtyHold() {
	s.HoldDirty = true
	s.HoldEntry++
}

// lift ends the operator's pause, if there is one.
func (t *Turn) lift(now protocol.Instant) {
	if t.State().Hold == nil {
		return
	}
	s := t.edit(now)
	s.Hold = nil
	s.dirtyHold()
	t.settle(now)
}

// planHold stamps the pause, or its absence, on every shard of both layouts.
func planHold(s *State) Pass {
	steps := make([]Step, s.span())
	for i := range steps {
		steps[i] = Step{Script: shardscript.Hold, Index: i, ID: "hold", Epoch: s.Layout.Epoch, Count: s.Layout.Count, Hold: s.holdUntil()}
	}
	return Pass{Kind: PassHold, Entry: s.HoldEntry, Stages: stages(steps), Backoff: true}
}

// applyHold: done when every shard shows the pause that the state has now. A new shard that does
// not exist yet gets it by OPEN, which carries the pause of its revision.
func (t *Turn) applyHold(o outcome, now protocol.Instant) {
	s := t.State()
	if !s.HoldDirty || o.res.Pass.Entry != s.HoldEntry {
		return
	}
	for i := range s.span() {
		rep, ok := o.reply(shardscript.Hold, i)
		outside := i >= s.Layout.Count
		switch {
		case ok && o.done(rep):
		case ok && outside && (rep.Code == shardscript.Unknown || rep.Code == shardscript.Unfenced || rep.Code == shardscript.Retired):
		default:
			t.retryLater(now)
			return
		}
	}
	s = t.edit(now)
	s.HoldDirty = false
	s.RetryAt, s.Retries = 0, 0
	t.settle(now)
}

// holdText tells an operator about the pause.
func (s *State) holdText() string {
	text := fmt.Sprintf("paused by an operator until %s", clock(s.Hold.Until))
	if s.Hold.RequestedBy != "" {
		text = fmt.Sprintf("paused by %s until %s", s.Hold.RequestedBy, clock(s.Hold.Until))
	}
	if s.Hold.Reason != "" {
		text += " (" + s.Hold.Reason + ")"
	}
	if s.HoldDirty {
		text += "; not every shard shows it yet"
	}
	return text
}
