package protocol

import (
	"errors"
	"net/http"
	"strings"
)

// Code is the stable name of a refusal. Programs branch on it; the text may change.
type Code string

// The codes. Those of the reference implementation keep its names and HTTP statuses.
const (
	CodeInvalidRequest        Code = "INVALID_REQUEST"
	CodeUnauthenticated       Code = "UNAUTHENTICATED"
	CodeForbidden             Code = "FORBIDDEN"
	CodeNotFound              Code = "NOT_FOUND"
	CodeStreamNotFound        Code = "STREAM_NOT_FOUND"
	CodeGroupNotFound         Code = "GROUP_NOT_FOUND"
	CodeMigrationNotFound     Code = "MIGRATION_NOT_FOUND"
	CodeCertificateNotFound   Code = "CERTIFICATE_NOT_FOUND"
	CodeMethodNotAllowed      Code = "METHOD_NOT_ALLOWED"
	CodeGroupExists           Code = "GROUP_ALREADY_EXISTS"
	CodeStreamExists          Code = "STREAM_PREFIX_ALREADY_EXISTS"
	CodeGroupHasMembers       Code = "GROUP_HAS_ACTIVE_MEMBERS"
	CodeGroupNotEmpty         Code = "GROUP_NOT_EMPTY"
	CodeActiveMigration       Code = "ACTIVE_MIGRATION_EXISTS"
	CodeMetadataSync          Code = "METADATA_SYNC_IN_PROGRESS"
	CodeStreamNotEmpty        Code = "STREAM_NOT_EMPTY"
	CodeStateVersionConflict  Code = "STATE_VERSION_CONFLICT"
	CodeForeignKeys           Code = "FOREIGN_KEYS_EXIST"
	CodeGenerationMismatch    Code = "GENERATION_MISMATCH"
	CodeIdempotencyMismatch   Code = "IDEMPOTENCY_KEY_REUSED"
	CodeBodyTooLarge          Code = "BODY_TOO_LARGE"
	CodeRollbackNotAllowed    Code = "ROLLBACK_NOT_ALLOWED"
	CodeRateLimited           Code = "RATE_LIMIT_EXCEEDED"
	CodePublishingPaused      Code = "PUBLISHING_PAUSED"
	CodeRedisUnavailable      Code = "REDIS_UNAVAILABLE"
	CodeProvisioningFailed    Code = "REDIS_STREAM_PROVISIONING_FAILED"
	CodeStateUnreadable       Code = "STATE_UNREADABLE"
	CodeShardControlDamaged   Code = "SHARD_CONTROL_DAMAGED" // also at the front of what a resharding waits for
	CodeCoordinatorOverloaded Code = "COORDINATOR_OVERLOADED"
	CodeTerminating           Code = "COORDINATOR_TERMINATING"
	CodeInternal              Code = "INTERNAL"
)

// codes is the one table of HTTP status and whether the same request may succeed later.
var codes = map[Code]struct {
	status    int
	retriable bool
}{
	CodeInvalidRequest:        {http.StatusBadRequest, false},
	CodeUnauthenticated:       {http.StatusUnauthorized, false},
	CodeForbidden:             {http.StatusForbidden, false},
	CodeNotFound:              {http.StatusNotFound, false},
	CodeStreamNotFound:        {http.StatusNotFound, false},
	CodeGroupNotFound:         {http.StatusNotFound, false},
	CodeMigrationNotFound:     {http.StatusNotFound, false},
	CodeCertificateNotFound:   {http.StatusNotFound, false},
	CodeMethodNotAllowed:      {http.StatusMethodNotAllowed, false},
	CodeGroupExists:           {http.StatusConflict, false},
	CodeStreamExists:          {http.StatusConflict, false},
	CodeGroupHasMembers:       {http.StatusConflict, false},
	CodeGroupNotEmpty:         {http.StatusConflict, false},
	CodeActiveMigration:       {http.StatusConflict, false},
	CodeMetadataSync:          {http.StatusConflict, true},
	CodeStreamNotEmpty:        {http.StatusConflict, false},
	CodeStateVersionConflict:  {http.StatusConflict, true},
	CodeForeignKeys:           {http.StatusConflict, false},
	CodeGenerationMismatch:    {http.StatusPreconditionFailed, false},
	CodeIdempotencyMismatch:   {http.StatusUnprocessableEntity, false},
	CodeBodyTooLarge:          {http.StatusRequestEntityTooLarge, false},
	CodeRollbackNotAllowed:    {http.StatusUnprocessableEntity, false},
	CodeRateLimited:           {http.StatusTooManyRequests, true},
	CodePublishingPaused:      {http.StatusServiceUnavailable, true},
	CodeRedisUnavailable:      {http.StatusServiceUnavailable, true},
	CodeProvisioningFailed:    {http.StatusServiceUnavailable, true},
	CodeStateUnreadable:       {http.StatusServiceUnavailable, false},
	CodeShardControlDamaged:   {http.StatusServiceUnavailable, false},
	CodeCoordinatorOverloaded: {http.StatusServiceUnavailable, true},
	CodeTerminating:           {http.StatusServiceUnavailable, true},
	CodeInternal:              {http.StatusInternalServerError, true},
}

// HTTPStatus is the status that an error with this code is answered with; 500 for a code
// that is not in the table.
func (c Code) HTTPStatus() int {
	if row, ok := codes[c]; ok {
		return row.status
	}
	return http.StatusInternalServerError
}

// Retriable says whether the same request may succeed later without being changed.
func (c Code) Retriable() bool { return codes[c].retriable }

// Codes lists every code of the table, in no order.
func Codes() []Code {
	all := make([]Code, 0, len(codes))
	for c := range codes {
		all = append(all, c)
	}
	return all
}

// Detail is one thing that is wrong with a request.
type Detail struct {
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// Error is a request that the coordinator refused, as it stands on the wire. Programs read
// Code; people read Message and Details. errors.Is compares codes alone, so that
// errors.Is(err, protocol.ErrStreamNotFound) holds on both sides of the wire.
type Error struct {
	Status    string   `json:"status"` // name of the HTTP status: CONFLICT, NOT_FOUND
	Code      Code     `json:"errorCode"`
	Message   string   `json:"message"`
	RequestID string   `json:"requestId,omitempty"`
	Details   []Detail `json:"details,omitempty"`
}

// Sentinels for errors.Is, for the refusals that callers act upon.
var (
	ErrStreamNotFound     = NewError(CodeStreamNotFound, "no such stream")
	ErrGroupNotFound      = NewError(CodeGroupNotFound, "no such consumer group")
	ErrReshardingNotFound = NewError(CodeMigrationNotFound, "no such resharding")
	ErrActiveResharding   = NewError(CodeActiveMigration, "a resharding is running")
	ErrPublishingPaused   = NewError(CodePublishingPaused, "publishing is paused")
	ErrGenerationMismatch = NewError(CodeGenerationMismatch, "the stream has changed")
)

// NewError makes an error of the code, with the status name that belongs to it.
func NewError(code Code, message string, details ...Detail) *Error {
	return &Error{Status: StatusName(code.HTTPStatus()), Code: code, Message: message, Details: details}
}

// Invalid is the refusal of one field: INVALID_REQUEST with the message "field: problem".
func Invalid(field, problem string) *Error {
	return NewError(CodeInvalidRequest, field+": "+problem, Detail{Field: field, Message: problem})
}

// Error gives "CODE: message".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is compares codes.
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t.Code == e.Code
}

// Retriable says whether the same request may succeed later.
func (e *Error) Retriable() bool { return e.Code.Retriable() }

// StatusName is the text form of an HTTP status as error bodies carry it: NOT_FOUND.
func StatusName(status int) string {
	return strings.ReplaceAll(strings.ToUpper(http.StatusText(status)), " ", "_")
}
