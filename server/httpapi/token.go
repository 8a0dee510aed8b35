package httpapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const tokenIssuer = "redis-stream-coordinator"

// tokenMaker signs and checks bearer tokens: JWT, HS256. Replicas that share the secret accept
// each other's.
type tokenMaker struct {
	secret []byte
}

type tokenClaims struct {
	jwt.RegisteredClaims
	Roles []Role `json:"roles"`
	Mark  string `json:"mark"` // of the password at issue
	// LifeMs is the life that the session, which the token's ID names, was asked for. Tokens
	// without session have neither.
	LifeMs int64 `json:"lifeMs,omitempty"`
}

// tokenSession is what a session token says of its session. Whether that lives stands in Redis.
type tokenSession struct {
	id    string
	life  time.Duration // of a renewal that names none
	until time.Time     // the signed end of the token
}

// newTokenSession makes up a session that may be renewed for most from now on.
func newTokenSession(life time.Duration, now time.Time, most time.Duration) *tokenSession {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return &tokenSession{id: hex.EncodeToString(id[:]), life: min(life, most), until: signedEnd(now, most)}
}

// span is how long the session lives when it gets life now: not beyond the signed end.
func (s *tokenSession) span(life time.Duration, now time.Time) time.Duration {
	return min(life, s.until.Sub(now))
}

// signedEnd is in whole seconds, as a token has it.
func signedEnd(now time.Time, ttl time.Duration) time.Time { return now.Add(ttl).Truncate(time.Second) }

// mark is a keyed hash by which a token knows the password that it was issued for.
func (t *tokenMaker) mark(name, password string) string {
	mac := hmac.New(sha256.New, t.secret)
	fmt.Fprintf(mac, "password-mark\x00%s\x00%s", name, password)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:12])
}

// issue makes a token without session.
func (t *tokenMaker) issue(acc *account, roles []Role, now time.Time, ttl time.Duration) (token string, expires time.Time, err error) {
	expires = signedEnd(now, ttl)
	token, err = t.sign(acc, tokenClaims{RegisteredClaims: jwt.RegisteredClaims{IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires)}, Roles: roles})
	return token, expires, err
}

// issueSession makes the token of a session.
func (t *tokenMaker) issueSession(acc *account, roles []Role, now time.Time, session *tokenSession) (string, error) {
	return t.sign(acc, tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{ID: session.id, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(session.until)},
		Roles:            roles, LifeMs: session.life.Milliseconds(),
	})
}

func (t *tokenMaker) sign(acc *account, claims tokenClaims) (string, error) {
	claims.Issuer, claims.Subject, claims.Mark = tokenIssuer, acc.name, acc.mark
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(t.secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}

func (t *tokenMaker) parse(token string) (*tokenClaims, error) {
	var claims tokenClaims
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return t.secret, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithIssuer(tokenIssuer), jwt.WithExpirationRequired())
	if err != nil {
		return nil, fmt.Errorf("parse token: %w", err)
	}
	return &claims, nil
}

// session is the session that the token holds with; nil for a token without one.
func (c *tokenClaims) session() *tokenSession {
	if c.ID == "" {
		return nil
	}
	return &tokenSession{id: c.ID, life: time.Duration(c.LifeMs) * time.Millisecond, until: c.ExpiresAt.Time}
}
