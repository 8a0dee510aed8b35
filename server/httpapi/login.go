package httpapi

import (
	"context"
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const loginPattern = Base + "/auth/login"

var errLoginRefused = protocol.NewError(protocol.CodeUnauthenticated, "user name or password is wrong")

// login exchanges credentials for a token: those of the body when it has a user name, else
// those of the Authorization header. Nothing of it is audited or logged.
func (h *Handler) login(ctx context.Context, c *call) (reply, error) {
	var body protocol.LoginRequest
	if err := c.decodeOptional(&body, lenient); err != nil {
		return reply{}, err
	}
	acc, roles, err := h.signIn(ctx, c, body)
	if err != nil {
		return reply{}, err
	}
	if body.TTLSeconds < 0 {
		return reply{}, protocol.Invalid("ttlSeconds", "must not be negative")
	}
	ttl := h.cfg.TokenTTL
	if body.TTLSeconds > 0 && body.TTLSeconds < int64(ttl/time.Second) {
		ttl = time.Duration(body.TTLSeconds) * time.Second
	}
	token, expires, err := h.auth.tokens.issue(acc, roles, time.Now(), ttl)
	if err != nil {
		return reply{}, err
	}
	return ok(protocol.LoginResponse{
		AccessToken: token, TokenType: "Bearer", ExpiresAt: expires.UTC(),
		ExpiresInSeconds: int64(ttl / time.Second), Roles: roleNames(roles),
	}), nil
}

func (h *Handler) signIn(ctx context.Context, c *call, body protocol.LoginRequest) (*account, []Role, error) {
	if strings.TrimSpace(body.Username) == "" {
		who, err := h.auth.credentials(c.r)
		if err != nil {
			return nil, nil, err
		}
		if who != nil {
			if acc := h.auth.accounts[who.name]; acc != nil {
				return acc, who.roles, nil
			}
		}
		return nil, nil, errLoginRefused
	}
	acc, err := h.auth.password(ctx, body.Username, body.Password)
	if err != nil {
		return nil, nil, err
	}
	if acc == nil {
		return nil, nil, errLoginRefused
	}
	return acc, acc.roles, nil
}
