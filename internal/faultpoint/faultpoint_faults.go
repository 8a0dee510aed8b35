//go:build faults

package faultpoint

import (
	"os"
	"syscall"
)

var wanted = os.Getenv("RSC_FAULT")

// Hit kills the process when point is the one that RSC_FAULT names.
func Hit(point string) {
	if point == wanted {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal arrives before anything else is done
	}
}
