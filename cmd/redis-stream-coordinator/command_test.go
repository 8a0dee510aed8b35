package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
)

var reflectSettings = reflect.TypeFor[settings]()

func TestMain(m *testing.M) {
	if os.Getenv("RUN_COORDINATOR") == "1" { // the test binary stands for the command
		os.Args[0] = "redis-stream-coordinator"
		main()
		return
	}
	os.Exit(redistest.Main(m))
}

// process is the command as a process of its own.
type process struct {
	cmd    *exec.Cmd
	out    io.Reader
	exited chan error

	mu   sync.Mutex
	logs bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.Write(b)
}

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.String()
}

func command(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, args...), exited: make(chan error, 1)}
	p.cmd.Env = append(append(os.Environ(), "RUN_COORDINATOR=1"), env...)
	p.cmd.Stderr = p
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended already, unless the test failed
	})
	return p
}

// end sends SIGTERM and waits for an orderly exit.
func (p *process) end(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	go func() { p.exited <- p.cmd.Wait() }()
	select {
	case err := <-p.exited:
		if err != nil {
			t.Errorf("the command ended with %v: %s", err, p.stderr())
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the command did not end in 30 s: %s", p.stderr())
	}
}

// dev prints what a user pastes; the printed credentials work; SIGTERM ends it with its Redis
// and leaves nothing behind.
func TestDev(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := command(t, []string{"TMPDIR=" + temp}, "dev", "--listen", "127.0.0.1:0")
	var text strings.Builder
	lines := bufio.NewScanner(p.out)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Ctrl-C") {
			break
		}
	}
	find := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(text.String())
		if found == nil {
			t.Fatalf("dev printed no %s:\n%s\n%s", pattern, text.String(), p.stderr())
		}
		return found[1]
	}
	url, user, password := find(`REDISSTREAM_ENDPOINT='(.*)'`), find(`REDISSTREAM_USERNAME='(.*)'`), find(`REDISSTREAM_PASSWORD='(.*)'`)
	if find(`password = "(.*)"`) != password || len(password) < 20 {
		t.Errorf("passwords differ, or %q is short", password)
	}
	redisAddr := find(`redis +redis://(127.0.0.1:\d+)/0`)

	r, err := http.NewRequest("PUT", url+"/coord/v1/streams/orders", strings.NewReader(`{"shardCount": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(user, password)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 201 {
		body, _ := io.ReadAll(resp.Body)
		t.Errorf("PUT: %d %s", resp.StatusCode, body)
	}
	if strings.Contains(p.stderr(), password) {
		t.Error("the password stands in the log")
	}

	p.end(t)
	if conn, err := net.Dial("tcp", redisAddr); err == nil {
		conn.Close()
		t.Error("the private redis still runs")
	}
	if left, err := filepath.Glob(filepath.Join(temp, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestDevRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		env  []string
		args []string
		says string
	}{
		"a taken port":    {nil, []string{"--listen", taken.Addr().String()}, "is taken by another program"},
		"another address": {nil, []string{"--listen", "0.0.0.0:0"}, "not a loopback address"},
		"no redis-server": {[]string{"PATH=/nowhere"}, []string{"--listen", "127.0.0.1:0"}, "--redis-url"},
	} {
		p := command(t, c.env, append([]string{"dev"}, c.args...)...)
		if err := p.cmd.Wait(); err == nil || !strings.Contains(p.stderr(), c.says) {
			t.Errorf("%s: %v, %s", name, err, p.stderr())
		}
	}
}

// serve logs JSON, one object a line, and becomes ready.
func TestServe(t *testing.T) {
	t.Parallel()
	p := command(t, []string{"RSC_ADMIN_PASSWORD=admin-password", "RSC_SHUTDOWN_DELAY=0s"},
		"serve", "--listen", "127.0.0.1:0", "--redis-url", redistest.Shared(t).URL(), "--key-prefix", redistest.KeyPrefix(t))
	serving := regexp.MustCompile(`"url":"(http://[^"]+)"`)
	deadline := time.Now().Add(30 * time.Second)
	for serving.FindStringSubmatch(p.stderr()) == nil {
		if time.Now().After(deadline) {
			t.Fatalf("not serving after 30 s: %s", p.stderr())
		}
		time.Sleep(5 * time.Millisecond) // polling another process, with a deadline
	}
	url := serving.FindStringSubmatch(p.stderr())[1]
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("readyz: %d", resp.StatusCode)
	}
	p.end(t)
	for line := range strings.Lines(p.stderr()) {
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "}\n") {
			t.Errorf("not a JSON line: %q", line)
		}
	}
}

func TestServeWithoutUserSaysHow(t *testing.T) {
	t.Parallel()
	p := command(t, nil, "serve")
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.stderr(), "RSC_ADMIN_PASSWORD") {
		t.Errorf("%v: %s", err, p.stderr())
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	p := command(t, nil, "version")
	out, err := io.ReadAll(p.out)
	if err != nil || p.cmd.Wait() != nil || !strings.HasPrefix(string(out), "redis-stream-coordinator dev go1") {
		t.Errorf("%v: %s", err, out)
	}
}
