// Package child starts, watches and ends the programs that the demo and the benchmark run beside
// themselves: a private Redis server, a coordinator.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// Start starts a program in dir; what it prints goes to dir/name.log.
func Start(ctx context.Context, dir, name string, env []string, program string, args ...string) (*Process, error) {
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	// It must outlive the context that asks its starter to stop, until Stop has ended it.
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// A Ctrl-C in the terminal is for the starter alone: it stops its children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		out.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		out.Close()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop asks the process to end, waits, and kills it when it does not.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
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

// FreeAddress is a loopback address that nothing listened on a moment ago.
func FreeAddress(ctx context.Context) (addr, port string, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("free port: %w", err)
	}
	defer l.Close()
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return "", "", fmt.Errorf("free port: unexpected address %s", l.Addr())
	}
	return tcp.String(), strconv.Itoa(tcp.Port), nil
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
