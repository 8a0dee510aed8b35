//go:build !faults

// Package faultpoint marks the places at which tests kill the coordinator. In a normal build it
// does nothing; with the build tag "faults" the process kills itself with SIGKILL at the point
// that the environment variable RSC_FAULT names.
package faultpoint

// Hit is a point that a test can name.
func Hit(string) {}
