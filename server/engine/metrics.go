package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

type metrics struct {
	watch      *watch
	commits    *prometheus.HistogramVec
	conflicts  prometheus.Counter
	unreadable prometheus.Counter
	panics     prometheus.Counter
	recoveries prometheus.Counter
	clockSteps prometheus.Counter
	heartbeats *prometheus.CounterVec
	phases     *prometheus.CounterVec
	passes     *prometheus.CounterVec
	refused    *prometheus.CounterVec
	trimmed    *prometheus.CounterVec
	unacked    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	const ns = "redis_stream_coord"
	w := newWatch(ns)
	if reg != nil {
		reg.MustRegister(w)
	}
	return &metrics{
		watch: w,
		commits: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: "commit_duration_seconds",
			Help:    "Time of one commit script, by whether it wrote an aggregate or only proved it current.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14)}, []string{"kind"}),
		conflicts:  f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "commit_conflicts_total", Help: "Commits that another replica or a server change overtook."}),
		unreadable: f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "state_unreadable_total", Help: "Loads of a stream whose stored state could not be read. Alert on any increase."}),
		panics:     f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "turn_panics_total", Help: "Turns that hit an error of the coordinator itself. Alert on any increase."}),
		recoveries: f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "lost_writes_total", Help: "Recoveries after Redis lost writes or was replaced."}),
		clockSteps: f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "clock_steps_total", Help: "Steps of the clock of Redis that made all leases begin anew."}),
		heartbeats: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "heartbeat_total", Help: "Heartbeats answered, by status."}, []string{"status"}),
		phases:     f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "resharding_phase_total", Help: "Phases that reshardings entered."}, []string{"phase"}),
		passes:     f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "pass_total", Help: "Passes over shards, by kind."}, []string{"kind"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "writes_refused_total",
			Help: "Writes that Redis refused because this replica was too late (LATE) or behind what a shard has seen (AHEAD), by script."}, []string{"script", "code"}),
		trimmed: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "retention_trimmed_total",
			Help: "Entries that the retention of streams removed from shards, by policy."}, []string{"policy"}),
		unacked: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "retention_unacknowledged_total",
			Help: "Of those, entries that a consumer group had not acknowledged, counted once for each such group, by policy."}, []string{"policy"}),
	}
}

func (m *metrics) commit(started time.Time, writes bool) {
	kind := "renew"
	if writes {
		kind = "write"
	}
	m.commits.WithLabelValues(kind).Observe(time.Since(started).Seconds())
}

func (m *metrics) phase(p protocol.Phase) { m.phases.WithLabelValues(string(p)).Inc() }

func (m *metrics) pass(res stream.PassResult) {
	m.passes.WithLabelValues(string(res.Pass.Kind)).Inc()
	for _, reply := range res.Replies {
		if reply.Code == shardscript.Ahead || reply.Code == shardscript.Late {
			m.refused.WithLabelValues(string(reply.Step.Script), string(reply.Code)).Inc()
		}
	}
}

// late counts a commit whose not-after time had passed.
func (m *metrics) late() { m.refused.WithLabelValues("COMMIT", string(shardscript.Late)).Inc() }

// retained counts a slice of retention.
func (m *metrics) retained(res stream.PassResult) {
	for _, rep := range res.Replies {
		if rep.Removed > 0 {
			policy := string(rep.Step.Retention.Policy)
			m.trimmed.WithLabelValues(policy).Add(float64(rep.Removed))
			m.unacked.WithLabelValues(policy).Add(float64(rep.Unacked))
		}
	}
}
