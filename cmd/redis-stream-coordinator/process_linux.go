package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

var terminate os.Signal = syscall.SIGTERM

// startApart starts cmd out of reach of the terminal's signals, since it ends after this process
// has done with it, and has the kernel end it should this process be killed. The kernel watches
// the thread that started it, which is therefore kept until exited is closed.
func startApart(cmd *exec.Cmd, exited <-chan struct{}) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			<-exited
		}
	}()
	return <-started
}
