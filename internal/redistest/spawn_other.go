//go:build !linux

package redistest

import "os/exec"

// spawn starts cmd. Servers of a test binary that is killed stay behind on this system.
func spawn(cmd *exec.Cmd) error { return cmd.Start() }
