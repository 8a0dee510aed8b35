// Package server wires the coordinator together and runs it: the Redis client, the store, the
// engine, the HTTP API. It is what the command serves and what tests start in their process.
package server

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/httpapi"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

// Defaults of Config.
const (
	DefaultListen       = "127.0.0.1:8080"
	DefaultRedisURL     = "redis://127.0.0.1:6379/0"
	DefaultStartTimeout = 10 * time.Second
	DefaultStopTimeout  = 30 * time.Second
)

// Bounds of Config.
const (
	minBodyLimit   = 16 << 10
	maxBodyLimit   = 64 << 20
	minTokenTTL    = time.Minute
	maxTokenTTL    = 365 * 24 * time.Hour
	minTokenSecret = 32
	maxDelay       = 10 * time.Minute
)

// User may call the API. Roles are READ, WRITE, ADMIN, MONITOR and MEMBER.
type User struct {
	Name     string
	Password string
	Roles    []string
}

// Config of a Server. Zero values mean the default given; a user, or InsecureAllowAnonymous, is
// required.
type Config struct {
	// Listen is the host:port of the HTTP API; port 0 takes a free one. Default DefaultListen.
	Listen string
	// TLSCertFile and TLSKeyFile are PEM files; with both, HTTPS is served. Default: HTTP.
	TLSCertFile, TLSKeyFile string

	// RedisURL names the one store: redis:// or rediss:// (one server), unix://,
	// redis+cluster:// or rediss+cluster:// with comma-separated hosts, redis+sentinel:// with
	// comma-separated sentinels and ?master=name; several comma-separated host:port without a
	// scheme are a cluster. Default DefaultRedisURL.
	RedisURL string
	// KeyPrefix is the prefix of all coordinator keys. Default redisstore.DefaultKeyPrefix.
	KeyPrefix string
	// WaitReplicas is how many Redis replicas must confirm seals and decisions. Default (0 or
	// −1): one when a replica is connected.
	WaitReplicas int

	// AdminUsername and AdminPassword are the first user, with role ADMIN. Default name "admin"
	// when only the password is set.
	AdminUsername, AdminPassword string
	// Users are further users.
	Users []User
	// InsecureAllowAnonymous lets requests without credentials do everything.
	InsecureAllowAnonymous bool
	// InsecureAnonymousMembers lets heartbeats, and nothing else, come without credentials: for
	// clients of the reference implementation that send none.
	InsecureAnonymousMembers bool

	// TokenSecret signs bearer tokens; at least 32 bytes. Replicas behind one balancer need the
	// same. Default: random, so that tokens hold at this process alone, until it ends.
	TokenSecret string
	// TokenTTL is the life of a bearer token, 1 min to 365 days. Default 7 days.
	TokenTTL time.Duration

	// Version is the release that /monitoring/health shows. Default: none.
	Version string
	// CoordinatorID names this replica in audit entries and logs. Default: host name and a
	// random suffix.
	CoordinatorID string
	// TrustedProxies are addresses and CIDR networks whose X-Forwarded-For is believed.
	// Default: none, the peer of the connection is the client.
	TrustedProxies []string
	// BodyLimit is the largest request body in bytes, 16 KiB to 64 MiB. Default 1 MiB.
	BodyLimit int64
	// DefaultShardCount is that of streams created without one by POST. Default 12.
	DefaultShardCount int
	// RoutingLease is how long a producer may use a routing unasked. Default 30 s.
	RoutingLease time.Duration

	// StartTimeout bounds how long Start waits for Redis. Default 10 s.
	StartTimeout time.Duration
	// StartUnready lets Start succeed when Redis did not answer in StartTimeout: the replica then
	// serves, with readiness 503, until Redis is back. Default: Start fails.
	StartUnready bool
	// ShutdownDelay is how long Stop goes on serving with readiness 503, so that balancers can
	// notice. Default 0.
	ShutdownDelay time.Duration
	// StopTimeout bounds the rest of the stop in Run. Default 30 s.
	StopTimeout time.Duration

	// Logger defaults to none.
	Logger *zap.Logger
}

// WithDefaults returns c with its zero values filled.
func (c Config) WithDefaults() Config {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.RedisURL == "" {
		c.RedisURL = DefaultRedisURL
	}
	if c.KeyPrefix == "" {
		c.KeyPrefix = redisstore.DefaultKeyPrefix
	}
	if c.AdminUsername == "" && c.AdminPassword != "" {
		c.AdminUsername = "admin"
	}
	if c.TokenTTL == 0 {
		c.TokenTTL = httpapi.DefaultTokenTTL
	}
	if c.BodyLimit == 0 {
		c.BodyLimit = httpapi.DefaultBodyLimit
	}
	if c.DefaultShardCount == 0 {
		c.DefaultShardCount = httpapi.DefaultShardCount
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if c.CoordinatorID == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "coordinator"
		}
		c.CoordinatorID = host + "-" + strings.ToLower(rand.Text()[:8])
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// validate names the field and the bound of everything that is wrong with a filled Config.
func (c Config) validate() error {
	var faults []error
	bad := func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	within := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			bad(field, "is %s; it must be between %s and %s", d, least, most)
		}
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("Listen", "%q is not host:port", c.Listen)
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		bad("TLSCertFile", "needs TLSKeyFile, and the other way round")
	}
	if _, err := parseRedisURL(c.RedisURL); err != nil {
		bad("RedisURL", "%w", err)
	}
	if strings.ContainsAny(c.KeyPrefix, "{} \t\r\n") {
		bad("KeyPrefix", "%q must not contain braces or white space", c.KeyPrefix)
	}
	if c.WaitReplicas < -1 || c.WaitReplicas > 10 {
		bad("WaitReplicas", "is %d; it must be between -1 and 10", c.WaitReplicas)
	}
	if c.AdminUsername != "" && c.AdminPassword == "" {
		bad("AdminPassword", "is required with AdminUsername")
	}
	if c.AdminPassword == "" && len(c.Users) == 0 && !c.InsecureAllowAnonymous {
		bad("AdminPassword", "no user is configured; set AdminUsername and AdminPassword, or InsecureAllowAnonymous to let everybody in")
	}
	if c.TokenSecret != "" && len(c.TokenSecret) < minTokenSecret {
		bad("TokenSecret", "has %d bytes; at least %d are needed", len(c.TokenSecret), minTokenSecret)
	}
	within("TokenTTL", c.TokenTTL, minTokenTTL, maxTokenTTL)
	if refused := protocol.CheckName("CoordinatorID", c.CoordinatorID); refused != nil {
		bad("CoordinatorID", "%s", refused.Details[0].Message)
	}
	if _, err := parseNetworks(c.TrustedProxies); err != nil {
		bad("TrustedProxies", "%w", err)
	}
	if c.BodyLimit < minBodyLimit || c.BodyLimit > maxBodyLimit {
		bad("BodyLimit", "is %d; it must be between %d and %d bytes", c.BodyLimit, minBodyLimit, maxBodyLimit)
	}
	if c.DefaultShardCount < 1 || c.DefaultShardCount > protocol.MaxShardCount {
		bad("DefaultShardCount", "is %d; it must be between 1 and %d", c.DefaultShardCount, protocol.MaxShardCount)
	}
	if c.RoutingLease != 0 {
		within("RoutingLease", c.RoutingLease, time.Second, time.Hour)
	}
	within("StartTimeout", c.StartTimeout, 0, maxDelay)
	within("ShutdownDelay", c.ShutdownDelay, 0, maxDelay)
	within("StopTimeout", c.StopTimeout, 0, maxDelay)
	return errors.Join(faults...)
}

// parseNetworks reads addresses and CIDR networks.
func parseNetworks(texts []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if addr, err := netip.ParseAddr(text); err == nil {
			addr = addr.Unmap().WithZone("")
			networks = append(networks, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}

// users are all who may call, in the words of package httpapi.
func (c Config) users() []httpapi.User {
	var users []httpapi.User
	if c.AdminPassword != "" {
		users = append(users, httpapi.User{Name: c.AdminUsername, Password: c.AdminPassword, Roles: []httpapi.Role{httpapi.RoleAdmin}})
	}
	for _, u := range c.Users {
		roles := make([]httpapi.Role, len(u.Roles))
		for i, r := range u.Roles {
			roles[i] = httpapi.Role(strings.ToUpper(r))
		}
		users = append(users, httpapi.User{Name: u.Name, Password: u.Password, Roles: roles})
	}
	return users
}

// tlsConfig is nil for plain HTTP.
func (c Config) tlsConfig() (*tls.Config, error) {
	if c.TLSCertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("TLSCertFile: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}
