// Package protocol is what the coordinator and its clients agree on: the messages of the
// /coord/v1 HTTP API, error codes, key names, the routing hash and the limits of names and
// counts. It imports nothing but the standard library, so that both sides can.
//
// Words are those of docs/architecture.md. JSON is camel case; instants in stored state are
// milliseconds of Redis time, timestamps in answers are RFC 3339 in UTC.
package protocol
