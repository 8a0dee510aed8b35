package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// nodeOf is a client of the primary that holds key.
func (s *Store) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.cfg.Client.(type) {
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("node of key %q: %w", key, err)
		}
		return node, nil
	case *redis.Client:
		return c, nil
	}
	return nil, fmt.Errorf("redis client is %T", s.cfg.Client) // refused by New
}

// forEachPrimary calls f for every primary.
func (s *Store) forEachPrimary(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch c := s.cfg.Client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return nil
}

// infoFields reads INFO text.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// onlineReplicas counts the replicas in INFO replication that receive writes.
func onlineReplicas(text string) int {
	n := 0
	fields := infoFields(text)
	connected, err := strconv.Atoi(fields["connected_slaves"])
	if err != nil {
		return 0
	}
	for i := range connected {
		if strings.Contains(fields["slave"+strconv.Itoa(i)], "state=online") {
			n++
		}
	}
	return n
}
