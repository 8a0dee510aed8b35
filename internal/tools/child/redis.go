package child

import (
	"context"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// Redis is a private Redis server that persists nothing.
type Redis struct {
	*Process
	Addr string // host:port on loopback
}

// StartRedis starts program (redis-server or valkey-server) on a free port, with its files
// below dir, and returns when it answers.
func StartRedis(ctx context.Context, program, dir string) (*Redis, error) {
	addr, port, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "redis")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	p, err := Start(ctx, dir, "redis", nil, program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", data)
	if err != nil {
		return nil, err
	}
	r := &Redis{Process: p, Addr: addr}
	c := r.Client()
	defer c.Close()
	if err := p.WaitFor(ctx, startTimeout, func(ctx context.Context) error { return c.Ping(ctx).Err() }); err != nil {
		p.Stop()
		return nil, err
	}
	return r, nil
}

// URL is redis://host:port/0.
func (r *Redis) URL() string { return "redis://" + r.Addr + "/0" }

// Client is a new client with go-redis's defaults; the caller closes it.
func (r *Redis) Client() *redis.Client { return redis.NewClient(&redis.Options{Addr: r.Addr}) }
