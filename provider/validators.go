package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The validators refuse at plan time, with the coordinator's own words, what the coordinator
// would refuse at apply time.

// nameValidator is protocol.CheckName.
type nameValidator struct{}

func (nameValidator) Description(context.Context) string {
	return fmt.Sprintf("1 to %d bytes without white space, control characters, braces and slashes", protocol.MaxNameBytes)
}

func (v nameValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (nameValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if e := protocol.CheckName(req.Path.String(), req.ConfigValue.ValueString()); e != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), e.Message)
	}
}

// shardCountValidator is protocol.CheckShardCount with the minimum of 1: scaling to 0 is what
// destroying the resource does.
type shardCountValidator struct{}

func (shardCountValidator) Description(context.Context) string {
	return fmt.Sprintf("a whole number between 1 and %d", protocol.MaxShardCount)
}

func (v shardCountValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

func (shardCountValidator) ValidateInt64(_ context.Context, req validator.Int64Request, resp *validator.Int64Response) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	n := req.ConfigValue.ValueInt64()
	e := protocol.CheckShardCount(req.Path.String(), n, 1)
	if e == nil {
		return
	}
	detail := e.Message
	if n == 0 {
		detail += "; to drain and retire all shards, destroy the resource"
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), detail)
}

// reasonValidator bounds the text for the audit log.
type reasonValidator struct{}

func (reasonValidator) Description(context.Context) string {
	return fmt.Sprintf("at most %d bytes", protocol.MaxReasonBytes)
}

func (v reasonValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (reasonValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if n := len(req.ConfigValue.ValueString()); n > protocol.MaxReasonBytes {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf(
			"%s: is %d bytes long; at most %d are allowed", req.Path, n, protocol.MaxReasonBytes))
	}
}

// choice is a closed set of words: lower case in a configuration, upper case on the wire.
type choice []string

func (c choice) Description(context.Context) string { return "one of " + strings.Join(c, ", ") }

func (c choice) MarkdownDescription(context.Context) string {
	return "one of `" + strings.Join(c, "`, `") + "`"
}

func (c choice) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	value := req.ConfigValue.ValueString()
	if slices.Contains(c, value) {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf(
		"%s: %q is unknown; it must be one of %s", req.Path, value, strings.Join(c, ", ")))
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
	if text := endpointProblem(req.ConfigValue.ValueString()); text != "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid endpoint", req.Path.String()+": "+text)
	}
}

// pemValidator refuses what is no PEM text of the kind that the argument takes.
type pemValidator struct{ argument string }

func (v pemValidator) Description(context.Context) string {
	if v.argument == "client_key" {
		return "a private key in PEM"
	}
	return "certificates in PEM"
}

func (v pemValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (v pemValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if text := pemProblem(v.argument, req.ConfigValue.ValueString()); text != "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+v.argument, v.argument+": "+text)
	}
}

// requestIDValidator bounds the prefix of request ids to what the coordinator records.
type requestIDValidator struct{}

func (requestIDValidator) Description(context.Context) string {
	return fmt.Sprintf("at most %d of the characters A-Z, a-z, 0-9 and . _ : -", maxRequestIDPrefix)
}

func (v requestIDValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

func (requestIDValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if text := requestIDProblem(req.ConfigValue.ValueString()); text != "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), req.Path.String()+": "+text)
	}
}

// filterValidator bounds a filter of the audit log.
type filterValidator struct{}

func (filterValidator) Description(context.Context) string {
	return fmt.Sprintf("1 to %d bytes", protocol.MaxNameBytes)
}

func (v filterValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (filterValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if n := len(req.ConfigValue.ValueString()); n == 0 || n > protocol.MaxNameBytes {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf(
			"%s: is %d bytes long; it must be 1 to %d. Leave it out to select everything", req.Path, n, protocol.MaxNameBytes))
	}
}

// instantValidator wants an RFC 3339 timestamp.
type instantValidator struct{}

func (instantValidator) Description(context.Context) string { return "an RFC 3339 timestamp" }

func (v instantValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (instantValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, err := time.Parse(time.RFC3339Nano, req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf(
			"%s: %q is no RFC 3339 timestamp, such as 2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00", req.Path, req.ConfigValue.ValueString()))
	}
}
