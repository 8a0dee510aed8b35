// Package client is the typed HTTP client of the coordinator, for the SDK's runtimes, the
// Terraform provider, command-line tools and users' own programs.
//
// Every method returns the coordinator's refusal as an error that wraps a *protocol.Error, so
// that errors.Is(err, protocol.ErrStreamNotFound) holds only when a coordinator said so: a 404
// page of a proxy is another error.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Config of a Client. Zero values mean the defaults given.
type Config struct {
	// Endpoints are base URLs (scheme, host, optional path) of coordinators or of a balancer.
	// More than one: the next is tried when one cannot be reached. Required.
	Endpoints []string
	// Username and Password are sent as Basic credentials; Token as a bearer token instead.
	Username, Password, Token string
	// HTTPClient does the calls. Default: a client of its own without overall timeout (calls
	// may be held); every call is bounded by its context or CallTimeout plus its hold.
	HTTPClient *http.Client
	// CallTimeout bounds one attempt without a hold. Default 10 s.
	CallTimeout time.Duration
	// Retries of idempotent calls and of 429/503, with back-off, full jitter and Retry-After.
	// Default 4; negative: none. Heartbeats are never retried: their caller decides.
	Retries int
	// OverloadBudget, if set, bounds by time instead of by Retries how long a call is repeated
	// that is refused for overload (429 and 503), counted from its first refusal. All calls of the
	// client then also hold back together after such a refusal. A Retry-After is waited for up to
	// half of the budget. Default 0: none, Retries counts these too.
	OverloadBudget time.Duration
	// TokenSource gives the bearer token of each attempt anew, for tokens that are renewed in a
	// file while a program runs. It takes the place of Token.
	TokenSource func() (string, error)
	// Observe is told of every attempt when it has ended, from the goroutine of the call.
	Observe func(context.Context, Attempt)
	// UserAgent is put before the client's own.
	UserAgent string
}

const (
	base           = "/coord/v1"
	defaultTimeout = 10 * time.Second
	defaultRetries = 4
	agent          = "redis-stream-coordinator-go"
)

// Client is safe for concurrent use.
type Client struct {
	cfg       Config
	endpoints []string // without a slash at the end
	http      *http.Client
	agent     string
	current   atomic.Uint32 // index of the endpoint that answered last
	pace      pacer
}

// New validates cfg. It sends nothing.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, http: cfg.HTTPClient, agent: strings.TrimSpace(cfg.UserAgent + " " + agent)}
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("client: Endpoints is empty")
	}
	for _, e := range cfg.Endpoints {
		u, err := url.Parse(e)
		switch {
		case err != nil:
			return nil, errors.New("client: an endpoint is not a URL") // its text may hold a password
		case u.User != nil:
			return nil, fmt.Errorf("client: endpoint %q carries credentials; use Username and Password, or Token", u.Redacted())
		case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			return nil, fmt.Errorf("client: endpoint %q is not an http or https URL with a host", e)
		case u.RawQuery != "" || u.Fragment != "":
			return nil, fmt.Errorf("client: endpoint %q has a query or a fragment", e)
		}
		c.endpoints = append(c.endpoints, strings.TrimSuffix(strings.TrimRight(u.String(), "/"), base))
	}
	if cfg.TokenSource != nil && (cfg.Token != "" || cfg.Username != "" || cfg.Password != "") {
		return nil, errors.New("client: TokenSource and other credentials exclude each other")
	}
	if cfg.OverloadBudget < 0 {
		return nil, fmt.Errorf("client: OverloadBudget %v is negative", cfg.OverloadBudget)
	}
	if cfg.Token != "" && (cfg.Username != "" || cfg.Password != "") {
		return nil, errors.New("client: Token and Username or Password exclude each other")
	}
	if cfg.Password != "" && cfg.Username == "" {
		return nil, errors.New("client: Password without Username")
	}
	if cfg.CallTimeout < 0 {
		return nil, fmt.Errorf("client: CallTimeout %v is negative", cfg.CallTimeout)
	}
	if c.cfg.CallTimeout == 0 {
		c.cfg.CallTimeout = defaultTimeout
	}
	switch {
	case cfg.Retries == 0:
		c.cfg.Retries = defaultRetries
	case cfg.Retries < 0:
		c.cfg.Retries = 0
	}
	if c.http == nil {
		c.http = NewHTTPClient(nil)
	}
	return c, nil
}

// NewHTTPClient is what New makes for itself, with other TLS settings if tlsConfig is not nil. It
// keeps enough idle connections for all members of a process, and follows no redirect: an API
// does not move, a redirect comes from something that is not a coordinator.
func NewHTTPClient(tlsConfig *tls.Config) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's own
	if tlsConfig != nil {
		transport.TLSClientConfig = tlsConfig
	}
	transport.MaxIdleConnsPerHost = 64
	transport.ResponseHeaderTimeout = 0
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections of the client that New made; one that the caller gave is left
// alone. Calls that are under way are not ended.
func (c *Client) Close() {
	if c.cfg.HTTPClient == nil {
		c.http.CloseIdleConnections()
	}
}
