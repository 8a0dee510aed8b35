package stream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// mostTexts bounds what a record says it is waiting for.
const mostTexts = 20

// bounded keeps the first texts and says how many more there are.
func bounded(texts []string) []string {
	if len(texts) <= mostTexts {
		return texts
	}
	return append(slices.Clone(texts[:mostTexts]), fmt.Sprintf("and %d more", len(texts)-mostTexts))
}

// joinTexts makes one line of sentences.
func joinTexts(texts []string) string { return strings.Join(bounded(texts), "; ") }

// shardList is "shards 1, 2 and 9" or "shard 4".
func shardList(indexes []int) string {
	const most = 12
	words := make([]string, 0, most)
	for i, x := range indexes {
		if i == most {
			return fmt.Sprintf("shards %s and %d more", strings.Join(words, ", "), len(indexes)-most)
		}
		words = append(words, fmt.Sprint(x))
	}
	switch len(words) {
	case 0:
		return "no shard"
	case 1:
		return "shard " + words[0]
	}
	return "shards " + strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Counted is a number of things in words: "1 entry", "2 entries"; thing is the singular.
func Counted[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, y := strings.CutSuffix(thing, "y"); y {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// entriesLeft is what a group has left, in words; more says that there is more undelivered than was
// counted.
func entriesLeft(pending, undelivered int64, more bool) string {
	rest := Counted(undelivered, "undelivered entry")
	if more {
		rest = "more than " + rest
	}
	switch {
	case undelivered == 0 && !more && pending == 0:
		return "entries that were not counted"
	case undelivered == 0 && !more:
		return Counted(pending, "pending entry")
	case pending == 0:
		return rest
	}
	return fmt.Sprintf("%d pending and %s", pending, rest)
}

// clock is an instant as people read it.
func clock(i protocol.Instant) string { return i.Time().Format("2006-01-02T15:04:05.000Z07:00") }

func noAnswer(index int, what, err string) string {
	text := fmt.Sprintf("shard %d: no answer to %s", index, what)
	if err != "" {
		text += ": " + err
	}
	return text
}

// ControlDamaged is what a shard says whose control hash cannot be read, with what to do.
func ControlDamaged(key, what string) string {
	return fmt.Sprintf("%s: %s is damaged (%s); put it aside, and it is made again: runbook damaged-control", protocol.CodeShardControlDamaged, key, what)
}

// damaged says whether a reply is one of ControlDamaged.
func damaged(text string) bool {
	return strings.HasPrefix(text, string(protocol.CodeShardControlDamaged)+": ")
}

func refused(index int, what string, rep Reply) string {
	text := fmt.Sprintf("shard %d: %s was answered %s", index, what, rep.Code)
	if rep.Err != "" {
		text += ": " + rep.Err
	}
	return text
}
