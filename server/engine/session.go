package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Sessions of tokens belong to no stream, so that no actor is asked: each call is one command.

// OpenSession stores the session of a token that was asked to live for life.
func (e *Engine) OpenSession(ctx context.Context, id, user string, life time.Duration) error {
	return e.session(ctx, "open", func(ctx context.Context) error { return e.cfg.Store.OpenSession(ctx, id, user, life) })
}

// HasSession says whether the session lives and is user's.
func (e *Engine) HasSession(ctx context.Context, id, user string) (lives bool, err error) {
	err = e.session(ctx, "look for", func(ctx context.Context) (err error) {
		lives, err = e.cfg.Store.HasSession(ctx, id, user)
		return err
	})
	return lives, err
}

// RenewSession makes the session end when life is over from now on; false when it has ended.
func (e *Engine) RenewSession(ctx context.Context, id string, life time.Duration) (lives bool, err error) {
	err = e.session(ctx, "renew", func(ctx context.Context) (err error) {
		lives, err = e.cfg.Store.RenewSession(ctx, id, life)
		return err
	})
	return lives, err
}

// EndSession ends the session, also when its client has left meanwhile.
func (e *Engine) EndSession(ctx context.Context, id string) error {
	return e.session(context.WithoutCancel(ctx), "end", func(ctx context.Context) error { return e.cfg.Store.EndSession(ctx, id) })
}

// session bounds one command. When its outcome is not known, nothing is granted.
func (e *Engine) session(ctx context.Context, what string, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := do(bounded)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil { // else the client has left
		e.log.Warn("session of a token", zap.String("operation", what), zap.Error(err))
	}
	return protocol.NewError(protocol.CodeRedisUnavailable, "redis cannot be reached, where the session of this token is kept; repeat the request")
}
