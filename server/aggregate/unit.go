// Package aggregate is the pure core of one stream and its groups together: it applies a batch
// of commands to both and says what has to be committed in one step. The engine and the
// simulation run the same code. No I/O, no clock, no goroutine, no randomness.
package aggregate

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// Unit is what is stored of one stream: both kinds of aggregate, and what is known of the lease
// rows by group. A Unit with a nil Stream is a stream that does not exist. Never modified.
type Unit struct {
	Stream *stream.State
	Groups map[string]*group.State
	Leases map[string]group.Leases
}

// GroupNames lists the registered groups, sorted.
func (u Unit) GroupNames() []string {
	names := make([]string, 0, len(u.Groups))
	for name := range u.Groups {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Outcome is what a turn wants committed. Nothing of it may be answered before the commit, or
// the proof that what was touched is current, has succeeded (C6).
type Outcome struct {
	Stream        *stream.State // nil: unchanged
	StreamTouched bool          // an answer rests on it
	StreamDeleted bool
	MinRevision   int64 // the stream's new revision is at least this
	Groups        map[string]GroupOutcome
}

// GroupOutcome is the part of one group that was touched.
type GroupOutcome struct {
	Next    *group.State // nil: unchanged
	Created bool
	Deleted bool
	Rows    group.Rows
	// ResetRows: the rows in Rows.Renew are set even when they stand later (S12, C5).
	ResetRows bool
}

// Empty says whether nothing was touched: there is nothing to commit and nothing to prove.
func (o Outcome) Empty() bool { return !o.StreamTouched && len(o.Groups) == 0 }

// Writes says whether a revision changes.
func (o Outcome) Writes() bool {
	if o.Stream != nil || o.StreamDeleted {
		return true
	}
	for _, g := range o.Groups {
		if g.Next != nil || g.Deleted {
			return true
		}
	}
	return false
}

// CreationRevision is the least revision of a stream that is created now. Starting at the time
// keeps it above the revisions that tombstones of an earlier stream of this name may carry.
func CreationRevision(now protocol.Instant) int64 { return int64(now) }
