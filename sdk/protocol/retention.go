package protocol

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
