//go:build !unix

package main

import (
	"os"
	"os/exec"
)

var terminate = os.Kill

// startApart starts cmd.
func startApart(cmd *exec.Cmd, _ <-chan struct{}) error { return cmd.Start() }
