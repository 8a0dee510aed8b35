// Package redismodel is Redis as the protocol sees it, small enough to be run a million times a
// second: nodes with their own clocks and identities, shards with their control hashes, the
// scripts of docs/protocol/resharding.md 1.4 and of docs/protocol/handover.md §3 and §6, and
// failovers that lose the last writes. Every function is atomic, as a script is. Nothing in it
// is random and nothing reads a clock: the caller sets Redis.Now.
//
// A conformance test runs random sequences on this model and on a real server.
package redismodel
