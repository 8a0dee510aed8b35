package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of names and counts. The shard count is bounded by Redis Cluster's own number of
// slots: more shards than that cannot spread any further.
const (
	MaxShardCount   = 16384
	MaxNameBytes    = 256  // stream prefix, consumer group, member id, producer id
	MaxReasonBytes  = 1024 // reason, requestedBy
	MaxIgnoreGroups = 64
	MaxGroups       = 256 // consumer groups of one stream
)

// ShardKey is the Redis key of one shard. It carries no hash tag, so that Redis Cluster
// spreads the shards of a stream over its slots.
func ShardKey(streamPrefix string, index int) string {
	return streamPrefix + ":" + strconv.Itoa(index)
}

// StreamKeyPattern is the text that routing answers give for the shard keys.
func StreamKeyPattern(streamPrefix string) string { return streamPrefix + ":{shardIndex}" }

// ControlKey is the key of the control hash beside a shard, in the same slot.
func ControlKey(streamPrefix string, index int) string {
	return "{" + ShardKey(streamPrefix, index) + "}:control"
}

// ArchiveKey is where the shard of a retired layout is kept when the policy is ARCHIVE.
func ArchiveKey(streamPrefix string, index int, reshardingID string) string {
	return "{" + ShardKey(streamPrefix, index) + "}:archived:" + reshardingID
}

// ConsumerName is the Redis consumer name of one ownership (rule D2 of docs/protocol): one
// for each, so that nothing that an earlier one left or still reads hides under it.
func ConsumerName(memberID string, ownershipEpoch int64) string {
	return memberID + "~" + strconv.FormatInt(ownershipEpoch, 10)
}

// CheckName validates a stream prefix, consumer group, member id or producer id that stands
// in a path or body as field: 1 to MaxNameBytes bytes of UTF-8 without white space, control
// characters, braces or slashes, and no dot segment of a path.
func CheckName(field, value string) *Error {
	bad := func(rule string) *Error {
		return Invalid(field, fmt.Sprintf("%q %s", clip(value), rule))
	}
	switch {
	case strings.TrimSpace(value) == "":
		return Invalid(field, "must not be blank")
	case len(value) > MaxNameBytes:
		return Invalid(field, fmt.Sprintf("is %d bytes long; at most %d are allowed", len(value), MaxNameBytes))
	case !utf8.ValidString(value):
		return bad("is not valid UTF-8")
	case value == "." || value == "..":
		return bad("must not be a dot segment: proxies would take it out of the path")
	}
	for _, r := range value {
		switch {
		case r == '{' || r == '}':
			return bad("must not contain braces: they would change the Redis Cluster slot of its keys")
		case r == '/':
			return bad("must not contain a slash")
		case unicode.IsSpace(r):
			return bad("must not contain white space")
		case unicode.IsControl(r):
			return bad("must not contain control characters")
		}
	}
	return nil
}

// CheckShardCount validates a shard count that stands in a request as field.
func CheckShardCount(field string, n int64, minimum int64) *Error {
	if n < minimum || n > MaxShardCount {
		return Invalid(field, fmt.Sprintf("is %d; it must be between %d and %d", n, minimum, MaxShardCount))
	}
	return nil
}

func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
