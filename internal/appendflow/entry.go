package appendflow

import "errors"

// ErrOutcomeUnknown ends an entry whose append was sent and not answered: it may have landed.
var ErrOutcomeUnknown = errors.New("outcome of the append is unknown")

// ErrPaused ends an entry that met a pause when the producer was asked to fail fast.
var ErrPaused = errors.New("publishing is paused")

// ErrNoShards ends an entry of a stream that has no shard, or is still without its first ones after FirstLayoutWait.
var ErrNoShards = errors.New("the stream has no shards")

// Layout names a layout: both numbers have to be those of a shard for it to accept an append.
type Layout struct {
	Epoch int64
	Count int
}

// Entry is one append. The machine reads Key alone; the rest belongs to the driver.
type Entry struct {
	Key   []byte
	Value any

	seq       uint64
	sent      bool // in a batch in flight
	cancelled bool
}

// Batch is a run of entries for one shard under one layout.
type Batch struct {
	Shard   int
	Layout  Layout
	Entries []*Entry
	// Plain asks for bare XADD NOMKSTREAM commands instead of the APPEND script.
	Plain bool

	generation int
}
