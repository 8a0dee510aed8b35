// Package balancer is a small HTTP balancer without affinity, for tests and for make chaos:
// every request goes to the next replica, also to one that has just died.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"
)

// Balancer spreads requests over replicas until Close.
type Balancer struct {
	URL string // http://127.0.0.1:port

	server    *http.Server
	transport *http.Transport
	served    chan struct{}
	next      atomic.Uint64
	targets   []*url.URL
}

// Start listens on a loopback port. A replica that cannot be reached has its requests answered
// with 502, as they are until a balancer's health check has noticed; one that is frozen lets
// them hang. replicas are base URLs.
func Start(ctx context.Context, replicas ...string) (*Balancer, error) {
	if len(replicas) == 0 {
		return nil, errors.New("balancer: no replicas")
	}
	b := &Balancer{served: make(chan struct{})}
	for _, r := range replicas {
		u, err := url.Parse(r)
		if err != nil {
			return nil, fmt.Errorf("balancer: replica: %w", err)
		}
		b.targets = append(b.targets, u)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("balancer: %w", err)
	}
	b.URL = "http://" + l.Addr().String()
	b.transport = &http.Transport{MaxIdleConnsPerHost: 64, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}
	quiet := log.New(io.Discard, "", 0) // replicas are killed on purpose
	b.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet,
		Handler: &httputil.ReverseProxy{Rewrite: b.route, Transport: b.transport, ErrorLog: quiet},
	}
	go func() {
		defer close(b.served)
		_ = b.server.Serve(l) // ends with Close
	}()
	return b, nil
}

func (b *Balancer) route(r *httputil.ProxyRequest) {
	r.SetURL(b.targets[b.next.Add(1)%uint64(len(b.targets))])
}

// Close cuts off what is under way, and waits.
func (b *Balancer) Close() error {
	err := b.server.Close()
	<-b.served
	b.transport.CloseIdleConnections()
	return err
}
