package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// killCase is one death, or a death and one on the way that follows it.
type killCase struct {
	change change
	fault  faultpoint.Fault
	way    way
}

// way is what is asked for after the death, or what is under way at it.
type way string

const (
	// goOn: the next coordinator ends the change by itself.
	goOn way = "continue"
	// goBack: the next one is asked for a rollback before it goes on.
	goBack way = "roll back"
	// goingBack: the death is on the way back of a change that waits for a backlog, and the next
	// coordinator ends the rollback by itself.
	goingBack way = "rolling back"
	// goingBackLate: the same for a change that shard 0 had decided when the rollback was asked for.
	goingBackLate way = "rolling back too late"
)

func (c killCase) String() string {
	return fmt.Sprintf("%s/%s/%s", c.change, c.way, c.fault)
}

// TestKillAtEveryFaultPoint: the only coordinator kills itself with SIGKILL before a command that
// it was about to send to Redis, in the middle of a pipeline too, or right behind its reply. The
// next one ends the change, or takes it back; then the state is as it was before, byte for byte,
// but for what notRestored lists. After either, publishing is open and a further change succeeds.
//
// With -faultpoints=all this is done for every occurrence of every command of each change, before it,
// and behind it where it is the last of its pipeline; else once for each point and way, and for each
// commit.
func TestKillAtEveryFaultPoint(t *testing.T) {
	t.Parallel()
	quiesce, online := protocol.StrategyQuiesce, protocol.StrategyOnline
	changes := []change{{quiesce, 3, 2, false}, {quiesce, 2, 3, false}, {quiesce, 3, 2, true}}
	if *faultpoints == "all" {
		changes = []change{{quiesce, 3, 2, true}, {quiesce, 2, 3, false}, {online, 3, 2, false}, {online, 2, 3, false}}
	}
	cases := plan(t, changes)
	died := map[string]int{}
	var mu sync.Mutex
	inParallel(t, cases, killCase.String, func(t *testing.T, c killCase) {
		if c.run(t) {
			mu.Lock()
			died[c.fault.Point]++
			mu.Unlock()
		} else {
			t.Logf("%s was not reached this time", c.fault)
		}
	})
	for _, p := range faultpoint.Points {
		if p.Work == faultpoint.Resharding && died[p.Name] == 0 {
			t.Errorf("no coordinator died at %s: %s", p.Name, p.When)
		}
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(died)) {
		t.Logf("%4d deaths at %s", died[name], name)
		total += died[name]
	}
	t.Logf("%d cases, %d deaths", len(cases), total)
}

// plan runs each change once on each way without a death, and makes cases of the commands that it
// sees.
func plan(t *testing.T, changes []change) []killCase {
	t.Helper()
	var runs []killCase
	for _, c := range changes {
		runs = append(runs, killCase{change: c, way: goOn})
		if c.strategy == protocol.StrategyQuiesce {
			runs = append(runs, killCase{change: c, way: goingBack}, killCase{change: c, way: goingBackLate})
		}
	}
	seen := make([][]faultpoint.Fault, len(runs))
	indexes := make([]int, len(runs))
	for i := range runs {
		indexes[i] = i
	}
	inParallel(t, indexes, func(i int) string { return fmt.Sprintf("reference/%s/%s", runs[i].change, runs[i].way) }, func(t *testing.T, i int) {
		seen[i] = runs[i].faults(t)
	})
	if t.Failed() {
		t.FailNow()
	}
	var cases []killCase
	covered := map[string]bool{} // point and way
	for i, run := range runs {
		ways := []way{run.way}
		if run.way == goOn {
			ways = []way{goOn, goBack}
		}
		for _, fault := range choose(seen[i]) {
			if fault.N%2 == 0 {
				slices.Reverse(ways)
			}
			for _, w := range ways {
				at := fmt.Sprint(w, fault.Point)
				if fault.Point == "COMMIT" { // each of the first change, the ways in turn
					at = fmt.Sprint("COMMIT", run.way, fault.N)
				}
				if *faultpoints != "all" && covered[at] {
					continue
				}
				covered[at] = true
				cases = append(cases, killCase{run.change, fault, w})
			}
		}
	}
	return cases
}

// choose takes the faults to try from the commands that a run sent: all of them, before and
// behind, or one of each point, somewhere in the middle. Of what time alone causes it is always
// one: how often that comes in between differs from run to run.
func choose(seen []faultpoint.Fault) []faultpoint.Fault {
	last := map[string]int{}
	for _, f := range seen {
		last[f.Point] = max(last[f.Point], f.N)
	}
	var chosen []faultpoint.Fault
	for i, f := range seen {
		p, _ := faultpoint.Lookup(f.Point)
		switch {
		case p.Work == faultpoint.Connection:
		case p.Work != faultpoint.Resharding:
			if f.N == 1 {
				chosen = append(chosen, f)
			}
		case *faultpoints == "all":
			chosen = append(chosen, f)
			// Behind a command and before the next one of the same pipeline is the same place.
			if i+1 == len(seen) || seen[i+1].Point != f.Point {
				f.Effect = faultpoint.KillAfter
				chosen = append(chosen, f)
			}
		case f.Point == "COMMIT" || f.N == last[f.Point]/2+1:
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// faults lists what the run sends when nothing happens to it.
func (c killCase) faults(t *testing.T) []faultpoint.Fault {
	t.Helper()
	c.fault = faultpoint.Fault{}
	r, died := c.play(t)
	if died {
		t.Fatal("the coordinator died without a fault")
	}
	seen := occurrences(r.commands())
	t.Logf("%d commands: %v", len(seen), seen)
	return seen
}

// run plays the case and checks how it ends. It says whether the coordinator died.
func (c killCase) run(t *testing.T) bool {
	r, died := c.play(t)
	switch {
	case !died:
		r.kill() // before a question of this test reaches the fault
		r.start("")
		c.check(r, r.stored())
	case c.way == goOn:
		r.continues()
	case c.way == goBack:
		r.rollsBack()
	default:
		r.start("")
		res := r.stored()
		// The caller repeats the request: it may not have been stored.
		if _, err := r.api.Rollback(t.Context(), rigPrefix, res.ReshardingID, protocol.RollbackRequest{RequestedBy: "e2e", Reason: "a test"}, client.Call{}); err != nil {
			var refusal *protocol.Error
			if c.way == goingBack || !errors.As(err, &refusal) || refusal.Code != protocol.CodeRollbackNotAllowed {
				t.Fatalf("the repeated rollback: %v", err)
			}
		}
		c.check(r, follow(t, r.api, rigPrefix, res.ReshardingID, rigPatience))
	}
	return died
}

// check is for a change that was not asked for anything more.
func (c killCase) check(r *rig, res protocol.Resharding) {
	r.t.Helper()
	switch {
	case c.way != goingBack && res.Phase == protocol.PhaseCompleted:
		r.isCompleted(res)
	case c.way == goingBack && res.Phase == protocol.PhaseRolledBack:
		r.isBefore(res.ReshardingID)
	default:
		r.t.Errorf("ended %s: %s", res.Phase, res.Error)
	}
}

// play brings the stream to where the case begins, and lets a coordinator with the fault go on
// from there until it dies or the change has ended.
func (c killCase) play(t *testing.T) (r *rig, died bool) {
	t.Helper()
	fault := ""
	if c.fault.N > 0 {
		fault = c.fault.String()
	}
	r = newRig(t, c.change, c.way == goingBack)
	switch c.way {
	case goOn, goBack:
		r.start(fault)
		r.settled()
		r.arm()
		return r, r.dies(func(ctx context.Context) error { _, err := r.put(ctx); return err })
	case goingBack:
		r.drainsInVain()
	case goingBackLate:
		r.start("DECIDE#2/after") // the first one meets NOSCRIPT
		r.settled()
		r.arm()
		if !r.dies(func(ctx context.Context) error { _, err := r.put(ctx); return err }) || !r.decided() {
			t.Fatal("the coordinator did not die behind the decision")
		}
	}
	if err := r.rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.holdTicker()
	r.start(fault)
	res := r.stored()
	r.arm()
	return r, r.dies(func(ctx context.Context) error {
		_, err := r.once.Rollback(ctx, rigPrefix, res.ReshardingID, protocol.RollbackRequest{RequestedBy: "e2e", Reason: "a test"}, client.Call{})
		r.releaseTicker()
		return err
	})
}
