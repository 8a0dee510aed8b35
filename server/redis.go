package server

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisDialTimeout = 2 * time.Second
	redisIOTimeout   = 3 * time.Second
	// How long it is believed where the slots of a cluster are: when a node dies, nobody tells a
	// client that speaks to that node alone.
	clusterSlotsLife = 2 * time.Second
)

// errRedisURL never quotes the URL: it may carry a password.
var errRedisURL = errors.New("is not a usable URL; examples: redis://user:password@host:6379/0, rediss://host:6380, " +
	"redis+cluster://host1:6379,host2:6379, redis+sentinel://host1:26379,host2:26379/0?master=name")

// parseRedisURL turns a URL into the options of one server, a cluster or a set of sentinels.
// The client does not repeat commands by itself: the outcome of a lost commit is decided by
// its token, not by sending it again.
func parseRedisURL(text string) (func() redis.UniversalClient, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "://") {
		scheme := "redis://"
		if strings.Contains(text, ",") {
			scheme = "redis+cluster://"
		}
		text = scheme + text
	}
	scheme, rest, _ := strings.Cut(text, "://")
	switch scheme {
	case "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel":
		base, kind, _ := strings.Cut(scheme, "+")
		return parseManyHosts(base, kind, rest)
	}
	if scheme != "unix" && strings.Contains(authority(rest), ",") {
		return parseManyHosts(scheme, "cluster", rest)
	}
	opt, err := redis.ParseURL(text)
	if err != nil {
		return nil, errRedisURL
	}
	opt.MaxRetries, opt.ContextTimeoutEnabled = -1, true
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = redisDialTimeout, redisIOTimeout, redisIOTimeout
	return func() redis.UniversalClient { return redis.NewClient(opt) }, nil
}

// parseManyHosts reads user:password@host1:port,host2:port/db?query.
func parseManyHosts(base, kind, rest string) (func() redis.UniversalClient, error) {
	hosts := authority(rest)
	credentials := ""
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		credentials, hosts = hosts[:at+1], hosts[at+1:]
	}
	var addrs []string
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			return nil, errRedisURL
		}
		addrs = append(addrs, host)
	}
	tail := rest[len(authority(rest)):]
	u, err := url.Parse(base + "://" + credentials + addrs[0] + tail)
	if err != nil {
		return nil, errRedisURL
	}
	master := u.Query().Get("master")
	query := u.Query()
	query.Del("master")
	u.RawQuery = query.Encode()
	opt, err := redis.ParseURL(u.String()) // credentials, TLS, database and tuning
	if err != nil {
		return nil, errRedisURL
	}
	many := &redis.UniversalOptions{
		Addrs: addrs, DB: opt.DB, Username: opt.Username, Password: opt.Password, TLSConfig: opt.TLSConfig,
		PoolSize: opt.PoolSize, MinIdleConns: opt.MinIdleConns, Protocol: opt.Protocol,
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: redisDialTimeout, ReadTimeout: redisIOTimeout, WriteTimeout: redisIOTimeout,
	}
	if kind == "cluster" {
		if opt.DB != 0 || master != "" {
			return nil, errRedisURL // a cluster has one database and no sentinel
		}
		cluster := many.Cluster()
		cluster.ClusterStateReloadInterval = clusterSlotsLife
		return func() redis.UniversalClient { return redis.NewClusterClient(cluster) }, nil
	}
	if master == "" {
		return nil, errRedisURL
	}
	many.MasterName = master
	failover := many.Failover()
	return func() redis.UniversalClient { return redis.NewFailoverClient(failover) }, nil
}

// authority is what stands before the path and query of a URL.
func authority(rest string) string {
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return rest[:end]
	}
	return rest
}
