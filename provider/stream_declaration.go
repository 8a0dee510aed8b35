package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// declare makes want the desired state of the stream and returns the stream as answered, and
// the id of the resharding that leads there, "" when there is nothing left to do. seen is the
// stream as read before, nil if it does not exist. A resharding that already leads there is
// attached to without another request.
func (o operation) declare(ctx context.Context, prefix string, want protocol.StreamSpec, seen *protocol.Stream, what string) (protocol.Stream, string, error) {
	const rounds = 5 // of waiting for the coordinator's own repairs, and of requests that were lost on their way
	var last error
	for range rounds {
		if seen != nil && sameSpec(seen.Spec, want) {
			if id, done, err := o.onItsWay(ctx, *seen, want.ShardCount); done || err != nil {
				return *seen, id, err
			}
		}
		count := int64(want.ShardCount)
		put, err := o.conn.client.PutStream(ctx, prefix, protocol.PutStreamRequest{
			ShardCount: &count, Resharding: want.Resharding, Retention: want.Retention,
			RequestedBy: o.conn.requestedBy, Reason: o.why(what),
		}, o.callFor(prefix, want, seen))
		last = err
		switch {
		case err == nil:
			id := put.ReshardingID
			if id == "" {
				id = put.Stream.Status.ActiveReshardingID
			}
			if id == "" && put.Stream.Status.ShardCount != want.ShardCount {
				err = fmt.Errorf("the coordinator accepted %s but reports %d and no resharding", plural(want.ShardCount, "shard"), put.Stream.Status.ShardCount)
			}
			return put.Stream, id, err
		case errors.Is(err, protocol.ErrActiveResharding):
			seen, err = o.standAside(ctx, prefix, want.ShardCount)
		case ctx.Err() == nil && (unclear(err) || errors.Is(err, protocol.ErrGenerationMismatch)):
			seen, err = o.lookAfter(ctx, prefix, want, seen, err)
		}
		if err != nil {
			return protocol.Stream{}, "", err
		}
	}
	return protocol.Stream{}, "", last
}

// lastLook looks once more what has become of a creation that was ended while its request was under way:
// the stream, and the resharding that leads it to the wanted count; nil when there is none, or another.
// Whoever ended it does not wait long for that.
func (o operation) lastLook(parent context.Context, prefix string, want protocol.StreamSpec) (made *protocol.Stream, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), latestWithin)
	defer cancel()
	s, err := o.conn.client.Stream(ctx, prefix)
	if err != nil || !sameSpec(s.Spec, want) {
		return nil, ""
	}
	if foreign, err := o.conn.foreign(ctx, s, want); err != nil || foreign != "" {
		return nil, ""
	}
	id, leads, err := o.onItsWay(ctx, s, want.ShardCount)
	if err != nil || !leads {
		return nil, ""
	}
	return &s, id
}

// onItsWay says whether a stream that is to have count shards has them (id is "" then), or is led
// there by the resharding id.
func (o operation) onItsWay(ctx context.Context, s protocol.Stream, count int) (id string, done bool, err error) {
	id = s.Status.ActiveReshardingID
	if id == "" {
		return "", s.Status.ShardCount == count, nil
	}
	r, err := o.conn.client.Resharding(ctx, s.StreamPrefix, id, "", 0)
	switch {
	case errors.Is(err, protocol.ErrReshardingNotFound):
		return "", false, nil
	case err != nil:
		return "", false, err
	case r.ToShardCount != count, r.Phase.Terminal(), r.Phase == protocol.PhaseRollingBack:
		return "", false, nil
	}
	tflog.Info(ctx, "attaching to a resharding that is already running", map[string]any{"resharding_id": id, "phase": string(r.Phase)})
	return id, true, nil
}

// lookAfter looks what has become of a request that ended with err, and returns the stream from which
// the next round begins: with the wanted state, or as it was before, when the request did not arrive.
// Else somebody else was faster, and it returns err.
func (o operation) lookAfter(ctx context.Context, prefix string, want protocol.StreamSpec, before *protocol.Stream, err error) (*protocol.Stream, error) {
	var refusal *protocol.Error
	unanswered := !errors.As(err, &refusal)
	now, readErr := o.conn.client.Stream(ctx, prefix)
	switch {
	case readErr == nil && sameSpec(now.Spec, want):
		if before == nil && !unanswered { // others may have made just the same
			if why, unknown := o.conn.foreign(ctx, now, want); why != "" || unknown != nil {
				return nil, err
			}
		}
		before = &now
	case readErr == nil && unanswered && before != nil && now.Generation == before.Generation:
	case unanswered && before == nil && errors.Is(readErr, protocol.ErrStreamNotFound):
	default:
		return nil, err
	}
	if pause(ctx, askAgain) != nil {
		return nil, err
	}
	return before, nil
}

// standAside waits for the end of the resharding that keeps the stream from being led to count
// shards, and returns the stream after it. It waits only for what ends there, or where it began (the
// coordinator's own repair); anything else somebody else decided, and a person has to say which of
// the two it shall be.
func (o operation) standAside(ctx context.Context, prefix string, count int) (*protocol.Stream, error) {
	s, err := o.conn.client.Stream(ctx, prefix)
	if err != nil {
		return nil, err
	}
	id := s.Status.ActiveReshardingID
	if id == "" {
		return &s, nil // it has just ended
	}
	r, err := o.conn.client.Resharding(ctx, prefix, id, "", 0)
	if err != nil {
		return nil, err
	}
	if r.ToShardCount != count && r.ToShardCount != r.FromShardCount {
		return nil, protocol.NewError(protocol.CodeActiveMigration, fmt.Sprintf(
			"resharding %s from %d to %s is in phase %s (requested by %q, reason %q); this apply wants %d",
			r.ReshardingID, r.FromShardCount, plural(r.ToShardCount, "shard"), r.Phase, r.RequestedBy, r.Reason, count))
	}
	if r, err = o.await(ctx, r); err != nil {
		return nil, &unfinished{r, err, ctx.Err()}
	}
	if s, err = o.conn.client.Stream(ctx, prefix); err != nil {
		return nil, err
	}
	return &s, nil
}

// unfinished is the end of waiting for a resharding after which this apply's own was to begin.
type unfinished struct {
	resharding protocol.Resharding // as last seen
	cause      error
	ended      error // of the operation's context; nil: it was not the operation that ended
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
