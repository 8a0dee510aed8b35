// Package httpapi serves the coordinator's HTTP API: the table of routes, authentication and
// roles, strict decoding, audit of what was refused, and the shapes of answers and errors. It
// decides nothing about streams and groups; package engine does.
//
// The life of a request: a request id is made, the body is read within its limit and time, the
// caller is authenticated and authorized, the path and body are checked, the engine is called,
// the answer is written and counted. A mutation that the engine committed has its audit entry
// in the commit itself; every other admin request is recorded here, so that each has exactly
// one. openapi.yaml describes all of it and is served at /openapi.yaml.
package httpapi
