package redismodel

import (
	"fmt"
	"math"
)

// ID is the id of a stream entry: milliseconds and sequence.
type ID struct{ Ms, Seq uint64 }

// MaxID is the last possible id. A stream that stands at it is sealed.
var MaxID = ID{math.MaxUint64, math.MaxUint64}

// Less orders ids.
func (a ID) Less(b ID) bool {
	if a.Ms != b.Ms {
		return a.Ms < b.Ms
	}
	return a.Seq < b.Seq
}

// Next is the smallest id above a.
func (a ID) Next() ID {
	if a.Seq == math.MaxUint64 {
		return ID{a.Ms + 1, 0}
	}
	return ID{a.Ms, a.Seq + 1}
}

// String gives the id as Redis writes it.
func (a ID) String() string { return fmt.Sprintf("%d-%d", a.Ms, a.Seq) }

func maxID(a, b ID) ID {
	if a.Less(b) {
		return b
	}
	return a
}
