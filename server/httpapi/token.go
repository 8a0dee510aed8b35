package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
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
}

// mark is a keyed hash by which a token knows the password that it was issued for.
func (t *tokenMaker) mark(name, password string) string {
	mac := hmac.New(sha256.New, t.secret)
	fmt.Fprintf(mac, "password-mark\x00%s\x00%s", name, password)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:12])
}

func (t *tokenMaker) issue(acc *account, roles []Role, now time.Time, ttl time.Duration) (token string, expires time.Time, err error) {
	expires = now.Add(ttl).Truncate(time.Second)
	claims := tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: tokenIssuer, Subject: acc.name,
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
		},
		Roles: roles, Mark: acc.mark,
	}
	token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(t.secret)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign token: %w", err)
	}
	return token, expires, nil
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
