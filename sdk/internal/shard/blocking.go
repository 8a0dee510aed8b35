package shard

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// slotsLife is how long a client that waits believes where the slots are: one that speaks to a dead
// node alone is told by nobody.
const slotsLife = 5 * time.Second

// Blocking makes a client to the same servers whose connections are used for nothing but
// commands that wait, so that they keep nobody else from a connection. The caller closes it.
func Blocking(rdb redis.UniversalClient, connections int) (redis.UniversalClient, error) {
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch c := rdb.(type) {
	case *redis.Client:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxRetries = connections, 0, 0, 0, -1
		o.PushNotificationProcessor, o.MaintNotificationsConfig = nil, off
		return redis.NewClient(&o), nil
	case *redis.ClusterClient:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxRetries = connections, 0, 0, 0, -1
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.MaintNotificationsConfig = off
		o.ClusterStateReloadInterval = slotsLife
		return redis.NewClusterClient(&o), nil
	}
	return nil, fmt.Errorf("a Redis client of type %T cannot be used", rdb)
}
