package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// oldest is the oldest server that the scripts run on.
const oldest = 7

// Ping reports whether Redis answers, and what should be warned about at start-up: eviction
// policies that could remove shards, cluster-node-timeout below EffectLease, rights on shards that
// the user lacks. A server that is too old, and rights without which nothing works, are errors.
// What may not be asked (CONFIG is often forbidden) is not warned about.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) {
	var mu sync.Mutex
	seen := map[string]bool{}
	warn := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		seen[text] = true
	}
	err = s.forEachPrimary(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := pingNode(ctx, node, warn); err != nil {
			return err
		}
		return s.checkRights(ctx, node, warn)
	})
	if err != nil {
		return nil, fmt.Errorf("ping redis: %w", err)
	}
	for text := range seen {
		warnings = append(warnings, text)
	}
	slices.Sort(warnings)
	return warnings, nil
}

func pingNode(ctx context.Context, node *redis.Client, warn func(string)) error {
	if err := node.Ping(ctx).Err(); err != nil {
		return err
	}
	info, err := node.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	version := infoFields(info)["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < oldest {
		return fmt.Errorf("redis %s is too old: version %d is needed", version, oldest)
	}
	if policy := setting(ctx, node, "maxmemory-policy"); strings.HasPrefix(policy, "allkeys-") {
		warn("maxmemory-policy is " + policy + ": redis may evict shards and control hashes; use noeviction or a volatile policy")
	}
	if setting(ctx, node, "cluster-enabled") == "yes" {
		ms, err := strconv.ParseInt(setting(ctx, node, "cluster-node-timeout"), 10, 64)
		if timeout := time.Duration(ms) * time.Millisecond; err == nil && timeout < EffectLease {
			warn(fmt.Sprintf("cluster-node-timeout is %v, below the effect lease of %v: a failover may be faster than a late script is refused", timeout, EffectLease))
		}
	}
	return nil
}

// setting is a configuration value, "" when it may not be read.
func setting(ctx context.Context, node *redis.Client, name string) string {
	values, err := node.ConfigGet(ctx, name).Result()
	if err != nil {
		return ""
	}
	return values[name]
}
