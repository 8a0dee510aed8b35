package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// dataSource is the part that all data sources share: its name after the provider's, and the
// connection.
type dataSource struct {
	name string
	conn *connection
}

func (d *dataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.name
}

func (d *dataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.conn = configured(req.ProviderData, &resp.Diagnostics)
}

// ready refuses to read while the coordinator cannot be asked: a data source has no state to
// fall back to, and Terraform takes no unknown values from one.
func (d *dataSource) ready(resp *datasource.ReadResponse) bool {
	if !d.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return false
	}
	return true
}

// argument reads one string argument of the configuration; "" when it is left out.
func argument(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse, name string) string {
	var v types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(name), &v)...)
	return v.ValueString()
}

// lookUp runs read with logging that masks credentials, and stores what it returns or the
// diagnostic of its error.
func lookUp[M any](ctx context.Context, d *dataSource, resp *datasource.ReadResponse, what string, read func(context.Context) (M, error)) {
	if resp.Diagnostics.HasError() || !d.ready(resp) {
		return
	}
	m, err := read(d.conn.logContext(ctx))
	if err != nil {
		resp.Diagnostics.Append(d.conn.diagnose(what, err))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Arguments and attributes that several data sources have.

func prefixArgument() schema.StringAttribute {
	return schema.StringAttribute{Required: true, MarkdownDescription: "Stream prefix of the stream.", Validators: []validator.String{nameValidator{}}}
}

func textOut(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, MarkdownDescription: description}
}

func numberOut(description string) schema.Int64Attribute {
	return schema.Int64Attribute{Computed: true, MarkdownDescription: description}
}

func flagOut(description string) schema.BoolAttribute {
	return schema.BoolAttribute{Computed: true, MarkdownDescription: description}
}

func textsOut(description string) schema.ListAttribute {
	return schema.ListAttribute{ElementType: types.StringType, Computed: true, MarkdownDescription: description}
}

func objectsOut(description string, attributes map[string]schema.Attribute) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Computed: true, MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

// Values as they are shown: durations in the notation of the configuration, absent ones null.

func shownDuration(ms int64) string { return formatDuration(time.Duration(ms) * time.Millisecond) }

func shownTime(t *time.Time) *string {
	if t == nil || t.IsZero() {
		return nil
	}
	text := timestamp(*t)
	return &text
}

// shownText is null for "".
func shownText[S ~string](s S) *string {
	if s == "" {
		return nil
	}
	text := string(s)
	return &text
}

// each maps a list; nil becomes an empty list, which Terraform shows as one.
func each[A, B any](all []A, f func(A) B) []B {
	out := make([]B, 0, len(all))
	for _, a := range all {
		out = append(out, f(a))
	}
	return out
}

func same(s string) string { return s }

// sortedTexts is a sorted copy, never nil.
func sortedTexts(all []string) []string {
	out := each(all, same)
	slices.Sort(out)
	return out
}

// reading names the work of a data source for diagnostics.
func reading(format string, args ...any) string {
	return "read " + strings.TrimSpace(fmt.Sprintf(format, args...))
}
