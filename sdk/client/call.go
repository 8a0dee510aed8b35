package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
	IfMatch        int64  // generation that the caller saw; 0: any, MustBeNew: there is none yet
	IdempotencyKey string // sent as Idempotency-Key
	RequestID      string // sent as X-Request-Id
	// Grace is how long a request that is under way when the context ends may still take: cutting
	// it off at once would leave its outcome unknown for the sake of seconds. No other is sent
	// then. Default none.
	Grace time.Duration
}

// MustBeNew as Call.IfMatch asks for a creation and for nothing else (If-None-Match: *).
const MustBeNew = -1

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
	token      string // in place of the client's credentials
}

func (r *request) pathText() string {
	escaped := make([]string, len(r.path))
	for i, s := range r.path {
		escaped[i] = url.PathEscape(s)
	}
	return base + "/" + strings.Join(escaped, "/")
}

// Attempt is one request that was sent, for Config.Observe. It carries no header and no body.
type Attempt struct {
	Method, Path string
	Endpoint     string // without credentials: an endpoint never has any
	RequestID    string // of Call
	Number       int    // 1 for the first
	StatusCode   int    // 0: no answer
	Took         time.Duration
	Err          error // nil on success
}

// do sends r, repeats it as far as that is safe, and decodes the answer into out, if any.
func (c *Client) do(ctx context.Context, r *request, out any) (status int, err error) {
	var body []byte
	if r.body != nil {
		if body, err = json.Marshal(r.body); err != nil {
			return 0, fmt.Errorf("encode body of %s %s: %w", r.method, r.pathText(), err)
		}
	}
	var (
		started  = time.Now()
		patient  time.Time // until when refusals for overload are borne
		failures int       // attempts that Config.Retries counts: overload does not use them up
	)
	for attempt := 0; ; attempt++ {
		if ended := c.awaitTurn(ctx, r); ended != nil {
			return status, givenUp(r, err, ended)
		}
		sent := time.Now()
		status, err = c.attempt(ctx, r, body, out, attempt)
		if e := (*Error)(nil); errors.As(err, &e) {
			e.Attempts, e.Took = attempt+1, time.Since(started)
		}
		overloaded := c.noteLoad(sent, status, err)
		if err == nil || r.once || !r.again(err) {
			return status, err
		}
		if ended := ctx.Err(); ended != nil {
			return status, givenUp(r, err, ended)
		}
		wait := c.wait(attempt, err)
		if overloaded {
			if patient.IsZero() {
				patient = time.Now().Add(c.cfg.OverloadBudget)
			}
			wait = min(wait, c.cfg.OverloadBudget/2)
			if time.Until(patient) < wait {
				return status, err
			}
		} else if failures++; failures > c.cfg.Retries {
			return status, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return status, err // it would only end in a time-out that hides the reason
		}
		if ended := sleep(ctx, wait); ended != nil {
			return status, givenUp(r, err, ended)
		}
	}
}

// givenUp is the error of a call that was given up between two attempts: it says why, and what the
// last answer was.
func givenUp(r *request, last, ended error) error {
	e := Error{Method: r.method, Path: r.pathText(), Err: ended}
	if errors.Is(last, ended) {
		return last
	}
	if before := (*Error)(nil); errors.As(last, &before) {
		e = *before
		e.Err = fmt.Errorf("%w before the next attempt; the last one: %w", ended, before.Err)
	}
	return &e
}

// awaitTurn waits for the call's turn while the coordinator is overloaded.
func (c *Client) awaitTurn(ctx context.Context, r *request) error {
	if c.cfg.OverloadBudget == 0 || r.once {
		return nil
	}
	for {
		wait, placed := c.pace.reserve(time.Now())
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		if placed && !c.pace.held(time.Now()) {
			return nil
		}
	}
}

// noteLoad tells the pacer of an answer and says whether it is a refusal that is borne for
// OverloadBudget.
func (c *Client) noteLoad(sent time.Time, status int, err error) bool {
	if c.cfg.OverloadBudget == 0 {
		return false
	}
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		if status != 0 {
			c.pace.accepted()
		}
		return false
	}
	after := time.Duration(0)
	if e, ok := errors.AsType[*Error](err); ok {
		after = min(e.RetryAfter, c.cfg.OverloadBudget/2)
	}
	c.pace.overloaded(sent, time.Now(), after)
	return true
}

// wait is the time before the next attempt.
func (c *Client) wait(attempt int, err error) time.Duration {
	var e *Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		return e.RetryAfter + backoff(attempt)
	}
	if attempt == 0 && len(c.endpoints) > 1 {
		return 0 // another endpoint is asked
	}
	return backoff(attempt)
}

// sleep waits for d, or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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
	case hopeless(err):
		return false
	case notSent(err):
		return true
	case e.StatusCode == 0, e.StatusCode == http.StatusBadGateway, e.StatusCode == http.StatusGatewayTimeout,
		e.StatusCode < 300, // not JSON, or not all of it
		errors.Is(err, errCutShort):
		return r.repeatable
	}
	if e.StatusCode == http.StatusServiceUnavailable { // of something that is no coordinator: it may have been passed on
		return r.repeatable || r.call.IdempotencyKey != ""
	}
	return e.StatusCode == http.StatusTooManyRequests
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
func (c *Client) attempt(ctx context.Context, r *request, body []byte, out any, number int) (status int, err error) {
	index := c.current.Load() // others may turn to the next while this one is under way
	if c.cfg.Observe != nil {
		begin := time.Now()
		defer func() {
			c.cfg.Observe(ctx, Attempt{
				Method: r.method, Path: r.pathText(), Endpoint: c.endpoint(index), RequestID: r.call.RequestID,
				Number: number + 1, StatusCode: status, Took: time.Since(begin), Err: err,
			})
		}()
	}
	return c.send(ctx, r, body, out, index)
}

// endpoint is the one that current means by index, which only ever rises.
func (c *Client) endpoint(index uint32) string { return c.endpoints[index%uint32(len(c.endpoints))] } //nolint:gosec // a handful of endpoints

// outlive derives a context that ends grace later than ctx.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if grace <= 0 {
		return context.WithCancel(ctx)
	}
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if sleep(out, grace) == nil {
			cancel()
		}
	})
	return out, func() { stop(); cancel() }
}

// send is attempt but for what is told of it: it asks the endpoint of index.
func (c *Client) send(caller context.Context, r *request, body []byte, out any, index uint32) (int, error) {
	ctx, stop := outlive(caller, r.call.Grace)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout+r.hold)
	defer cancel()
	path := r.pathText()
	address := c.endpoint(index) + path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(body))
	if err != nil {
		return 0, &Error{Method: r.method, Path: path, Err: redact(err)}
	}
	if err := c.header(req, r, body != nil); err != nil {
		return 0, &Error{Method: r.method, Path: path, Err: err}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if !ended(ctx) {
			c.current.CompareAndSwap(index, index+1)
		}
		if caller.Err() != nil && ctx.Err() != nil {
			err = caller.Err() // not how the grace behind it ended
		}
		return 0, &Error{Method: r.method, Path: path, Err: redact(err)}
	}
	defer resp.Body.Close()
	if err = decode(resp, out); err == nil {
		err = answers(r, out)
	}
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

func (c *Client) header(req *http.Request, r *request, hasBody bool) error {
	h := req.Header
	h.Set("Accept", "application/json")
	h.Set("User-Agent", c.agent)
	if hasBody {
		h.Set("Content-Type", "application/json")
	}
	switch {
	case r.anonymous:
	case r.token != "":
		h.Set("Authorization", "Bearer "+r.token)
	case c.cfg.TokenSource != nil:
		token, err := c.cfg.TokenSource()
		if err != nil {
			return &tokenError{err}
		}
		h.Set("Authorization", "Bearer "+token)
	case c.cfg.Token != "":
		h.Set("Authorization", "Bearer "+c.cfg.Token)
	case c.cfg.Username != "":
		req.SetBasicAuth(c.cfg.Username, c.cfg.Password)
	}
	switch {
	case r.call.IfMatch == MustBeNew:
		h.Set("If-None-Match", "*")
	case r.call.IfMatch != 0:
		h.Set("If-Match", `"`+strconv.FormatInt(r.call.IfMatch, 10)+`"`)
	}
	if r.call.IdempotencyKey != "" {
		h.Set("Idempotency-Key", r.call.IdempotencyKey)
	}
	if r.call.RequestID != "" {
		h.Set("X-Request-Id", r.call.RequestID)
	}
	return nil
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
