package redistest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is what one test binary has in common; started at first use.
var shared struct {
	mu      sync.Mutex
	server  *Server
	cluster *Cluster
	dirs    []string
}

// Shared is one standalone server for all tests of the binary. Tests keep apart by Prefix and
// KeyPrefix; one that flushes, restarts or reconfigures the server must use Start instead.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s, err := launch(sharedDir(tb), nil)
		if err != nil {
			tb.Fatalf("start the shared redis server: %v", err)
		}
		shared.server = s
	}
	return shared.server
}

// SharedCluster is one cluster for all tests of the binary; see Shared.
func SharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		c, err := launchCluster(func() string { return sharedDir(tb) }, nil)
		if err != nil {
			tb.Fatalf("start the shared redis cluster: %v", err)
		}
		shared.cluster = c
	}
	return shared.cluster
}

func sharedDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "redistest-") //nolint:usetesting // the server outlives tb: Main removes it
	if err != nil {
		tb.Fatalf("make a directory for a redis server: %v", err)
	}
	shared.dirs = append(shared.dirs, dir)
	return dir
}

// Main runs the tests and then ends the shared servers and removes what they left. A package
// that uses Shared or SharedCluster has: func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }.
func Main(m *testing.M) int {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.Kill()
	}
	if shared.cluster != nil {
		shared.cluster.kill()
	}
	for _, dir := range shared.dirs {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "redistest:", err)
		}
	}
	return code
}

// Prefix is a stream prefix that no other test has.
func Prefix(tb testing.TB) string { tb.Helper(); return "orders-" + random(tb) }

// KeyPrefix is a prefix for coordinator keys that no other test has.
func KeyPrefix(tb testing.TB) string { tb.Helper(); return "coord-" + random(tb) }

func random(tb testing.TB) string {
	tb.Helper()
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		tb.Fatalf("read random bytes: %v", err)
	}
	return hex.EncodeToString(b[:])
}
