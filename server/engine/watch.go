package engine

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// watchLife is how long what an actor last said of its stream is told: it says it again every
// second as long as it runs.
const watchLife = 10 * time.Second

// watch is a collector of what operators are to be woken for: how long reshardings have been in
// their phase, pauses, alerts and orphans of all streams together. Only the replica that does a
// stream's periodic work tells of it, so that sums over replicas are right.
type watch struct {
	active, oldest, paused, flagged *prometheus.Desc

	mu      sync.Mutex // guards streams
	streams map[string]watched
}

// watched is one stream.
type watched struct {
	seen     time.Time
	phase    protocol.Phase // "" at rest
	since    time.Time      // of the phase
	operator bool           // publishing is paused by an operator
	change   bool           // and by a resharding
	alert    bool
	orphans  int
}

func newWatch(namespace string) *watch {
	name := func(name string) string { return prometheus.BuildFQName(namespace, "", name) }
	return &watch{
		active:  prometheus.NewDesc(name("resharding_active"), "Streams with a running resharding, by its phase.", []string{"phase"}, nil),
		oldest:  prometheus.NewDesc(name("resharding_phase_seconds"), "For how long the resharding that is longest in that phase has been in it.", []string{"phase"}, nil),
		paused:  prometheus.NewDesc(name("publishing_paused"), "Streams on which publishing is paused, by whom; a stream counts for each.", []string{"by"}, nil),
		flagged: prometheus.NewDesc(name("streams_flagged"), "Streams that need somebody to look: with an alert (ALERT), with keys that are not ours (ORPHANS).", []string{"for"}, nil),
		streams: map[string]watched{},
	}
}

// Describe and Collect make it a prometheus.Collector.
func (w *watch) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(w, out) }

// Collect sums over the streams.
func (w *watch) Collect(out chan<- prometheus.Metric) {
	now := time.Now()
	active, oldest := map[protocol.Phase]int{}, map[protocol.Phase]time.Duration{}
	operator, change, alerts, orphans := 0, 0, 0, 0
	one := func(is bool, n *int) {
		if is {
			*n++
		}
	}
	w.mu.Lock()
	for prefix, s := range w.streams {
		if now.Sub(s.seen) > watchLife {
			delete(w.streams, prefix)
			continue
		}
		if s.phase != "" {
			active[s.phase]++
			oldest[s.phase] = max(oldest[s.phase], now.Sub(s.since))
		}
		one(s.operator, &operator)
		one(s.change, &change)
		one(s.alert, &alerts)
		one(s.orphans > 0, &orphans)
	}
	w.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	for _, phase := range []protocol.Phase{
		protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating, protocol.PhaseOpening,
		protocol.PhaseDrainingRemoved, protocol.PhaseConverging, protocol.PhaseRetiring, protocol.PhaseRollingBack,
	} {
		gauge(w.active, float64(active[phase]), string(phase))
		gauge(w.oldest, oldest[phase].Seconds(), string(phase))
	}
	gauge(w.paused, float64(operator), "OPERATOR")
	gauge(w.paused, float64(change), "RESHARDING")
	gauge(w.flagged, float64(alerts), "ALERT")
	gauge(w.flagged, float64(orphans), "ORPHANS")
}

// tell notes the state of a stream; offset is Redis's clock less the local one.
func (w *watch) tell(s *stream.State, now time.Time, offset time.Duration) {
	one := watched{seen: now, operator: s.Hold != nil, alert: s.Alert != "", orphans: len(s.Orphans)}
	if r := s.Active; r != nil {
		one.phase = r.Phase
		one.since = now
		if n := len(r.Phases); n > 0 {
			one.since = r.Phases[n-1].Started.Time().Add(-offset)
		}
		one.change = r.PausedAt != 0 && r.ResumedAt == 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams[s.Prefix] = one
}

// forget ends what is told of a stream: it is gone, or another replica does its work.
func (w *watch) forget(prefix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, prefix)
}

// report tells the metrics of the actor's stream.
func (a *actor) report(now time.Time) {
	if !a.periodic.holder || a.missing {
		a.e.metrics.watch.forget(a.prefix)
		return
	}
	if a.cache == nil || a.cache.unit.Stream == nil {
		return // for the moment; what was told holds for a while
	}
	a.e.metrics.watch.tell(a.cache.unit.Stream, now, a.now().Time().Sub(now))
}
