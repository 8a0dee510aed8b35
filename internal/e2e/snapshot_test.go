package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// snapshot is everything that a Redis server holds, one line for each value: "key what" → value.
type snapshot map[string]string

// takeSnapshot reads every key of a server.
func takeSnapshot(t *testing.T, rdb *redis.Client) snapshot {
	t.Helper()
	s := snapshot{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("snapshot: %v", err)
		}
	}
	keys, err := rdb.Keys(t.Context(), "*").Result()
	must(err)
	for _, key := range keys {
		kind, err := rdb.Type(t.Context(), key).Result()
		must(err)
		if kind == "none" {
			continue // the soft lock, which has run out meanwhile
		}
		s[key+" type"] = kind
		switch kind {
		case "string":
			v, err := rdb.Get(t.Context(), key).Result()
			must(err)
			s[key+" value"] = v
		case "hash":
			fields, err := rdb.HGetAll(t.Context(), key).Result()
			must(err)
			for field, v := range fields {
				if field == "aggregate" {
					s.addJSON(t, key+" aggregate", v)
					continue
				}
				s[key+" field "+field] = v
			}
		case "set":
			list, err := rdb.SMembers(t.Context(), key).Result()
			must(err)
			slices.Sort(list)
			s[key+" members"] = strings.Join(list, " ")
		case "zset":
			list, err := rdb.ZRangeWithScores(t.Context(), key, 0, -1).Result()
			must(err)
			s[key+" members"] = fmt.Sprint(list)
		case "stream":
			s.addStream(t, rdb, key)
		default:
			t.Fatalf("snapshot: key %s is a %s", key, kind)
		}
	}
	return s
}

// addJSON takes a stored aggregate apart, so that its fields can be told from each other.
func (s snapshot) addJSON(t *testing.T, at, text string) {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatalf("snapshot: %s: %v", at, err)
	}
	for name, v := range fields {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		s[at+"."+name] = string(b)
	}
}

// addStream reads what XINFO STREAM and XINFO GROUPS say, the entries in order, and who has
// entries pending.
func (s snapshot) addStream(t *testing.T, rdb *redis.Client, key string) {
	t.Helper()
	for _, ask := range [][]any{{"XINFO", "STREAM", key}, {"XINFO", "GROUPS", key}, {"XRANGE", key, "-", "+"}} {
		v, err := rdb.Do(t.Context(), ask...).Result()
		if err != nil {
			t.Fatalf("snapshot: %v: %v", ask, err)
		}
		what := strings.ToLower(fmt.Sprint(ask[0], " ", ask[1]))
		if ask[0] == "XRANGE" {
			what = "entries"
		}
		fields, ok := v.(map[any]any)
		if !ok {
			s[key+" "+what] = fmt.Sprint(v)
			continue
		}
		for name, value := range fields {
			s[fmt.Sprint(key, " ", what, " ", name)] = fmt.Sprint(value)
		}
	}
}

// without drops the lines that match, and returns s.
func (s snapshot) without(pattern *regexp.Regexp) snapshot {
	maps.DeleteFunc(s, func(line, _ string) bool { return pattern.MatchString(line) })
	return s
}

// differences lists the lines in which two snapshots are not the same.
func (s snapshot) differences(other snapshot) []string {
	var out []string
	for line, v := range s {
		if now, ok := other[line]; !ok {
			out = append(out, fmt.Sprintf("%s: was %s, is gone", line, v))
		} else if now != v {
			out = append(out, fmt.Sprintf("%s: was %s, is %s", line, v, now))
		}
	}
	for line, v := range other {
		if _, ok := s[line]; !ok {
			out = append(out, fmt.Sprintf("%s: is new: %s", line, v))
		}
	}
	slices.Sort(out)
	return out
}

// notRestored matches what a rollback does not bring back. Everything else must be as it was, byte
// for byte. keyPrefix is that of the coordinator's keys, prefix the stream's, from the number of its
// shards before and to the number that it was to get.
func notRestored(keyPrefix, prefix string, from, to int) *regexp.Regexp {
	ours := regexp.QuoteMeta(keyPrefix + ":{" + prefix + "}:")
	var parts []string
	add := func(pattern string) { parts = append(parts, pattern) }
	// Revisions and the time of the last commit.
	add(ours + `(stream|group:.*) field (rev|nonce|updatedAt)$`)
	// Versions that clients see, the record in the history, the highest epoch and count ever given
	// out, and times.
	add(ours + `stream aggregate\.(metadataVersion|routingVersion|generation|lastEpoch|highCount|history|publishSince|updatedAt)$`)
	add(ours + `group:.* aggregate\.(groupEpoch|metadataVersion|updatedAt)$`)
	// The audit log has more entries.
	add(ours + `audit(-head)? `)
	// Who does the periodic work.
	add(ours + `ticker `)
	// On the shards of the layout: the revision and name of the last script, the change that was
	// ended here, and on shard 0 the highest count ever.
	for i := range from {
		add(regexp.QuoteMeta(protocol.ControlKey(prefix, i)) + ` field (rev|by|aborted)$`)
	}
	add(regexp.QuoteMeta(protocol.ControlKey(prefix, 0)) + ` field high$`)
	// The tombstones of new shards.
	for i := from; i < to; i++ {
		add(regexp.QuoteMeta(protocol.ControlKey(prefix, i)) + ` `)
	}
	return regexp.MustCompile(`^(` + strings.Join(parts, "|") + `)`)
}

// checkTombstones: what a rollback may leave of new shards is a tombstone of that change.
func checkTombstones(t *testing.T, rdb *redis.Client, prefix, id string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		fields, err := rdb.HGetAll(t.Context(), protocol.ControlKey(prefix, i)).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(fields) == 0 {
			continue // the change had not got that far
		}
		for _, unwanted := range []string{"gate", "until", "hold", "sealedLastId"} {
			if fields[unwanted] != "" {
				t.Errorf("tombstone of shard %d has %s = %s", i, unwanted, fields[unwanted])
			}
		}
		if fields["retired"] != id {
			t.Errorf("control hash of shard %d is no tombstone of %s: %v", i, id, fields)
		}
	}
}

// number reads one line of a snapshot as a number.
func (s snapshot) number(line string) int {
	n, err := strconv.Atoi(s[line])
	if err != nil {
		return -1
	}
	return n
}
