package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
)

// OpenTokens are the session tokens that a process of the provider has opened and not revoked yet.
// Terraform closes no ephemeral resource of a run that fails or is interrupted, but it lets the
// process end in peace: Revoke is for then. The zero value is ready, and a nil one keeps nothing.
type OpenTokens struct {
	mu     sync.Mutex
	opened map[string]*client.Client
}

// add notes a token that c has opened.
func (t *OpenTokens) add(token string, c *client.Client) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opened == nil {
		t.opened = map[string]*client.Client{}
	}
	t.opened[token] = c
}

// remove forgets a token that was revoked.
func (t *OpenTokens) remove(token string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.opened, token)
}

// Revoke revokes all of them at once, until ctx ends. What fails is joined into the error, which
// shows no token; those end by themselves.
func (t *OpenTokens) Revoke(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	opened := maps.Clone(t.opened)
	t.mu.Unlock()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for token, c := range opened {
		wg.Go(func() {
			if err := c.RevokeToken(ctx, token, client.Call{}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("revoke a token that was not closed: %w", err))
				return
			}
			t.remove(token)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
