package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// privateData is the part of the framework's private state that is used here, of a resource or of an
// ephemeral one.
type privateData interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// Keys of the private data of a state: the generation of the desired state of the stream or consumer
// group that the state was read at, the name of what a destroy removes, and when the stream or group was made.
const (
	seenKey  = "generation"
	namedKey = "name"
	madeKey  = "made"
)

// rememberSeen stores what recallSeen and replacesItself read.
func rememberSeen(ctx context.Context, p privateData, name string, generation int64) diag.Diagnostics {
	return append(rememberName(ctx, p, name), p.SetKey(ctx, seenKey, strconv.AppendInt(nil, generation, 10))...)
}

// rememberName stores the import id of what a destroy removes, "" where it removes nothing.
func rememberName(ctx context.Context, p privateData, name string) diag.Diagnostics {
	text, err := json.Marshal(name)
	if err != nil { // of a string: it never is
		return diag.Diagnostics{diag.NewErrorDiagnostic("Private data cannot be written", err.Error())}
	}
	return p.SetKey(ctx, namedKey, text)
}

// replacesItself says whether the plan of a creation is the second half of a replacement, in which
// what is there under name goes first: -replace and replace_triggered_by come like this. Terraform plans
// that half without a state, and hands over the private data of the first. Of a tainted resource it
// hands over nothing.
func replacesItself(ctx context.Context, p privateData, name string) bool {
	text, diags := p.GetKey(ctx, namedKey)
	var was string
	return !diags.HasError() && len(text) > 0 && json.Unmarshal(text, &was) == nil && was != "" && was == name
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

// rememberMade stores when the stream or group was made: one that is made anew under the name begins
// its generations at 1 again, so that those alone do not tell the two apart.
func rememberMade(ctx context.Context, p privateData, made time.Time) diag.Diagnostics {
	text, err := json.Marshal(made)
	if err != nil || made.IsZero() { // not told, or of a year that no clock shows
		text = nil
	}
	return p.SetKey(ctx, madeKey, text)
}

// recallMade reads what rememberMade stored; ok is false where it stored nothing.
func recallMade(ctx context.Context, p privateData) (made time.Time, ok bool) {
	text, diags := p.GetKey(ctx, madeKey)
	ok = !diags.HasError() && len(text) > 0 && json.Unmarshal(text, &made) == nil
	return made, ok
}

// madeJustNow says whether rememberMade was told of a time so near that a replica of the coordinator may
// not know yet what was made.
func madeJustNow(ctx context.Context, p privateData) bool {
	made, ok := recallMade(ctx, p)
	return ok && time.Since(made).Abs() < consistencyWindow
}

// anotherSince says whether what was made at that time is not what rememberMade was told of.
func anotherSince(ctx context.Context, p privateData, seen time.Time) bool {
	made, ok := recallMade(ctx, p)
	return ok && !seen.IsZero() && !made.Equal(seen)
}

// changedSince refuses an apply of a plan that was made for another desired state than the stream
// has now, or for another stream of the name. One that has the wanted state already is no conflict:
// an apply that was killed before it could save its state comes back like this.
func (c *connection) changedSince(ctx context.Context, p privateData, seen protocol.Stream, want protocol.StreamSpec) (diag.Diagnostic, bool) {
	before, ok := recallSeen(ctx, p)
	if anotherSince(ctx, p, seen.CreatedAt) && !sameSpec(seen.Spec, want) {
		return stale("stream", streamName(seen.StreamPrefix), before, fmt.Sprintf(
			"was removed since the state was read, and made anew, by somebody else: this one has %s and is at generation %d", plural(seen.Status.ShardCount, "shard"), seen.Generation), ""), true
	}
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
	return stale("stream", streamName(prefix), before, fmt.Sprintf(
		"is at generation %d now: its settings or its shard count were changed since the state was read, by somebody else or by a rollback", now), more)
}

// goneStream refuses a plan for a stream that is no more.
func goneStream(ctx context.Context, p privateData, prefix string) diag.Diagnostic {
	before, _ := recallSeen(ctx, p)
	return stale("stream", streamName(prefix), before, "does not exist any more: it was removed since the state was read, by somebody else", "")
}

// stale refuses a plan that was made for another generation of something than there is: kind and
// which name it, now says what has become of it, more is told besides.
func stale(kind, which string, before int64, now, more string) diag.Diagnostic {
	return diag.NewErrorDiagnostic("The "+kind+" was changed since the plan", fmt.Sprintf(
		"The plan was made for generation %d of %s, which %s. Nothing was done.%s\n\nRun terraform plan again (without -refresh=false) and look at what it proposes now.",
		before, which, now, more))
}
