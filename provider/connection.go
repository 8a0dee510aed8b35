package provider

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// mutationGrace is how long a mutation that is on its way may still take after Ctrl-C. Cutting
// it off at once would leave its outcome unknown for the sake of seconds.
const mutationGrace = 3 * time.Second

// connection is what Configure hands to everything else. Its client is nil while an argument of
// the provider is known only after apply. All that share it share the client's back-off.
type connection struct {
	client          *client.Client
	endpoint        string // base URLs, for messages
	secrets         *secretSet
	requestedBy     string // terraform:<workspace>, unless configured
	requestIDPrefix string
	tokens          *OpenTokens // nil: not kept
	claims          claims
}

// connect makes the connection that all resources of one provider instance share. Nothing is
// sent.
func connect(s settings, retries int, timeout time.Duration, userAgent string) (*connection, error) {
	web, err := httpClient(s)
	if err != nil {
		return nil, err
	}
	conn := &connection{
		endpoint: strings.Join(s.endpoints, ", "), secrets: s.secrets(), requestedBy: s.requestedBy, requestIDPrefix: s.requestIDPrefix,
	}
	cfg := client.Config{
		Endpoints: s.endpoints, Username: s.username, Password: s.password, Token: s.token,
		HTTPClient: web, Retries: retries, CallTimeout: timeout, OverloadBudget: s.retryBudget, UserAgent: userAgent, Observe: conn.observe,
	}
	if s.tokenFile != "" {
		cfg.TokenSource = func() (string, error) {
			token, err := readToken(s.tokenFile, os.ReadFile)
			if err != nil {
				return "", &tokenFileError{err}
			}
			conn.secrets.add(token)
			return token, nil
		}
		if _, err := cfg.TokenSource(); err != nil { // so that its token is a secret from the start
			return nil, &problem{"token_file", err.Error()}
		}
	}
	if conn.client, err = client.New(cfg); err != nil {
		return nil, fmt.Errorf("client for the coordinator: %w", err)
	}
	return conn, nil
}

// observe logs one request, with nothing of its headers and body.
func (c *connection) observe(ctx context.Context, a client.Attempt) {
	fields := map[string]any{
		"method": a.Method, "path": a.Path, "endpoint": a.Endpoint, "attempt": a.Number, "status": a.StatusCode, "took_ms": a.Took.Milliseconds(),
	}
	if a.RequestID != "" {
		fields["request_id"] = a.RequestID
	}
	ctx = c.secrets.logContext(ctx)
	if a.Err == nil {
		tflog.Debug(ctx, "coordinator has answered", fields)
		return
	}
	fields["error"] = redact(a.Err.Error(), c.secrets)
	tflog.Debug(ctx, "request to the coordinator was refused or failed", fields)
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
		"An argument of the provider is known only after apply, so nothing can be read or changed yet. Apply what it depends on first (terraform apply -target=…). "+
			"A data source or ephemeral resource can also be given depends_on that dependency: Terraform then reads it during the apply.")
}

// operation is one create, update or delete of one resource: its calls share a request id, so
// that they are found together in the coordinator's audit log.
type operation struct {
	conn      *connection
	requestID string
	reason    string
	progress  func(protocol.Resharding) // told of each phase and of what it waits for; nil: nobody is
}

// begin starts an operation. The context masks the credentials in every log line below it.
func (c *connection) begin(ctx context.Context, name, reason string, fields map[string]any) (context.Context, operation) {
	op := operation{conn: c, requestID: c.requestIDPrefix + uuid.NewString(), reason: reason}
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
	if c == nil || c.secrets == nil {
		return ctx
	}
	return c.secrets.logContext(ctx)
}

// call is the extras of one mutation; each mutation has a key of its own, which the client's
// retries of it share.
func (o operation) call() client.Call {
	return client.Call{IdempotencyKey: uuid.NewString(), RequestID: o.requestID, Grace: mutationGrace}
}

// why is the reason that goes into the audit log; fallback names the operation.
func (o operation) why(fallback string) string {
	if o.reason != "" {
		return o.reason
	}
	return fallback
}

// workspace names the Terraform workspace. Terraform does not hand it to providers; it stands in
// the environment or, once "workspace select" was used, in a file of the working directory's
// data directory. Where nothing tells, it is the default one.
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
	return "default"
}
