package e2e_test

import (
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// TestRollbackThatFailsAtAStep: the way back cannot be gone at one shard. The change is not reported
// as rolled back: it says which shard is left and why, for as long as that lasts, over the death of
// the coordinator too, and a rollback that is asked for again changes nothing. Once the shard
// answers, it ends, and everything is as before.
func TestRollbackThatFailsAtAStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		shard int // the step that fails: RELEASE of shard 0, of shard 1, UNDO of shard 2
	}{{"shard 0, which must be the first", 0}, {"an old shard", 1}, {"a new shard", 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change{protocol.StrategyQuiesce, 2, 3, false}, true)
			res := r.drainsInVain()
			ctx, control := t.Context(), protocol.ControlKey(rigPrefix, c.shard)
			if err := r.rdb.Rename(ctx, control, control+".away").Err(); err != nil {
				t.Fatal(err)
			}
			if err := r.rdb.Set(ctx, control, "no hash", 0).Err(); err != nil { // every script on it fails
				t.Fatal(err)
			}
			body := protocol.RollbackRequest{RequestedBy: "e2e", Reason: "a test"}
			for range 2 { // the second coordinator comes after the death of the first
				r.start("")
				if _, err := r.api.Rollback(ctx, rigPrefix, res.ReshardingID, body, client.Call{}); err != nil {
					t.Fatal(err)
				}
				r.eventually("a reason that names "+control, func() bool {
					now := r.stored()
					if now.Phase != protocol.PhaseRollingBack {
						t.Fatalf("the phase is %s while a step fails", now.Phase)
					}
					return len(now.WaitingFor) > 0 && strings.Contains(now.WaitingFor[0], control) && strings.Contains(now.WaitingFor[0], string(protocol.CodeShardControlDamaged))
				})
				r.kill()
			}
			for i := range 3 {
				// RELEASE of shard 0 comes first and alone.
				open := !strings.Contains(r.rdb.Do(ctx, "XINFO", "STREAM", protocol.ShardKey(rigPrefix, i)).String(), "last-generated-id:18446744073709551615-18446744073709551615")
				if c.shard == 0 && open {
					t.Errorf("shard %d is open though shard 0 has not ended the change", i)
				}
			}
			r.start("")
			if err := r.rdb.Rename(ctx, control+".away", control).Err(); err != nil {
				t.Fatal(err)
			}
			res = follow(t, r.api, rigPrefix, res.ReshardingID, rigPatience)
			if res.Phase != protocol.PhaseRolledBack {
				t.Fatalf("ended %s: %s", res.Phase, res.Error)
			}
			r.isBefore(res.ReshardingID)
		})
	}
}
