package consumer

import (
	"context"
	"errors"
)

// ErrOwnershipLost is the cause of a handler's context that ended because the shard is, or may
// be, somebody else's.
var ErrOwnershipLost = errors.New("ownership of the shard is lost")

// ErrDrainTimeout says that handlers were still running when Config.DrainTimeout had passed.
var ErrDrainTimeout = errors.New("handlers did not end within the drain timeout")

// Delivery is one entry to be handled.
type Delivery struct {
	StreamPrefix, Group string
	Stream              string // key of the shard
	Shard               int
	ID                  string
	Values              map[string]any // every value is a string
	// Deliveries counts how often it was handed out, this time included, as Redis and this
	// owner know it.
	Deliveries int64
	// OwnershipEpoch rises with each change of the shard's owner: a fencing token for what the
	// handler writes elsewhere.
	OwnershipEpoch int64

	owned context.Context
}

// Text is a value, "" when the entry has no such field.
func (d Delivery) Text(field string) string {
	s, _ := d.Values[field].(string)
	return s
}

// OwnershipLost says whether the shard is no longer owned: what the handler does now may be
// done by another process as well, and will not be acknowledged.
func (d Delivery) OwnershipLost() bool { return d.owned != nil && d.owned.Err() != nil }
