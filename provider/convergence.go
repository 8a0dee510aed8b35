package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
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

// declare makes want the desired state of the stream and returns the stream as answered, and
// the id of the resharding that leads there, "" when there is nothing left to do. seen is the
// stream as read before, nil if it does not exist. A resharding that already leads there is
// attached to without another request.
func (o operation) declare(ctx context.Context, prefix string, want protocol.StreamSpec, seen *protocol.Stream, what string) (protocol.Stream, string, error) {
	const rounds = 5 // of waiting for the coordinator's own repairs
	var last error
	for range rounds {
		if seen != nil && sameSpec(seen.Spec, want) {
			switch id := seen.Status.ActiveReshardingID; {
			case id == "" && seen.Status.ShardCount == want.ShardCount:
				return *seen, "", nil
			case id != "":
				r, err := o.conn.client.Resharding(ctx, prefix, id, "", 0)
				if err != nil && !errors.Is(err, protocol.ErrReshardingNotFound) {
					return *seen, "", err
				}
				if err == nil && r.ToShardCount == want.ShardCount && !r.Phase.Terminal() && r.Phase != protocol.PhaseRollingBack {
					tflog.Info(ctx, "attaching to a resharding that is already running", map[string]any{"resharding_id": id, "phase": string(r.Phase)})
					return *seen, id, nil
				}
			}
		}

		count := int64(want.ShardCount)
		put, err := o.conn.client.PutStream(ctx, prefix, protocol.PutStreamRequest{
			ShardCount: &count, Resharding: want.Resharding, Retention: want.Retention,
			RequestedBy: o.conn.requestedBy, Reason: o.why(what),
		}, o.callFor(prefix, want, seen))
		if err == nil {
			id := put.ReshardingID
			if id == "" {
				id = put.Stream.Status.ActiveReshardingID
			}
			if id == "" && put.Stream.Status.ShardCount != want.ShardCount {
				return put.Stream, "", fmt.Errorf("the coordinator accepted %s but reports %d and no resharding", plural(want.ShardCount, "shard"), put.Stream.Status.ShardCount)
			}
			return put.Stream, id, nil
		}
		var refusal *protocol.Error
		unanswered := !errors.As(err, &refusal) // it may have been carried out
		if ctx.Err() == nil && (unanswered || errors.Is(err, protocol.ErrGenerationMismatch)) {
			last = err
			cur, readErr := o.conn.client.Stream(ctx, prefix)
			switch {
			case readErr == nil && sameSpec(cur.Spec, want), readErr == nil && unanswered && seen != nil && cur.Generation == seen.Generation:
				seen = &cur
			case unanswered && seen == nil && errors.Is(readErr, protocol.ErrStreamNotFound):
			default:
				return protocol.Stream{}, "", err
			}
			if pause(ctx, askAgain) != nil {
				return protocol.Stream{}, "", err
			}
			continue
		}
		if !errors.Is(err, protocol.ErrActiveResharding) {
			return protocol.Stream{}, "", err
		}

		// Another one runs. Wait only for what ends at the wanted count, or where it began (the
		// coordinator's own repair); anything else somebody else decided, and a person has to say
		// which of the two it shall be.
		last = err
		cur, err := o.conn.client.Stream(ctx, prefix)
		if err != nil {
			return protocol.Stream{}, "", err
		}
		seen = &cur
		id := cur.Status.ActiveReshardingID
		if id == "" {
			continue // it has just ended
		}
		r, err := o.conn.client.Resharding(ctx, prefix, id, "", 0)
		if err != nil {
			return cur, "", err
		}
		if r.ToShardCount != want.ShardCount && r.ToShardCount != r.FromShardCount {
			return cur, "", protocol.NewError(protocol.CodeActiveMigration, fmt.Sprintf(
				"resharding %s from %d to %s is in phase %s (requested by %q, reason %q); this apply wants %d",
				r.ReshardingID, r.FromShardCount, plural(r.ToShardCount, "shard"), r.Phase, r.RequestedBy, r.Reason, want.ShardCount))
		}
		if r, err := o.await(ctx, r); err != nil {
			return cur, "", &unfinished{r, err}
		}
		if cur, err = o.conn.client.Stream(ctx, prefix); err != nil {
			return protocol.Stream{}, "", err
		}
	}
	if seen == nil {
		return protocol.Stream{}, "", last
	}
	return *seen, "", last
}

// unfinished is the end of waiting for a resharding after which this apply's own was to begin.
type unfinished struct {
	resharding protocol.Resharding // as last seen
	cause      error
}

func (u *unfinished) Error() string {
	return fmt.Sprintf("waiting for resharding %s: %v", u.resharding.ReshardingID, u.cause)
}
func (u *unfinished) Unwrap() error { return u.cause }

// callFor is the extras of a request that leads from seen (nil: no stream) to want: it presupposes
// the generation that was seen, and has a key that an apply which was killed and is run again
// finds again.
func (o operation) callFor(prefix string, want protocol.StreamSpec, seen *protocol.Stream) client.Call {
	call := o.call()
	call.IfMatch = client.MustBeNew
	if seen != nil {
		call.IfMatch = seen.Generation
	}
	call.IdempotencyKey = keyOf(o.conn.requestedBy, prefix, want, call.IfMatch)
	return call
}

// keyOf makes the same idempotency key of the same parts, strings and numbers, always.
func keyOf(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil { // of strings and numbers: it never is
		return uuid.NewString()
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, text).String()
}

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
		failing   time.Time // since when no answer came
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
			failing = time.Time{}
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
			if failing.IsZero() {
				failing = asked
			}
			budget, problem := outageBudget, "the coordinator does not answer; the resharding goes on by itself"
			if _, here := errors.AsType[*tokenFileError](err); here {
				budget, problem = tokenFileBudget, "there is no token to ask the coordinator with; the resharding goes on by itself"
			}
			if down := time.Since(failing); down > budget {
				return r, fmt.Errorf("no answer for %s: %w", down.Round(time.Second), err)
			}
			tflog.Warn(ctx, problem, map[string]any{"error": err.Error()})
			if err := pause(ctx, askAgain); err != nil { // on top of the client's own back-off
				return r, err
			}
		}
	}
	return r, nil
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

// readBack reads a stream that is known to exist.
func (o operation) readBack(ctx context.Context, prefix string) (protocol.Stream, error) {
	for started := time.Now(); ; {
		s, err := o.conn.client.Stream(ctx, prefix)
		if err == nil || !errors.Is(err, protocol.ErrStreamNotFound) || time.Since(started) > consistencyWindow {
			return s, err
		}
		if err := pause(ctx, askAgain); err != nil {
			return s, err
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

// sameSpec compares two desired states, with all defaults filled in.
func sameSpec(a, b protocol.StreamSpec) bool { return len(specDifferences(a, b)) == 0 }

// specDifferences names what differs between what is and what is wanted, in the words of the
// configuration.
func specDifferences(is, want protocol.StreamSpec) []string {
	var out []string
	differ := func(name string, a, b any) {
		if a != b {
			out = append(out, fmt.Sprintf("%s is %v, wanted %v", name, a, b))
		}
	}
	p, q := is.Resharding.WithDefaults(), want.Resharding.WithDefaults()
	differ("shard_count", is.ShardCount, want.ShardCount)
	differ("strategy", lower(p.Strategy), lower(q.Strategy))
	differ("drain_scope", lower(p.DrainScope), lower(q.DrainScope))
	differ("retire", lower(p.Retire), lower(q.Retire))
	differ("pause_timeout", durationOfMs(p.PauseTimeoutMs).ValueString(), durationOfMs(q.PauseTimeoutMs).ValueString())
	differ("drain_timeout", durationOfMs(p.DrainTimeoutMs).ValueString(), durationOfMs(q.DrainTimeoutMs).ValueString())
	differ("on_timeout", lower(p.OnTimeout), lower(q.OnTimeout))
	differ("ignore_groups", sortedList(p.IgnoreGroups), sortedList(q.IgnoreGroups))
	differ("retention", retentionText(is.Retention), retentionText(want.Retention))
	return out
}

func sortedList(names []string) string {
	return "[" + strings.Join(slices.Sorted(slices.Values(names)), ", ") + "]"
}

func lower[S ~string](s S) string { return strings.ToLower(string(s)) }

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
func (c *connection) latest(parent context.Context, s protocol.Stream, r protocol.Resharding) (protocol.Stream, protocol.Resharding) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), latestWithin)
	defer cancel()
	if now, err := c.client.Resharding(ctx, r.StreamPrefix, r.ReshardingID, "", 0); err == nil {
		r = now
	}
	if now, err := c.client.Stream(ctx, r.StreamPrefix); err == nil {
		s = now
	}
	return s, r
}

// stopped is the diagnostic for a wait that ended before the resharding did. parent is the
// context without the operation's own timeout: it tells Ctrl-C from the timeout, which argument
// has set to waited.
func (c *connection) stopped(parent context.Context, r protocol.Resharding, err error, argument string, waited time.Duration) (summary, detail string) {
	const goesOn = "\n\nThe coordinator goes on with it by itself; nothing was cancelled. Apply again to attach to it and wait for its end."
	switch {
	case errors.Is(err, protocol.ErrStreamNotFound), errors.Is(err, protocol.ErrReshardingNotFound):
		return "The stream is gone", redact(fmt.Sprintf("%s, as last seen. Now the coordinator knows nothing of it: %v\n\n"+
			"It was removed meanwhile, or Redis has lost its data. Run terraform plan to see what is left.", strings.TrimSuffix(describe(r), "."), err), c.secrets)
	case parent.Err() != nil:
		return "Interrupted while a resharding is running", redact(describe(r)+goesOn, c.secrets)
	case errors.Is(err, context.DeadlineExceeded):
		return "Timed out while a resharding is running", redact(fmt.Sprintf("%s\n\nThis is not over after %s (%s).%s",
			describe(r), formatDuration(waited), argument, goesOn), c.secrets)
	default:
		return "Lost contact while a resharding is running", redact(fmt.Sprintf("%s\n\nCause: %v%s", describe(r), err, goesOn), c.secrets)
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
	if len(r.WaitingFor) > 0 {
		detail += "\nIt was waiting for:\n  " + strings.Join(r.WaitingFor, "\n  ")
	}
	detail += fmt.Sprintf("\n\nThe stream keeps its %s. Remove the cause and apply again. "+
		"A consumer group that nobody reads for holds up every drain, also one that the coordinator does not manage. Start its consumers; if nobody needs it, destroy it, or name it in ignore_groups. What it has not read on shards that are removed is lost to it then.", plural(r.FromShardCount, "shard"))
	return diag.NewErrorDiagnostic("Resharding "+outcome, redact(detail, c.secrets))
}

// privateData is the part of the framework's private state that is used here.
type privateData interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}
