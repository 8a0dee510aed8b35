package provider

import (
	"math/big"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// What Terraform's types let through and the arguments do not mean is refused in words of ours, not
// as a fault of the provider.
func TestArgumentsOfTheWrongKind(t *testing.T) {
	c, _ := setup(t)
	for value, shown := range map[float64]string{1.5: "1.5", 1e30: "1e+30"} {
		n := tftypes.NewValue(tftypes.Number, big.NewFloat(value))
		oneError(t, c.validate(shardCount, orders(2, attrs{"retention": attrs{"policy": "max_len", "max_len": n}})),
			"Invalid retention.max_len", "is "+shown, "whole number, at least 1")
		_, diags := c.readData("redisstream_audit_events", attrs{"limit": n})
		oneError(t, diags, "Invalid limit", "is "+shown, "whole number between 1 and 10000")
	}
	names := tftypes.NewValue(tftypes.Set{ElementType: tftypes.String}, []tftypes.Value{
		tftypes.NewValue(tftypes.String, "old"), tftypes.NewValue(tftypes.String, nil),
	})
	oneError(t, c.validate(shardCount, orders(2, attrs{"ignore_groups": names})), "contains a null value")
}
