// Package shard runs the client scripts of sdk/protocol/shardscript on the shards of one
// stream through go-redis. It decides nothing: it sends, parses, and says of an error whether
// the command may have been executed.
package shard
