//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

var terminate os.Signal = syscall.SIGTERM

// ownProcessGroup keeps signals of the terminal from reaching cmd.
func ownProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
