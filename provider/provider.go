// Package provider is the Terraform provider "redisstream": streams with a shard count, and
// the consumer groups on them, as resources.
//
// The coordinator owns every workflow. A resharding goes on when Terraform is interrupted,
// times out or dies; the provider only declares the wanted state (an idempotent PUT), waits
// for the resharding that follows from it, and attaches to one that is already running. What
// stands in the state is what the coordinator has confirmed, never what was wished.
//
// provider.go lists what there is; each resource has a file named after it, with its schema
// and the calls in the order of Terraform's protocol; convergence.go holds the waiting that
// they share, and diagnostics.go turns refusals and failures into advice.
package provider

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
)

// Address is the registry address under which the provider is published.
const Address = "registry.terraform.io/redisstream/redisstream"

// Environment variables that stand in for arguments that the configuration leaves out.
const (
	envEndpoint = "REDISSTREAM_ENDPOINT"
	envUsername = "REDISSTREAM_USERNAME"
	envPassword = "REDISSTREAM_PASSWORD"
	envToken    = "REDISSTREAM_TOKEN"
)

var _ provider.Provider = (*redisstreamProvider)(nil)

// New returns the constructor of the provider for a server; version goes into the user agent.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &redisstreamProvider{version: version, retries: retries} }
}

// retries of one call. Terraform runs ten resources at once: being limited is normal, no error.
// With the client's back-off this bears about ten seconds.
const retries = 8

type redisstreamProvider struct {
	version string
	retries int
}

type providerModel struct {
	Endpoint types.String `tfsdk:"endpoint"`
	Username types.String `tfsdk:"username"`
	Password types.String `tfsdk:"password"`
	Token    types.String `tfsdk:"token"`
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
					"Credentials do not belong in it. Default: the environment variable `" + envEndpoint + "`. Required, in one of the two places.",
				Validators: []validator.String{endpointValidator{}},
			},
			"username": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "User name for HTTP Basic authentication, together with `password`; not to be combined with `token`. " +
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
					"Default: the environment variable `" + envToken + "`, unless `username` and `password` are set in the configuration. " +
					"It is never logged and never stored in the state.",
			},
		},
	}
}

func (p *redisstreamProvider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var cfg providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &cfg)...)
	if resp.Diagnostics.HasError() {
		return
	}

	// A value that another resource of the same plan will produce is unknown until apply.
	// Nothing can be asked of the coordinator yet, and resources plan from their state alone.
	for _, v := range []attr.Value{cfg.Endpoint, cfg.Username, cfg.Password, cfg.Token} {
		if v.IsUnknown() {
			tflog.Info(ctx, "a provider argument is known only after apply: nothing is sent during this plan")
			resp.ResourceData = &connection{}
			resp.DataSourceData = resp.ResourceData
			return
		}
	}

	settings, field, problem := resolve(cfg, os.Getenv)
	if problem != "" {
		resp.Diagnostics.AddAttributeError(path.Root(field), "Invalid provider configuration: "+field, field+": "+problem)
		return
	}
	conn, err := connect(settings, p.retries, "terraform-provider-redisstream/"+p.version+" terraform/"+req.TerraformVersion)
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("endpoint"), "Invalid provider configuration",
			redact(err.Error(), settings.secrets()))
		return
	}
	resp.ResourceData = conn
	resp.DataSourceData = conn
}

func (p *redisstreamProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newShardCountResource, newStreamGroupResource}
}

func (p *redisstreamProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

// settings are the provider's arguments after the environment has filled the gaps.
type settings struct{ endpoint, username, password, token string }

// secrets lists the values that must not appear anywhere.
func (s settings) secrets() []string {
	var all []string
	for _, v := range []string{s.password, s.token} {
		if v != "" {
			all = append(all, v)
		}
	}
	if s.password != "" { // as HTTP Basic authentication writes it
		all = append(all, base64.StdEncoding.EncodeToString([]byte(s.username+":"+s.password)))
	}
	return all
}

// resolve merges configuration and environment. On a problem it names the argument and the
// rule, never the value of a secret.
func resolve(cfg providerModel, getenv func(string) string) (s settings, field, problem string) {
	pick := func(v types.String, env string) string {
		if v.IsNull() {
			return getenv(env)
		}
		return v.ValueString()
	}
	s = settings{
		endpoint: strings.TrimSpace(pick(cfg.Endpoint, envEndpoint)),
		username: pick(cfg.Username, envUsername),
		password: pick(cfg.Password, envPassword),
		token:    strings.TrimSpace(pick(cfg.Token, envToken)),
	}

	// What the configuration says outright beats the other kind in the environment.
	basic, bearer := !cfg.Username.IsNull() || !cfg.Password.IsNull(), !cfg.Token.IsNull()
	switch {
	case basic && bearer:
		return s, "token", "conflicts with username and password; set one kind of credentials"
	case basic:
		s.token = ""
	case bearer:
		s.username, s.password = "", ""
	}

	switch {
	case s.endpoint == "":
		return s, "endpoint", "is missing; set it in the provider block or as environment variable " + envEndpoint
	case endpointProblem(s.endpoint) != "":
		return s, "endpoint", endpointProblem(s.endpoint)
	case s.token != "" && (s.username != "" || s.password != ""):
		return s, "token", "conflicts with username and password, counting the environment variables " +
			envUsername + ", " + envPassword + " and " + envToken + "; set one kind of credentials"
	case bearer && s.token == "":
		return s, "token", "is blank"
	case s.username == "" && s.password != "":
		return s, "username", "is missing, though a password is set"
	case s.username != "" && s.password == "":
		return s, "password", "is missing, though a user name is set; set it or environment variable " + envPassword
	case strings.Contains(s.username, ":"):
		return s, "username", "must not contain a colon: HTTP Basic authentication cannot carry it"
	case strings.ContainsFunc(s.token, notInHeader):
		return s, "token", "must not contain white space or control characters"
	}
	return s, "", ""
}

func notInHeader(r rune) bool { return r <= ' ' || r == 0x7f }

// endpointProblem says what is wrong with a base URL, "" for nothing. The URL is not repeated:
// somebody may have put credentials into it.
func endpointProblem(endpoint string) string {
	u, err := url.Parse(strings.TrimSpace(endpoint))
	switch {
	case err != nil:
		return "is not a URL"
	case u.User != nil:
		return "must not contain credentials; use username and password, or token"
	case u.Scheme != "http" && u.Scheme != "https":
		return `must begin with "http://" or "https://"`
	case u.Hostname() == "":
		return "has no host"
	case u.RawQuery != "" || u.Fragment != "":
		return "must not have a query or a fragment"
	}
	return ""
}

// endpointValidator refuses at plan time what resolve would refuse.
type endpointValidator struct{}

func (endpointValidator) Description(context.Context) string {
	return "an http or https URL without credentials, query and fragment"
}

func (v endpointValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (endpointValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if problem := endpointProblem(req.ConfigValue.ValueString()); problem != "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid endpoint", "endpoint: "+problem)
	}
}

// connect makes the client that all resources of one provider instance share. Nothing is sent.
func connect(s settings, retries int, userAgent string) (*connection, error) {
	c, err := client.New(client.Config{
		Endpoints: []string{s.endpoint},
		Username:  s.username, Password: s.password, Token: s.token,
		Retries:   retries,
		UserAgent: userAgent,
	})
	if err != nil {
		return nil, fmt.Errorf("client for the coordinator: %w", err)
	}
	return &connection{
		client: c, endpoint: s.endpoint, secrets: s.secrets(),
		requestedBy: "terraform:" + workspace(os.Getenv, os.ReadFile),
	}, nil
}
