package redisstore

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// The scripts on coordinator keys; the head of each file has its keys, arguments and reply.
var (
	commitScript   = script("commit")
	auditScript    = script("audit")
	loadScript     = script("load")
	rowsScript     = script("rows")
	tickerScript   = script("ticker")
	producerScript = script("producer")
	timeScript     = redis.NewScript(read("head") + "return {int(NOW), IDENTITY}")
)

// ScriptNames are the names of all scripts that the store runs, by the digests that Redis knows
// them by: those beside a shard as package shardscript names them, the others after their files.
func ScriptNames() map[string]string {
	names := map[string]string{}
	for name, s := range map[string]*redis.Script{
		"COMMIT": commitScript, "AUDIT": auditScript, "LOAD": loadScript, "ROWS": rowsScript, "TICKER": tickerScript,
		"PRODUCER": producerScript, "TIME": timeScript, "ACLCHECK": rightsScript,
	} {
		names[s.Hash()] = name
	}
	for name, s := range shardScripts {
		names[s.Hash()] = string(name)
	}
	return names
}

func script(name string) *redis.Script { return redis.NewScript(read("head") + read(name)) }

func read(name string) string {
	b, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // a mistake in this package
	}
	return string(b)
}
