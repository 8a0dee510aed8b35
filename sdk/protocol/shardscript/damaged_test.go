package shardscript_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// A control hash of another type, or with something else where a number belongs: no script of
// the coordinator or of a client changes anything on that shard, and producers are told that it
// has no layout, so that they wait.
func TestDamagedControl(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := redistest.Shared(t).Client(t)
	for name, damage := range map[string]func(key string) error{
		"a string":        func(key string) error { c.Del(ctx, key); return c.Set(ctx, key, "x", 0).Err() },
		"a list":          func(key string) error { c.Del(ctx, key); return c.RPush(ctx, key, "x").Err() },
		"epoch":           func(key string) error { return c.HSet(ctx, key, "epoch", "one").Err() },
		"count":           func(key string) error { return c.HSet(ctx, key, "count", "").Err() },
		"rev":             func(key string) error { return c.HSet(ctx, key, "rev", "-1").Err() },
		"rev, too long":   func(key string) error { return c.HSet(ctx, key, "rev", strings.Repeat("9", 30)).Err() },
		"until":           func(key string) error { return c.HSet(ctx, key, "until", "soon").Err() },
		"hold":            func(key string) error { return c.HSet(ctx, key, "hold", "1e3").Err() },
		"high":            func(key string) error { return c.HSet(ctx, key, "high", "0x1").Err() },
		"sealedLastId":    func(key string) error { return c.HSet(ctx, key, "sealedLastId", "5").Err() },
		"counted losses":  func(key string) error { return c.HSet(ctx, key, "trimmed:g", "many").Err() },
		"vanished bodies": func(key string) error { return c.HSet(ctx, key, "gone:g", "many").Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := redistest.Prefix(t)
			shard, control := protocol.ShardKey(prefix, 0), protocol.ControlKey(prefix, 0)
			keys := []string{shard, control}
			if err := c.HSet(ctx, control, "epoch", 1, "count", 1, "rev", 1, "owner:g", "7 m i").Err(); err != nil {
				t.Fatal(err)
			}
			c.XGroupCreateMkStream(ctx, shard, "g", "0")
			c.XAdd(ctx, &redis.XAddArgs{Stream: shard, Values: []string{"a", "b"}})
			if err := damage(control); err != nil {
				t.Fatal(err)
			}
			dump := func() string {
				t.Helper()
				text := c.Dump(ctx, shard).Val() + c.Dump(ctx, control).Val()
				if text == "" {
					t.Fatal("nothing is left")
				}
				return text
			}
			before := dump()
			for _, script := range shardscript.Names() {
				switch script {
				case shardscript.Append, shardscript.CheckAck, shardscript.DeleteConsumer, shardscript.Takeover:
					continue
				}
				args := shardscript.Arguments{
					Revision: 9, ID: "r", NotAfter: 1 << 52, Epoch: 1, Count: 1, ToEpoch: 2, ToCount: 2, Until: 1, Groups: []string{"g"},
					Start: "0", Archive: "a", Policy: "MAX_LEN", MaxLen: 0, Owner: &shardscript.Owner{Epoch: 9, MemberID: "m", Incarnation: "i"},
				}.Args()
				v, err := c.Eval(ctx, shardscript.Source(script), keys, args...).Result()
				if err != nil {
					t.Errorf("%s: %v", script, err)
					continue
				}
				r, err := shardscript.ParseReply(v)
				if err != nil || r.Code != shardscript.Damaged || r.Error == "" || r.Control.Present {
					t.Errorf("%s: %+v, %v", script, r, err)
				}
			}
			takeover := shardscript.TakeoverSlice{Group: "g", Owner: shardscript.Owner{Epoch: 9, MemberID: "n", Incarnation: "j"}, Consumer: "n~9", Max: 10}.Args()
			v, err := c.Eval(ctx, shardscript.Source(shardscript.Takeover), keys, takeover...).Result()
			if reply, parseErr := shardscript.ParseTakeover(v); err == nil && parseErr == nil {
				t.Errorf("TAKEOVER: %+v", reply)
			}
			harmless := name == "rev" || name == "rev, too long" || name == "high" || name == "sealedLastId" || name == "counted losses" || name == "vanished bodies"
			v, err = c.Eval(ctx, shardscript.Source(shardscript.Append), keys, shardscript.AppendArgs(1, 1, 0, []any{"a", "b"})...).Result()
			if err != nil {
				t.Fatalf("APPEND: %v", err)
			}
			r, err := shardscript.ParseAppend(v)
			switch want := map[bool]shardscript.Code{true: shardscript.OK, false: shardscript.Unfenced}[harmless]; {
			case err != nil || r.Code != want:
				t.Errorf("APPEND: %+v, %v; want %s", r, err, want)
			case harmless:
				return // producers read neither
			}
			if after := dump(); after != before {
				t.Errorf("the shard or its control key has changed: %s", fmt.Sprint(c.HGetAll(ctx, control).Val()))
			}
		})
	}
}
