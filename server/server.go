package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
	"github.com/redisstream/terraform-provider-redisstream/server/httpapi"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

// Limits of connections. There is no overall read or write timeout, since requests may be held:
// package httpapi bounds the body and the answer of each request instead.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
	readyPoll         = 2 * time.Millisecond
	redisRetry        = 100 * time.Millisecond
)

// Server is one replica of the coordinator. Make it with New, then Start and Stop it once.
type Server struct {
	cfg      Config
	log      *zap.Logger
	client   redis.UniversalClient
	store    *redisstore.Store
	engine   *engine.Engine
	handler  *httpapi.Handler
	http     *http.Server
	tls      *tls.Config
	registry *prometheus.Registry

	served   chan struct{} // closed when the HTTP server has ended
	serveErr error         // why, when it ended by itself; set before served is closed
	stopped  chan struct{} // closed when Stop is done

	mu       sync.Mutex // guards what follows
	started  bool
	stopping bool
	listener net.Listener
}

// New checks cfg and puts everything together. It starts nothing and does not talk to Redis.
func New(cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("coordinator configuration: %w", err)
	}
	networks, err := parseNetworks(cfg.TrustedProxies)
	if err != nil {
		return nil, fmt.Errorf("coordinator configuration: TrustedProxies: %w", err)
	}
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("coordinator configuration: %w", err)
	}
	open, err := parseRedisURL(cfg.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("coordinator configuration: RedisURL: %w", err)
	}

	s := &Server{
		cfg: cfg, log: cfg.Logger.With(zap.String("coordinatorId", cfg.CoordinatorID)),
		tls: tlsConfig, registry: prometheus.NewRegistry(),
		served: make(chan struct{}), stopped: make(chan struct{}),
	}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.client = open()
	faultpoint.Watch(s.client, redisstore.ScriptNames)
	if err := s.assemble(networks); err != nil {
		return nil, errors.Join(fmt.Errorf("coordinator: %w", err), s.client.Close())
	}
	return s, nil
}

func (s *Server) assemble(networks []netip.Prefix) (err error) {
	cfg := s.cfg
	s.store, err = redisstore.New(redisstore.Config{
		Client: s.client, KeyPrefix: cfg.KeyPrefix, WaitReplicas: cfg.WaitReplicas, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.engine, err = engine.New(engine.Config{
		Store: s.store, CoordinatorID: cfg.CoordinatorID, Logger: s.log, Registerer: s.registry, RoutingLease: cfg.RoutingLease,
		TickerTTL: faultpoint.TickerTTL(),
	})
	if err != nil {
		return err
	}
	s.handler, err = httpapi.New(httpapi.Config{
		Engine: s.engine, Logger: s.log, Registry: s.registry, CoordinatorID: cfg.CoordinatorID, Version: cfg.Version,
		Users: cfg.users(), AllowAnonymous: cfg.InsecureAllowAnonymous, AnonymousMembers: cfg.InsecureAnonymousMembers,
		TokenSecret: []byte(cfg.TokenSecret), TokenTTL: cfg.TokenTTL,
		TrustedProxies: networks, BodyLimit: cfg.BodyLimit, DefaultShardCount: cfg.DefaultShardCount,
	})
	if err != nil {
		return err
	}
	s.http = &http.Server{
		Handler: s.handler, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: zap.NewStdLog(s.log.Named("http")),
	}
	return nil
}

// Start listens, waits for Redis and returns when the replica is ready to serve. ctx bounds the
// start alone. After an error nothing of the server runs.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopping {
		return errors.New("coordinator: a server is started once")
	}
	if err := s.start(ctx); err != nil {
		s.stopping = true
		close(s.stopped)
		return errors.Join(fmt.Errorf("start coordinator: %w", err), s.closeStore(context.WithoutCancel(ctx)))
	}
	s.started = true
	return nil
}

func (s *Server) start(ctx context.Context) error {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := s.startEngine(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	s.listener = listener
	serve := func() error { return s.http.Serve(listener) }
	if s.tls != nil {
		s.http.TLSConfig = s.tls
		serve = func() error { return s.http.ServeTLS(listener, "", "") }
	}
	go func() {
		defer close(s.served)
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			s.serveErr = fmt.Errorf("serve: %w", err)
			s.log.Error("the HTTP server ended", zap.Error(err))
		}
	}()
	s.log.Info("coordinator is serving", zap.String("url", s.url()), zap.String("keyPrefix", s.cfg.KeyPrefix))
	s.warnOfExposure()
	return nil
}

// startEngine waits for Redis, starts the engine and waits until it is ready.
func (s *Server) startEngine(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	err := s.waitForRedis(waiting)
	if err != nil && (!s.cfg.StartUnready || ctx.Err() != nil) {
		return err
	}
	if startErr := s.engine.Start(context.WithoutCancel(ctx)); startErr != nil {
		return fmt.Errorf("engine: %w", startErr)
	}
	if err == nil {
		err = poll(waiting, readyPoll, s.engine.Ready)
	}
	switch {
	case err == nil:
		return nil
	case s.cfg.StartUnready && ctx.Err() == nil:
		s.log.Warn("redis does not answer: serving unready until it does", zap.Error(err))
		return nil
	}
	return fmt.Errorf("engine is not ready: %w", err)
}

func (s *Server) waitForRedis(ctx context.Context) error {
	err := poll(ctx, redisRetry, func() error {
		warnings, err := s.store.Ping(ctx)
		for _, w := range warnings {
			s.log.Warn("redis configuration", zap.String("warning", w))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// poll calls try until it succeeds, or gives its last error when ctx ends.
func poll(ctx context.Context, every time.Duration, try func() error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last error
	for {
		select {
		case <-ctx.Done():
			return errors.Join(last, context.Cause(ctx))
		case <-timer.C:
		}
		if err := try(); err == nil {
			return nil
		} else if ctx.Err() == nil || last == nil {
			last = err
		}
		timer.Reset(every)
	}
}

// warnOfExposure says what an operator may not have meant.
func (s *Server) warnOfExposure() {
	host, _, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return
	}
	if s.cfg.InsecureAllowAnonymous {
		s.log.Warn("anybody who reaches this address may do everything: InsecureAllowAnonymous is set")
	}
	if s.tls == nil {
		s.log.Warn("credentials cross the network in the clear unless a proxy before this address ends TLS")
	}
}

// Addr is the host:port that the server listens on, "" before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// URL is the base URL for clients on this machine, "" before Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.url()
}

func (s *Server) url() string {
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return scheme + "://" + s.listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Stop ends the replica without dropping requests: readiness turns to 503 while everything is
// still served for ShutdownDelay; then held requests are answered, the listener closes, running
// requests finish, and the engine and the store are stopped. Whatever is not done when ctx ends
// is cut off, and Stop returns an error. Stopping again waits for the first.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	first, started := !s.stopping, s.started
	s.stopping = true
	s.mu.Unlock()
	if !first {
		select {
		case <-s.stopped:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop coordinator: %w", ctx.Err())
		}
	}
	defer close(s.stopped)
	var err error
	if started {
		err = s.stopServing(ctx)
	}
	if err = errors.Join(err, s.closeStore(ctx)); err != nil {
		return fmt.Errorf("stop coordinator: %w", err)
	}
	s.log.Info("coordinator has stopped")
	return nil
}

func (s *Server) stopServing(ctx context.Context) error {
	s.handler.Drain()
	if s.cfg.ShutdownDelay > 0 {
		s.log.Info("coordinator is draining", zap.Duration("for", s.cfg.ShutdownDelay))
		delay := time.NewTimer(s.cfg.ShutdownDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-s.served:
		case <-ctx.Done():
		}
	}
	s.handler.ReleaseHolds()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were cut off: %w", err), s.http.Close())
	}
	<-s.served
	return err
}

// closeStore ends what stands behind the HTTP API, front to back.
func (s *Server) closeStore(ctx context.Context) error {
	return errors.Join(s.engine.Stop(ctx), s.store.Close(), s.client.Close())
}

// Run starts the server, serves until ctx ends and stops it within ShutdownDelay and
// StopTimeout. It returns nil after an orderly stop.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.served:
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownDelay+s.cfg.StopTimeout)
	defer cancel()
	err := s.Stop(stopping)
	return errors.Join(s.serveErr, err)
}

// Done is closed when the server no longer serves, by Stop or because the listener failed.
func (s *Server) Done() <-chan struct{} { return s.served }

// Err says why the server ended by itself; nil after Stop. It is to be asked after Done.
func (s *Server) Err() error {
	select {
	case <-s.served:
		return s.serveErr
	default:
		return nil
	}
}
