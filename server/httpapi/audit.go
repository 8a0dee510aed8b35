package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

// action names an audited mutation. Those that the reference implementation has keep its names.
type action string

const (
	putStream          action = "PUT_STREAM"
	createStream       action = "CREATE_STREAM"
	deleteStream       action = "DELETE_STREAM"
	scaleStream        action = "SCALE_STREAM"
	putGroup           action = "PUT_GROUP"
	createGroup        action = "CREATE_GROUP"
	deleteGroup        action = "DELETE_GROUP"
	scaleGroup         action = "SCALE_GROUP"
	rollbackMigration  action = "ROLLBACK_MIGRATION"
	rollbackResharding action = "ROLLBACK_RESHARDING"
	pausePublishing    action = "PAUSE_PUBLISHING"
	resumePublishing   action = "RESUME_PUBLISHING"
	unknownAction      action = "UNKNOWN" // a mutation that no route serves
)

// Outcomes of audited requests.
const (
	outcomeSuccess      = "SUCCESS"
	outcomeUnauthorized = "UNAUTHORIZED"
	outcomeForbidden    = "FORBIDDEN"
	outcomeFailed       = "FAILED"
	outcomeError        = "ERROR" // ours: 5xx
)

const (
	maxUserAgent  = 256
	auditDeadline = 2 * time.Second // for recording a refused request
)

// wellFormed is what an id made by a client must look like to be recorded.
var wellFormed = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// event is what is known of the call for its audit entry. Only what is named here is recorded:
// nothing else of headers, path, query or body.
func (h *Handler) event(c *call) protocol.AuditEvent {
	ev := protocol.AuditEvent{
		Timestamp: time.Now().UTC(), CoordinatorID: h.cfg.CoordinatorID,
		Action: string(c.route.action), Method: clip(c.r.Method, 16), Route: c.route.pattern,
		RequestID: c.id, ClientRequest: clientRequestID(c.r.Header),
		RequestedBy: clip(c.requestedBy, protocol.MaxReasonBytes), Reason: clip(c.reason, protocol.MaxReasonBytes),
		StreamPrefix: c.streamPrefix, ConsumerGroup: c.consumerGroup, ReshardingID: c.reshardingID,
		ClientAddress: h.clientAddress(c.r), UserAgent: clip(c.r.UserAgent(), maxUserAgent),
		Summary: strings.Join(c.summary, " "),
	}
	if c.principal != nil {
		ev.Principal, ev.Roles = c.principal.name, roleNames(c.principal.roles)
	}
	if key := c.r.Header.Get("Idempotency-Key"); wellFormed.MatchString(key) {
		ev.IdempotencyKey = key
	}
	if len(c.body) > 0 {
		sum := sha256.Sum256(c.body)
		ev.Fingerprint = hex.EncodeToString(sum[:])
	}
	return ev
}

// clientRequestID is the id that the client gave its request, in the first of the usual headers
// that is present; "" when it is not well formed.
func clientRequestID(header http.Header) string {
	for _, name := range []string{"X-Request-Id", "X-Correlation-Id", "X-Amzn-Trace-Id"} {
		if id := header.Get(name); id != "" {
			if wellFormed.MatchString(id) {
				return id
			}
			return ""
		}
	}
	return ""
}

// mutation is what the engine is told of the call: its audit entry, to be stored with the
// change, and the generation that it presupposes.
func (h *Handler) mutation(c *call) (engine.Mutation, error) {
	if err := checkIdempotencyKey(c.r.Header); err != nil {
		return engine.Mutation{}, err
	}
	if err := c.checkNoDryRun(); err != nil {
		return engine.Mutation{}, err
	}
	generation, err := ifMatch(c.r.Header)
	if err != nil {
		return engine.Mutation{}, err
	}
	return engine.Mutation{Audit: h.event(c), IfMatch: generation, Audited: &c.audited}, nil
}

func checkIdempotencyKey(header http.Header) error {
	if key := header.Get("Idempotency-Key"); key != "" && !wellFormed.MatchString(key) {
		return protocol.Invalid("Idempotency-Key", "must be 1 to 128 of the characters A-Z a-z 0-9 . _ : -")
	}
	return nil
}

// ifMatch is the generation of an If-Match header, bare or as an entity tag; 0 without one, and
// engine.MustBeNew for If-None-Match: *.
func ifMatch(header http.Header) (int64, error) {
	given := header.Values("If-Match")
	if none := header.Values("If-None-Match"); len(none) > 0 {
		if len(none) > 1 || strings.TrimSpace(none[0]) != "*" || len(given) > 0 {
			return 0, protocol.Invalid("If-None-Match", "must be *, which asks for a creation; If-Match does not go with it")
		}
		return engine.MustBeNew, nil
	}
	if len(given) == 0 {
		return 0, nil
	}
	text := strings.TrimSpace(given[0])
	if inner, quoted := strings.CutPrefix(text, `"`); quoted {
		if text, quoted = strings.CutSuffix(inner, `"`); !quoted {
			text = ""
		}
	}
	generation, err := strconv.ParseUint(text, 10, 63)
	if err != nil || generation == 0 || len(given) > 1 {
		return 0, protocol.Invalid("If-Match", "must be one generation, as the ETag of the stream or group gives it")
	}
	return int64(generation), nil
}

func etag(generation int64) string { return `"` + strconv.FormatInt(generation, 10) + `"` }

// auditRefused records a mutation that was not committed. The entry goes to the log of its
// stream, or to the common one when there is none, or none can be seen to be: a refused request
// leaves no keys of its own, whatever names callers make up.
func (h *Handler) auditRefused(c *call, refused *protocol.Error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), auditDeadline)
	defer cancel()
	if c.streamPrefix == "" && c.route.pattern != unmatched {
		h.namePath(c)
	}
	ev := h.event(c)
	ev.Status, ev.ErrorCode = refused.Code.HTTPStatus(), string(refused.Code)
	log := c.streamPrefix
	switch {
	case ev.Status == http.StatusUnauthorized:
		ev.Outcome = outcomeUnauthorized
	case ev.Status == http.StatusForbidden:
		ev.Outcome = outcomeForbidden
	case ev.Status >= http.StatusInternalServerError:
		ev.Outcome = outcomeError
	default:
		ev.Outcome = outcomeFailed
	}
	switch {
	case log == "":
	case ev.Outcome == outcomeError: // what has just failed is not asked again
		log = ""
	default:
		if _, err := h.engine.Stream(ctx, log); err != nil {
			log = ""
		}
	}
	if err := h.engine.Audit(ctx, log, ev); err != nil {
		// Nothing was changed, so the answer stands; that the record is missing must be seen.
		h.metrics.auditLost.Inc()
		h.log.Error("a refused request could not be audited", zap.Error(err), zap.String("requestId", c.id),
			zap.String("action", ev.Action), zap.String("outcome", ev.Outcome), zap.String("errorCode", ev.ErrorCode),
			zap.String("principal", ev.Principal), zap.String("stream", ev.StreamPrefix), zap.String("group", ev.ConsumerGroup),
			zap.String("clientAddress", ev.ClientAddress))
	}
}

// namePath fills in the names of the path, where they are names, for a call that was refused
// before its handler looked at them.
func (h *Handler) namePath(c *call) {
	if _, err := c.stream(); err != nil {
		return
	}
	if strings.Contains(c.route.pattern, "{consumerGroup}") {
		c.consumerGroup, _ = c.name("consumerGroup") // "" when it is no name
	}
	if strings.Contains(c.route.pattern, "{reshardingId}") {
		c.reshardingID, _ = c.name("reshardingId")
	}
}

// note keeps what the audit entry says of a decoded body.
func (c *call) note(body any) {
	add := func(name string, value any) { c.summary = append(c.summary, fmt.Sprintf("%s=%v", name, value)) }
	count := func(name string, n *int64) {
		if n != nil {
			add(name, *n)
		}
	}
	names := func(name string, list []string) {
		// Only what is a name: the body has not been checked yet.
		list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return protocol.CheckName(name, s) != nil })
		if len(list) > 0 {
			add(name, strings.Join(list, ","))
		}
	}
	switch b := body.(type) {
	case *protocol.PutStreamRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
		count("shardCount", b.ShardCount)
		names("ignoreGroups", b.Resharding.IgnoreGroups)
		if r := b.Retention; r.Policy != "" && r.Check("retention") == nil { // no other text than that of a policy
			add("retention", r.Policy)
			if n := max(r.MaxAgeMs, r.MaxLen); n > 0 {
				add("retained", n)
			}
		}
	case *protocol.DeleteStreamRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
		add("force", b.Force)
	case *protocol.PutGroupRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
	case *protocol.CreateRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
		count("initialShardCount", b.InitialShardCount)
	case *protocol.DeleteGroupRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
		add("force", b.Force)
	case *protocol.ScaleRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
		count("targetShardCount", b.TargetShardCount)
	case *protocol.RollbackRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
	case *protocol.PauseRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
		add("timeoutMs", b.TimeoutMs)
	case *protocol.ResumeRequest:
		c.requestedBy, c.reason = b.RequestedBy, b.Reason
	}
}
