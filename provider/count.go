package provider

import (
	"context"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

var (
	_ basetypes.Int64Typable      = countType{}
	_ basetypes.Int64Valuable     = countValue{}
	_ xattr.ValidateableAttribute = countValue{}
)

// countType is the type of a shard count, or of another number of things: a whole number. The framework's own type
// reports a fraction as a fault of the provider; this one says what is wrong.
type countType struct {
	basetypes.Int64Type
	most int64 // for the message; 0: no bound that anybody runs into
}

func (t countType) Equal(o attr.Type) bool {
	_, ok := o.(countType)
	return ok
}

func (t countType) bounds() string {
	if t.most == 0 {
		return ", at least 1"
	}
	return fmt.Sprintf(" between 1 and %d", t.most)
}

func (countType) String() string { return "count" }

func (countType) ValueFromInt64(_ context.Context, in basetypes.Int64Value) (basetypes.Int64Valuable, diag.Diagnostics) {
	return countValue{Int64Value: in}, nil
}

func (t countType) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	if in.IsKnown() && !in.IsNull() && in.Type().Is(tftypes.Number) {
		var n *big.Float
		if err := in.As(&n); err != nil {
			return nil, fmt.Errorf("read whole number: %w", err)
		}
		if _, accuracy := n.Int64(); accuracy != big.Exact {
			return countValue{Int64Value: basetypes.NewInt64Value(1), broken: fmt.Sprintf("is %s; it must be a whole number%s", n.Text('g', 10), t.bounds())}, nil
		}
	}
	v, err := t.Int64Type.ValueFromTerraform(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("read whole number: %w", err)
	}
	n, ok := v.(basetypes.Int64Value)
	if !ok {
		return nil, fmt.Errorf("read whole number: unexpected value type %T", v)
	}
	return countValue{Int64Value: n}, nil
}

func (countType) ValueType(context.Context) attr.Value { return countValue{} }

// countValue is a whole number, null or unknown. broken says what is wrong where it is none: such a
// value passes no validation.
type countValue struct {
	basetypes.Int64Value
	broken string
}

func countOf(n int) countValue { return countValue{Int64Value: basetypes.NewInt64Value(int64(n))} }

func (countValue) Type(context.Context) attr.Type { return countType{} }

func (v countValue) Equal(o attr.Value) bool {
	other, ok := o.(countValue)
	return ok && v.broken == other.broken && v.Int64Value.Equal(other.Int64Value)
}

// ValidateAttribute refuses what is not a whole number, at plan time.
func (v countValue) ValidateAttribute(_ context.Context, req xattr.ValidateAttributeRequest, resp *xattr.ValidateAttributeResponse) {
	if v.broken != "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf("%s: %s", req.Path, v.broken))
	}
}
