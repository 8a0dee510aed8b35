package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// right is one command that the coordinator's Redis user needs, with arguments as the coordinator
// gives them; On is the key or channel among them, "" where the command has none.
type right struct {
	Args []string `json:"args"`
	On   string   `json:"on"`
}

// String names the command and what it may not be run on: "XGROUP CREATE on orders:0".
func (r right) String() string {
	name := r.Args[0]
	if slices.Contains([]string{"XGROUP", "XINFO", "SCRIPT"}, name) {
		name += " " + r.Args[1]
	}
	if r.On == "" {
		return name
	}
	return name + " on " + r.On
}

func plain(commands ...string) []right {
	var list []right
	for _, line := range commands {
		list = append(list, right{Args: strings.Fields(line)})
	}
	return list
}

// on makes rights on a key: @ stands for it.
func on(key string, commands ...string) []right {
	list := plain(commands...)
	for i, r := range list {
		list[i].On = key
		for j, arg := range r.Args {
			if arg == "@" {
				r.Args[j] = key
			}
		}
	}
	return list
}

// rightsEverywhere need no key.
func rightsEverywhere() []right {
	return plain("EVALSHA 0 0", "EVAL 0 0", "SCRIPT LOAD 0", "INFO", "TIME")
}

// rightsOfStream are those on the coordinator's own keys.
func (s *Store) rightsOfStream(prefix string) []right {
	k, list := s.keys, []right{}
	list = append(list, on(k.stream(prefix), "HMGET @ f", "EXISTS @", "HSET @ f v", "DEL @")...)
	list = append(list, on(k.leases(prefix, "g"), "ZSCORE @ m", "ZCARD @", "ZADD @ 1 m", "ZREM @ m", "ZRANGE @ 0 1")...)
	list = append(list, on(k.progress(prefix, "g"), "HGETALL @", "HSET @ f v", "HDEL @ f")...)
	list = append(list, on(k.producers(prefix), "ZREVRANGEBYSCORE @ 1 0", "ZREMRANGEBYSCORE @ 0 1", "ZREMRANGEBYRANK @ 0 1", "PEXPIRE @ 1")...)
	list = append(list, on(k.audit(prefix), "XADD @ * f v", "XRANGE @ - +", "XREVRANGE @ + -")...)
	list = append(list, on(k.auditHead(prefix), "GET @", "SET @ v")...)
	publish, subscribe := "PUBLISH @ n", "SUBSCRIBE @"
	if _, ok := s.cluster(); ok {
		publish, subscribe = "SPUBLISH @ n", "SSUBSCRIBE @"
	}
	return append(list, on(k.channel(prefix), publish, subscribe)...)
}

// rightsOfAll are those on the coordinator's keys that belong to no stream.
func (s *Store) rightsOfAll() []right {
	k, list := s.keys, []right{}
	list = append(list, on(k.index(), "SADD @ m", "SREM @ m", "SMEMBERS @")...)
	list = append(list, on(k.formerIndex(), "SADD @ m", "SMEMBERS @")...)
	list = append(list, on(k.session("id"), "SET @ v PX 1", "GET @", "PEXPIRE @ 1", "DEL @")...)
	list = append(list, on(k.audit(""), "XADD @ * f v", "XRANGE @ - +", "XREVRANGE @ + -")...)
	return append(list, on(k.auditHead(""), "GET @", "SET @ v")...)
}

// rightsOfShard are those that the scripts beside a shard need. XSETID is not among them: without
// it another barrier is used. The key of an archive is built in a script, for RENAMENX alone.
func rightsOfShard(shard, control string) []right {
	list := on(control, "HGETALL @", "HSET @ f v", "HDEL @ f", "DEL @", "EXPIRE @ 1")
	list = append(list, on(shard,
		"TYPE @", "XINFO STREAM @", "XINFO GROUPS @", "XGROUP CREATE @ g 0 MKSTREAM", "XGROUP DESTROY @ g", "XGROUP SETID @ g 0",
		"XRANGE @ - +", "XPENDING @ g", "XACK @ g 0-1", "XTRIM @ MINID 0", "UNLINK @")...)
	archive := "{" + shard + "}:archived:id"
	list = append(list, right{Args: []string{"RENAMENX", shard, archive}, On: shard + ", " + archive})
	return append(list, on(archive, "EXISTS @")...)
}

// rightsScript tells which commands the user may not run, by number. It asks and runs none.
var rightsScript = redis.NewScript(`#!lua flags=no-writes,allow-oom
local refused = {}
for i, right in ipairs(cjson.decode(ARGV[1])) do
  if redis.acl_check_cmd then
    local known, may = pcall(redis.acl_check_cmd, unpack(right.args))
    if known and not may then refused[#refused + 1] = i end
  end
end
return refused`)

// lacking lists those of rights that the user of node does not have.
func lacking(ctx context.Context, node *redis.Client, rights []right) ([]right, error) {
	text, err := json.Marshal(rights)
	if err != nil {
		return nil, err
	}
	indexes, err := rightsScript.Run(ctx, node, nil, text).Int64Slice()
	if err != nil {
		return nil, err
	}
	var list []right
	for _, i := range indexes {
		list = append(list, rights[i-1])
	}
	return list, nil
}

func names(rights []right) string {
	text := make([]string, len(rights))
	for i, r := range rights {
		text[i] = r.String()
	}
	return strings.Join(text, ", ")
}

// RightsError says that the Redis user lacks a right. It is known that the command that was
// refused did nothing, but not that of what ran before it in the same script.
type RightsError struct {
	Lacks string // commands with their keys or channels; "" when that could not be found out
	Err   error  // as Redis said it
}

// Error names the commands and keys.
func (e *RightsError) Error() string {
	if e.Lacks == "" {
		return e.Err.Error()
	}
	return "the redis user may not run " + e.Lacks + " (" + e.Err.Error() + ")"
}

// Unwrap gives Redis's own error.
func (e *RightsError) Unwrap() error { return e.Err }

// lacksRight recognizes how Redis 7.0 and its successors refuse a user, of a command and of one in a script.
func lacksRight(err error) bool {
	var answer redis.Error
	if err == nil || !errors.As(err, &answer) {
		return false
	}
	text := answer.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.Contains(text, "ACL failure in script") ||
		strings.Contains(text, "The user executing the script can't")
}

// explain says of an error that is about a missing right which one it is, as far as that can be
// found out: Redis names neither the command nor the key when a script is refused. Any other
// error is returned as it is. key is one that is on the node in question.
func (s *Store) explain(ctx context.Context, err error, key string, rights ...[]right) error {
	if err == nil || !lacksRight(err) {
		return err
	}
	e := &RightsError{Err: err}
	node, nodeErr := s.nodeOf(ctx, key)
	if nodeErr != nil {
		return e
	}
	list, checkErr := lacking(ctx, node, slices.Concat(append([][]right{rightsEverywhere()}, rights...)...))
	if checkErr == nil { // else it is EVAL itself, most likely: Redis has named it
		e.Lacks = names(list)
	}
	return e
}

// explainShard is explain for a script beside a shard.
func (s *Store) explainShard(ctx context.Context, err error, prefix string, index int) error {
	shard, control := protocol.ShardKey(prefix, index), protocol.ControlKey(prefix, index)
	return s.explain(ctx, err, shard, rightsOfShard(shard, control))
}

// checkRights tells at the start what the user lacks. Without the rights on the coordinator's own
// keys nothing works: that is an error. Which streams there will be is not known: of commands for
// shards it is only asked whether they may be run at all, on a key of the coordinator.
func (s *Store) checkRights(ctx context.Context, node *redis.Client, warn func(string)) error {
	const anyStream = "*"
	own := slices.Concat(rightsEverywhere(), s.rightsOfAll(), s.rightsOfStream(anyStream))
	probe := s.keys.stream(anyStream)
	lacks, err := lacking(ctx, node, own)
	if err != nil {
		if lacksRight(err) {
			return &RightsError{Err: err}
		}
		return nil // a server without acl_check_cmd, or one that cannot answer now: first use will tell
	}
	if len(lacks) > 0 {
		return &RightsError{Lacks: names(lacks), Err: errors.New("asked at the start")}
	}
	commands := append(rightsOfShard(probe, probe), on(probe, "RENAMENX @ @", "EXISTS @")...)
	commands = slices.DeleteFunc(commands, func(r right) bool { return r.On != probe })
	if lacks, err = lacking(ctx, node, commands); err != nil {
		return err
	}
	for _, r := range lacks {
		r.On = ""
		warn(fmt.Sprintf("the redis user may not run %s: reshardings, groups or retention that need it will wait", r))
	}
	if lacks, err = lacking(ctx, node, plain("WAIT 0 0")); err == nil && len(lacks) > 0 {
		warn("the redis user may not run WAIT: with a connected replica no change is confirmed, and none gets beyond its first phase")
	}
	if lacks, err = lacking(ctx, node, on(probe, "XSETID @ 0-1")); err == nil && len(lacks) > 0 {
		warn("the redis user may not run XSETID: shards cannot be sealed natively, and only fenced producers can be held off")
	}
	return nil
}
