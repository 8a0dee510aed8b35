package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Error is a call that failed. It wraps the *protocol.Error of a coordinator, or what kept the
// client from getting one.
type Error struct {
	Method, Path string
	// StatusCode of the last answer; 0 when there was none.
	StatusCode int
	// RetryAfter that the answer asked for; 0 if none.
	RetryAfter time.Duration
	// Attempts is how many requests were sent, in Took.
	Attempts int
	Took     time.Duration
	Err      error
}

// Error names the call and the cause, never a header or a credential.
func (e *Error) Error() string {
	tries := ""
	if e.Attempts > 1 {
		tries = fmt.Sprintf(" (given up after %d attempts in %v)", e.Attempts, e.Took.Round(100*time.Millisecond))
	}
	if e.StatusCode == 0 {
		return fmt.Sprintf("%s %s: %v%s", e.Method, e.Path, e.Err, tries)
	}
	return fmt.Sprintf("%s %s: HTTP %d: %v%s", e.Method, e.Path, e.StatusCode, e.Err, tries)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrUnexpectedAnswer marks an answer that no coordinator gives: not JSON, cut short, without
// an error code. A proxy or a wrong address is the usual cause.
var ErrUnexpectedAnswer = errors.New("not the answer of a coordinator")

// Permanent says whether the same call would be refused again until somebody changes
// something: bad credentials, an invalid request, a thing that does not exist.
func Permanent(err error) bool {
	var e *Error
	if !errors.As(err, &e) || errors.Is(err, ErrUnexpectedAnswer) {
		return false
	}
	switch e.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return e.StatusCode >= 400 && e.StatusCode < 500
}

// notSent says that the request never left: repeating it repeats nothing.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// redact takes the address out of an error of net/http, which would repeat the query.
func redact(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// ended says that the caller gave up, which is no fault of the endpoint.
func ended(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// tokenError is what kept Config.TokenSource from giving a token.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return "token: " + e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// hopeless says that another attempt would end the same way: no token to send, or a peer that
// is not whom it should be.
func hopeless(err error) bool {
	if _, ok := errors.AsType[*tokenError](err); ok {
		return true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
