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

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	defaultTokenLife = 15 * time.Minute
	// How long Terraform is held up, at most, by a coordinator that does not answer: it waits for a
	// renewal that is under way before it closes, and for the closing before it ends.
	renewPatience = 20 * time.Second
	closePatience = 10 * time.Second
)

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

// openToken is what Renew and Close know of a token. Terraform keeps it in memory only. Close is
// given what Open kept, whatever a Renew has kept since.
type openToken struct {
	Token string `json:"token"`
	// Life is what a renewal gives; 0: it cannot be renewed, since the coordinator knows no sessions.
	Life time.Duration `json:"life"`
	// Ends is by the clock of this machine, which may be another than the coordinator's: by that it
	// is ExpiresAt and, for good, RenewableUntil.
	Ends           time.Time `json:"ends"`
	ExpiresAt      time.Time `json:"expiresAt"`
	RenewableUntil time.Time `json:"renewableUntil"`
}

// holds takes what the coordinator said of a session to a request that was sent at begin.
func (o *openToken) holds(s protocol.TokenSession, begin time.Time) {
	o.Ends = begin.Add(time.Duration(s.ExpiresInMs) * time.Millisecond)
	o.ExpiresAt, o.RenewableUntil = s.ExpiresAt, s.RenewableUntil
}

// final says that no renewal lets it live longer.
func (o *openToken) final() bool { return o.Life == 0 || !o.ExpiresAt.Before(o.RenewableUntil) }

// renewAt is when three quarters of what is left of its life are over; zero, which is never, when
// no renewal would help.
func (o *openToken) renewAt(now time.Time) time.Time {
	if o.final() {
		return time.Time{}
	}
	return now.Add(max(o.Ends.Sub(now)*3/4, minRenewal))
}

// minRenewal keeps attempts apart when the end is near.
const minRenewal = 50 * time.Millisecond

const openTokenKey = "token"

func (r *tokenEphemeral) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_token"
}

func (r *tokenEphemeral) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A short-lived bearer token of the coordinator, for what is configured in the same run: another provider, a write-only argument. " +
			"It is got by a login when Terraform needs it and stands in no plan and no state.\n\n" +
			"*Opening* logs in for a session token: it holds for `ttl`, on every replica. *Renewing*, when three quarters of that are over, makes it hold for another `ttl`, so that it " +
			"outlasts the longest apply, up to the coordinator's limit for any token (`token-ttl`, 7 days by default). *Closing* revokes it: when Terraform has done with it, it is refused everywhere. " +
			"Terraform does not close what a run that fails or is interrupted has opened; the provider revokes that when its process ends. Should that fail, or Terraform be killed, " +
			"the token ends by itself within one `ttl`.\n\n" +
			"A token of this kind cannot be exchanged for another one: the provider that opens it needs a user name and password, or a token that is no session token.",
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
				MarkdownDescription: "How long the token holds without being renewed, as a duration; 10s to 168h, default `\"" + formatDuration(defaultTokenLife) +
					"\"`. The coordinator cuts it to its own limit: see `expires_at`.",
				Validators: []validator.String{durationBetween{10 * time.Second, 168 * time.Hour}},
			},
			"token": schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "The token, for the header `Authorization: Bearer <token>`."},
			"expires_at": schema.StringAttribute{
				Computed: true, MarkdownDescription: "When it ends unless it is renewed, RFC 3339, UTC.",
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
	begin := time.Now()
	login, err := r.conn.client.LoginFor(ctx, m.Username.ValueString(), m.Password.ValueString(), life)
	switch {
	case errors.Is(err, protocol.NewError(protocol.CodeForbidden, "")):
		resp.Diagnostics.AddError("A session token opens no other token", "The provider is configured with a token of a session, perhaps that of another redisstream_token. What it opened "+
			"would outlive its revocation, so the coordinator refuses it (FORBIDDEN).\n\nSet username and password of this redisstream_token, or use that other token itself.")
		return
	case err != nil:
		resp.Diagnostics.Append(r.conn.diagnose("log in for a token", err))
		return
	}
	r.conn.secrets.add(login.AccessToken)
	r.conn.tokens.add(login.AccessToken, r.conn.client)
	m.Token, m.ExpiresAt = types.StringValue(login.AccessToken), types.StringValue(timestamp(login.ExpiresAt))
	roles, diags := types.ListValueFrom(ctx, types.StringType, sortedTexts(login.Roles))
	resp.Diagnostics.Append(diags...)
	m.Roles = roles
	resp.Diagnostics.Append(resp.Result.Set(ctx, &m)...)
	open := openToken{Token: login.AccessToken, ExpiresAt: login.ExpiresAt, RenewableUntil: login.ExpiresAt}
	if login.Session != nil {
		open.Life = life
		open.holds(*login.Session, begin)
	}
	resp.Diagnostics.Append(keepToken(ctx, resp.Private, open)...)
	resp.RenewAt = open.renewAt(time.Now())
	tflog.Debug(ctx, "token opened", map[string]any{"expires_at": timestamp(open.ExpiresAt)})
}

// Renew makes the token hold for another life. Whether that was in time is what counts: an attempt
// that fails is repeated until the token has ended.
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
	if open.final() {
		return
	}
	begin := time.Now()
	bounded, cancel := context.WithTimeout(ctx, min(max(open.Ends.Sub(begin), time.Second), renewPatience))
	defer cancel()
	session, err := r.conn.client.RenewToken(bounded, open.Token, open.Life)
	switch {
	case err == nil:
		open.holds(session, begin)
		tflog.Debug(ctx, "token renewed", map[string]any{"expires_at": timestamp(open.ExpiresAt)})
		if open.final() {
			resp.Diagnostics.AddWarning("The token cannot be renewed any further",
				"It ends at "+timestamp(open.RenewableUntil)+", which is the coordinator's limit for any token (token-ttl). What uses it after that will fail.")
		}
	case errors.Is(err, protocol.NewError(protocol.CodeUnauthenticated, "")):
		resp.Diagnostics.AddError("The token no longer holds", whyRefused(open, time.Now()))
		return
	case !time.Now().Before(open.Ends):
		d := r.conn.diagnose("renew the token", err)
		resp.Diagnostics.AddError("The token has ended before it could be renewed", "It held until "+timestamp(open.ExpiresAt)+". "+d.Summary()+": "+d.Detail())
		return
	default:
		d := r.conn.diagnose("renew the token, which holds until "+timestamp(open.ExpiresAt), err)
		resp.Diagnostics.AddWarning(d.Summary(), d.Detail()) // there is time left for another attempt
		tflog.Warn(ctx, "token not renewed yet", map[string]any{"expires_at": timestamp(open.ExpiresAt)})
	}
	resp.Diagnostics.Append(keepToken(ctx, resp.Private, open)...)
	resp.RenewAt = open.renewAt(time.Now())
}

// whyRefused says why a token that was to be renewed is not accepted.
func whyRefused(open openToken, now time.Time) string {
	const accepted = "The coordinator does not accept the token of redisstream_token any more"
	if now.Before(open.Ends) {
		return accepted + ", though it was to hold until " + timestamp(open.ExpiresAt) + ": somebody has revoked it, the password of its user was changed, the user is gone, " +
			"or another replica with another token-secret has answered. What uses it fails from now on.\n\nRun Terraform again when that is settled."
	}
	return accepted + ": it has come to its end at " + timestamp(open.ExpiresAt) + ", before it was renewed. " +
		"Terraform, or this machine, was stopped for too long.\n\nChoose a longer ttl, and run Terraform again."
}

// Close revokes the token. What it cannot do is a warning: the work of the run is done, and the token
// ends by itself.
func (r *tokenEphemeral) Close(ctx context.Context, req ephemeral.CloseRequest, resp *ephemeral.CloseResponse) {
	open, diags := keptToken(ctx, req.Private)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() || !r.conn.ready() {
		return
	}
	r.conn.secrets.add(open.Token)
	ctx = r.conn.logContext(ctx)
	bounded, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	err := r.conn.client.RevokeToken(bounded, open.Token, client.Call{Grace: mutationGrace})
	if err == nil {
		r.conn.tokens.remove(open.Token)
		tflog.Debug(ctx, "token revoked")
		return
	}
	now := time.Now()
	d := r.conn.diagnose("revoke the token", err)
	why := d.Summary() + ": " + d.Detail()
	if errors.Is(err, protocol.NewError(protocol.CodeUnauthenticated, "")) { // not because its session has ended: that is no refusal here
		if now.After(open.RenewableUntil) {
			tflog.Debug(ctx, "token closed: it had come to its end for good")
			return
		}
		why = "The coordinator that was asked does not know it. If the password of its user was changed meanwhile, or the user is gone, it holds no more; " +
			"if that was another replica with another token-secret, it does: give all replicas the same."
	}
	resp.Diagnostics.AddWarning("The token was not revoked", fmt.Sprintf("It holds until %s at the latest, unless the password of its user is changed before.\n\n%s",
		timestamp(open.latest(now)), why))
	tflog.Warn(ctx, "token not revoked", map[string]any{"holds_until": timestamp(open.latest(now))})
}

// latest is when it has ended even if it was renewed a moment ago.
func (o *openToken) latest(now time.Time) time.Time {
	if last := now.Add(o.Life); o.Life > 0 && last.Before(o.RenewableUntil) {
		return last
	}
	return o.RenewableUntil
}

func keepToken(ctx context.Context, p privateData, open openToken) diag.Diagnostics {
	text, err := json.Marshal(open)
	if err != nil {
		return diag.Diagnostics{diag.NewErrorDiagnostic("Private data of the token", err.Error())}
	}
	return p.SetKey(ctx, openTokenKey, text)
}

func keptToken(ctx context.Context, p privateData) (openToken, diag.Diagnostics) {
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
