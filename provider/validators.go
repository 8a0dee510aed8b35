package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
