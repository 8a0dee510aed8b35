package redisstore

import "strings"

// keyspace makes the coordinator's keys; docs/architecture.md lists them. All keys of one
// stream carry the hash tag {stream prefix}, so that one script reaches them on a cluster too.
type keyspace string

func (k keyspace) of(prefix, what string) string { return string(k) + ":{" + prefix + "}:" + what }

func (k keyspace) stream(prefix string) string          { return k.of(prefix, "stream") }
func (k keyspace) group(prefix, group string) string    { return k.of(prefix, "group:"+group) }
func (k keyspace) leases(prefix, group string) string   { return k.of(prefix, "leases:"+group) }
func (k keyspace) progress(prefix, group string) string { return k.of(prefix, "progress:"+group) }
func (k keyspace) producers(prefix string) string       { return k.of(prefix, "producers") }
func (k keyspace) plainSeen(prefix string) string       { return k.of(prefix, "plain-seen") }
func (k keyspace) ticker(prefix string) string          { return k.of(prefix, "ticker") }

// channel is where the nonces of a stream's commits are published; on a cluster it is a shard
// channel, in the slot of the stream's keys.
func (k keyspace) channel(prefix string) string { return k.of(prefix, "commits") }

// ofChannel is the stream prefix of a channel.
func (k keyspace) ofChannel(channel string) (prefix string, ok bool) {
	rest, ok := strings.CutPrefix(channel, string(k)+":{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "}:commits")
}

// audit and auditHead of the prefix "" are of the requests that belong to no stream.
func (k keyspace) audit(prefix string) string {
	if prefix == "" {
		return string(k) + ":audit"
	}
	return k.of(prefix, "audit")
}

// auditHead is in the slot of audit: with the hash tag of the stream, or that of the whole name.
func (k keyspace) auditHead(prefix string) string {
	if prefix == "" {
		return "{" + string(k) + ":audit}-head"
	}
	return k.of(prefix, "audit-head")
}

// session belongs to no stream: sessions of tokens are spread over a cluster.
func (k keyspace) session(id string) string { return string(k) + ":session:" + id }

// index lists the stream prefixes. It is in a slot of its own and rebuildable; a stale entry is
// tolerated by its readers.
func (k keyspace) index() string { return string(k) + ":streams" }

// formerIndex lists the prefixes of streams that were deleted: their audit logs are kept.
func (k keyspace) formerIndex() string { return string(k) + ":former-streams" }
