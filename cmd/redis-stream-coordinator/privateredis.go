package main

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
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisStartTimeout = 5 * time.Second
	redisStopTimeout  = 5 * time.Second
	portAttempts      = 5 // another program may take a free port before the server does
)

// privateRedis is a Redis server that belongs to this process alone.
type privateRedis struct {
	url     string
	dir     string
	process *exec.Cmd
	exited  chan struct{} // closed once the process was waited for
}

// startPrivateRedis starts a server on a free loopback port, without persistence, and waits
// until it answers.
func startPrivateRedis(ctx context.Context) (*privateRedis, error) {
	program, err := findRedis()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redis-stream-coordinator-dev-")
	if err != nil {
		return nil, fmt.Errorf("private redis: %w", err)
	}
	for range portAttempts {
		var private *privateRedis
		if private, err = launchRedis(ctx, program, dir); err == nil {
			return private, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(fmt.Errorf("private redis: %w", err), os.RemoveAll(dir))
}

func findRedis() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither redis-server nor valkey-server is on the PATH; install one, or give a Redis with --redis-url")
}

func launchRedis(ctx context.Context, program, dir string) (*privateRedis, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "redis.log")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--logfile", log,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	p := &privateRedis{url: fmt.Sprintf("redis://127.0.0.1:%d/0", port), dir: dir, process: cmd, exited: make(chan struct{})}
	if err := startApart(cmd, p.exited); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		_ = cmd.Wait() // its state tells how it ended
		close(p.exited)
	}()
	if err := p.waitUntilUp(ctx); err != nil {
		text, _ := os.ReadFile(log) // it says more than the exit status, if it was written
		return nil, errors.Join(fmt.Errorf("%s did not come up: %w: %s", program, err, lastLine(text)), p.kill())
	}
	return p, nil
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
	return port, l.Close()
}

func (p *privateRedis) waitUntilUp(ctx context.Context) error {
	opt, err := redis.ParseURL(p.url)
	if err != nil {
		return err
	}
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }() // it only asked whether the server is up
	ctx, cancel := context.WithTimeout(ctx, redisStartTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = client.Ping(ctx).Err(); err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended: %s", p.process.ProcessState)
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
}

// stop ends the server and removes what it left.
func (p *privateRedis) stop() error {
	err := p.kill()
	return errors.Join(err, os.RemoveAll(p.dir))
}

// kill ends the server, first by request. It keeps nothing, so nothing is lost by force.
func (p *privateRedis) kill() error {
	if err := p.process.Process.Signal(terminate); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop private redis: %w", err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(redisStopTimeout):
	}
	if err := p.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill private redis: %w", err)
	}
	<-p.exited
	return nil
}

func lastLine(text []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return lines[len(lines)-1]
}
