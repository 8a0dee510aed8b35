package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A login that asks for a life of its own gets a session token. What is signed into it is the
// coordinator's limit; before that it holds for as long as its session in Redis lives, which all
// replicas share. docs/adr/0009-session-tokens.md says why.

var (
	errSessionOver = protocol.NewError(protocol.CodeUnauthenticated, "the session of this token has ended or was revoked; log in again")
	errNoExchange  = protocol.NewError(protocol.CodeForbidden,
		"a session token cannot be exchanged for another token, which would outlive its revocation; log in with user name and password, or renew it")
	errNoSession = protocol.Invalid("Authorization",
		"must carry a session token, as a login with ttlMs gives it. A token without session holds until its signed end or until its user's password is changed, and can be neither renewed nor revoked")
)

// openSession answers a login that asks for a life. The session is there before the token is.
func (h *Handler) openSession(ctx context.Context, acc *account, roles []Role, life time.Duration) (reply, error) {
	now := time.Now() // before Redis counts: it never lives shorter than the client is told
	session := newTokenSession(life, now, h.cfg.TokenTTL)
	span := session.span(session.life, now)
	if err := h.engine.OpenSession(ctx, session.id, acc.name, span); err != nil {
		return reply{}, err
	}
	token, err := h.auth.tokens.issueSession(acc, roles, now, session)
	if err != nil {
		return reply{}, err
	}
	view := session.view(now, span)
	return ok(protocol.LoginResponse{
		AccessToken: token, TokenType: "Bearer", ExpiresAt: view.ExpiresAt,
		ExpiresInSeconds: int64((span + time.Second - 1) / time.Second), Roles: roleNames(roles), Session: &view,
	}), nil
}

func (s *tokenSession) view(now time.Time, span time.Duration) protocol.TokenSession {
	return protocol.TokenSession{
		ExpiresAt: now.Add(span).UTC().Truncate(time.Millisecond), ExpiresInMs: span.Milliseconds(), RenewableUntil: s.until.UTC(),
	}
}

// checkSession refuses a session token whose session has ended, or cannot be asked for. Other
// credentials cost nothing here.
func (h *Handler) checkSession(ctx context.Context, who *principal) error {
	if who.session == nil {
		return nil
	}
	lives, err := h.engine.HasSession(ctx, who.session.id, who.name)
	if err == nil && !lives {
		err = errSessionOver
	}
	return err
}

// checkExchange refuses to log a session token in: what it got would not end with it.
func (h *Handler) checkExchange(ctx context.Context, who *principal) error {
	switch err := h.checkSession(ctx, who); {
	case errors.Is(err, errSessionOver):
		return errLoginRefused
	case err != nil:
		return err
	case who.session != nil:
		return errNoExchange
	}
	return nil
}

// renewSession makes the caller's session last for its life from now on, or for the one that is
// asked for.
func (h *Handler) renewSession(ctx context.Context, c *call) (reply, error) {
	session := c.principal.session
	if session == nil {
		return reply{}, errNoSession
	}
	var body protocol.RenewRequest
	if err := c.decodeOptional(&body, strict); err != nil {
		return reply{}, err
	}
	life := session.life
	if body.TTLMs > 0 {
		life = atMost(body.TTLMs, time.Millisecond, h.cfg.TokenTTL)
	}
	now := time.Now()
	span := session.span(life, now)
	if span < time.Millisecond {
		return reply{}, errSessionOver
	}
	lives, err := h.engine.RenewSession(ctx, session.id, span)
	switch {
	case err != nil:
		return reply{}, err
	case !lives:
		return reply{}, errSessionOver
	}
	return ok(session.view(now, span)), nil
}

// revokeSession ends the caller's session. That it has ended already is no refusal.
func (h *Handler) revokeSession(ctx context.Context, c *call) (reply, error) {
	session := c.principal.session
	if session == nil {
		return reply{}, errNoSession
	}
	if err := h.engine.EndSession(ctx, session.id); err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusNoContent}, nil
}
