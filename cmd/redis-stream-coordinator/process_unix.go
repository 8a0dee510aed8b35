//go:build unix && !linux

package main

import (
	"os"
	"os/exec"
	"syscall"
)

var terminate os.Signal = syscall.SIGTERM

// startApart starts cmd out of reach of the terminal's signals, since it ends after this process
// has done with it.
func startApart(cmd *exec.Cmd, _ <-chan struct{}) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
