package e2e_test

import (
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// startBalancer spreads requests over the replicas, one after the other, as a balancer without
// affinity does. A replica that cannot be reached makes it answer 502, as a balancer does until
// its health check has noticed.
func startBalancer(t *testing.T, replicas []*coordinator) string {
	t.Helper()
	var next atomic.Uint64
	var targets []*url.URL
	for _, r := range replicas {
		u, err := url.Parse(r.url())
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, u)
	}
	s := httptest.NewServer(&httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0), // replicas are killed on purpose
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(targets[next.Add(1)%uint64(len(targets))])
		},
	})
	t.Cleanup(s.Close)
	return s.URL
}
