package provider

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflogtest"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Who runs Terraform with TF_LOG_PROVIDER=INFO reads each phase and each new hindrance once, with
// its numbers as fields.
func TestConvergenceIsLogged(t *testing.T) {
	t.Parallel()
	const first, second = `shard orders:0, group "billing": 1 pending`, "shard orders:1 is not read"
	at := func(phase protocol.Phase, blockers ...string) protocol.Resharding {
		return protocol.Resharding{ReshardingID: "rs-9", StreamPrefix: "orders", Phase: phase, FromShardCount: 2, ToShardCount: 4, WaitingFor: blockers}
	}
	answers := []protocol.Resharding{
		at(protocol.PhaseProvisioning), at(protocol.PhaseDraining, first), at(protocol.PhaseDraining, first), at(protocol.PhaseDraining, second, first), at(protocol.PhaseCompleted),
	}
	f := newFake(t)
	left := slices.Clone(answers)
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool { // requests come one after another
			if r.URL.Path != "/coord/v1/streams/orders/reshardings/rs-9" || len(left) == 0 {
				return false
			}
			reply(w, http.StatusOK, left[0])
			left = left[1:]
			return true
		}
	})
	conn, err := connect(settings{endpoints: []string{f.URL}, requestedBy: "terraform:default"}, 1, 5*time.Second, "test")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ctx, op := conn.begin(tflogtest.RootLogger(t.Context(), &out), "update", "", map[string]any{"stream": "orders"})
	if r, err := op.await(ctx, unread("orders", "rs-9", 2, 4)); err != nil || r.Phase != protocol.PhaseCompleted {
		t.Fatalf("%+v, %v", r, err)
	}

	entries, err := tflogtest.MultilineJSONDecode(&out)
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e map[string]any) bool { return e["@level"] != "info" })
	want := []struct{ message, phase, waiting string }{
		{"resharding has entered phase PROVISIONING", "PROVISIONING", ""},
		{"resharding has entered phase DRAINING", "DRAINING", first},
		{"resharding is waiting", "DRAINING", strings.Join([]string{second, first}, "; ")},
		{"resharding has entered phase COMPLETED", "COMPLETED", ""},
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d: %v", len(entries), len(want), entries)
	}
	for n, e := range entries {
		waiting, _ := e["waiting_for"].(string) // absent where nothing is waited for
		if e["@message"] != want[n].message || e["phase"] != want[n].phase || waiting != want[n].waiting {
			t.Errorf("entry %d: %v, want %+v", n, e, want[n])
		}
		if e["from_shard_count"] != 2.0 || e["to_shard_count"] != 4.0 || e["resharding_id"] != "rs-9" || e["stream"] != "orders" || e["request_id"] != op.requestID {
			t.Errorf("entry %d lacks its numbers: %v", n, e)
		}
	}
}
