package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	maxAnswer    = 64 << 20
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// Call is the per-call extras of a mutation.
type Call struct {
	IfMatch        int64  // generation that the caller saw; 0: any
	IdempotencyKey string // sent as Idempotency-Key
	RequestID      string // sent as X-Request-Id
}

// request is one call of the API.
type request struct {
	method string
	path   []string // segments, unescaped
	query  url.Values
	body   any
	call   Call
	hold   time.Duration
	// repeatable: doing it twice is like doing it once, so that it is repeated although it may
	// have been done. Anything is repeated when it was refused, or not even sent.
	repeatable bool
	once       bool // never repeated
	anonymous  bool
}

func (r *request) pathText() string {
	escaped := make([]string, len(r.path))
	for i, s := range r.path {
		escaped[i] = url.PathEscape(s)
	}
	return base + "/" + strings.Join(escaped, "/")
}

// do sends r, repeats it as far as that is safe, and decodes the answer into out, if any.
func (c *Client) do(ctx context.Context, r *request, out any) (status int, err error) {
	var body []byte
	if r.body != nil {
		if body, err = json.Marshal(r.body); err != nil {
			return 0, fmt.Errorf("encode body of %s %s: %w", r.method, r.pathText(), err)
		}
	}
	for attempt := 0; ; attempt++ {
		status, err = c.attempt(ctx, r, body, out)
		if err == nil || r.once || attempt >= c.cfg.Retries || ctx.Err() != nil || !r.again(err) {
			return status, err
		}
		var e *Error
		wait := backoff(attempt)
		if errors.As(err, &e) && e.RetryAfter > 0 {
			wait = e.RetryAfter + rand.N(firstBackoff)
		} else if attempt == 0 && len(c.endpoints) > 1 {
			wait = 0 // another endpoint is asked
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return status, err // it would only end in a time-out that hides the reason
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return status, err
		}
	}
}

// again says whether r may be repeated after err.
func (r *request) again(err error) bool {
	if refused, ok := errors.AsType[*protocol.Error](err); ok {
		return refused.Retriable() && (r.repeatable || refused.Code != protocol.CodeInternal)
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch {
	case notSent(err):
		return true
	case e.StatusCode == 0, e.StatusCode == http.StatusBadGateway, e.StatusCode == http.StatusGatewayTimeout,
		e.StatusCode < 300: // cut short
		return r.repeatable
	}
	return e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusServiceUnavailable
}

// backoff doubles, with full jitter.
func backoff(attempt int) time.Duration {
	most := lastBackoff
	if attempt < 6 {
		most = min(most, firstBackoff<<attempt)
	}
	return rand.N(most)
}

// attempt sends r once, to the endpoint in use; when that fails the next call takes the next.
func (c *Client) attempt(ctx context.Context, r *request, body []byte, out any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout+r.hold)
	defer cancel()
	index := c.current.Load()
	path := r.pathText()
	address := c.endpoints[int(index)%len(c.endpoints)] + path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(body))
	if err != nil {
		return 0, &Error{Method: r.method, Path: path, Err: redact(err)}
	}
	c.header(req, r, body != nil)
	resp, err := c.http.Do(req)
	if err != nil {
		if !ended(ctx) {
			c.current.CompareAndSwap(index, index+1)
		}
		return 0, &Error{Method: r.method, Path: path, Err: redact(err)}
	}
	defer resp.Body.Close()
	err = decode(resp, out)
	if err == nil {
		return resp.StatusCode, nil
	}
	if resp.StatusCode >= 500 {
		c.current.CompareAndSwap(index, index+1)
	}
	return resp.StatusCode, &Error{
		Method: r.method, Path: path, StatusCode: resp.StatusCode,
		RetryAfter: retryAfter(resp.Header, time.Now()), Err: err,
	}
}

func (c *Client) header(req *http.Request, r *request, hasBody bool) {
	h := req.Header
	h.Set("Accept", "application/json")
	h.Set("User-Agent", c.agent)
	if hasBody {
		h.Set("Content-Type", "application/json")
	}
	switch {
	case r.anonymous:
	case c.cfg.Token != "":
		h.Set("Authorization", "Bearer "+c.cfg.Token)
	case c.cfg.Username != "":
		req.SetBasicAuth(c.cfg.Username, c.cfg.Password)
	}
	if r.call.IfMatch != 0 {
		h.Set("If-Match", `"`+strconv.FormatInt(r.call.IfMatch, 10)+`"`)
	}
	if r.call.IdempotencyKey != "" {
		h.Set("Idempotency-Key", r.call.IdempotencyKey)
	}
	if r.call.RequestID != "" {
		h.Set("X-Request-Id", r.call.RequestID)
	}
}

// decode reads an answer: out on success, the coordinator's refusal, or ErrUnexpectedAnswer.
func decode(resp *http.Response, out any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: cut short after %d bytes: %w", ErrUnexpectedAnswer, len(body), err)
	case len(body) > maxAnswer:
		return fmt.Errorf("%w: more than %d bytes", ErrUnexpectedAnswer, maxAnswer)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" then, which is not JSON
	if resp.StatusCode == http.StatusNoContent || (resp.StatusCode < 300 && out == nil) {
		return nil
	}
	if media != "application/json" {
		return fmt.Errorf("%w: content type %q", ErrUnexpectedAnswer, resp.Header.Get("Content-Type"))
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		if err := json.Unmarshal(body, out); err != nil {
			return fmt.Errorf("%w: %w", ErrUnexpectedAnswer, err)
		}
		return nil
	}
	refused := new(protocol.Error)
	if err := json.Unmarshal(body, refused); err != nil {
		return fmt.Errorf("%w: %w", ErrUnexpectedAnswer, err)
	}
	if refused.Code == "" {
		return fmt.Errorf("%w: no error code in it", ErrUnexpectedAnswer)
	}
	return refused
}

// retryAfter reads both forms of the header, at most five minutes.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 5 * time.Minute
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), most)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}
