package provider

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Every change says who asks, why, as part of what, and under which key it may be repeated: those
// of the resources, the removals, and the actions; with the user's reason and without.
func TestMutationsGiveAccount(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]string{"a reason of the user's": "ticket 4711", "no reason": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, f := setup(t)
			o := observe(t, f)
			f.set(func() {
				serve := f.intercept
				f.intercept = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
					done := serve(w, r, body)
					if strings.HasSuffix(r.URL.Path, "/rollback") {
						f.finish(t, "orders", protocol.PhaseRolledBack, "an operator asked for it")
					}
					return done
				}
			})
			with := func(config attrs) attrs {
				if given != "" {
					config["reason"] = given
				}
				return config
			}
			act := func(kind string, config attrs) {
				t.Helper()
				_, diags := c.invoke(kind, with(config))
				c.ok(diags)
			}
			stream := c.must(c.none(shardCount), with(orders(2)))
			group := c.must(c.none(streamGroup), with(billing()))
			act(pauseKind, attrs{"stream_prefix": "orders", "timeout": "10m"})
			act(resumeKind, attrs{"stream_prefix": "orders"})
			f.set(func() {
				f.block = true
				f.records["rs-x"] = &protocol.Resharding{ReshardingID: "rs-x", StreamPrefix: "orders", Phase: protocol.PhaseDraining, FromShardCount: 2, ToShardCount: 4}
				f.streams["orders"].Status.ActiveReshardingID = "rs-x"
			})
			act(rollbackKind, attrs{"stream_prefix": "orders"})
			f.set(func() { f.block = false })
			c.must(c.refresh(group), nil)
			c.must(c.refresh(stream), nil)
			forced := c.must(c.none(shardCount), with(orders(1, attrs{"stream_prefix": "forced", "force_destroy": "forced"})))
			c.must(forced, nil)

			made, keys := []string{}, map[string]string{}
			for _, m := range o.mutations() {
				path := strings.TrimPrefix(m.path, "/coord/v1/streams/")
				what := m.method + " " + path
				made = append(made, what)
				id, key := m.header.Get("X-Request-Id"), m.header.Get("Idempotency-Key")
				if id == "" || key == "" || keys[key] != "" {
					t.Errorf("%s: request id %q, key %q (of %s as well)", what, id, key, keys[key])
				}
				keys[key] = what
				var body struct{ RequestedBy, Reason string }
				if err := json.Unmarshal([]byte(m.body), &body); err != nil {
					t.Errorf("%s: %v in %q", what, err, m.body)
				}
				if body.RequestedBy != "terraform:default" {
					t.Errorf("%s: requested by %q", what, body.RequestedBy)
				}
				if said := body.Reason; given != "" && said != given || given == "" && (!strings.HasPrefix(said, "terraform: ") || !strings.Contains(said, strings.Split(path, "/")[0])) {
					t.Errorf("%s: reason %q", what, said)
				}
			}
			want := []string{
				"PUT orders", "PUT orders/groups/billing", "POST orders/publishing/pause", "POST orders/publishing/resume", "POST orders/reshardings/rs-x/rollback",
				"DELETE orders/groups/billing", "PUT orders", "DELETE orders", "PUT forced", "DELETE forced",
			}
			if !slices.Equal(made, want) {
				t.Errorf("changes\n%q, want\n%q", made, want)
			}
		})
	}
}
