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
	life, err := askedLife(body, h.cfg.TokenTTL)
	switch {
	case err != nil:
		return reply{}, err
	case life > 0:
		return h.openSession(ctx, acc, roles, life)
	}
	token, expires, err := h.auth.tokens.issue(acc, roles, time.Now(), h.cfg.TokenTTL)
	if err != nil {
		return reply{}, err
	}
	return ok(protocol.LoginResponse{
		AccessToken: token, TokenType: "Bearer", ExpiresAt: expires.UTC(),
		ExpiresInSeconds: int64(h.cfg.TokenTTL / time.Second), Roles: roleNames(roles),
	}), nil
}

// askedLife is the life that a login asks for, at most the limit; 0: it asks for none.
func askedLife(body protocol.LoginRequest, limit time.Duration) (time.Duration, error) {
	if body.TTLMs > 0 && body.TTLSeconds > 0 {
		return 0, protocol.Invalid("ttlSeconds", "must not be given together with ttlMs")
	}
	return min(atMost(body.TTLMs, time.Millisecond, limit)+atMost(body.TTLSeconds, time.Second, limit), limit), nil
}

// atMost is n units, or the limit if that is shorter, without overflow.
func atMost(n int64, unit, limit time.Duration) time.Duration {
	if n > int64(limit/unit) {
		return limit
	}
	return time.Duration(n) * unit
}

func (h *Handler) signIn(ctx context.Context, c *call, body protocol.LoginRequest) (*account, []Role, error) {
	if strings.TrimSpace(body.Username) == "" {
		who, err := h.auth.credentials(c.r)
		if err != nil {
			return nil, nil, err
		}
		if who != nil {
			if err := h.checkExchange(ctx, who); err != nil {
				return nil, nil, err
			}
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
