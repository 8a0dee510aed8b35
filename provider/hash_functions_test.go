package provider

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Functions are computed without a coordinator: this provider has none.
func offline(t *testing.T) *core {
	t.Helper()
	return newCoreOf(t, New("test")())
}

func TestFunctionsFollowTheRoutingVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../sdk/protocol/testdata/routing-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Key                    *string
			ShardCount, ShardIndex int
		}
		SlotVectors []struct {
			StreamKey string
			Slot      int
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	c := offline(t)
	checked := 0
	for _, v := range file.Vectors {
		if v.Key == nil || !utf8.ValidString(*v.Key) || v.ShardCount > protocol.MaxShardCount { // Terraform's strings are Unicode
			continue
		}
		checked++
		got, failure := c.call("shard_index", str(*v.Key), num(v.ShardCount))
		if failure != nil || text(t, got) != fmt.Sprint(v.ShardIndex) {
			t.Errorf("shard_index(%q, %d): %v, %v, want %d", *v.Key, v.ShardCount, got, failure, v.ShardIndex)
		}
	}
	for _, v := range file.SlotVectors {
		checked++
		got, failure := c.call("hash_slot", str(v.StreamKey))
		if failure != nil || text(t, got) != fmt.Sprint(v.Slot) {
			t.Errorf("hash_slot(%q): %v, %v, want %d", v.StreamKey, got, failure, v.Slot)
		}
	}
	if checked < 300 {
		t.Errorf("only %d vectors were checked", checked)
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	c := offline(t)
	got, failure := c.call("shard_keys", str("orders"), num(3))
	want := tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{str("orders:0"), str("orders:1"), str("orders:2")})
	if failure != nil || !got.Equal(want) {
		t.Errorf("shard_keys: %v, %v", got, failure)
	}
	if got, failure = c.call("shard_keys", str("orders"), num(0)); failure != nil || got.IsNull() || !got.Equal(tftypes.NewValue(want.Type(), []tftypes.Value{})) {
		t.Errorf("shard_keys of no shards: %v, %v", got, failure)
	}
	for _, tt := range []struct {
		from, to int
		want     float64
	}{{4, 8, 0.5}, {8, 4, 0.5}, {8, 9, 8.0 / 9}, {5, 5, 0}, {0, 3, 1}, {3, 0, 1}, {0, 0, 0}, {1, 16384, 1 - 1.0/16384}} {
		got, failure := c.call("moved_fraction", num(tt.from), num(tt.to))
		if failure != nil {
			t.Errorf("moved_fraction(%d, %d): %v", tt.from, tt.to, failure)
			continue
		}
		var f big.Float
		if err := got.As(&f); err != nil {
			t.Fatal(err)
		}
		if v, _ := f.Float64(); v < tt.want-1e-12 || v > tt.want+1e-12 {
			t.Errorf("moved_fraction(%d, %d) = %v, want %v", tt.from, tt.to, v, tt.want)
		}
	}
	for _, tt := range []struct {
		name      string
		arguments []tftypes.Value
		argument  int64
		words     string
	}{
		{"shard_index", []tftypes.Value{str("k"), num(0)}, 1, "between 1 and 16384"},
		{"shard_index", []tftypes.Value{str("k"), num(-1)}, 1, "between 1 and 16384"},
		{"shard_index", []tftypes.Value{str("k"), num(16385)}, 1, "16385"},
		{"shard_index", []tftypes.Value{str("k"), num(1.5)}, 1, "is 1.5; it must be a whole number between 1 and 16384"},
		{"shard_keys", []tftypes.Value{str("a b"), num(1)}, 0, "white space"},
		{"shard_keys", []tftypes.Value{str(""), num(1)}, 0, "blank"},
		{"shard_keys", []tftypes.Value{str("a"), num(16385)}, 1, "16385"},
		{"moved_fraction", []tftypes.Value{num(-1), num(1)}, 0, "-1"},
		{"moved_fraction", []tftypes.Value{num(1), num(1e9)}, 1, "1000000000"},
	} {
		got, failure := c.call(tt.name, tt.arguments...)
		if failure == nil || failure.FunctionArgument == nil || *failure.FunctionArgument != tt.argument || !strings.Contains(failure.Text, tt.words) {
			t.Errorf("%s%v: %v, %+v; want argument %d, %q", tt.name, tt.arguments, got, failure, tt.argument, tt.words)
		}
	}
}
