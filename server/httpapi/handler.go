package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"

	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

// Defaults of Config.
const (
	DefaultBodyLimit      = 1 << 20
	DefaultBodyTimeout    = 10 * time.Second
	DefaultWriteTimeout   = 30 * time.Second
	DefaultRequestTimeout = 30 * time.Second
	DefaultTokenTTL       = 7 * 24 * time.Hour
	DefaultShardCount     = 12
	// MaxHold bounds maxWaitMs of routing and resharding requests; longer waits are cut to it.
	MaxHold = 60 * time.Second
)

// Config of a Handler. Engine, Logger and Registry are required, and at least one user unless
// AllowAnonymous is set. Zero values of the rest mean the defaults above.
type Config struct {
	Engine        engine.API
	Logger        *zap.Logger
	Registry      *prometheus.Registry // request metrics go in; /metrics serves it
	CoordinatorID string
	Version       string // release, shown by /monitoring/health

	Users            []User
	AllowAnonymous   bool // requests without credentials act as ADMIN
	AnonymousMembers bool // heartbeats need no credentials

	TokenSecret []byte        // key of bearer tokens; empty: random, tokens end with the process
	TokenTTL    time.Duration // life of a bearer token

	TrustedProxies    []netip.Prefix // whose X-Forwarded-For is believed; none: nobody's
	BodyLimit         int64          // bytes of a request body
	BodyTimeout       time.Duration  // for receiving a body
	WriteTimeout      time.Duration  // for sending an answer, counted from when it is ready
	RequestTimeout    time.Duration  // for one call of the engine, holds not counted
	DefaultShardCount int            // of POST /streams/{p} without initialShardCount

	bcryptCost int // lower in tests
}

func (c Config) withDefaults() Config {
	if c.BodyLimit == 0 {
		c.BodyLimit = DefaultBodyLimit
	}
	if c.BodyTimeout == 0 {
		c.BodyTimeout = DefaultBodyTimeout
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = DefaultWriteTimeout
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.TokenTTL == 0 {
		c.TokenTTL = DefaultTokenTTL
	}
	if c.bcryptCost == 0 {
		c.bcryptCost = bcrypt.DefaultCost
	}
	if c.DefaultShardCount == 0 {
		c.DefaultShardCount = DefaultShardCount
	}
	return c
}

// Handler serves the API. Safe for concurrent use.
type Handler struct {
	cfg     Config
	engine  engine.API
	log     *zap.Logger
	mux     *chi.Mux
	auth    *authenticator
	metrics *metrics
	origins *http.CrossOriginProtection

	draining atomic.Bool
	// holds ends when held requests are to be answered at once. Its life is the handler's.
	holds        context.Context
	releaseHolds context.CancelFunc
}

// New checks cfg and builds the routes. It starts nothing.
func New(cfg Config) (*Handler, error) {
	if cfg.Engine == nil || cfg.Logger == nil || cfg.Registry == nil {
		return nil, errors.New("httpapi: Engine, Logger and Registry are required")
	}
	cfg = cfg.withDefaults()
	auth, err := newAuthenticator(cfg)
	if err != nil {
		return nil, fmt.Errorf("httpapi: %w", err)
	}
	h := &Handler{
		cfg: cfg, engine: cfg.Engine, log: cfg.Logger, auth: auth,
		metrics: newMetrics(cfg.Registry),
		origins: http.NewCrossOriginProtection(),
	}
	h.holds, h.releaseHolds = context.WithCancel(context.Background())
	h.mux = h.buildRoutes()
	return h, nil
}

// Drain begins the end: readiness turns to 503, and each answer asks for its connection to be
// closed. Everything is still served.
func (h *Handler) Drain() { h.draining.Store(true) }

// ReleaseHolds answers all held requests now, and holds no more.
func (h *Handler) ReleaseHolds() { h.releaseHolds() }

// ServeHTTP matches the path as it was escaped by the client: names may contain what a decoded
// path could not tell apart. Each segment is decoded once, after matching.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.URL.RawPath = r.URL.EscapedPath()
	h.mux.ServeHTTP(w, r)
}

// hold makes one call that may wait. When held requests are released meanwhile, the call is
// made anew without waiting, so that the client gets a true answer rather than a broken
// connection.
func hold[T any](ctx context.Context, h *Handler, wait time.Duration, do func(context.Context, time.Duration) (T, error)) (T, error) {
	if wait <= 0 || h.holds.Err() != nil {
		return do(ctx, 0)
	}
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(h.holds, cancel)
	defer stop()
	v, err := do(held, wait)
	if held.Err() != nil && ctx.Err() == nil {
		return do(ctx, 0)
	}
	return v, err
}
