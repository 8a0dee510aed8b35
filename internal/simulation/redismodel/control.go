package redismodel

import (
	"maps"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Owner is the value of owner:<group> in a control hash (rule D1).
type Owner struct {
	Epoch       int64
	MemberID    string
	Incarnation string
}

// Control is a control hash (1.3). No field means anything while it is missing: HasEpoch tells
// for the layout, and zero values stand for a missing field elsewhere.
type Control struct {
	HasEpoch    bool
	Epoch       int64
	Count       int
	Rev         int64
	By          string
	Gate        string
	Until, Hold protocol.Instant
	HasKept     bool
	Kept        ID // sealedLastId
	Aborted     string
	Retired     string
	High        int
	Owners      map[string]Owner // by group
}

// Shard is a shard's key and the control hash beside it: one slot.
type Shard struct {
	Index    int
	Control  *Control // nil: no hash
	Stream   *Stream  // nil: no key
	Archived []string // names of archives made of it
}

// control makes the hash if it is missing.
func (s *Shard) control() *Control {
	if s.Control == nil {
		s.Control = &Control{}
	}
	return s.Control
}

// tombstone: the stream is gone and the hash says who removed it (retired).
func (s *Shard) tombstone() bool {
	return s.Control != nil && s.Control.Retired != "" && s.Stream == nil
}

// settle brings the seal in line with what the control hash says; the last step of most scripts.
func (s *Shard) settle(now protocol.Instant) shardscript.Code {
	c, st := s.Control, s.Stream
	if st == nil {
		c.Kept, c.HasKept = ID{}, false
		return shardscript.OK
	}
	wanted := c.Until != 0 || c.Hold != 0 || s.Index >= c.Count
	switch {
	case wanted && st.Sealed(): // a second seal must not overwrite the kept id
	case wanted:
		c.Kept, c.HasKept = st.LastID, true
		st.LastID = MaxID
	case st.Sealed():
		return s.unseal(now)
	default:
		c.Kept, c.HasKept = ID{}, false
	}
	return shardscript.OK
}

// unseal restores the highest id that leaves a trace.
func (s *Shard) unseal(now protocol.Instant) shardscript.Code {
	c, st := s.Control, s.Stream
	var last ID
	if n := len(st.Entries); n > 0 {
		last = st.Entries[n-1].ID
	}
	if last == MaxID {
		return shardscript.Exhausted
	}
	if c.HasKept && c.Kept != MaxID {
		last = maxID(last, c.Kept)
	} else {
		last = maxID(last, ID{uint64(now), 0})
	}
	if st.MaxDeleted != MaxID {
		last = maxID(last, st.MaxDeleted)
	}
	for _, g := range st.Groups {
		if g.LastDelivered != MaxID {
			last = maxID(last, g.LastDelivered)
		}
	}
	st.LastID = last
	for _, g := range st.Groups {
		if g.LastDelivered == MaxID {
			g.LastDelivered = last
		}
	}
	c.Kept, c.HasKept = ID{}, false
	return shardscript.OK
}

func (s *Shard) clone() *Shard {
	out := *s
	if s.Control != nil {
		c := *s.Control
		c.Owners = maps.Clone(s.Control.Owners)
		out.Control = &c
	}
	out.Stream = s.Stream.clone()
	return &out
}
