// Package provider is the Terraform provider "redisstream": streams with a shard count, and
// the consumer groups on them, as resources; what the coordinator knows, as data sources; what
// is only done, as actions.
//
// The coordinator owns every workflow. A resharding goes on when Terraform is interrupted,
// times out or dies; the provider only declares the wanted state (an idempotent PUT), waits
// for the resharding that follows from it, and attaches to one that is already running. What
// stands in the state is what the coordinator has confirmed, never what was wished.
//
// provider.go lists what there is; each resource, data source, function and action has a file
// named after it, with its schema and the calls in the order of Terraform's protocol.
// settings.go turns configuration and environment into a connection; convergence.go holds the
// waiting that resources share, and diagnostics.go turns refusals and failures into advice.
package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"
)

// Address is the registry address under which the provider is published.
const Address = "registry.terraform.io/redisstream/redisstream"

var (
	_ provider.ProviderWithValidateConfig     = (*redisstreamProvider)(nil)
	_ provider.ProviderWithFunctions          = (*redisstreamProvider)(nil)
	_ provider.ProviderWithEphemeralResources = (*redisstreamProvider)(nil)
	_ provider.ProviderWithActions            = (*redisstreamProvider)(nil)
	_ provider.ProviderWithListResources      = (*redisstreamProvider)(nil)
)

// New returns the constructor of the provider for a server; version goes into the user agent.
func New(version string) func() provider.Provider { return NewWithTokens(version, nil) }

// NewWithTokens is New for a process that revokes, when it ends, what is left in tokens.
func NewWithTokens(version string, tokens *OpenTokens) func() provider.Provider {
	return func() provider.Provider {
		return &redisstreamProvider{version: version, retries: retries, budget: defaultRetryBudget, tokens: tokens}
	}
}

// retries of one call that did not reach a coordinator. With the client's back-off this bears
// about ten seconds; being refused for overload is borne for the retry budget instead.
const retries = 8

type redisstreamProvider struct {
	version string
	retries int
	budget  time.Duration // retry_budget where it is not set; 0: overload counts as retries too
	timeout time.Duration // of one request; 0: the client's default
	tokens  *OpenTokens   // nil: nobody revokes at the end what was not closed
}

type providerModel struct {
	Endpoint              types.String  `tfsdk:"endpoint"`
	Endpoints             types.List    `tfsdk:"endpoints"`
	Username              types.String  `tfsdk:"username"`
	Password              types.String  `tfsdk:"password"`
	Token                 types.String  `tfsdk:"token"`
	TokenFile             types.String  `tfsdk:"token_file"`
	CACertificate         types.String  `tfsdk:"ca_certificate"`
	CACertificateFile     types.String  `tfsdk:"ca_certificate_file"`
	ClientCertificate     types.String  `tfsdk:"client_certificate"`
	ClientCertificateFile types.String  `tfsdk:"client_certificate_file"`
	ClientKey             types.String  `tfsdk:"client_key"`
	ClientKeyFile         types.String  `tfsdk:"client_key_file"`
	InsecureSkipVerify    types.Bool    `tfsdk:"insecure_skip_verify"`
	RequestIDPrefix       types.String  `tfsdk:"request_id_prefix"`
	RequestedBy           types.String  `tfsdk:"requested_by"`
	RetryBudget           durationValue `tfsdk:"retry_budget"`
}

// known says whether every argument has a value now, or is left out.
func (m *providerModel) known() bool {
	for _, v := range []attr.Value{
		m.Endpoint, m.Endpoints, m.Username, m.Password, m.Token, m.TokenFile, m.CACertificate, m.CACertificateFile, m.ClientCertificate,
		m.ClientCertificateFile, m.ClientKey, m.ClientKeyFile, m.InsecureSkipVerify, m.RequestIDPrefix, m.RequestedBy, m.RetryBudget,
	} {
		if v.IsUnknown() {
			return false
		}
	}
	for _, e := range m.Endpoints.Elements() {
		if e.IsUnknown() {
			return false
		}
	}
	return true
}

func (p *redisstreamProvider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "redisstream"
	resp.Version = p.version
}

func (p *redisstreamProvider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Manages logical Redis streams that are split into shards: their shard counts and their consumer groups, " +
			"through a Redis Stream Coordinator. An apply that changes a shard count drives the whole pause, drain, reshard, resume " +
			"workflow and returns when the stream has converged.",
		Attributes: map[string]schema.Attribute{
			"endpoint": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Base URL of the coordinator or of the load balancer before it, such as `https://coordinator.example.com`. " +
					"Credentials do not belong in it. Default: the environment variable `" + envEndpoint + "`. Either this or `endpoints` is required.",
				Validators: []validator.String{endpointValidator{}},
			},
			"endpoints": schema.ListAttribute{
				ElementType: types.StringType, Optional: true,
				MarkdownDescription: "Base URLs of several coordinators, where there is no load balancer: the next one is asked when one cannot be reached or fails. " +
					"Not to be combined with `endpoint`. Default: the environment variable `" + envEndpoints + "`, separated by commas.",
				Validators: []validator.List{listvalidator.SizeAtLeast(1), listvalidator.ValueStringsAre(endpointValidator{})},
			},
			"username": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "User name for HTTP Basic authentication, together with `password`; not to be combined with `token` or `token_file`. " +
					"Default: the environment variable `" + envUsername + "`.",
			},
			"password": schema.StringAttribute{
				Optional:  true,
				Sensitive: true,
				MarkdownDescription: "Password of `username`. Default: the environment variable `" + envPassword + "`. " +
					"It is never logged and never stored in the state.",
			},
			"token": schema.StringAttribute{
				Optional:  true,
				Sensitive: true,
				MarkdownDescription: "Bearer token, in place of `username` and `password`. White space around it is dropped. " +
					"Default: the environment variable `" + envToken + "`, unless other credentials are set in the configuration. " +
					"It is never logged and never stored in the state.",
			},
			"token_file": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Name of a file with a bearer token. It is read again for every request, so that a token that is renewed in the file holds through a long apply. " +
					"Default: the environment variable `" + envTokenFile + "`, unless other credentials are set in the configuration.",
			},
			"ca_certificate": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Certificates of the authorities, in PEM, by which the coordinator's certificate is verified, instead of the system's. " +
					"Default: the environment variable `" + envCA + "`.",
				Validators: []validator.String{pemValidator{"ca_certificate"}},
			},
			"ca_certificate_file": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Name of a file with what `ca_certificate` takes. Default: the environment variable `" + envCAFile + "`.",
			},
			"client_certificate": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Certificate, in PEM, with its chain if there is one, by which a proxy before the coordinator knows this client; needs a client key. " +
					"It can be combined with any kind of credentials. Default: the environment variable `" + envClientCert + "`.",
				Validators: []validator.String{pemValidator{"client_certificate"}},
			},
			"client_certificate_file": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Name of a file with what `client_certificate` takes. Default: the environment variable `" + envClientCertFile + "`.",
			},
			"client_key": schema.StringAttribute{
				Optional:  true,
				Sensitive: true,
				MarkdownDescription: "Private key of the client certificate, in PEM, not encrypted. Default: the environment variable `" + envClientKey + "`. " +
					"It is never logged and never stored in the state.",
				Validators: []validator.String{pemValidator{"client_key"}},
			},
			"client_key_file": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Name of a file with what `client_key` takes. Default: the environment variable `" + envClientKeyFile + "`.",
			},
			"insecure_skip_verify": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: "Whether the coordinator's certificate is not verified, so that anybody on the way can read the credentials. Default `false`, or the " +
					"environment variable `" + envInsecure + "`. Give `ca_certificate` instead, wherever that can be done.",
			},
			"request_id_prefix": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Text before the id of every request that changes something, such as the number of a pipeline run: the coordinator's audit log has it as `client_request_id`. " +
					"At most 64 of the characters A-Z, a-z, 0-9 and `. _ : -`. Default: none, or the environment variable `" + envRequestID + "`.",
				Validators: []validator.String{requestIDValidator{}},
			},
			"requested_by": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Who asks, for the coordinator's audit log. Default: `terraform:<workspace>`, or the environment variable `" + envRequestedBy + "`. " +
					"At most 1024 bytes. It is a name that the caller gives itself; who was authenticated is recorded beside it.",
				Validators: []validator.String{reasonValidator{}},
			},
			"retry_budget": schema.StringAttribute{
				CustomType: durationType{}, Optional: true,
				MarkdownDescription: "For how long a request is repeated that the coordinator refuses for overload (HTTP 429 and 503), as a duration; 1s to 1h, default `\"" + formatDuration(defaultRetryBudget) +
					"\"`, or the environment variable `" + envRetryBudget + "`. Repeats are spaced by exponential back-off with full jitter and by `Retry-After`, up to half of this budget; " +
					"all resources of one provider configuration slow down together. A change is only ever repeated with the same idempotency key.",
				Validators: []validator.String{durationBetween{leastRetryBudget, mostRetryBudget}},
			},
		},
	}
}

// declared says whether an argument has a value for certain: what is not known yet, as every
// variable is while Terraform validates, may turn out to be null.
func declared(v attr.Value) bool { return !v.IsNull() && !v.IsUnknown() }

// ValidateConfig refuses what contradicts itself, without looking at the environment.
func (p *redisstreamProvider) ValidateConfig(ctx context.Context, req provider.ValidateConfigRequest, resp *provider.ValidateConfigResponse) {
	var cfg providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &cfg)...)
	if resp.Diagnostics.HasError() {
		return
	}
	refuse := func(p *problem) { resp.Diagnostics.Append(p.diagnostic()) }
	if declared(cfg.Endpoint) && declared(cfg.Endpoints) {
		refuse(&problem{"endpoints", "conflicts with endpoint; list all addresses in endpoints"})
	}
	if p := credentialConflict(cfg); p != nil {
		refuse(p)
	}
	for _, pair := range []struct {
		name       string
		text, file types.String
	}{
		{"ca_certificate", cfg.CACertificate, cfg.CACertificateFile},
		{"client_certificate", cfg.ClientCertificate, cfg.ClientCertificateFile},
		{"client_key", cfg.ClientKey, cfg.ClientKeyFile},
	} {
		if declared(pair.text) && declared(pair.file) {
			refuse(&problem{pair.name, "conflicts with " + pair.name + "_file; set one of the two"})
		}
	}
}

// diagnostic points at the argument.
func (p *problem) diagnostic() diag.Diagnostic {
	return diag.NewAttributeErrorDiagnostic(path.Root(p.argument), "Invalid provider configuration: "+p.argument, p.Error())
}

func (p *redisstreamProvider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var cfg providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &cfg)...)
	if resp.Diagnostics.HasError() {
		return
	}

	share := func(conn *connection) {
		resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData = conn, conn, conn
		resp.ActionData, resp.ListResourceData = conn, conn
	}

	// A value that another resource of the same plan will produce is unknown until apply.
	// Nothing can be asked of the coordinator yet, and resources plan from their state alone.
	if !cfg.known() {
		tflog.Info(ctx, "a provider argument is known only after apply: nothing is sent during this plan")
		if req.ClientCapabilities.DeferralAllowed {
			resp.Deferred = &provider.Deferred{Reason: provider.DeferredReasonProviderConfigUnknown}
		}
		share(&connection{})
		return
	}

	s, refused := resolve(cfg, surroundings{os.Getenv, os.ReadFile})
	if refused != nil {
		resp.Diagnostics.Append(refused.diagnostic())
		return
	}
	if s.retryBudget == 0 {
		s.retryBudget = p.budget
	}
	agent := fmt.Sprintf("terraform-provider-redisstream/%s terraform/%s go/%s", p.version, req.TerraformVersion, strings.TrimPrefix(runtime.Version(), "go"))
	conn, err := connect(s, p.retries, p.timeout, agent)
	if err != nil {
		if refused := (*problem)(nil); errors.As(err, &refused) {
			resp.Diagnostics.Append(refused.diagnostic())
			return
		}
		resp.Diagnostics.AddError("Invalid provider configuration", redact(err.Error(), s.secrets()))
		return
	}
	conn.tokens = p.tokens
	if s.insecureSkipVerify {
		resp.Diagnostics.AddAttributeWarning(path.Root("insecure_skip_verify"), "The coordinator's certificate is not verified",
			"insecure_skip_verify is on: anybody on the way to the coordinator can read the credentials and change what is sent. Give ca_certificate instead.")
	}
	if slices.ContainsFunc(s.endpoints, plainText) && (s.password != "" || s.token != "" || s.tokenFile != "") {
		tflog.Warn(ctx, "credentials are sent unencrypted: an endpoint begins with http://")
	}
	share(conn)
}

func (p *redisstreamProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newShardCountResource, newStreamGroupResource}
}

func (p *redisstreamProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		newStreamDataSource, newStreamGroupDataSource, newStreamGroupsDataSource, newRoutingDataSource,
		newReshardingDataSource, newReshardingsDataSource, newAuditEventsDataSource, newCoordinatorDataSource,
	}
}

func (p *redisstreamProvider) Functions(context.Context) []func() function.Function {
	return []func() function.Function{newShardIndexFunction, newShardKeysFunction, newHashSlotFunction, newMovedFractionFunction}
}

func (p *redisstreamProvider) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{newTokenEphemeral}
}

func (p *redisstreamProvider) Actions(context.Context) []func() action.Action {
	return []func() action.Action{newPauseAction, newResumeAction, newRollbackAction}
}

func (p *redisstreamProvider) ListResources(context.Context) []func() list.ListResource {
	return []func() list.ListResource{newShardCountList, newStreamGroupList}
}
