package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// prefix names the one stream of a run.
const prefix = "orders"

// start is the instant at which every run begins.
const start protocol.Instant = 1_800_000_000_000

// maxSteps bounds a run: one that takes more is a loop, and loops are reported like deadlocks.
const maxSteps = 400_000

// Result is how a run ended.
type Result struct {
	Seed      uint64
	Steps     int
	Elapsed   time.Duration // virtual
	Violation string        // "" when every invariant held
	Trace     []string      // only with tracing
	Scenario  string
	Counts    Counts
}

// Counts says what a run has seen, so that a test can tell that nothing was vacuous.
type Counts struct {
	Commits, Conflicts, Recoveries, Expiries, Handovers       int
	Reshardings, RolledBack, Adopted, Repairs                 int
	Appended, Acked, Redelivered, Refused, Resolved, Takeover int
}

// Named lists the counts by name.
func (c Counts) Named() map[string]int {
	return map[string]int{
		"commits": c.Commits, "conflicts": c.Conflicts, "recoveries": c.Recoveries, "expiries": c.Expiries, "handovers": c.Handovers,
		"reshardings": c.Reshardings, "rollbacks": c.RolledBack, "adoptions": c.Adopted, "repairs": c.Repairs, "appends": c.Appended,
		"acknowledgements": c.Acked, "redeliveries": c.Redelivered, "refused appends": c.Refused, "pauses ended by producers": c.Resolved,
		"takeovers": c.Takeover,
	}
}

// Add adds the counts of another run.
func (c *Counts) Add(o Counts) {
	c.Commits += o.Commits
	c.Conflicts += o.Conflicts
	c.Recoveries += o.Recoveries
	c.Expiries += o.Expiries
	c.Handovers += o.Handovers
	c.Reshardings += o.Reshardings
	c.RolledBack += o.RolledBack
	c.Adopted += o.Adopted
	c.Repairs += o.Repairs
	c.Appended += o.Appended
	c.Acked += o.Acked
	c.Redelivered += o.Redelivered
	c.Refused += o.Refused
	c.Resolved += o.Resolved
	c.Takeover += o.Takeover
}

// sim is one run.
type sim struct {
	seed uint64
	rng  *rand.Rand
	now  protocol.Instant // true time
	q    queue
	sc   scenario

	redis     *redismodel.Redis
	replicas  []*replica
	processes []*process
	refs      []*reference
	producers []*producer
	oracle    *oracle

	nemesis   nemesis
	steps     int
	ids       int64 // random ids and incarnations given out
	calm      bool  // the faults are over
	betrayed  bool  // a confirmation came from a replica that was not the one promoted later
	violation string

	tracing bool
	trace   []string
	counts  Counts
}

// Run runs one seed to its end or to the first violation.
func Run(seed uint64, tracing bool) (res Result) {
	s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x5eed)), now: start, tracing: tracing}
	defer func() {
		if p := recover(); p != nil {
			s.fail("panic: %v", p)
			if tracing {
				s.trace = append(s.trace, stack())
			}
		}
		res = Result{
			Seed: seed, Steps: s.steps, Elapsed: s.now.Sub(start), Violation: s.violation, Trace: s.trace,
			Scenario: fmt.Sprintf("%v %+v", s.sc.kind, s.sc), Counts: s.counts,
		}
	}()
	s.setUp()
	for s.violation == "" {
		e, ok := s.q.pop()
		if !ok {
			s.fail("I13: nothing is left to happen")
			break
		}
		s.now = max(s.now, e.at)
		s.redis.Now = s.now
		s.steps++
		if s.steps > maxSteps {
			s.fail("I13: %d steps and no end", s.steps)
			break
		}
		e.run()
		if s.violation == "" {
			s.oracle.check()
		}
		if s.oracle.done {
			break
		}
	}
	return res
}

// after schedules run in d milliseconds.
func (s *sim) after(d protocol.Instant, what string, run func()) {
	s.q.push(s.now+max(d, 0), what, run)
}

// between draws lo..hi milliseconds.
func (s *sim) between(lo, hi int64) protocol.Instant {
	return protocol.Instant(lo + s.rng.Int64N(hi-lo+1))
}

// chance draws a fault; none happen once the run is calm.
func (s *sim) chance(p float64) bool {
	if p <= 0 {
		return false
	}
	return s.rng.Float64() < p && !s.calm
}

// id gives a name that was not given out before.
func (s *sim) id(kind string) string {
	s.ids++
	return fmt.Sprintf("%s%d", kind, s.ids)
}

// fail ends the run with a violation; the first one counts.
func (s *sim) fail(format string, args ...any) {
	if s.violation == "" {
		s.violation = fmt.Sprintf(format, args...)
		s.log("VIOLATION %s", s.violation)
	}
}

// log adds a line to the trace.
func (s *sim) log(format string, args ...any) {
	if s.tracing {
		s.trace = append(s.trace, fmt.Sprintf("%9.3f %s", float64(s.now-start)/1000, fmt.Sprintf(format, args...)))
	}
}

// Tail gives the last n lines of the trace.
func (r Result) Tail(n int) string {
	return strings.Join(r.Trace[max(0, len(r.Trace)-n):], "\n")
}
