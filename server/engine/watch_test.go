package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWatch("x")
	now := time.Now()
	draining := func(since time.Time) *stream.Resharding {
		return &stream.Resharding{
			Phase: protocol.PhaseDraining, PausedAt: 1,
			Phases: []stream.PhaseSpan{{Phase: protocol.PhaseDraining, Started: protocol.InstantOf(since)}},
		}
	}
	// Redis's clock is an hour ahead: its times are converted.
	w.tell(&stream.State{Prefix: "a", Active: draining(now.Add(time.Hour - time.Minute))}, now, time.Hour)
	w.tell(&stream.State{Prefix: "b", Active: draining(now.Add(time.Hour)), Hold: &stream.Hold{}, Orphans: []string{"b:9 (1 entry)"}}, now, time.Hour)
	w.tell(&stream.State{Prefix: "old", Alert: "Redis lost writes"}, now.Add(-2*watchLife), 0)
	w.tell(&stream.State{Prefix: "gone", Alert: "Redis lost writes"}, now, 0)
	w.forget("gone")
	if err := testutil.CollectAndCompare(w, strings.NewReader(`
# HELP x_publishing_paused Streams on which publishing is paused, by whom; a stream counts for each.
# TYPE x_publishing_paused gauge
x_publishing_paused{by="OPERATOR"} 1
x_publishing_paused{by="RESHARDING"} 2
# HELP x_streams_flagged Streams that need somebody to look: with an alert (ALERT), with keys that are not ours (ORPHANS).
# TYPE x_streams_flagged gauge
x_streams_flagged{for="ALERT"} 0
x_streams_flagged{for="ORPHANS"} 1
`), "x_publishing_paused", "x_streams_flagged"); err != nil {
		t.Error(err)
	}
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(w)
	families, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if got["x_resharding_active DRAINING"] != 2 || got["x_resharding_active OPENING"] != 0 {
		t.Errorf("active reshardings: %v", got)
	}
	if age := got["x_resharding_phase_seconds DRAINING"]; age < 59.9 || age > 90 {
		t.Errorf("the older one drains for %v s, want 60", age)
	}
}
