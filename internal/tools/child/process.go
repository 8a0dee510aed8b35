// Package child starts, watches and ends the programs that the demo and the benchmark run beside
// themselves: a private Redis server, a coordinator.
package child

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
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const startTimeout = 20 * time.Second

// Process is a program that was started and that its starter ends with Stop.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string // path of what it prints
	done chan struct{}
	err  error // of Wait; read after done
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Start starts a program in dir; what it prints is appended to dir/name.log.
func Start(ctx context.Context, dir, name string, env []string, program string, args ...string) (*Process, error) {
	return start(ctx, dir, name, env, nil, nil, program, args)
}

// start is Start with standard input and output of the caller's, nil for none and for the log.
func start(ctx context.Context, dir, name string, env []string, in, out *os.File, program string, args []string) (*Process, error) {
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	// It must outlive the context that asks its starter to stop, until Stop has ended it.
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if in != nil {
		p.cmd.Stdin = in
	}
	if out != nil {
		p.cmd.Stdout = out
	}
	// A Ctrl-C in the terminal is for the starter alone: it stops its children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		log.Close()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop asks the process to end, waits, and kills it when it does not.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.Thaw() // a frozen one would not hear of it
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Err is how the process ended, once Done is closed.
func (p *Process) Err() error { return p.err }

// Kill ends the process with SIGKILL and waits. It may be called again.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it has ended by itself, then
	<-p.done
}

// Freeze stops the process with SIGSTOP: its connections stay open and nothing is answered.
func (p *Process) Freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze %s: %w", p.name, err)
	}
	// A signal is only sent then: until one thread has been scheduled to take it, the others go on.
	ctx, cancel := context.WithTimeout(context.Background(), freezeLimit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !p.frozen() {
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("freeze %s: it has ended", p.name)
		case <-ctx.Done():
			return fmt.Errorf("freeze %s: it still runs after %s", p.name, freezeLimit)
		}
	}
	return nil
}

// freezeLimit is the time for a stop that was sent to be taken.
const freezeLimit = 10 * time.Second

// frozen says whether every thread is stopped, by Linux's proc(5). Elsewhere it cannot be known, and
// is believed.
func (p *Process) frozen() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil || len(threads) == 0 {
		return runtime.GOOS != "linux"
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return false // it has just ended
		}
		// The state stands behind the name, which is in parentheses and may hold some.
		if at := bytes.LastIndexByte(text, ')'); at < 0 || !bytes.HasPrefix(text[at+1:], []byte(" T")) {
			return false
		}
	}
	return true
}

// Thaw undoes Freeze.
func (p *Process) Thaw() error {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("thaw %s: %w", p.name, err)
	}
	return nil
}

// WaitFor asks ready until it says yes, the process has ended or the time is up.
func (p *Process) WaitFor(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.name, errors.Join(p.err, err), p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %w\n%s", p.name, timeout, err, p.tail())
		case <-tick.C:
		}
	}
}

// tail is the end of what the process printed.
func (p *Process) tail() []byte {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	const most = 4 << 10
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return bytes.TrimSpace(b)
}

// FreeAddress is a loopback address that nothing listened on a moment ago. Its port is below
// those that systems give to outgoing connections: none of these takes it while a program that
// was killed is down.
func FreeAddress(ctx context.Context) (addr, port string, err error) {
	const low, high, tries = 10240, 32000, 50
	for range tries {
		port = strconv.Itoa(low + rand.IntN(high-low))
		addr = net.JoinHostPort("127.0.0.1", port)
		var l net.Listener
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr); err == nil {
			return addr, port, l.Close()
		}
	}
	return "", "", fmt.Errorf("free port: %w", err)
}

// Run runs a program to its end and returns what it printed; a failure carries it.
func Run(ctx context.Context, dir string, env []string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, bytes.TrimSpace(out))
	}
	return out, nil
}
