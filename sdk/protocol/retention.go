package protocol

import (
	"fmt"
	"time"
)

// RetentionPolicy is when the coordinator removes entries from the shards of a stream.
type RetentionPolicy string

// NONE removes nothing. ACKED removes what every Redis consumer group of the shard has
// acknowledged. MAX_AGE and MAX_LEN remove what is too old or too much, delivered or not: what
// goes before a group has acknowledged it is counted (GroupEvidence.Trimmed).
const (
	RetentionNone   RetentionPolicy = "NONE"
	RetentionAcked  RetentionPolicy = "ACKED"
	RetentionMaxAge RetentionPolicy = "MAX_AGE"
	RetentionMaxLen RetentionPolicy = "MAX_LEN"
)

// Retention is a stream's declared policy. MaxAgeMs belongs to MAX_AGE alone, MaxLen (entries of
// each shard) to MAX_LEN alone. Zero Policy means NONE.
type Retention struct {
	Policy   RetentionPolicy `json:"policy,omitempty" validate:"omitempty,oneof=NONE ACKED MAX_AGE MAX_LEN"`
	MaxAgeMs int64           `json:"maxAgeMs,omitempty" validate:"omitempty,min=1000"`
	MaxLen   int64           `json:"maxLen,omitempty" validate:"omitempty,min=1"`
}

// WithDefaults returns r with NONE where no policy is given.
func (r Retention) WithDefaults() Retention {
	if r.Policy == "" {
		r.Policy = RetentionNone
	}
	return r
}

// Check refuses a policy that does not exist, one without its number, and a number that belongs to
// another policy: it would have no effect, which nobody means who gives it. field is what r is
// called in the request.
func (r Retention) Check(field string) *Error {
	r = r.WithDefaults()
	switch r.Policy {
	case RetentionNone, RetentionAcked, RetentionMaxAge, RetentionMaxLen:
	default:
		return Invalid(field+".policy", fmt.Sprintf("is %q; it must be NONE, ACKED, MAX_AGE or MAX_LEN", string(r.Policy)))
	}
	for _, number := range []struct {
		name   string
		value  int64
		least  int64
		policy RetentionPolicy
		means  string
	}{
		{"maxAgeMs", r.MaxAgeMs, 1000, RetentionMaxAge, "the age in ms from which an entry is removed, at least 1000"},
		{"maxLen", r.MaxLen, 1, RetentionMaxLen, "how many entries each shard keeps, at least 1"},
	} {
		name := field + "." + number.name
		switch {
		case r.Policy != number.policy && number.value != 0:
			return Invalid(name, fmt.Sprintf("has no effect on policy %s: leave it out, or ask for policy %s", r.Policy, number.policy))
		case r.Policy == number.policy && number.value == 0:
			return Invalid(name, fmt.Sprintf("is missing; policy %s needs %s", r.Policy, number.means))
		case r.Policy == number.policy && number.value < number.least:
			return Invalid(name, fmt.Sprintf("is %d; it must be %s", number.value, number.means))
		}
	}
	return nil
}

// RetentionReport answers GET /monitoring/streams/{p}/retention: what was removed from the shards
// before groups had acknowledged it, as the shards count it now.
type RetentionReport struct {
	StreamPrefix string        `json:"streamPrefix"`
	TakenAt      time.Time     `json:"takenAt"`
	Retention    Retention     `json:"retention"`
	Groups       []GroupLosses `json:"groups"`  // by name; registered ones, and all that are on the shards
	Unknown      []string      `json:"unknown"` // shards that did not say, with the reason
}

// GroupLosses is one group, summed over the shards that there are. Trimmed entries were removed by
// the stream's retention before the group had acknowledged them; Gone ones were pending, and had
// lost their body when an owner came to them. No entry counts in both.
type GroupLosses struct {
	Group   string        `json:"group"`
	Managed bool          `json:"managed"` // in the stream's registry
	Trimmed int64         `json:"trimmed"`
	Gone    int64         `json:"gone"`
	Shards  []ShardLosses `json:"shards"` // those on which something was lost
}

// ShardLosses is one shard of GroupLosses.
type ShardLosses struct {
	ShardIndex int   `json:"shardIndex"`
	Trimmed    int64 `json:"trimmed"`
	Gone       int64 `json:"gone"`
}
