package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// sayAgain spaces the log lines of a wait in which nothing happens.
const sayAgain = 10 * time.Second

// declaredGroup is how far the declaration of a consumer group came.
type declaredGroup struct {
	group      protocol.Group // as last seen, zero when it was not
	generation int64          // of the wanted state; 0: it was not seen
	stored     bool           // the coordinator has the wanted state; with an error, it is only not ready everywhere
	gone       bool           // it was looked for, and there is none
}

// declareGroup makes want the desired state of a group, from the generation ifMatch or
// client.MustBeNew, and waits until it is ready on every shard. A request whose answer was lost is
// looked after: what it was to make is there, or it is sent again, or somebody else was faster.
func (o operation) declareGroup(ctx context.Context, want protocol.Group, ifMatch int64, what string) (declaredGroup, error) {
	const rounds = 5 // of requests that were lost on their way
	prefix, name := want.StreamPrefix, want.ConsumerGroup
	for round := 1; ; round++ {
		g, err := o.conn.client.PutGroup(ctx, prefix, name, protocol.PutGroupRequest{
			GroupSpec: want.Spec, RequestedBy: o.conn.requestedBy, Reason: o.why(what),
		}, o.groupCall(ifMatch, prefix, name, want.Spec))
		switch {
		case err == nil:
			return o.awaitGroup(ctx, g)
		case errors.Is(err, errNotReady):
			return o.awaitGroup(ctx, want)
		case ctx.Err() != nil, !unclear(err) && !errors.Is(err, protocol.ErrGenerationMismatch):
			return declaredGroup{}, err
		}
		now, readErr := o.conn.client.Group(ctx, prefix, name)
		gone := errors.Is(readErr, protocol.ErrGroupNotFound)
		var refusal *protocol.Error
		unanswered := !errors.As(err, &refusal)
		switch {
		case readErr == nil && sameGroupSpec(now, want):
			return o.awaitGroup(ctx, now)
		case unanswered && round < rounds && (gone && ifMatch == client.MustBeNew || readErr == nil && now.Generation == ifMatch):
			if pause(ctx, askAgain) != nil {
				return declaredGroup{}, err
			}
		default:
			return declaredGroup{group: now, gone: gone}, err
		}
	}
}

// awaitGroup waits until a group that is registered is ready on every shard, and returns it as last
// seen, also on error. The end of ctx ends the waiting, never the coordinator's work.
func (o operation) awaitGroup(ctx context.Context, g protocol.Group) (declaredGroup, error) {
	started := time.Now()
	done := declaredGroup{group: g, generation: g.Generation, stored: true}
	var unheard silence
	var told time.Time // when it was last said what is waited for
	for !done.group.Ready {
		if time.Since(told) >= sayAgain {
			told = time.Now()
			tflog.Info(ctx, "the consumer group is registered, and waits for its Redis consumer groups on every shard", map[string]any{
				"waited_ms": time.Since(started).Milliseconds(), "shard_count": done.group.ShardCount,
			})
		}
		if err := pause(ctx, askAgain); err != nil {
			return done, err
		}
		asked := time.Now()
		next, err := o.conn.client.Group(ctx, g.StreamPrefix, g.ConsumerGroup)
		switch {
		case err == nil:
			done.group = next
			if done.generation == 0 && sameGroupSpec(next, g) { // the answer to the request told none
				done.generation = next.Generation
			}
			unheard.over()
		case ctx.Err() != nil:
			return done, ctx.Err()
		case errors.Is(err, protocol.ErrGroupNotFound):
			return declaredGroup{gone: true}, err
		case !passing(err, time.Since(started)):
			return done, err
		default:
			if err := unheard.bear(ctx, asked, err); err != nil {
				return done, err
			}
		}
	}
	tflog.Debug(ctx, "the consumer group is ready", map[string]any{"generation": done.generation})
	return done, nil
}

// latestGroup looks once more what has become of a declaration that was ended, so that what it may
// have made is not lost. Whoever ended it does not wait long for that.
func (c *connection) latestGroup(parent context.Context, want protocol.Group) declaredGroup {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), latestWithin)
	defer cancel()
	now, err := c.client.Group(ctx, want.StreamPrefix, want.ConsumerGroup)
	return declaredGroup{group: now, generation: now.Generation, stored: err == nil && sameGroupSpec(now, want), gone: errors.Is(err, protocol.ErrGroupNotFound)}
}

// removeGroup deletes a group of the generation ifMatch, 0 for any, and waits until its Redis
// consumer groups are gone. With ErrGenerationMismatch it returns the group as it is now. goes says,
// with another error, that the coordinator has deleted it and goes on with the rest.
func (o operation) removeGroup(ctx context.Context, prefix, name string, body protocol.DeleteGroupRequest, ifMatch int64) (now protocol.Group, goes bool, err error) {
	const rounds = 5 // of requests that were lost on their way
	for round := 1; ; round++ {
		presupposed := ifMatch
		if goes {
			presupposed = client.MustBeNew // waits for the end, and touches no group that bears the name since
		}
		err = o.conn.client.DeleteGroup(ctx, prefix, name, body, o.groupCall(presupposed, prefix, name, "delete"))
		switch {
		case err == nil, errors.Is(err, protocol.ErrGroupNotFound), errors.Is(err, protocol.ErrStreamNotFound), goes && errors.Is(err, protocol.ErrGenerationMismatch):
			return now, goes, nil
		case errors.Is(err, protocol.ErrGenerationMismatch):
			g, readErr := o.conn.client.Group(ctx, prefix, name)
			if errors.Is(readErr, protocol.ErrGroupNotFound) {
				return g, goes, nil
			}
			return g, goes, err
		case ctx.Err() != nil, !unclear(err):
			return now, goes, err
		}
		g, readErr := o.conn.client.Group(ctx, prefix, name)
		var refusal *protocol.Error
		switch {
		case goes, errors.Is(readErr, protocol.ErrGroupNotFound):
			goes = true
			tflog.Info(ctx, "the consumer group is deleted; its Redis consumer groups have not gone from every shard yet", map[string]any{"error": err.Error()})
		case !errors.As(err, &refusal) && round < rounds && readErr == nil && g.Generation == ifMatch: // it did not arrive
		default:
			return now, goes, err // it is still there, or that cannot be known
		}
		if pause(ctx, askAgain) != nil {
			return now, goes, err
		}
	}
}

// groupCall is the extras of a request that presupposes a generation of a group. An apply that was
// killed and is run again sends the same key again.
func (o operation) groupCall(ifMatch int64, parts ...any) client.Call {
	call := o.call()
	call.IfMatch = ifMatch
	call.IdempotencyKey = keyOf(append(parts, o.conn.requestedBy, ifMatch)...)
	return call
}

// errNotReady is the answer to a declaration that was stored, and is not carried out everywhere yet.
var errNotReady = protocol.NewError(protocol.CodeProvisioningFailed, "")

// unclear says whether a request may have been carried out although it ended with err.
func unclear(err error) bool {
	var refusal *protocol.Error
	return !errors.As(err, &refusal) || refusal.Code.HTTPStatus() >= 500
}

func sameGroupSpec(is, want protocol.Group) bool { return groupDifferences(is.Spec, want.Spec) == "" }

// takenGroup says, at the plan of a creation, that the group exists: as the creation that an apply
// left behind when it was killed, or as somebody else's.
func (c *connection) takenGroup(ctx context.Context, want protocol.Group, private privateData, diags *diag.Diagnostics) {
	if !c.ready() {
		return
	}
	g, err := c.client.Group(c.logContext(ctx), want.StreamPrefix, want.ConsumerGroup)
	_, replaces := recallSeen(ctx, private) // something that goes first, and has another name, or is only forgotten
	switch {
	case errors.Is(err, protocol.ErrGroupNotFound), errors.Is(err, protocol.ErrStreamNotFound):
	case err != nil:
		diags.Append(c.unasked(fmt.Sprintf("the creation of %s", groupName(want)), err))
	case sameGroupSpec(g, want):
		diags.AddWarning("Consumer group exists already", fmt.Sprintf(
			"%s exists, with just these settings, as a creation leaves it behind whose apply was killed. It is taken into the state as it is, and goes on where it has read to, unless the plan replaces it. "+
				"If it is somebody else's, do not apply.", capital(groupName(want))))
	case !replaces && !c.claims.inState(groupName(want)):
		diags.Append(inTheWay("Consumer group", want.ConsumerGroup, groupDifferences(g.Spec, want.Spec), want.StreamPrefix+"/"+want.ConsumerGroup))
	default:
		diags.Append(groupExists(g, want))
	}
}

// groupExists refuses to take over a group with other settings.
func groupExists(is, want protocol.Group) diag.Diagnostic {
	return exists("Consumer group", want.ConsumerGroup, groupDifferences(is.Spec, want.Spec), want.StreamPrefix+"/"+want.ConsumerGroup)
}

// staleGroup refuses a plan that was made for generation before of a group, which is otherwise now.
func staleGroup(before int64, now declaredGroup, want protocol.Group) diag.Diagnostic {
	fate := fmt.Sprintf("is at generation %d now: its settings were changed since the state was read, by somebody else", now.group.Generation)
	if now.gone {
		fate = "does not exist any more: it was deleted since the state was read, by somebody else"
	}
	return stale("consumer group", groupName(want), before, fate, "")
}

// anotherGroup refuses a plan that was made for a group of generation before, which had the name of this one.
func anotherGroup(before int64, is protocol.Group) diag.Diagnostic {
	return stale("consumer group", groupName(is), before, fmt.Sprintf(
		"was deleted since the state was read, and made anew, by somebody else: this one is at generation %d, and has positions of its own", is.Generation), "")
}

func groupName(g protocol.Group) string {
	return fmt.Sprintf("consumer group %q of stream %q", g.ConsumerGroup, g.StreamPrefix)
}

// capital makes a beginning of a sentence.
func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// groupStopped is what is told when the waiting for a group ended before the coordinator's work did:
// fate says how far that is. The other arguments are as with stopped.
func (c *connection) groupStopped(ctx context.Context, fate string, err error, argument string, waited time.Duration) (summary, detail string) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return "Interrupted while a consumer group is being set up or removed", fate
	case ctx.Err() != nil:
		return "Timed out while a consumer group is being set up or removed", fmt.Sprintf("%s\n\nWaited for %s (%s).", fate, formatDuration(waited), argument)
	default:
		return "Lost contact while a consumer group is being set up or removed", redact(fmt.Sprintf("%s\n\nCause: %v", fate, err), c.secrets)
	}
}

// groupFate says how far a group is that the coordinator has as it was wanted.
func groupFate(g protocol.Group) string {
	if g.Ready {
		return fmt.Sprintf("%s is registered with these settings, and ready on every shard.", capital(groupName(g)))
	}
	return fmt.Sprintf("%s is registered with these settings, but its Redis consumer groups do not exist on every shard yet: until then its members get no shards. The coordinator goes on by itself; nothing was cancelled.", capital(groupName(g)))
}
