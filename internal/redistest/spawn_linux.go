package redistest

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// The kernel sends the parent-death signal when the *thread* that started the child ends, so
// all children are started by one goroutine that keeps its thread for good.
var (
	spawnOnce sync.Once
	spawnReqs = make(chan spawnReq)
)

type spawnReq struct {
	cmd  *exec.Cmd
	done chan error
}

// spawn starts cmd such that it dies with this process, even when that is killed.
func spawn(cmd *exec.Cmd) error {
	spawnOnce.Do(func() {
		go func() {
			runtime.LockOSThread()
			for r := range spawnReqs {
				r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				r.done <- r.cmd.Start()
			}
		}()
	})
	r := spawnReq{cmd, make(chan error, 1)}
	spawnReqs <- r
	return <-r.done
}
