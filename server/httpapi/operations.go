package httpapi

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// OpenAPI is the description of everything that is served, as /openapi.yaml gives it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// probe answers /livez and /readyz.
type probe struct {
	Status string `json:"status"` // UP, DOWN
	Reason string `json:"reason,omitempty"`
}

// livez says that the process can answer; nothing else. It stays 200 while draining.
func (h *Handler) livez(context.Context, *call) (reply, error) { return ok(probe{Status: "UP"}), nil }

// readyz says whether a load balancer should send requests here.
func (h *Handler) readyz(context.Context, *call) (reply, error) {
	if h.draining.Load() {
		return reply{status: http.StatusServiceUnavailable, body: probe{Status: "DOWN", Reason: string(protocol.CodeTerminating)}}, nil
	}
	if err := h.engine.Ready(); err != nil {
		return reply{status: http.StatusServiceUnavailable, body: probe{Status: "DOWN", Reason: err.Error()}}, nil //nolint:nilerr // it is the answer
	}
	return ok(probe{Status: "UP"}), nil
}

func (h *Handler) openAPI(context.Context, *call) (reply, error) {
	return reply{status: http.StatusOK, raw: OpenAPI, contentType: "application/yaml"}, nil
}
