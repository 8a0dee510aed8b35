package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// advice says, for a refusal, what happened in a few words and what to do about it.
type advice struct{ summary, todo string }

// adviceFor is the one table from error code to words.
var adviceFor = map[protocol.Code]advice{
	protocol.CodeInvalidRequest:        {"The coordinator refused the values", "Correct the named field."},
	protocol.CodeUnauthenticated:       {"Authentication failed", "Check username and password, or token, of the provider, and REDISSTREAM_USERNAME, REDISSTREAM_PASSWORD, REDISSTREAM_TOKEN and REDISSTREAM_TOKEN_FILE in the environment."},
	protocol.CodeForbidden:             {"Permission denied", "The credentials are valid, but their roles do not allow this: reading needs READ, changing needs WRITE or ADMIN."},
	protocol.CodeStreamNotFound:        {"The stream does not exist", "If it is made by a redisstream_shard_count resource, refer to that resource's stream_prefix so that Terraform makes it first."},
	protocol.CodeGroupNotFound:         {"The consumer group does not exist", "If a redisstream_stream_group of this configuration is to make it, refer to that resource, so that Terraform makes it first, and plan again."},
	protocol.CodeMigrationNotFound:     {"The resharding does not exist", "The coordinator keeps a bounded number of reshardings of each stream: see the data source redisstream_reshardings for those on record."},
	protocol.CodeGroupHasMembers:       {"The consumer group has live members", "Stop its consumers first, or set force_destroy = true, apply, and destroy again."},
	protocol.CodeGroupNotEmpty:         {"The consumer group has not finished", "Let its consumers read and acknowledge the rest, or set force_destroy = true, apply, and destroy again: what is left is then lost to the group."},
	protocol.CodeActiveMigration:       {"Another resharding is running", "Wait until it has ended or roll it back, then apply again."},
	protocol.CodeStreamNotEmpty:        {"The stream still holds entries", "Let its consumer groups read and acknowledge them, then destroy again."},
	protocol.CodeForeignKeys:           {"Keys of somebody else are in the way", "Move or remove the named Redis keys, or choose another stream_prefix."},
	protocol.CodeGenerationMismatch:    {"It was changed meanwhile", "Run terraform plan again."},
	protocol.CodeRateLimited:           {"The coordinator limits the request rate", "Retries did not help within their budget; apply again later, or with a lower -parallelism."},
	protocol.CodeRedisUnavailable:      {"The coordinator cannot reach Redis", "Apply again when Redis is back: what was done until then is found and not done twice."},
	protocol.CodeProvisioningFailed:    {"Shards could not be provisioned", "Check the coordinator's log and Redis, then apply again."},
	protocol.CodeShardControlDamaged:   {"The control hash of a shard is damaged", "Nothing is done on that shard until the hash is put aside: see the runbook damaged-control. The coordinator then makes it again."},
	protocol.CodeStateUnreadable:       {"The stored state of the stream is unreadable", "The coordinator fails closed for this stream; see its log and metrics."},
	protocol.CodeCoordinatorOverloaded: {"The coordinator is overloaded", "Apply again later."},
	protocol.CodeTerminating:           {"The coordinator is shutting down", "Apply again when a replica is ready."},
	protocol.CodeInternal:              {"The coordinator failed", "See its log for the request id."},
	protocol.CodeNotFound:              {"The coordinator does not know this request", "It is older than the provider, or the endpoint has a path too many. Upgrade the coordinator first, then the provider."},
	protocol.CodeMethodNotAllowed:      {"The coordinator does not know this request", "It is older than the provider. Upgrade the coordinator first, then the provider."},
	protocol.CodeCertificateNotFound:   {"There is no drain certificate", "Only a resharding that drained shards has one, and only the newest certificates are kept."},
	protocol.CodeGroupExists:           {"The consumer group exists already", "To manage it with Terraform, import it as <stream_prefix>/<consumer_group>."},
	protocol.CodeStreamExists:          {"The stream exists already", "To manage it with Terraform, import it by its stream_prefix."},
	protocol.CodeMetadataSync:          {"The layout is being changed", "Apply again in a moment."},
	protocol.CodeStateVersionConflict:  {"It was being changed at the same moment", "Apply again."},
	protocol.CodeIdempotencyMismatch:   {"The idempotency key was used for something else", "Apply again."},
	protocol.CodeBodyTooLarge:          {"The request is too large", "Raise the coordinator's --body-limit, or shorten lists such as ignore_groups."},
	protocol.CodeRollbackNotAllowed:    {"The resharding cannot be rolled back any more", "Wait for its end, and then apply the shard count that you want."},
	protocol.CodePublishingPaused:      {"Publishing is paused", "Wait for the end of the pause, or resume publishing."},
}

// diagnose turns an error of the client into one diagnostic. what names the work in the form
// `update stream "orders"`. Secrets are taken out of what comes from elsewhere, not out of our own
// words: a password that is one of them would be given away by its absence.
func (c *connection) diagnose(what string, err error) diag.Diagnostic {
	var refusal *protocol.Error
	var failure *client.Error
	tries := ""
	if errors.As(err, &failure) && failure.Attempts > 1 {
		tries = fmt.Sprintf("Given up after %s in %s; the last answer was HTTP %d.\n", plural(failure.Attempts, "attempt"), formatDuration(failure.Took.Round(100*time.Millisecond)), failure.StatusCode)
	}
	clean := func(v any) string { return redact(fmt.Sprint(v), c.secrets) }
	var b strings.Builder
	summary := "Request to the coordinator failed"
	if before, ok := errors.AsType[*unfinished](err); ok {
		why := clean(before.cause)
		switch {
		case errors.Is(before.ended, context.Canceled):
			summary, why = "Interrupted while another resharding is running", "interrupted"
		case before.ended != nil:
			summary, why = "Timed out while another resharding is running", "it was not over in the time that timeouts allows"
		default:
			summary = "Lost contact while another resharding is running"
		}
		return diag.NewErrorDiagnostic(summary, fmt.Sprintf("%s: has to wait for the end of another resharding: %s\n\n%s\n\n"+
			"The coordinator goes on with that one by itself. Nothing of this apply was done; apply again.", clean(what), why, clean(describe(before.resharding))))
	}
	switch {
	case errors.Is(err, context.Canceled):
		summary = "Interrupted"
		fmt.Fprintf(&b, "%s: interrupted before the coordinator had answered. Applying again is safe: requests are idempotent.", clean(what))
		if errors.As(err, &refusal) {
			fmt.Fprintf(&b, "\nThe last answer was: %s (%s)", clean(refusal.Message), refusal.Code)
		}
	case errors.As(err, &refusal):
		a, known := adviceFor[refusal.Code]
		if known {
			summary = a.summary
		} else {
			summary = "The coordinator refused the request"
		}
		fmt.Fprintf(&b, "%s: %s (%s)\n%s", clean(what), clean(refusal.Message), refusal.Code, tries)
		for _, d := range refusal.Details {
			if !strings.Contains(refusal.Message, d.Message) {
				fmt.Fprintf(&b, "  %s\n", clean(strings.TrimPrefix(d.Field+": "+d.Message, ": ")))
			}
		}
		if refusal.RequestID != "" {
			fmt.Fprintf(&b, "Request id: %s\n", clean(refusal.RequestID))
		}
		if known {
			fmt.Fprintf(&b, "\n%s", a.todo)
		}
	case errors.Is(err, context.DeadlineExceeded):
		summary = "Timed out"
		fmt.Fprintf(&b, "%s: %s\n\nThe coordinator at %s did not answer in time. Applying again is safe: requests are idempotent.", clean(what), clean(err), clean(c.endpoint))
	default:
		fmt.Fprintf(&b, "%s: %s\n\n%s", clean(what), clean(err), c.guess(err))
	}
	return diag.NewErrorDiagnostic(summary, strings.TrimSpace(b.String()))
}

// guess says what is likely wrong when no coordinator has answered.
func (c *connection) guess(err error) string {
	var failure *client.Error
	at := redact(c.endpoint, c.secrets)
	switch _, unverified := errors.AsType[*tls.CertificateVerificationError](err); {
	case unverified:
		return "The certificate of " + at + " could not be verified. If it was issued by an authority of your own, give that one's certificate as ca_certificate or ca_certificate_file."
	case errors.As(err, &failure) && failure.StatusCode == http.StatusUnauthorized, failure != nil && failure.StatusCode == http.StatusForbidden:
		return "The answer is not the coordinator's: something before it, such as a proxy, refused the request. Check what it wants to see: credentials, a client certificate."
	case errors.Is(err, client.ErrUnexpectedAnswer):
		return "What answered at " + at + " is not a coordinator, or something before it, such as a proxy, has replaced or cut short its answer. Check the endpoint."
	}
	return "Check that the endpoint " + at + " is the base URL of a coordinator and that it is running."
}

// exists refuses to take over an object that some other hand made with other settings.
func exists(kind, name, differences, importID string) diag.Diagnostic {
	return diag.NewErrorDiagnostic(kind+" already exists", fmt.Sprintf(
		"%q exists already, and not as this configuration would have made it: %s. "+
			"It was not touched. To manage it with Terraform, import it: terraform import ADDRESS %q. If another address of this configuration had it until now, say so in a moved block. If its own resource is tainted, take that back first: terraform untaint ADDRESS",
		name, differences, importID))
}

// inTheWay tells, at the plan of a creation, that the apply will refuse it as exists does, if what is
// there is still there then. It is no error: Terraform shows a tainted resource, which it destroys first,
// to the provider as one that is not there, and it plans the creation of a replacement with
// create_before_destroy once more in the apply, when it has put the old object aside: it takes that back
// when the creation fails, but not when that plan does, and would destroy what is live the next time.
// What the state of the run has is another matter: that is read by a plan, never by an apply.
func inTheWay(kind, name, differences, importID string) diag.Diagnostic {
	return diag.NewWarningDiagnostic(kind+" is in the way", fmt.Sprintf(
		"%q exists already, and not as this configuration would have made it: %s. The apply will refuse to take it over, unless this plan removes it before, as it does with a tainted resource. "+
			"To manage it with Terraform, import it: terraform import ADDRESS %q. If another address of this configuration had it until now, say so in a moved block. "+
			"If this is a replacement with create_before_destroy, leave that out: two objects cannot have one name.",
		name, differences, importID))
}
