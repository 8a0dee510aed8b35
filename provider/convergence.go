package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Bounds of waiting.
const (
	// holdFor is how long one request waits for the next phase: shorter than what balancers
	// cut off.
	holdFor = 20 * time.Second
	// askAgain spaces requests when an answer came early and unchanged.
	askAgain = 250 * time.Millisecond
	// outageBudget is how long a coordinator that does not answer is borne while waiting. A
	// rolling restart or a failover of Redis is over by then.
	outageBudget = 2 * time.Minute
	// tokenFileBudget is how long a token file that cannot be read is borne: whoever renews it may
	// be about to write it.
	tokenFileBudget = 10 * time.Second
	// consistencyWindow is how long "not found" is not believed for what was just accepted:
	// another replica may answer.
	consistencyWindow = 10 * time.Second
	// latestWithin is how long a last look may take after Ctrl-C.
	latestWithin = time.Second
)

// unread is what is known of a resharding before it could be read: enough not to lose its id,
// should Ctrl-C come now.
func unread(prefix, id string, from, to int) protocol.Resharding {
	return protocol.Resharding{ReshardingID: id, StreamPrefix: prefix, FromShardCount: from, ToShardCount: to, Phase: protocol.PhaseProvisioning}
}

// await follows a resharding until it has ended and returns it as last seen, also on error.
// The end of ctx ends the waiting, never the resharding.
func (o operation) await(ctx context.Context, r protocol.Resharding) (protocol.Resharding, error) {
	ctx = tflog.SetField(ctx, "resharding_id", r.ReshardingID)
	var (
		started   = time.Now()
		unheard   silence
		seen      = protocol.Phase("")
		waitedFor string
	)
	for !r.Phase.Terminal() || seen == "" {
		hold := holdFor
		if seen == "" {
			hold = 0
		}
		asked := time.Now()
		next, err := o.conn.client.Resharding(ctx, r.StreamPrefix, r.ReshardingID, seen, hold)
		switch {
		case err == nil:
			unheard.over()
			fields := map[string]any{"phase": string(next.Phase), "from_shard_count": next.FromShardCount, "to_shard_count": next.ToShardCount}
			blockers := strings.Join(next.WaitingFor, "; ")
			if blockers != "" {
				fields["waiting_for"] = blockers
				if next.Phase == seen && blockers != waitedFor {
					tflog.Info(ctx, "resharding is waiting", fields)
				}
			}
			if o.progress != nil && !next.Phase.Terminal() && (next.Phase != seen || blockers != waitedFor) {
				o.progress(next)
			}
			waitedFor = blockers
			if next.Phase != seen {
				tflog.Info(ctx, "resharding has entered phase "+string(next.Phase), fields)
			} else if err := pause(ctx, askAgain-time.Since(asked)); err != nil {
				return next, err
			}
			r, seen = next, next.Phase
		case ctx.Err() != nil:
			return r, ctx.Err()
		case !passing(err, time.Since(started)):
			return r, err
		default:
			if err := unheard.bear(ctx, asked, err); err != nil {
				return r, err
			}
			if err := pause(ctx, askAgain); err != nil { // on top of the client's own back-off
				return r, err
			}
		}
	}
	return r, nil
}

// silence is the time for which no answer has come, while something is waited for that goes on by
// itself. The zero value is none.
type silence struct{ since time.Time }

func (s *silence) over() { s.since = time.Time{} }

// bear takes a question, asked when, that ended with err and may be answered later. It is an error
// once that has lasted too long.
func (s *silence) bear(ctx context.Context, when time.Time, err error) error {
	if s.since.IsZero() {
		s.since = when
	}
	budget, problem := outageBudget, "the coordinator does not answer; it goes on by itself"
	if _, here := errors.AsType[*tokenFileError](err); here {
		budget, problem = tokenFileBudget, "there is no token to ask the coordinator with; it goes on by itself"
	}
	if lasts := time.Since(s.since); lasts > budget {
		return fmt.Errorf("no answer for %s: %w", lasts.Round(time.Second), err)
	}
	tflog.Warn(ctx, problem, map[string]any{"error": err.Error()})
	return nil
}

// passing says whether the same question may be answered later.
func passing(err error, since time.Duration) bool {
	var refusal *protocol.Error
	if !errors.As(err, &refusal) {
		return true // no answer of a coordinator at all
	}
	if errors.Is(err, protocol.ErrReshardingNotFound) || errors.Is(err, protocol.ErrStreamNotFound) {
		return since < consistencyWindow
	}
	return refusal.Retriable()
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// follow waits for the end of a resharding of the stream s, and returns both as last seen, also on
// error. save stores them: at once, so that nothing is lost should no more come of this apply, and
// once more when the waiting has ended before the resharding.
func (o operation) follow(
	ctx context.Context, s protocol.Stream, r protocol.Resharding, save func(protocol.Stream, *protocol.Resharding),
) (protocol.Stream, protocol.Resharding, error) {
	save(s, &r)
	r, err := o.await(ctx, r)
	if err != nil {
		s, r = o.conn.latest(ctx, s, r)
		save(s, &r)
	}
	return s, r, err
}

// readBack reads a stream that is known to exist, and was s before. Where it cannot be read, it is
// still s: the next refresh has the rest.
func (o operation) readBack(ctx context.Context, s protocol.Stream) protocol.Stream {
	for started := time.Now(); ; {
		now, err := o.conn.client.Stream(ctx, s.StreamPrefix)
		if err == nil {
			return now
		}
		lags := errors.Is(err, protocol.ErrStreamNotFound) && time.Since(started) <= consistencyWindow
		if !lags || pause(ctx, askAgain) != nil {
			tflog.Warn(ctx, "stream not readable after its resharding", map[string]any{"error": err.Error()})
			return s
		}
	}
}

// confirmGone waits until the coordinator itself says that a stream is no more, or that another one has
// its name. That its removal was answered is not enough: the answer has no body, and a proxy gives
// one like it. A replica that lags may have the stream for a moment yet.
func (o operation) confirmGone(ctx context.Context, was protocol.Stream) error {
	for started := time.Now(); ; {
		now, err := o.conn.client.Stream(ctx, was.StreamPrefix)
		switch {
		case errors.Is(err, protocol.ErrStreamNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("not known whether it is gone: %w", err)
		case !now.CreatedAt.Equal(was.CreatedAt):
			return nil
		}
		if err := pause(ctx, askAgain); err != nil {
			return fmt.Errorf("not known whether it is gone: %w", err)
		}
		if time.Since(started) > consistencyWindow {
			return fmt.Errorf("%w: its removal was answered as done, but the coordinator still has it", client.ErrUnexpectedAnswer)
		}
	}
}

// lastResharding reads the resharding that runs, or else the one that ended last; nil when
// there was none, or when the coordinator's history no longer has it.
func (c *connection) lastResharding(ctx context.Context, s protocol.Stream) (*protocol.Resharding, error) {
	id := s.Status.ActiveReshardingID
	if id == "" {
		id = s.Status.LastReshardingID
	}
	if id == "" {
		return nil, nil
	}
	r, err := c.client.Resharding(ctx, s.StreamPrefix, id, "", 0)
	if errors.Is(err, protocol.ErrReshardingNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// confirmed is the shard count to which the stream has converged: while a resharding runs, the
// one before it. So an interrupted change shows up as a change that is still to be made, and
// the next apply attaches to it.
func confirmed(s protocol.Stream, r *protocol.Resharding) int {
	if s.Status.ActiveReshardingID != "" && r != nil && r.ReshardingID == s.Status.ActiveReshardingID && !r.Phase.Terminal() {
		return r.FromShardCount
	}
	return s.Status.ShardCount
}

// describe puts a resharding into words: id, counts, phase and what it waits for.
func describe(r protocol.Resharding) string {
	s := fmt.Sprintf("Resharding %s of stream %q from %d to %s is in phase %s",
		r.ReshardingID, r.StreamPrefix, r.FromShardCount, plural(r.ToShardCount, "shard"), r.Phase)
	if len(r.WaitingFor) > 0 {
		s += ", waiting for:\n  " + strings.Join(r.WaitingFor, "\n  ")
	} else {
		s += "."
	}
	return s
}

// latest reads once more what a wait that was ended has last seen, so that what is told and saved
// is not older than it has to be. Whoever ended it does not wait long for that.
func (c *connection) latest(ended context.Context, s protocol.Stream, r protocol.Resharding) (protocol.Stream, protocol.Resharding) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), latestWithin)
	defer cancel()
	if now, err := c.client.Resharding(ctx, r.StreamPrefix, r.ReshardingID, "", 0); err == nil {
		r = now
	}
	if now, err := c.client.Stream(ctx, r.StreamPrefix); err == nil {
		s = now
	}
	return s, r
}

// stopped is the diagnostic for a wait that ended with err before the resharding did. ctx is the
// operation's: it tells Ctrl-C from the timeout, which argument has set to waited, and both from a
// request that was not answered in the client's own time.
func (c *connection) stopped(ctx context.Context, r protocol.Resharding, err error, argument string, waited time.Duration) (summary, detail string) {
	const goesOn = "\n\nThe coordinator goes on with it by itself; nothing was cancelled. Apply again to attach to it and wait for its end."
	switch {
	case errors.Is(err, protocol.ErrStreamNotFound), errors.Is(err, protocol.ErrReshardingNotFound):
		return "The stream is gone", redact(fmt.Sprintf("%s, as last seen. Now the coordinator knows nothing of it: %v\n\n"+
			"It was removed meanwhile, or Redis has lost its data. Run terraform plan to see what is left.", strings.TrimSuffix(describe(r), "."), err), c.secrets)
	case errors.Is(ctx.Err(), context.Canceled):
		return "Interrupted while a resharding is running", redact(describe(r)+goesOn, c.secrets)
	case ctx.Err() != nil:
		return "Timed out while a resharding is running", redact(fmt.Sprintf("%s\n\nThis is not over after %s (%s).%s",
			describe(r), formatDuration(waited), argument, goesOn), c.secrets)
	default:
		return "Lost contact while a resharding is running", redact(fmt.Sprintf("%s\n\nCause: %v\n\nAny coordinator that runs goes on with it by itself; nothing was cancelled, and a pause ends at its "+
			"deadline even if none does. Apply again to attach to it and wait for its end.", describe(r), err), c.secrets)
	}
}

// reached says whether a resharding that has ended left the stream with count shards: it led
// there, or it began there and was undone because just that was asked for.
func reached(r protocol.Resharding, count int) bool {
	if r.Phase == protocol.PhaseCompleted {
		return r.ToShardCount == count
	}
	return r.FromShardCount == count
}

// undoneWhileDraining says whether a resharding was undone in a phase that waits for consumer groups.
func undoneWhileDraining(r protocol.Resharding) bool {
	for _, span := range slices.Backward(r.Phases) {
		if span.Phase != protocol.PhaseRollingBack && !span.Phase.Terminal() {
			return span.Phase == protocol.PhaseDraining || span.Phase == protocol.PhaseDrainingRemoved
		}
	}
	return false
}

// ended is the diagnostic for a resharding that ended without reaching its aim.
func (c *connection) ended(r protocol.Resharding) diag.Diagnostic {
	outcome := "was rolled back"
	if r.Phase == protocol.PhaseFailed {
		outcome = "failed"
	}
	detail := fmt.Sprintf("Resharding %s of stream %q from %d to %s %s", r.ReshardingID, r.StreamPrefix, r.FromShardCount, plural(r.ToShardCount, "shard"), outcome)
	if r.Error != "" {
		detail += ": " + r.Error
	}
	again := "apply"
	if r.ToShardCount == 0 {
		again = "destroy"
	}
	advice := fmt.Sprintf("\n\nThe stream keeps its %s. Remove the cause and %s again.", plural(r.FromShardCount, "shard"), again)
	if len(r.WaitingFor) > 0 {
		detail += "\nIt was waiting for:\n  " + strings.Join(r.WaitingFor, "\n  ")
	}
	if undoneWhileDraining(r) {
		advice += " A consumer group that nobody reads for holds up every drain, also one that the coordinator does not manage. Start its consumers; if nobody needs it, destroy it, or name it in ignore_groups. " +
			"What it has not read on shards that are removed is lost to it then."
	}
	detail += advice
	return diag.NewErrorDiagnostic("Resharding "+outcome, redact(detail, c.secrets))
}
