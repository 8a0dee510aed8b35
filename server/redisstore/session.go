package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The session of a token is a key that ends by itself and holds the name of the token's user. Each
// call is one command on that key: the instant at which Redis runs it decides, and a late renewal
// cannot bring back what was ended before it.

// OpenSession stores a session that lives for life, at least a millisecond.
func (s *Store) OpenSession(ctx context.Context, id, user string, life time.Duration) error {
	if life < time.Millisecond {
		return errors.New("a session needs a life of at least a millisecond") // Redis would take none for no end
	}
	if err := s.cfg.Client.Set(ctx, s.keys.session(id), user, life).Err(); err != nil {
		return fmt.Errorf("open a session of %q: %w", user, err)
	}
	return nil
}

// HasSession says whether the session lives and is user's.
func (s *Store) HasSession(ctx context.Context, id, user string) (bool, error) {
	owner, err := s.cfg.Client.Get(ctx, s.keys.session(id)).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a session of %q: %w", user, err)
	}
	return owner == user, nil
}

// RenewSession makes the session end when life is over from now on, be it sooner or later than
// before; false when it has ended already.
func (s *Store) RenewSession(ctx context.Context, id string, life time.Duration) (bool, error) {
	lives, err := s.cfg.Client.PExpire(ctx, s.keys.session(id), life).Result()
	if err != nil {
		return false, fmt.Errorf("renew a session: %w", err)
	}
	return lives, nil
}

// EndSession ends the session; one that has ended already is no error.
func (s *Store) EndSession(ctx context.Context, id string) error {
	if err := s.cfg.Client.Del(ctx, s.keys.session(id)).Err(); err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}
