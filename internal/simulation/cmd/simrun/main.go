// Command simrun runs seeds of the simulation until one violates an invariant. The test of the
// seeded bugs builds it once for each bug, with a build overlay.
//
//	simrun -from 1 -to 2000
//
// It prints "seed N: violation" and exits with 1, or the number of seeds and steps and exits
// with 0.
package main

import (
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/redisstream/terraform-provider-redisstream/internal/simulation"
)

func main() {
	from := flag.Uint64("from", 1, "first seed")
	to := flag.Uint64("to", 2000, "last seed")
	workers := flag.Int("workers", 1, "seeds that run at once")
	flag.Parse()
	os.Exit(run(*from, *to, *workers))
}

// run gives the exit code. The lowest seed found is the one that is printed, whatever the
// number of workers.
func run(from, to uint64, workers int) int {
	var mu sync.Mutex
	next, steps := from, 0
	var found *simulation.Result
	var wg sync.WaitGroup
	for range max(workers, 1) {
		wg.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				stop := seed > to || found != nil && seed > found.Seed
				mu.Unlock()
				if stop {
					return
				}
				res := simulation.Run(seed, false)
				mu.Lock()
				steps += res.Steps
				if res.Violation != "" && (found == nil || seed < found.Seed) {
					found = &res
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if found != nil {
		fmt.Printf("seed %d: %s\n", found.Seed, found.Violation)
		return 1
	}
	fmt.Printf("%d seeds, %d steps: no violation\n", to-from+1, steps)
	return 0
}
