//go:build faults

package faultpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// watch is the one fault of this process, the counts of its commands, and where they are recorded.
// Its lock is never held while a command runs; who dies keeps it, so that nothing is sent after.
var watch = newWatcher(os.Getenv)

type watcher struct {
	mu      sync.Mutex
	fault   Fault
	armedBy string // path of the file whose existence starts the counting; "": from the start
	armed   bool
	counts  map[string]int
	record  *os.File // nil: nothing is recorded
	scripts map[string]string
}

func newWatcher(getenv func(string) string) *watcher {
	w := &watcher{armedBy: getenv("RSC_FAULT_ARMED"), counts: map[string]int{}}
	w.armed = w.armedBy == ""
	var err error
	if text := getenv("RSC_FAULT"); text != "" {
		if w.fault, err = ParseFault(text); err != nil {
			refuse("RSC_FAULT", err)
		}
	}
	if path := getenv("RSC_FAULT_RECORD"); path != "" {
		if w.record, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			refuse("RSC_FAULT_RECORD", err)
		}
	}
	return w
}

// refuse ends the process: a test that asks for something impossible must not pass.
func refuse(variable string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
	os.Exit(2)
}

// Watch makes every command of client a fault point. scripts gives the names of scripts by their
// SHA-1 digests. On a cluster the clients of the nodes are watched: each command is seen once, where
// it is sent.
func Watch(client redis.UniversalClient, scripts func() map[string]string) {
	watch.mu.Lock()
	watch.scripts = scripts()
	watch.mu.Unlock()
	if c, ok := client.(*redis.ClusterClient); ok {
		c.OnNewNode(func(node *redis.Client) { node.AddHook(hook{}) })
		return
	}
	client.AddHook(hook{})
}

// Hit is the fault point of a command that no hook of the client sees.
func Hit(point string) {
	n, _ := watch.before(point)
	watch.after(point, n, "-")
}

// TickerTTL is how long the soft lock of a stream's periodic work lasts; 0: the engine's default.
func TickerTTL() time.Duration {
	text := os.Getenv("RSC_FAULT_TICKER_TTL")
	if text == "" {
		return 0
	}
	ttl, err := time.ParseDuration(text)
	if err != nil {
		refuse("RSC_FAULT_TICKER_TTL", err)
	}
	return ttl
}

// hook sees the commands of one client.
type hook struct{}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		point := watch.name(cmd)
		n, stopped := watch.before(point)
		err := next(outlived(ctx, stopped), cmd)
		watch.after(point, n, outcome(cmd, err))
		return err
	}
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		points, numbers, at := watch.pipeline(cmds)
		send := func(ctx context.Context, from, to int) error {
			if from == to {
				return nil
			}
			err := next(ctx, cmds[from:to])
			for i := from; i < to; i++ {
				watch.after(points[i], numbers[i], outcome(cmds[i], err))
			}
			return err
		}
		if at == len(cmds) {
			return send(ctx, 0, at)
		}
		err := send(ctx, 0, at)
		ctx = outlived(ctx, watch.meet(points[at], numbers[at]))
		// Still there: stopped and continued, or it dies behind this one.
		return errors.Join(err, send(ctx, at, at+1), send(ctx, at+1, len(cmds)))
	}
}

// pipeline counts cmds and finds the one at which the fault stands; its index is len(cmds) for none.
func (w *watcher) pipeline(cmds []redis.Cmder) (points []string, numbers []int, at int) {
	points, numbers, at = make([]string, len(cmds)), make([]int, len(cmds)), len(cmds)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, cmd := range cmds {
		points[i] = pointOf(cmd.Args(), w.scripts)
		numbers[i] = w.count(points[i])
		if at == len(cmds) && w.fault.is(points[i], numbers[i]) {
			at = i
		}
	}
	return points, numbers, at
}

// count is called with mu held: the number of this occurrence, 0 before the counting has begun.
func (w *watcher) count(point string) int {
	if !w.armed {
		if _, err := os.Stat(w.armedBy); err != nil {
			return 0
		}
		w.armed = true
	}
	w.counts[point]++
	return w.counts[point]
}

// before counts a command that is about to be sent.
func (w *watcher) before(point string) (n int, stopped bool) {
	w.mu.Lock()
	n = w.count(point)
	w.mu.Unlock()
	return n, w.meet(point, n)
}

// outlived is the context of a command before which the process was stopped: it is sent however
// late it is, as if the stop had come when it was on its way already.
func outlived(ctx context.Context, stopped bool) context.Context {
	if stopped {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// meet kills or stops the process when the fault stands before this command.
func (w *watcher) meet(point string, n int) (stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fault.is(point, n) {
		return false
	}
	switch w.fault.Effect {
	case KillBefore:
		w.write(point, n, "killed before it")
		die()
	case Stop:
		w.write(point, n, "stopped before it")
		w.fault = Fault{}
		// The other threads are stopped a moment after the one that takes the signal.
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			refuse("SIGSTOP", err)
		}
		<-continued
		signal.Stop(continued)
		return true
	case KillAfter:
	}
	return false
}

// after records a reply, and kills the process when the fault stands behind it.
func (w *watcher) after(point string, n int, outcome string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(point, n, outcome)
	if w.fault.is(point, n) && w.fault.Effect == KillAfter {
		w.write(point, n, "killed after it")
		die()
	}
}

// die is called with mu held and never returns: no deferred work, no command of another goroutine.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// write is called with mu held. One line, one write: it outlives the process.
func (w *watcher) write(point string, n int, outcome string) {
	if w.record == nil {
		return
	}
	if _, err := fmt.Fprintf(w.record, "%s#%d\t%s\n", point, n, outcome); err != nil {
		refuse("RSC_FAULT_RECORD", err)
	}
}

// name is the point of a command.
func (w *watcher) name(cmd redis.Cmder) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return pointOf(cmd.Args(), w.scripts)
}

// outcome is the code of a script's reply, or the first word of an error. failed is that of the whole
// call: a command that was never sent may carry none.
func outcome(cmd redis.Cmder, failed error) string {
	err := cmd.Err()
	if c, ok := cmd.(*redis.Cmd); err == nil && ok && c.Val() == nil {
		err = failed
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		word, _, _ := strings.Cut(err.Error(), " ")
		return "!" + word
	}
	c, ok := cmd.(*redis.Cmd)
	if !ok {
		return "-"
	}
	code, ok := c.Val().(string)
	if list, isList := c.Val().([]any); isList && len(list) > 0 {
		code, ok = list[0].(string)
	}
	if !ok || code == "" || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "-"
	}
	return code
}
