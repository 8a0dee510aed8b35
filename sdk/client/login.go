package client

import (
	"context"
	"net/http"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Login exchanges credentials for a bearer token that lives as long as the coordinator is
// configured to let it.
func (c *Client) Login(ctx context.Context, username, password string) (protocol.LoginResponse, error) {
	return c.login(ctx, protocol.LoginRequest{Username: username, Password: password}, true)
}

// LoginFor exchanges credentials for a session token: one that holds for ttl, in whole
// milliseconds, or as long as the coordinator lets it if that is shorter, and can be renewed and
// revoked before. Without a user name, those of the client are exchanged; if these are a session
// token themselves, that is refused (protocol.CodeForbidden).
func (c *Client) LoginFor(ctx context.Context, username, password string, ttl time.Duration) (protocol.LoginResponse, error) {
	return c.login(ctx, protocol.LoginRequest{
		Username: username, Password: password, TTLMs: max(ttl.Milliseconds(), 1),
	}, username != "")
}

func (c *Client) login(ctx context.Context, body protocol.LoginRequest, anonymous bool) (r protocol.LoginResponse, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodPost, path: []string{"auth", "login"}, anonymous: anonymous, repeatable: true, body: body,
	}, &r)
	return r, err
}

// SessionOf reads as whom the coordinator knows the bearer of token.
func (c *Client) SessionOf(ctx context.Context, token string) (s protocol.Session, err error) {
	_, err = c.do(ctx, &request{method: http.MethodGet, path: []string{"monitoring", "session"}, repeatable: true, token: token}, &s)
	return s, err
}

// RenewToken makes a session token hold for ttl from now on, at least a millisecond, or for as long
// as its login asked for when ttl is 0; never beyond the end that is signed into it
// (TokenSession.RenewableUntil). protocol.CodeUnauthenticated: it has ended, and no renewal undoes
// that. protocol.CodeInvalidRequest: it is no session token. An empty token is that of the client.
func (c *Client) RenewToken(ctx context.Context, token string, ttl time.Duration) (s protocol.TokenSession, err error) {
	body := protocol.RenewRequest{}
	if ttl > 0 {
		body.TTLMs = max(ttl.Milliseconds(), 1)
	}
	_, err = c.do(ctx, &request{method: http.MethodPost, path: []string{"auth", "renew"}, repeatable: true, token: token, body: body}, &s)
	return s, err
}

// RevokeToken ends a session token at once, on every replica. One that has ended before is no error,
// one that is no session token is (protocol.CodeInvalidRequest). An empty token is that of the client.
func (c *Client) RevokeToken(ctx context.Context, token string, call Call) error {
	_, err := c.do(ctx, &request{method: http.MethodPost, path: []string{"auth", "revoke"}, repeatable: true, token: token, call: call}, nil)
	return err
}
