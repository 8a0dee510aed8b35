package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const defaultTokenLife = time.Hour

var (
	_ ephemeral.EphemeralResourceWithConfigure = (*tokenEphemeral)(nil)
	_ ephemeral.EphemeralResourceWithRenew     = (*tokenEphemeral)(nil)
	_ ephemeral.EphemeralResourceWithClose     = (*tokenEphemeral)(nil)
)

func newTokenEphemeral() ephemeral.EphemeralResource { return &tokenEphemeral{} }

type tokenEphemeral struct{ conn *connection }

// tokenModel is a redisstream_token.
type tokenModel struct {
	Username  types.String  `tfsdk:"username"`
	Password  types.String  `tfsdk:"password"`
	TTL       durationValue `tfsdk:"ttl"`
	Token     types.String  `tfsdk:"token"`
	ExpiresAt types.String  `tfsdk:"expires_at"`
	Roles     types.List    `tfsdk:"roles"`
}

// openToken is what Renew and Close know of a token. Terraform keeps it in memory only.
type openToken struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expiresAt"`
}

const openTokenKey = "token"

func (r *tokenEphemeral) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_token"
}

func (r *tokenEphemeral) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A short-lived bearer token of the coordinator, for what is configured in the same run: another provider, a write-only argument. " +
			"It is got by a login when Terraform needs it and stands in no plan and no state.\n\n" +
			"What Terraform's steps mean here, honestly: *opening* logs in. *Renewing* checks with the coordinator that the token still holds; it cannot make it live longer, since the " +
			"end of its life is signed into it: choose a `ttl` that outlasts the longest apply. *Closing* forgets it; the coordinator keeps no list of tokens and cannot revoke one, " +
			"so that it stays good until `expires_at`, or until the password of its user is changed.",
		Attributes: map[string]schema.Attribute{
			"username": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "User to log in as, together with `password`. Default: the provider's own credentials are exchanged.",
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1), stringvalidator.AlsoRequires(path.MatchRoot("password"))},
			},
			"password": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "Password of `username`.",
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1), stringvalidator.AlsoRequires(path.MatchRoot("username"))},
			},
			"ttl": schema.StringAttribute{
				CustomType: durationType{}, Optional: true,
				MarkdownDescription: "How long the token is to live, as a duration; 10s to 168h, default `\"" + formatDuration(defaultTokenLife) +
					"\"`. The coordinator cuts it to its own limit: see `expires_at`.",
				Validators: []validator.String{durationBetween{10 * time.Second, 168 * time.Hour}},
			},
			"token": schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "The token, for the header `Authorization: Bearer <token>`."},
			"expires_at": schema.StringAttribute{
				Computed: true, MarkdownDescription: "When it ends, RFC 3339, UTC.",
			},
			"roles": schema.ListAttribute{ElementType: types.StringType, Computed: true, MarkdownDescription: "Roles that it gives, sorted."},
		},
	}
}

func (r *tokenEphemeral) Configure(_ context.Context, req ephemeral.ConfigureRequest, resp *ephemeral.ConfigureResponse) {
	r.conn = configured(req.ProviderData, &resp.Diagnostics)
}

func (r *tokenEphemeral) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	var m tokenModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	r.conn.secrets.add(m.Password.ValueString())
	ctx = r.conn.logContext(ctx)
	life := defaultTokenLife
	if m.TTL.known() {
		life = time.Duration(m.TTL.ms()) * time.Millisecond
	}
	login, err := r.conn.client.LoginFor(ctx, m.Username.ValueString(), m.Password.ValueString(), life)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose("log in for a token", err))
		return
	}
	r.conn.secrets.add(login.AccessToken)
	m.Token, m.ExpiresAt = types.StringValue(login.AccessToken), types.StringValue(timestamp(login.ExpiresAt))
	roles, diags := types.ListValueFrom(ctx, types.StringType, sortedTexts(login.Roles))
	resp.Diagnostics.Append(diags...)
	m.Roles = roles
	resp.Diagnostics.Append(resp.Result.Set(ctx, &m)...)
	resp.Diagnostics.Append(keepToken(ctx, resp.Private, openToken{login.AccessToken, login.ExpiresAt})...)
	resp.RenewAt = checkAt(login.ExpiresAt, time.Now())
	tflog.Debug(ctx, "token opened", map[string]any{"expires_at": timestamp(login.ExpiresAt)})
}

// Renew cannot prolong the token; it finds out whether it still holds, before something fails
// that uses it.
func (r *tokenEphemeral) Renew(ctx context.Context, req ephemeral.RenewRequest, resp *ephemeral.RenewResponse) {
	open, diags := keptToken(ctx, req.Private)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	r.conn.secrets.add(open.Token)
	ctx = r.conn.logContext(ctx)
	const todo = "\n\nA token cannot be made to live longer. Choose a ttl that outlasts the longest apply, and run Terraform again."
	_, err := r.conn.client.SessionOf(ctx, open.Token)
	switch {
	case errors.Is(err, protocol.NewError(protocol.CodeUnauthenticated, "")):
		why := "it has come to its end at " + timestamp(open.ExpiresAt)
		if time.Now().Before(open.ExpiresAt) {
			why = "though its life would last until " + timestamp(open.ExpiresAt) + ": the password of its user was changed, the user is gone, or another replica with another token secret has answered"
		}
		resp.Diagnostics.AddError("The token no longer holds", "The coordinator does not accept the token of redisstream_token any more, "+why+"."+todo)
		return
	case errors.Is(err, protocol.NewError(protocol.CodeForbidden, "")): // known, though without the role READ: it holds
	case err != nil:
		d := r.conn.diagnose("check the token", err)
		resp.Diagnostics.AddWarning(d.Summary(), d.Detail()) // not known to be bad: who uses it will see
	}
	resp.Diagnostics.Append(keepToken(ctx, resp.Private, open)...)
	resp.RenewAt = checkAt(open.ExpiresAt, time.Now())
}

// Close has nothing to tell the coordinator: it keeps no list of tokens from which one could be
// struck off.
func (r *tokenEphemeral) Close(ctx context.Context, req ephemeral.CloseRequest, resp *ephemeral.CloseResponse) {
	open, diags := keptToken(ctx, req.Private)
	resp.Diagnostics.Append(diags...)
	if !resp.Diagnostics.HasError() {
		tflog.Debug(r.conn.logContext(ctx), "token closed: it is forgotten here, and good until its end", map[string]any{"expires_at": timestamp(open.ExpiresAt)})
	}
}

// checkAt is when a token is looked at again: after three quarters of what is left of its life,
// so ever closer to its end, but not more often than each five seconds.
func checkAt(expires, now time.Time) time.Time {
	return now.Add(max(expires.Sub(now)*3/4, 5*time.Second))
}

type tokenStore interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

func keepToken(ctx context.Context, p tokenStore, open openToken) diag.Diagnostics {
	text, err := json.Marshal(open)
	if err != nil {
		return diag.Diagnostics{diag.NewErrorDiagnostic("Private data of the token", err.Error())}
	}
	return p.SetKey(ctx, openTokenKey, text)
}

func keptToken(ctx context.Context, p tokenStore) (openToken, diag.Diagnostics) {
	var open openToken
	text, diags := p.GetKey(ctx, openTokenKey)
	if diags.HasError() {
		return open, diags
	}
	if err := json.Unmarshal(text, &open); err != nil {
		diags.AddError("Private data of the token", fmt.Sprintf("it cannot be read: %T", err)) // its text might hold the token
	}
	return open, diags
}
