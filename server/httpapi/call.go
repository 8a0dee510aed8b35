package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// call is one request on its way through the handler.
type call struct {
	r         *http.Request
	w         http.ResponseWriter
	route     *route
	id        string // the server's own request id
	principal *principal
	body      []byte

	// What the audit entry says of the request, as far as it is known.
	streamPrefix, consumerGroup, reshardingID string
	requestedBy, reason                       string
	summary                                   []string
	audited                                   atomic.Bool // set by the engine when a commit carried the entry
}

// Refusals that have nothing to say about a field.
var (
	errNoSuchPath       = protocol.NewError(protocol.CodeNotFound, "no such path; /openapi.yaml lists all")
	errMethodNotAllowed = protocol.NewError(protocol.CodeMethodNotAllowed, "the path does not support this method; the Allow header lists those that it does")
	errUnauthenticated  = protocol.NewError(protocol.CodeUnauthenticated, "credentials are missing or wrong, or the token has expired")
	errForbidden        = protocol.NewError(protocol.CodeForbidden, "none of your roles allows this")
	errCrossOrigin      = protocol.NewError(protocol.CodeForbidden, "cross-origin requests of browsers are refused")
	errInternal         = protocol.NewError(protocol.CodeInternal, "internal error; the coordinator's log has it under this request id")
	errTimeout          = protocol.NewError(protocol.CodeRedisUnavailable, "the request was not finished in time; its outcome may be unknown")
)

// serve turns one route into a handler.
func (h *Handler) serve(rt *route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		c := &call{r: r, w: w, route: rt, id: uuid.NewString()}
		header := w.Header()
		header.Set("X-Request-Id", c.id)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		if h.draining.Load() {
			header.Set("Connection", "close")
		}

		answer, err := h.run(c)
		if err != nil {
			refusal := h.refusal(c, err)
			if rt.mutation() && !c.audited.Load() {
				h.auditRefused(c, refusal) //nolint:contextcheck // that of c.r
			}
			answer = errorReply(c, refusal)
		}
		h.write(c, answer)

		took := time.Since(start)
		h.metrics.observe(rt.pattern, r.Method, answer.status, took)
		h.logCall(c, answer.status, took)
	}
}

// run does the work of a call. A panic is an internal error of this call alone.
func (h *Handler) run(c *call) (answer reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("panic while serving a request", zap.String("requestId", c.id), zap.String("route", c.route.pattern),
				zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			err = errInternal
		}
	}()
	if c.body, err = h.readBody(c); err != nil {
		return reply{}, err
	}
	if err := h.authorize(c); err != nil {
		return reply{}, err
	}
	ctx, cancel := h.callContext(c)
	defer cancel()
	return c.route.handle(h, ctx, c)
}

// callContext bounds a call. A mutation goes on when its client hangs up: it is decided by what
// is stored, not by who still listens. Reads and heartbeats end with their client, and those
// that may be held set their own bound.
func (h *Handler) callContext(c *call) (context.Context, context.CancelFunc) {
	ctx := c.r.Context()
	if c.route.mutation() {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, h.cfg.RequestTimeout+maxHold(c.route))
}

// maxHold is for how long a request may be held on purpose.
func maxHold(rt *route) time.Duration {
	if rt.mutation() || rt.need == public {
		return 0
	}
	return MaxHold
}

// refusal gives the error that the client is told. What is not a refusal of ours stays in the log.
func (h *Handler) refusal(c *call, err error) *protocol.Error {
	var refused *protocol.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errTimeout
	}
	h.log.Error("request failed", zap.String("requestId", c.id), zap.String("route", c.route.pattern), zap.Error(err))
	return errInternal
}

// logCall writes one line: admin requests at info, what went wrong at our side at warn,
// everything else at debug.
func (h *Handler) logCall(c *call, status int, took time.Duration) {
	level := zap.DebugLevel
	switch {
	case status >= http.StatusInternalServerError && !errors.Is(c.r.Context().Err(), context.Canceled): // nobody was left to answer
		level = zap.WarnLevel
	case c.route.mutation():
		level = zap.InfoLevel
	}
	entry := h.log.Check(level, "request")
	if entry == nil {
		return
	}
	fields := []zap.Field{
		zap.String("requestId", c.id), zap.String("method", clip(c.r.Method, 16)), zap.String("route", c.route.pattern),
		zap.Int("status", status), zap.Duration("took", took), zap.String("clientAddress", h.clientAddress(c.r)),
	}
	if c.principal != nil {
		fields = append(fields, zap.String("principal", c.principal.name))
	}
	if c.streamPrefix != "" {
		fields = append(fields, zap.String("stream", c.streamPrefix))
	}
	if c.consumerGroup != "" {
		fields = append(fields, zap.String("group", c.consumerGroup))
	}
	entry.Write(fields...)
}

// stream decodes and checks the stream prefix of the path.
func (c *call) stream() (string, error) {
	prefix, err := c.name("streamPrefix")
	c.streamPrefix = prefix
	return prefix, err
}

// group decodes and checks stream prefix and consumer group of the path.
func (c *call) group() (prefix, group string, err error) {
	if prefix, err = c.stream(); err != nil {
		return "", "", err
	}
	group, err = c.name("consumerGroup")
	c.consumerGroup = group
	return prefix, group, err
}

// resharding decodes and checks the resharding id of the path.
func (c *call) resharding() (string, error) {
	id, err := c.name("reshardingId")
	c.reshardingID = id
	return id, err
}

// name is one decoded and checked segment of the path; "" with an error.
func (c *call) name(field string) (string, error) {
	raw := chi.URLParam(c.r, field)
	if strings.Contains(strings.ToLower(raw), "%2f") {
		return "", protocol.Invalid(field, "must not contain a slash")
	}
	value, err := url.PathUnescape(raw)
	if err != nil {
		return "", protocol.Invalid(field, "is not a valid percent-encoded path segment")
	}
	if refused := protocol.CheckName(field, value); refused != nil {
		return "", refused
	}
	return value, nil
}

// clip cuts s to at most n bytes of valid UTF-8.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
