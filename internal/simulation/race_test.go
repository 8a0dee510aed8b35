//go:build race

package simulation_test

// defaultSeeds is less under the race detector, which makes a run ten times slower and has
// little to find in code without goroutines.
const defaultSeeds = 300
