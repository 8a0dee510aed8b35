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

func script(name string) *redis.Script { return redis.NewScript(read("head") + read(name)) }

func read(name string) string {
	b, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // a mistake in this package
	}
	return string(b)
}
