package protocol

import (
	"strconv"
	"time"
)

// Instant is a point in time in milliseconds since the Unix epoch, on Redis's clock: the
// only clock that decides leases and deadlines. Zero means "none".
type Instant int64

// InstantOf converts a wall-clock time. The zero time becomes the zero Instant.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMilli())
}

// Add returns i moved by d, rounded down to whole milliseconds.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// Sub returns the duration from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i-j) * time.Millisecond }

// Time converts to UTC; the zero Instant becomes the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

// String gives the decimal milliseconds, as Redis and the scripts see them.
func (i Instant) String() string { return strconv.FormatInt(int64(i), 10) }
