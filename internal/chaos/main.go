// Command chaos changes the shard count of a stream again and again, under load, while processes are
// killed and frozen at random: coordinators, producers, consumers. Every choice follows from one seed,
// which is printed. Nothing may be lost, every change has to end, the order of each key has to be kept
// where it is promised, and only what was pending at a kill may be handled twice.
//
// The last line is "N passed, N failed", counted in changes; the exit status says it too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "worker" {
		work := map[victim]func() error{producers: produce, consumers: consume}[victim(os.Args[2])]
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "chaos worker:", err)
			os.Exit(1)
		}
		return
	}
	var n, rate int
	var seed uint64
	flag.IntVar(&n, "n", 200, "`number` of changes")
	flag.Uint64Var(&seed, "seed", 0, "`seed` of all choices; 0: a random one")
	flag.IntVar(&rate, "rate", 1200, "`entries` a second")
	flag.Parse()
	if seed == 0 {
		seed = rand.Uint64N(1_000_000_000) + 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	good, err := run(ctx, n, rate, seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if !good || err != nil {
		os.Exit(1)
	}
}

// run makes the changes and judges. It gives back whether every promise was kept.
func run(ctx context.Context, n, rate int, seed uint64) (good bool, err error) {
	fmt.Printf("chaos: %d changes, seed %d (make chaos N=%d SEED=%d makes the same choices)\n", n, seed, n, seed)
	w, err := build(ctx, rate)
	if err != nil {
		return false, err
	}
	defer func() {
		w.close()
		if good {
			os.RemoveAll(w.dir)
		} else {
			fmt.Println("logs are in", w.dir)
		}
	}()
	if err := w.start(ctx, 4); err != nil {
		return false, err
	}
	if err := w.flows(ctx); err != nil {
		return false, err
	}
	begin := time.Now()
	var outcomes []outcome
	for i := range n {
		o := w.change(ctx, planOf(seed, i+1))
		if ctx.Err() != nil {
			return false, errors.New("interrupted")
		}
		outcomes = append(outcomes, o)
		if o.problem != nil {
			fmt.Printf("FAILED at change %d, seed %d (%d %s): %v\n", o.plan.number, seed, o.from, o.plan, o.problem)
		}
		if o.unfinished {
			break
		}
		if (i+1)%10 == 0 || i+1 == n {
			p := w.journal.Progress()
			fmt.Printf("%4d/%d  %5.1f s  %s  landed %d, handled %v\n", i+1, n, time.Since(begin).Seconds(), ends(outcomes), p.Landed, p.Handled)
		}
	}
	if err := w.finish(ctx); err != nil {
		if ctx.Err() != nil {
			return false, errors.New("interrupted")
		}
		w.journal.Fail(time.Now(), "%v", err)
	}
	return w.report(n, seed, outcomes, begin), nil
}

// ends counts how changes have ended.
func ends(outcomes []outcome) string {
	count := map[protocol.Phase]int{}
	for _, o := range outcomes {
		count[o.phase]++
	}
	return fmt.Sprintf("completed %d, rolled back %d, failed by a timeout %d", count[protocol.PhaseCompleted], count[protocol.PhaseRolledBack], count[protocol.PhaseFailed])
}

// finish stops the producers, waits until everything that landed was handled, and stops the
// consumers.
func (w *world) finish(ctx context.Context) error {
	var all error
	for _, k := range w.workersOf(producers) {
		all = errors.Join(all, k.stop(40*time.Second))
	}
	least, since := -1, time.Now()
	for {
		missing := w.journal.Progress().Missing
		if missing == 0 {
			break
		}
		if least < 0 || missing < least {
			least, since = missing, time.Now()
		}
		if time.Since(since) > flowWithin {
			all = errors.Join(all, fmt.Errorf("%d entries were not handled for %s", missing, flowWithin))
			break
		}
		if !pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	for _, k := range w.workersOf(consumers) {
		all = errors.Join(all, k.stop(40*time.Second))
	}
	return all
}

// report prints what it all came to; the closing line counts changes.
func (w *world) report(n int, seed uint64, outcomes []outcome, begin time.Time) bool {
	w.endStalls()
	w.stalls.Wait()
	v := w.journal.Judge()
	kills := map[string]int{}
	bad := map[int]bool{}
	for i, o := range outcomes {
		if o.problem != nil {
			bad[i] = true
		}
		for _, f := range o.plan.faults {
			what := "killed"
			if f.freeze {
				what = "frozen"
			}
			kills[string(f.victim)+" "+what]++
		}
	}
	forced := 0
	for _, r := range w.records {
		if r.FromShardCount == r.ToShardCount {
			forced++
		}
	}
	fmt.Printf("\n%d changes in %.1f s (%s), %d repairs\n", len(outcomes), time.Since(begin).Seconds(), ends(outcomes), forced)
	var faults []string
	for _, kind := range []victim{coordinators, producers, consumers} {
		for _, what := range []string{"killed", "frozen"} {
			faults = append(faults, fmt.Sprintf("%ss %s %d×", kind, what, kills[string(kind)+" "+what]))
		}
	}
	fmt.Println(strings.Join(faults, ", "))
	fmt.Printf("attempted %d, landed %d, no answer %d (of them had landed: %d)\nhandled %d by %d groups, lost %d, again %d, out of order across a change without a promise %d, ownerships cut off %d\nthe machine was too busy to go on for 150 ms %d times\n",
		v.Attempted, v.Landed, v.Unknown, v.Recovered, v.Handled, len(groupNames), v.Lost, v.Duplicates, v.Inversions, v.Cuts, w.stalled)
	const most = 40
	for i, p := range v.Problems {
		at := changeAt(outcomes, p.At)
		bad[at] = true
		if i < most {
			fmt.Printf("FAILED at change %d (%s), seed %d: %s: %s\n", outcomes[at].plan.number, outcomes[at].plan, seed, p.At.Format("15:04:05.000000"), p.Text)
		}
	}
	if len(v.Problems) > most {
		fmt.Printf("… and %d more\n", len(v.Problems)-most)
	}
	if left := n - len(outcomes); left > 0 {
		fmt.Printf("%d changes were not made: the one before them did not end\n", left)
	}
	if v.Landed == 0 {
		fmt.Println("FAILED: nothing was appended")
		bad[0] = true
	}
	fmt.Printf("%d passed, %d failed\n", len(outcomes)-len(bad), len(bad))
	return len(bad) == 0
}

// changeAt is the index of the change that ran at an instant, or the nearest one before it.
func changeAt(outcomes []outcome, at time.Time) int {
	found := 0
	for i, o := range outcomes {
		if !o.began.After(at) {
			found = i
		}
	}
	return found
}
