//go:build !faults

package faultpoint

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch makes every command of client a fault point. In a normal build it does nothing.
func Watch(redis.UniversalClient, func() map[string]string) {}

// Hit is the fault point of a command that no hook of the client sees.
func Hit(string) {}

// TickerTTL is how long the soft lock of a stream's periodic work lasts; 0: the engine's default.
func TickerTTL() time.Duration { return 0 }
