package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of requests. Labels are bounded: the template of the route, a known method, the
// status. Names of streams, groups, members and users are never labels.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	auditLost prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		requests: with.NewCounterVec(prometheus.CounterOpts{
			Name: "redis_stream_coord_api_request_total",
			Help: "HTTP requests by route template, method and status.",
		}, []string{"route", "method", "status"}),
		durations: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "redis_stream_coord_api_request_duration_seconds",
			Help:    "Time from a request's header to its answer, holds included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route", "method"}),
		auditLost: with.NewCounter(prometheus.CounterOpts{
			Name: "redis_stream_coord_audit_lost_total",
			Help: "Refused requests whose audit entry could not be stored.",
		}),
	}
}

func (m *metrics) observe(route, method string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "OTHER"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.durations.WithLabelValues(route, method).Observe(took.Seconds())
}
