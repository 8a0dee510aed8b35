package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// reply is what a route answers. A nil body is an empty answer; raw is sent as it is.
type reply struct {
	status      int
	body        any
	raw         []byte
	contentType string // of raw
}

// ok answers 200 with body.
func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

// errorReply is how a refusal is answered.
func errorReply(c *call, refused *protocol.Error) reply {
	body := *refused // sentinels are shared
	body.RequestID = c.id
	status := body.Code.HTTPStatus()
	header := c.w.Header()
	switch {
	case status == http.StatusUnauthorized && c.route.pattern != loginPattern:
		header.Set("WWW-Authenticate", `Basic realm="redis-stream-coordinator"`)
	case (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && body.Retriable():
		header.Set("Retry-After", "1")
	}
	return reply{status: status, body: &body}
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// write sends an answer in one piece, with its length.
func (h *Handler) write(c *call, answer reply) {
	buf := buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // only buffers are put in
	buf.Reset()
	defer buffers.Put(buf)

	header, payload := c.w.Header(), answer.raw
	switch {
	case answer.body != nil:
		enc := json.NewEncoder(buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(answer.body); err != nil {
			h.log.Error("answer cannot be encoded", zap.String("requestId", c.id), zap.Error(err))
			http.Error(c.w, "", http.StatusInternalServerError)
			return
		}
		header.Set("Content-Type", "application/json")
		payload = buf.Bytes()
	case answer.raw != nil:
		header.Set("Content-Type", answer.contentType)
	}
	// The deadline counts from here: until now the request may have been held on purpose.
	deadline := time.Now().Add(h.cfg.WriteTimeout)
	if err := http.NewResponseController(c.w).SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		h.log.Debug("no write deadline", zap.String("requestId", c.id), zap.Error(err))
	}
	if answer.status != http.StatusNoContent {
		header.Set("Content-Length", strconv.Itoa(len(payload)))
	}
	c.w.WriteHeader(answer.status)
	if c.r.Method == http.MethodHead || len(payload) == 0 {
		return
	}
	if _, err := c.w.Write(payload); err != nil {
		h.log.Debug("answer was not sent", zap.String("requestId", c.id), zap.Error(err))
	}
}
