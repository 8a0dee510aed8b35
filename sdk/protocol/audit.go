package protocol

import "time"

// AuditEvent is one admin request. Fields that are unknown are empty. Nothing of the body is
// recorded but the named fields; Fingerprint is the lower-case hex SHA-256 of the body.
type AuditEvent struct {
	ID             string    `json:"id"` // entry id in the audit stream
	Timestamp      time.Time `json:"timestamp"`
	CoordinatorID  string    `json:"coordinatorId"`
	Action         string    `json:"action"`
	Outcome        string    `json:"outcome"` // SUCCESS, UNAUTHORIZED, FORBIDDEN, FAILED, ERROR
	Status         int       `json:"status"`  // HTTP status that was answered
	ErrorCode      string    `json:"errorCode,omitempty"`
	Method         string    `json:"method"`
	Route          string    `json:"route"` // template
	Principal      string    `json:"principal,omitempty"`
	Roles          []string  `json:"roles,omitempty"`
	RequestID      string    `json:"requestId"`                 // the server's own
	ClientRequest  string    `json:"clientRequestId,omitempty"` // what the client sent, if well formed
	RequestedBy    string    `json:"requestedBy,omitempty"`
	Reason         string    `json:"reason,omitempty"`
	StreamPrefix   string    `json:"streamPrefix,omitempty"`
	ConsumerGroup  string    `json:"consumerGroup,omitempty"`
	ReshardingID   string    `json:"reshardingId,omitempty"`
	ClientAddress  string    `json:"clientAddress,omitempty"`
	UserAgent      string    `json:"userAgent,omitempty"`
	Fingerprint    string    `json:"fingerprint,omitempty"`
	IdempotencyKey string    `json:"idempotencyKey,omitempty"`
	Summary        string    `json:"summary,omitempty"` // shard counts, force: allow-listed values
	Hash           string    `json:"hash,omitempty"`    // of the chain: SHA-256 over the hash before and this event
}

// AuditList answers GET /audit/events, newest first.
type AuditList struct {
	Events     []AuditEvent `json:"events"`
	NextCursor *string      `json:"nextCursor"`
}
