package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// preview asks the coordinator what a change would do and says it: blockers are errors of the
// plan, the rest warnings. A coordinator that cannot tell does not stop a plan.
//
// Terraform plans once more when it applies, from the state as it was when the plan was made. So a
// stream that has moved on since that state was read is found here; private is of that state.
func (c *connection) preview(ctx context.Context, prefix string, want protocol.StreamSpec, creates bool, private privateData, diags *diag.Diagnostics) {
	if !c.ready() {
		return // the provider's own configuration is known only after apply
	}
	ctx = c.logContext(ctx)
	count := int64(want.ShardCount)
	p, err := c.client.PreviewStream(ctx, prefix, protocol.PutStreamRequest{
		ShardCount: &count, Resharding: want.Resharding, Retention: want.Retention, RequestedBy: c.requestedBy, Reason: "terraform: plan",
	}, c.dryRun())
	switch what := fmt.Sprintf("the change of stream %q", prefix); {
	case err != nil && creates:
		diags.Append(c.unasked(what, err))
		return
	case err != nil:
		diags.Append(c.unchecked(what, err))
		return
	}
	tflog.Debug(ctx, "dry run", map[string]any{"stream": prefix, "action": string(p.Action), "generation": p.Generation})
	if creates && p.Generation != 0 {
		c.taken(ctx, p, want, private, diags)
		return
	}
	if before, ok := recallSeen(ctx, private); ok && p.Generation != 0 && p.Generation != before && p.Action != protocol.PreviewAttach && p.Action != protocol.PreviewNone {
		diags.Append(staleStream(before, p.Generation, prefix, nil))
		return
	}
	if len(p.Blockers) > 0 {
		diags.AddError(fmt.Sprintf("Stream %q cannot be changed like this", prefix), redact(noteList(p.Blockers), c.secrets))
		return
	}
	if p.Action == protocol.PreviewReshard || p.Action == protocol.PreviewAttach || p.Action == protocol.PreviewCancel {
		diags.AddWarning(previewTitle(p), redact(previewText(p), c.secrets))
	}
	if len(p.Risks) > 0 {
		diags.AddWarning(fmt.Sprintf("Risks of changing stream %q", prefix), redact(noteList(p.Risks), c.secrets))
	}
}

func noteList(notes []protocol.PreviewNote) string {
	lines := make([]string, len(notes))
	for i, n := range notes {
		lines[i] = fmt.Sprintf("- %s (%s)", n.Message, n.Code)
	}
	return strings.Join(lines, "\n")
}

func previewTitle(p protocol.Preview) string {
	switch p.Action {
	case protocol.PreviewAttach:
		return fmt.Sprintf("Stream %q is already on its way to %s", p.StreamPrefix, plural(p.ToShardCount, "shard"))
	case protocol.PreviewCancel:
		return fmt.Sprintf("The running resharding of stream %q will be cancelled", p.StreamPrefix)
	default:
		return fmt.Sprintf("Stream %q will be resharded from %d to %s", p.StreamPrefix, p.FromShardCount, plural(p.ToShardCount, "shard"))
	}
}

// previewText says what a change does to a live stream, one fact a line.
func previewText(p protocol.Preview) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "- "+format+"\n", args...) }
	if p.Action == protocol.PreviewCancel {
		line("resharding %s is rolled back: the layout stays as it is, and publishing is open again", p.ReshardingID)
		return strings.TrimSuffix(b.String(), "\n")
	}
	if p.Action == protocol.PreviewAttach {
		line("resharding: %s", p.ReshardingID)
	}
	if len(p.ShardsAdded) > 0 {
		line("added: %s", shardRange(p.ShardsAdded))
	}
	if len(p.ShardsRemoved) > 0 {
		fate := "deleted"
		if p.Resharding.Retire == protocol.RetireArchive {
			fate = "archived"
		}
		line("removed: %s; a removed shard is %s once every consumer group has read and acknowledged all of its entries", shardRange(p.ShardsRemoved), fate)
	}
	if p.ToShardCount > 0 {
		line("keys that move to another shard: about %.0f %%", 100*p.MovedFraction)
	}
	switch {
	case p.ToShardCount == 0:
		line("publishing: ends for good")
	case !p.Publishing.Paused:
		line("publishing: goes on, is not paused")
	case p.Publishing.EstimateMs != nil:
		line("publishing: paused for about %s, at most %s (%s)", durationOfMs(*p.Publishing.EstimateMs).ValueString(), durationOfMs(p.Publishing.LimitMs).ValueString(), p.Publishing.Basis)
	default:
		line("publishing: paused for at most %s; for how long is not known (%s)", durationOfMs(p.Publishing.LimitMs).ValueString(), p.Publishing.Basis)
	}
	for _, g := range p.Groups {
		line("%s", groupText(g))
	}
	for _, u := range p.Unknown {
		line("not known: %s", u)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// groupText is the backlog of one group.
func groupText(g protocol.PreviewGroup) string {
	kind := "group"
	if !g.Managed {
		kind = "unmanaged Redis group"
	}
	text := fmt.Sprintf("%s %s: ", kind, g.Group)
	switch {
	case g.Ignored:
		text += "ignored, with "
	case g.Pending == 0 && g.Undelivered == 0:
		text += "nothing to drain"
	}
	if g.Ignored || g.Pending != 0 || g.Undelivered != 0 {
		text += entriesLeft(g.Pending, g.Undelivered, g.UndeliveredMore)
		if !g.Ignored {
			if g.DrainEstimateMs != nil {
				text += fmt.Sprintf(", drained in about %s (%s)", durationOfMs(*g.DrainEstimateMs).ValueString(), g.Basis)
			} else {
				text += fmt.Sprintf(", drained in an unknown time (%s)", g.Basis)
			}
		}
	}
	if g.Managed {
		text += fmt.Sprintf("; %s", plural(g.LiveMembers, "live member"))
		if g.AffectedCount > 0 {
			text += fmt.Sprintf(", %d with other shards afterwards", g.AffectedCount)
		}
	}
	return text
}

// entriesLeft is what a group has left, in words; more says that there is more undelivered than was
// counted.
func entriesLeft(pending, undelivered int64, more bool) string {
	rest := plural(undelivered, "undelivered entry")
	if more {
		rest = "more than " + rest
	}
	switch {
	case undelivered == 0 && !more:
		return plural(pending, "pending entry")
	case pending == 0:
		return rest
	}
	return fmt.Sprintf("%d pending and %s", pending, rest)
}

// plural counts things: thing is one of them.
func plural[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, y := strings.CutSuffix(thing, "y"); y {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// previewRemoval says, at the plan of a destroy, what of a consumer group stands in its way or would
// be lost. Neither stops the plan: the group may have finished by the apply.
func (c *connection) previewRemoval(ctx context.Context, prefix, group string, force bool, diags *diag.Diagnostics) {
	if !c.ready() {
		return
	}
	ctx = c.logContext(ctx)
	p, err := c.client.PreviewGroupRemoval(ctx, prefix, group, force, c.dryRun())
	switch {
	case errors.Is(err, protocol.ErrGroupNotFound), errors.Is(err, protocol.ErrStreamNotFound): // nothing is left to do
	case err != nil:
		diags.Append(c.unchecked(fmt.Sprintf("the removal of consumer group %q of stream %q", group, prefix), err))
	case force && len(p.Risks) > 0:
		diags.AddWarning("Consumer group will be removed with what it has not read", redact(fmt.Sprintf(
			"force_destroy is set: consumer group %q of stream %q is removed although it has not finished.\n%s", group, prefix, noteList(p.Risks)), c.secrets))
	case len(p.Blockers) == 0:
		diags.AddWarning("Consumer group will be removed", fmt.Sprintf(
			"Consumer group %q of stream %q has read and acknowledged everything. Its positions go with it: a group that is made under its name later begins at its start_position. "+
				"If only the address of the resource has changed, say so in a moved block, and the group stays.", group, prefix))
	case len(p.Shards) == 0 && p.LiveMembers == 0:
		diags.AddWarning("Consumer group could not be removed now", redact(fmt.Sprintf(
			"The coordinator would refuse to remove consumer group %q of stream %q:\n%s", group, prefix, noteList(p.Blockers)), c.secrets))
	default:
		summary := "Consumer group has not finished"
		if len(p.Shards) == 0 {
			summary = "Consumer group has live members"
		}
		diags.AddWarning(summary, fmt.Sprintf(
			"The coordinator refuses to remove consumer group %q of stream %q while it has live members, or entries that it has not read and acknowledged. Now: %s. "+
				"Stop its consumers when they have finished, or set force_destroy = true and apply that first.", group, prefix, hindrances(p)))
	}
}

// hindrances is what a group has that hinders its removal.
func hindrances(p protocol.RemovalPreview) string {
	var parts []string
	if len(p.Shards) > 0 {
		indexes := make([]int, len(p.Shards))
		for i, s := range p.Shards {
			indexes[i] = s.ShardIndex
		}
		parts = append(parts, fmt.Sprintf("%s on %s", entriesLeft(p.Pending, p.Undelivered, p.UndeliveredMore), shardRange(indexes)))
	}
	if p.LiveMembers > 0 {
		parts = append(parts, plural(p.LiveMembers, "live member"))
	}
	return strings.Join(parts, "; ")
}

// dryRun is the extras of a call that only asks what another would do.
func (c *connection) dryRun() client.Call {
	return client.Call{RequestID: c.requestIDPrefix + uuid.NewString()}
}

// unchecked is the diagnostic of a plan that the coordinator was not asked about with success: what
// names the change. Without valid credentials no apply can succeed; else it is a warning.
func (c *connection) unchecked(what string, err error) diag.Diagnostic {
	if errors.Is(err, protocol.NewError(protocol.CodeUnauthenticated, "")) {
		return c.diagnose("plan "+what, err)
	}
	return c.unasked(what, err)
}

// unasked is unchecked for a creation, of which no plan is refused for what may pass: see inTheWay.
func (c *connection) unasked(what string, err error) diag.Diagnostic {
	return diag.NewWarningDiagnostic(uncheckedTitle, redact(fmt.Sprintf(
		"What %s would do, and whether it can succeed, is not known: %v\n\nThe apply checks by itself and is as safe as with a checked plan.", what, err), c.secrets))
}

const uncheckedTitle = "The plan could not be checked with the coordinator"

// shardRange names ascending indexes, at least one: "shard 4", "shards 4 and 5", "shards 4 to 7", and
// a list where they are not consecutive.
func shardRange(indexes []int) string {
	const most = 12
	n := len(indexes)
	first, last := indexes[0], indexes[n-1]
	switch {
	case n == 1:
		return fmt.Sprintf("shard %d", first)
	case n == 2:
		return fmt.Sprintf("shards %d and %d", first, last)
	case last-first == n-1:
		return fmt.Sprintf("shards %d to %d", first, last)
	case n > most:
		return fmt.Sprintf("shards %s and %d more", commas(indexes[:most]), n-most)
	}
	return fmt.Sprintf("shards %s and %d", commas(indexes[:n-1]), last)
}

func commas(indexes []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(indexes), "[]"), " ", ", ")
}
