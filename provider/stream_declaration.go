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
