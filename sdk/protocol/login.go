package protocol

import "time"

// LoginRequest is the body of POST /auth/login.
type LoginRequest struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// TTLMs asks for a session token that lives for so many milliseconds and can be renewed and
	// revoked; longer than the coordinator's own limit is cut to that. 0: a token without session,
	// which lives for that limit.
	TTLMs int64 `json:"ttlMs,omitempty" validate:"min=0"`
	// TTLSeconds is TTLMs in seconds; at most one of them is given.
	TTLSeconds int64 `json:"ttlSeconds,omitempty" validate:"min=0"`
}

// LoginResponse carries a bearer token.
type LoginResponse struct {
	AccessToken      string        `json:"accessToken"`
	TokenType        string        `json:"tokenType"`
	ExpiresAt        time.Time     `json:"expiresAt"`
	ExpiresInSeconds int64         `json:"expiresInSeconds"`
	Roles            []string      `json:"roles"`
	Session          *TokenSession `json:"session,omitempty"` // of a session token alone
}

// TokenSession says until when a session token holds. It answers POST /auth/renew.
type TokenSession struct {
	ExpiresAt      time.Time `json:"expiresAt"`      // unless it is renewed or revoked before
	ExpiresInMs    int64     `json:"expiresInMs"`    // the same, from when the coordinator began to answer
	RenewableUntil time.Time `json:"renewableUntil"` // no renewal brings it beyond: it is signed into the token
}

// RenewRequest is the body, which may be left out, of POST /auth/renew.
type RenewRequest struct {
	// TTLMs is the wanted life from now on in milliseconds; 0: that of the login.
	TTLMs int64 `json:"ttlMs,omitempty" validate:"min=0"`
}
