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

// LoginFor exchanges credentials for a bearer token that lives for ttl, rounded up to seconds, or
// as long as the coordinator lets it if that is shorter. Without a user name, those of the client
// are exchanged.
func (c *Client) LoginFor(ctx context.Context, username, password string, ttl time.Duration) (protocol.LoginResponse, error) {
	return c.login(ctx, protocol.LoginRequest{
		Username: username, Password: password, TTLSeconds: int64((ttl + time.Second - 1) / time.Second),
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
