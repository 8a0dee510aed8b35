package provider

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// seenKey holds, in the private data of a state, the generation of the desired state of the stream
// or consumer group that the state was read at.
const seenKey = "generation"

func rememberSeen(ctx context.Context, p privateData, generation int64) diag.Diagnostics {
	return p.SetKey(ctx, seenKey, strconv.AppendInt(nil, generation, 10))
}

// recallSeen reads what rememberSeen stored; ok is false for states of before, and where the
// coordinator told none.
func recallSeen(ctx context.Context, p privateData) (generation int64, ok bool) {
	text, diags := p.GetKey(ctx, seenKey)
	if diags.HasError() || len(text) == 0 {
		return 0, false
	}
	generation, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		tflog.Warn(ctx, "private data is unreadable", map[string]any{"error": err.Error()})
		return 0, false
	}
	return generation, generation > 0
}

// changedSince refuses an apply of a plan that was made for another desired state than the stream
// has now. One that has the wanted state already is no conflict: an apply that was killed before
// it could save its state comes back like this.
func (c *connection) changedSince(ctx context.Context, p privateData, seen protocol.Stream, want protocol.StreamSpec) (diag.Diagnostic, bool) {
	before, ok := recallSeen(ctx, p)
	if !ok || before == seen.Generation || sameSpec(seen.Spec, want) {
		return nil, false
	}
	last, err := c.lastResharding(ctx, seen)
	if err != nil { // it would only be shown
		last = nil
	}
	return staleStream(before, seen.Generation, seen.StreamPrefix, last), true
}

// staleStream says how a stream is another than the plan rests on.
func staleStream(before, now int64, prefix string, last *protocol.Resharding) diag.Diagnostic {
	more := ""
	if last != nil {
		more = fmt.Sprintf("\n\nIts last resharding: %s from %d to %s, phase %s, requested by %q, reason %q.",
			last.ReshardingID, last.FromShardCount, plural(last.ToShardCount, "shard"), last.Phase, last.RequestedBy, last.Reason)
	}
	return stale("stream", fmt.Sprintf("stream %q", prefix), before, fmt.Sprintf(
		"is at generation %d now: its settings or its shard count were changed since the state was read, by somebody else or by a rollback", now), more)
}

// stale refuses a plan that was made for another generation of something than there is: kind and
// which name it, now says what has become of it, more is told besides.
func stale(kind, which string, before int64, now, more string) diag.Diagnostic {
	return diag.NewErrorDiagnostic("The "+kind+" was changed since the plan", fmt.Sprintf(
		"The plan was made for generation %d of %s, which %s. Nothing was done.%s\n\nRun terraform plan again (without -refresh=false) and look at what it proposes now.",
		before, which, now, more))
}
