package provider

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
)

// mutationGrace is how long a mutation that is on its way may still take after Ctrl-C. Cutting
// it off at once would leave its outcome unknown for the sake of seconds.
const mutationGrace = 3 * time.Second

// connection is what Configure hands to the resources. Its client is nil while an argument of
// the provider is known only after apply.
type connection struct {
	client      *client.Client
	endpoint    string
	secrets     []string
	requestedBy string // terraform:<workspace>
}

// ready says whether the coordinator can be asked.
func (c *connection) ready() bool { return c != nil && c.client != nil }

// configured takes the provider's data in a resource's Configure. It returns nil while there
// is none, which is so whenever Terraform only validates.
func configured(data any, diags *diag.Diagnostics) *connection {
	if data == nil {
		return nil
	}
	conn, ok := data.(*connection)
	if !ok {
		diags.AddError("Unexpected provider data",
			fmt.Sprintf("got %T, want *provider.connection; this is a fault of the provider, please report it", data))
		return nil
	}
	return conn
}

// notReady is the diagnostic for an apply without a client. Terraform resolves all unknown
// values before it applies, so this is not expected to be seen.
func notReady() diag.Diagnostic {
	return diag.NewErrorDiagnostic("Provider not configured",
		"an argument of the provider is still unknown; apply what it depends on first (terraform apply -target=…)")
}

// operation is one create, update or delete of one resource: its calls share a request id, so
// that they are found together in the coordinator's audit log.
type operation struct {
	conn      *connection
	requestID string
	reason    string
}

// begin starts an operation. The context masks the credentials in every log line below it.
func (c *connection) begin(ctx context.Context, name, reason string, fields map[string]any) (context.Context, operation) {
	op := operation{conn: c, requestID: uuid.NewString(), reason: reason}
	ctx = c.logContext(ctx)
	ctx = tflog.SetField(ctx, "request_id", op.requestID)
	for k, v := range fields {
		ctx = tflog.SetField(ctx, k, v)
	}
	tflog.Debug(ctx, name)
	return ctx, op
}

// logContext masks the credentials by value, in messages and in fields.
func (c *connection) logContext(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	for _, form := range secretForms(c.secrets) {
		ctx = tflog.MaskMessageStrings(ctx, form)
		ctx = tflog.MaskAllFieldValuesStrings(ctx, form)
	}
	return ctx
}

// call is the extras of one mutation; each mutation has a key of its own, which the client's
// retries of it share.
func (o operation) call() client.Call {
	return client.Call{IdempotencyKey: uuid.NewString(), RequestID: o.requestID}
}

// why is the reason that goes into the audit log; fallback names the operation.
func (o operation) why(fallback string) string {
	if o.reason != "" {
		return o.reason
	}
	return fallback
}

// mutation derives the context of a mutation: it outlives the end of ctx by mutationGrace.
func mutation(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(mutationGrace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel() }
}

// secretForms lists secrets as they may show up: plain, URL-encoded, base64.
func secretForms(secrets []string) []string {
	var forms []string
	for _, s := range secrets {
		forms = append(forms, s)
		for _, f := range []string{url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s))} {
			if f != s {
				forms = append(forms, f)
			}
		}
	}
	return forms
}

// redact replaces secrets in a text that comes from elsewhere.
func redact(text string, secrets []string) string {
	for _, form := range secretForms(secrets) {
		text = strings.ReplaceAll(text, form, "***")
	}
	return text
}

// workspace names the Terraform workspace, "unknown" when nothing tells. Terraform does not
// hand it to providers; it stands in the environment or, once "workspace select" was used, in
// a file of the working directory's data directory.
func workspace(getenv func(string) string, readFile func(string) ([]byte, error)) string {
	for _, env := range []string{"TF_WORKSPACE", "TFC_WORKSPACE_NAME"} {
		if name := strings.TrimSpace(getenv(env)); name != "" {
			return name
		}
	}
	dir := getenv("TF_DATA_DIR")
	if dir == "" {
		dir = ".terraform"
	}
	// No such file, or one that cannot be read: the name is for the audit log only.
	if text, err := readFile(filepath.Join(dir, "environment")); err == nil {
		if name := strings.TrimSpace(string(text)); name != "" {
			return name
		}
	}
	return "unknown"
}
