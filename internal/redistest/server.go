package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds the start of one server, and each wait for a replica.
const startTimeout = 20 * time.Second

// Server is one redis-server process on a loopback port. Its port, directory and arguments
// stay the same over Kill and Restart.
type Server struct {
	Addr string // host:port

	program string
	dir     string
	args    []string

	mu   sync.Mutex // guards proc
	proc *process
}

// process is one run of the program.
type process struct {
	cmd    *exec.Cmd
	log    bytes.Buffer  // stdout and stderr; read only after exited is closed
	exited chan struct{} // closed once the process was waited for
}

// Start runs a server of this test's own; args are added to the command line, for example
// "--maxmemory", "8mb". It is killed when the test ends.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := launch(tb.TempDir(), args)
	if err != nil {
		tb.Fatalf("start a private redis server: %v", err)
	}
	tb.Cleanup(s.Kill)
	return s
}

// StartReplicated runs a primary and one replica of it, in sync when it returns.
func StartReplicated(tb testing.TB, args ...string) (primary, replica *Server) {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	primary = Start(tb, args...)
	replica = Start(tb, append(slices.Clip(args), "--replicaof", replicaOf(tb, primary.Addr))...)
	if err := replica.waitInSync(primary, startTimeout); err != nil {
		tb.Fatalf("replica %s of %s: %v", replica.Addr, primary.Addr, err)
	}
	return primary, replica
}

// replicaOf is an address as the option of that name takes it.
func replicaOf(tb testing.TB, addr string) string {
	tb.Helper()
	host, port := hostPort(tb, addr)
	return host + " " + port
}

func hostPort(tb testing.TB, addr string) (host, port string) {
	tb.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatalf("address of a primary: %v", err)
	}
	return host, port
}

// launch starts a server in dir on a free port. A port that was taken in the meantime makes
// the server exit, and another one is tried.
func launch(dir string, args []string) (*Server, error) {
	program, err := findProgram()
	if err != nil {
		return nil, err
	}
	var last error
	for range 5 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s := &Server{
			Addr:    net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			program: program,
			dir:     dir,
			args: append([]string{
				"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
				"--save", "", "--appendonly", "no", "--enable-debug-command", "yes",
			}, args...),
		}
		if last = s.run(); last == nil {
			return s, nil
		}
	}
	return nil, last
}

// findProgram looks for a server program.
func findProgram() (string, error) {
	if p := os.Getenv("REDISTEST_SERVER"); p != "" {
		return p, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", errors.New("neither redis-server nor valkey-server is on the PATH: install one " +
		"(Debian and Ubuntu: apt-get install redis-server; macOS: brew install redis) or set REDISTEST_SERVER to the program")
}

func freePort() (int, error) {
	var last error
	for range 100 {
		// Below the ports that systems give to outgoing connections, which come and go all the time.
		port := 10240 + rand.IntN(32000-10240)
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("look for a free port: %w", last)
}

// run starts the process and waits until it answers PING.
func (s *Server) run() error {
	p := &process{cmd: exec.CommandContext(context.Background(), s.program, s.args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := spawn(p.cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	go func() {
		_ = p.cmd.Wait() // killed on purpose, or the log tells why
		close(p.exited)
	}()
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()

	c := s.client()
	defer func() { _ = c.Close() }()
	err := poll(startTimeout, func(ctx context.Context) error {
		select {
		case <-p.exited:
			return permanent{fmt.Errorf("%s ended: %s", filepath.Base(s.program), tail(p.log.Bytes()))}
		default:
			return c.Ping(ctx).Err()
		}
	})
	if err != nil {
		s.Kill()
	}
	return err
}

func tail(log []byte) []byte {
	const most = 600
	if len(log) > most {
		log = log[len(log)-most:]
	}
	return bytes.TrimSpace(log)
}

// URL is the redis:// address for configurations.
func (s *Server) URL() string { return "redis://" + s.Addr + "/0" }

// Client opens a client that never repeats a command by itself. It is closed with the test.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := s.client()
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *Server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DisableIdentity: true})
}

// Kill ends the process with SIGKILL and waits for it. Without persistence all data is lost.
// It may be called again.
func (s *Server) Kill() {
	s.mu.Lock()
	p := s.proc
	s.mu.Unlock()
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // already gone is fine
	<-p.exited
}

// Restart kills the process, if it still runs, and starts it again on the same port.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if err := s.run(); err != nil {
		tb.Fatalf("restart redis server %s: %v", s.Addr, err)
	}
}

// Pause stops the process with SIGSTOP: connections stay open and nothing is answered.
func (s *Server) Pause(tb testing.TB) { tb.Helper(); s.signal(tb, syscall.SIGSTOP) }

// Continue undoes Pause.
func (s *Server) Continue(tb testing.TB) { tb.Helper(); s.signal(tb, syscall.SIGCONT) }

func (s *Server) signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.cmd.Process.Signal(sig); err != nil {
		tb.Fatalf("send %v to redis server %s: %v", sig, s.Addr, err)
	}
}

// waitInSync waits until this replica has the data of its primary.
//
// Both sides are asked: the primary counts a replica for WAIT only once it is online there.
func (s *Server) waitInSync(primary *Server, timeout time.Duration) error {
	replica, master := s.client(), primary.client()
	defer func() { _ = errors.Join(replica.Close(), master.Close()) }()
	return poll(timeout, func(ctx context.Context) error {
		for _, side := range []struct {
			client *redis.Client
			line   string
		}{{replica, "master_link_status:up"}, {master, "state=online"}} {
			info, err := side.client.Info(ctx, "replication").Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, side.line) {
				return fmt.Errorf("replication has no %s yet", side.line)
			}
		}
		// What counts is that it confirms.
		pipe := master.Pipeline()
		pipe.Set(ctx, "redistest", "sync", time.Millisecond)
		confirmed := pipe.Do(ctx, "WAIT", 1, 1000)
		if _, err := pipe.Exec(ctx); redis.HasErrorPrefix(err, "MOVED") {
			return nil // a node of a cluster, without that key's slot
		} else if err != nil {
			return err
		}
		switch n, err := confirmed.Int(); {
		case err != nil:
			return err
		case n < 1:
			return errors.New("it does not confirm a write yet")
		}
		return nil
	})
}

// permanent ends a poll at once.
type permanent struct{ error }

// poll calls done until it returns nil, a permanent error, or the timeout has passed; then the
// last error is returned.
func poll(timeout time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done(ctx)
		var p permanent
		switch {
		case err == nil:
			return nil
		case errors.As(err, &p):
			return p.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", timeout, err)
		case <-tick.C:
		}
	}
}
