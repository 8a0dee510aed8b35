package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// TestHolderWakesUpTooLate: the replica that does a change's work is stopped with SIGSTOP right
// before it sends a write, in the middle of a pipeline too, for three lives of its lock. Another one
// takes over and ends the change. Woken, the first one sends what it had in hand: every write of it
// is refused and counted, and Redis holds afterwards, byte for byte, what it held before.
func TestHolderWakesUpTooLate(t *testing.T) {
	t.Parallel()
	c := change{protocol.StrategyQuiesce, 3, 2, false}
	inParallel(t, []killCase{
		{c, faultpoint.Fault{Point: "PREPARE", N: 2, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "COMMIT", N: 3, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "SEAL", N: 5, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "COMMIT", N: 4, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "DECIDE", N: 2, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "COMMIT", N: 6, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "OPEN", N: 6, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "RETIRE", N: 2, Effect: faultpoint.Stop}, goOn},
		{c, faultpoint.Fault{Point: "RELEASE", N: 2, Effect: faultpoint.Stop}, goingBack},
		{c, faultpoint.Fault{Point: "RELEASE", N: 4, Effect: faultpoint.Stop}, goingBack},
	}, killCase.String, stopAndWake)
}

func stopAndWake(t *testing.T, c killCase) {
	r := newRig(t, c.change, c.way == goingBack)
	ask := func(ctx context.Context) error {
		_, err := r.once.PutStream(ctx, rigPrefix, r.request(), client.Call{})
		return err
	}
	if c.way == goingBack {
		res := r.drainsInVain()
		r.holdTicker()
		ask = func(ctx context.Context) error {
			_, err := r.once.Rollback(ctx, rigPrefix, res.ReshardingID, protocol.RollbackRequest{RequestedBy: "e2e", Reason: "a test"}, client.Call{})
			r.releaseTicker()
			return err
		}
	}
	r.start(c.fault.String())
	t.Cleanup(func() { _ = syscall.Kill(r.proc.PID(), syscall.SIGCONT) }) // it must be able to end
	if c.way != goingBack {
		r.settled()
	}
	r.arm()
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { _ = ask(ctx) }) // answered, or not: Redis tells
	defer asking.Wait()
	defer cancel()
	r.eventually("the stop at "+c.fault.String(), func() bool { return r.stoppedAt() >= 0 })
	stopped := time.Now()

	other := r.another()
	other.start("")
	c.check(other, follow(t, other.api, rigPrefix, other.stored().ReshardingID, rigPatience))
	cancel()
	other.undisturbed(func() {
		// Three lives of the lock: the rest of them, if the other was faster.
		select {
		case <-time.After(time.Until(stopped.Add(3 * rigTickerTTL))):
		case <-t.Context().Done():
		}
		if err := syscall.Kill(r.proc.PID(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		r.eventually("the answer to what it had in hand", func() bool {
			return slices.ContainsFunc(r.commands()[r.stoppedAt()+1:], func(one command) bool { return one.point == c.fault.Point && one.n == c.fault.N })
		})
		// It knows where things are, by what it answers.
		s, err := r.api.Stream(t.Context(), rigPrefix)
		if err != nil || s.Status.ActiveReshardingID != "" {
			t.Errorf("the woken replica: %+v, %v", s.Status, err)
		}
	})
	refused := 0
	for _, one := range r.commands()[r.stoppedAt()+1:] {
		p, _ := faultpoint.Lookup(one.point)
		switch {
		case one.outcome == "AHEAD" || one.outcome == "LATE" || one.outcome == "CONFLICT":
			refused++
		case one.point == c.fault.Point && one.n == c.fault.N:
			t.Errorf("%s was answered %s", one.point, one.outcome)
		case one.outcome == "!context": // given up before it was sent
		case p.Work == faultpoint.Resharding && slices.Contains([]string{"PREPARE", "SEAL", "DECIDE", "OPEN", "RETIRE", "RELEASE", "UNDO", "PROVISION"}, one.point):
			t.Errorf("%s was not refused: %s", one.point, one.outcome)
		}
	}
	if refused == 0 {
		t.Errorf("no write was refused; sent: %v", r.commands()[r.stoppedAt():])
	}
	// What Redis has answered is seen here before the pass that it belongs to has come to its end.
	r.eventually(fmt.Sprintf("that all of %d refused writes are counted", refused), func() bool { return r.refusals() >= refused })
}

// stoppedAt is the index of the command before which the coordinator was stopped, −1 for none.
func (r *rig) stoppedAt() int {
	return slices.IndexFunc(r.commands(), func(c command) bool { return strings.HasPrefix(c.outcome, "stopped") })
}

// undisturbed: f leaves everything in Redis as it is, but for who does the periodic work.
func (r *rig) undisturbed(f func()) {
	r.t.Helper()
	ticker := regexp.MustCompile(`^` + regexp.QuoteMeta(r.tickerKey()) + ` `)
	before := takeSnapshot(r.t, r.rdb).without(ticker)
	f()
	if diff := before.differences(takeSnapshot(r.t, r.rdb).without(ticker)); len(diff) > 0 {
		r.t.Errorf("changed:\n%s", strings.Join(diff, "\n"))
	}
}

var refusalLines = regexp.MustCompile(`(?m)^redis_stream_coord_(writes_refused_total\{[^}]*\}|commit_conflicts_total) (\d+)`)

// refusals is how many refused writes the coordinator counts in its metrics.
func (r *rig) refusals() int {
	r.t.Helper()
	n := 0
	for _, m := range refusalLines.FindAllStringSubmatch(r.ask("/metrics"), -1) {
		n += snapshot{"n": m[2]}.number("n")
	}
	return n
}

// TestTwoHolders: the soft lock is deleted all the time while two replicas are there, so that both
// believe that the periodic work is theirs. The change is made once and ends as ever.
func TestTwoHolders(t *testing.T) {
	t.Parallel()
	for _, c := range []change{{protocol.StrategyQuiesce, 3, 2, false}, {protocol.StrategyOnline, 2, 3, false}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c, false)
			r.start("")
			other := r.another()
			other.start("")
			ctx, cancel := context.WithCancel(t.Context())
			var deleting sync.WaitGroup
			deleting.Go(func() {
				tick := time.NewTicker(2 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
					if err := r.rdb.Del(ctx, r.tickerKey()).Err(); err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("delete the lock: %v", err)
						return
					}
				}
			})
			res, err := r.put(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done := follow(t, other.api, rigPrefix, res.ReshardingID, rigPatience)
			cancel()
			deleting.Wait()
			killCase{change: c, way: goOn}.check(other, done)
		})
	}
}
