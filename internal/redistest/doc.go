// Package redistest starts private Redis servers for tests: standalone, with a replica, and as
// a cluster of six nodes. Servers listen on free loopback ports, persist nothing unless asked
// to, and end with the test or the test binary, however that ends.
//
// A server program must be on the PATH: redis-server 7.0 or later, or valkey-server. Without
// one the test fails; it is never skipped. REDISTEST_SERVER names another program.
package redistest
