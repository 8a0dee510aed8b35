package simulation_test

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/simulation"
)

var (
	seeds = flag.Int("seeds", defaultSeeds, "how many seeds TestSimulation runs")
	seed  = flag.Uint64("seed", 0, "run this seed alone")
	show  = flag.Bool("show", false, "print the whole trace of -seed")
)

// tail is how much of the trace a failure shows.
const tail = 80

func report(t *testing.T, n uint64) {
	t.Helper()
	again := simulation.Run(n, true)
	text := again.Tail(tail)
	if *show {
		text = strings.Join(again.Trace, "\n")
	}
	t.Errorf("seed %d: %s\nscenario: %s\n%s\nrepeat with: go test ./internal/simulation -run TestSimulation -seed=%d -show",
		n, again.Violation, again.Scenario, text, n)
}

// TestSimulation runs many seeds; every invariant holds after every step of each.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		switch res := simulation.Run(*seed, true); {
		case res.Violation != "":
			report(t, *seed)
		case *show:
			fmt.Println(strings.Join(res.Trace, "\n"))
		}
		return
	}
	const workers = 2
	var mu sync.Mutex
	var failed []uint64
	steps, ran := 0, 0
	var counts simulation.Counts
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := uint64(1 + w); n <= uint64(*seeds); n += workers {
				res := simulation.Run(n, false)
				mu.Lock()
				ran++
				steps += res.Steps
				counts.Add(res.Counts)
				if res.Violation != "" {
					failed = append(failed, n)
				}
				stop := len(failed) >= 5
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds, %d steps: %+v", ran, steps, counts)
	for _, n := range failed {
		report(t, n)
	}
	if len(failed) == 0 && ran >= 500 {
		for name, n := range counts.Named() {
			if n == 0 {
				t.Errorf("no run has seen %s: the invariants about it are vacuous", name)
			}
		}
	}
}

// TestSimulationRepeats runs seeds twice: the traces are equal byte for byte.
func TestSimulationRepeats(t *testing.T) {
	for n := uint64(1); n <= 20; n++ {
		a, b := simulation.Run(n, true), simulation.Run(n, true)
		if len(a.Trace) < 20 {
			t.Fatalf("seed %d has a trace of %d lines", n, len(a.Trace))
		}
		for i := range a.Trace {
			if i >= len(b.Trace) || a.Trace[i] != b.Trace[i] {
				t.Fatalf("seed %d differs at line %d:\n%s\n%s", n, i, a.Trace[i], b.Trace[min(i, len(b.Trace)-1)])
			}
		}
		if c := simulation.Run(n, false); c.Steps != a.Steps || c.Violation != a.Violation {
			t.Fatalf("seed %d without a trace: %d steps %q, with: %d steps %q", n, c.Steps, c.Violation, a.Steps, a.Violation)
		}
	}
}
