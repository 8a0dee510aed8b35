package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Proxy is a stable loopback address in front of a server that may change: what a virtual
// address or a service name is in production. It understands requests, so that a test can stop
// the world exactly before a certain command.
type Proxy struct {
	Addr string // host:port to connect to

	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex // guards all below
	target  string     // "": connections are refused
	watch   func(Command) Verdict
	conns   map[net.Conn]struct{} // both sides of every connection
	stalled chan struct{}         // not nil while replies are held back; closed by Point
	stopped bool
}

// Command is one request of a client: its arguments, the name first. They are valid only during
// the call.
type Command [][]byte

// Verdict is what becomes of a command.
type Verdict int

// Forward sends it on; Drop closes its connection, so that its sender does not know its fate.
const (
	Forward Verdict = iota
	Drop
)

// StartProxy runs a proxy to target (host:port) until the test ends.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen for a proxy: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), listener: l, target: target, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// URL is the redis:// address for configurations.
func (p *Proxy) URL() string { return "redis://" + p.Addr + "/0" }

// Watch has f called with every command before it is sent on, of each connection in order; f
// may wait. nil ends it.
func (p *Proxy) Watch(f func(Command) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// Cut ends all connections and refuses new ones until Point. It may be called by a watcher.
func (p *Proxy) Cut() { p.Point("") }

// Point ends all connections and leads new ones to target.
func (p *Proxy) Point(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for c := range p.conns {
		_ = c.Close() // whatever it was doing is over
	}
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Stall holds back what the server sends, on connections that stay open, until Point.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// keep notes a connection, so that Point can end it; false when it has come too late for that.
func (p *Proxy) keep(c net.Conn, target string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || target == "" || target != p.target {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close() // may be closed already
}

// serve is one connection of a client.
func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if !p.keep(client, target) {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return // as if nobody listened
	}
	defer p.forget(server)
	if !p.keep(server, target) {
		return
	}
	p.wg.Go(func() {
		p.replies(server, client)
		_, _ = client.Close(), server.Close()
	})
	p.requests(client, server)
}

// replies sends on what the server sends.
func (p *Proxy) replies(server io.Reader, client io.Writer) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled != nil {
			<-stalled // the connection is closed then
		}
		if _, failed := client.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// requests sends commands on, each when its watcher lets it pass.
func (p *Proxy) requests(client io.Reader, server io.Writer) {
	in, out := bufio.NewReaderSize(client, 64<<10), bufio.NewWriterSize(server, 64<<10)
	var raw []byte
	for {
		cmd, text, err := readCommand(in, raw[:0])
		if err != nil {
			return
		}
		raw = text
		p.mu.Lock()
		watch := p.watch
		p.mu.Unlock()
		if watch != nil {
			if out.Flush() != nil || watch(cmd) == Drop {
				return
			}
		}
		if _, err := out.Write(text); err != nil {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

var errNoCommand = errors.New("not an array of bulk strings")

// readCommand reads one request into raw. The arguments are parts of the text that it returns.
func readCommand(in *bufio.Reader, raw []byte) (Command, []byte, error) {
	number := func(kind byte) (int, error) {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		raw = append(raw, line...)
		if len(line) < 4 || line[0] != kind {
			return 0, fmt.Errorf("%w: %q", errNoCommand, line)
		}
		return strconv.Atoi(string(line[1 : len(line)-2]))
	}
	n, err := number('*')
	if err != nil {
		return nil, nil, err
	}
	spans := make([][2]int, n)
	for i := range spans {
		size, err := number('$')
		if err != nil {
			return nil, nil, err
		}
		start := len(raw)
		raw = append(raw, make([]byte, size+len("\r\n"))...)
		if _, err := io.ReadFull(in, raw[start:]); err != nil {
			return nil, nil, err
		}
		spans[i] = [2]int{start, start + size}
	}
	cmd := make(Command, n)
	for i, s := range spans {
		cmd[i] = raw[s[0]:s[1]]
	}
	return cmd, raw, nil
}
