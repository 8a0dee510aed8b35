package simulation

import (
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/membership"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// process is one process of the SDK's consumer: a membership machine and a reader for each shard
// that it owns. A member id may have several, one after the other or at once.
type process struct {
	s       *sim
	name    string
	member  string
	group   string
	machine *membership.Machine

	started     protocol.Instant
	drift       int64 // of its clock, in 1/1000
	alive       bool
	frozenUntil protocol.Instant
	cutOff      protocol.Instant // until then nothing goes to or comes from the coordinator
	replica     int
	readers     map[int]*reader
	inFlight    *command // at the replica that holds the call
	wake        int64    // number of the newest wake-up
	leaving     bool
	duplicate   bool
	lastSession string // what it keeps in its lock file (M9)
}

func newProcess(s *sim, member, groupName, replaces string) *process {
	p := &process{
		s: s, name: s.id(member + "."), member: member, group: groupName, alive: true, started: s.now,
		drift: s.rng.Int64N(11) - 5, readers: map[int]*reader{}, replica: s.rng.IntN(len(s.replicas)),
	}
	p.machine = membership.New(membership.Config{
		MemberID: member, MaxConcurrency: 1, Replaces: replaces,
		NewIncarnation: func() string { return s.id("i") },
		Lease:          time.Duration(s.sc.spec.MemberLeaseMs) * time.Millisecond,
		Interval:       time.Duration(s.sc.spec.HeartbeatIntervalMs) * time.Millisecond,
	})
	s.log("%s starts in %s, replaces %q", p.name, groupName, replaces)
	s.processes = append(s.processes, p)
	p.after(s.between(0, 2000), "join", func() { p.step() })
	return p
}

// clock is the time since the start of the process, as it measures it itself.
func (p *process) clock() time.Duration {
	ms := int64(p.s.now - p.started)
	return time.Duration(ms+ms*p.drift/1000) * time.Millisecond
}

// after schedules run in the process; a frozen one runs it when it continues.
func (p *process) after(d protocol.Instant, what string, run func()) {
	var step func()
	step = func() {
		switch {
		case !p.alive:
		case p.frozenUntil > p.s.now:
			p.s.q.push(p.frozenUntil, what, step)
		default:
			run()
		}
	}
	p.s.after(d, what, step)
}

// leased says whether the process may still use its shards, by its own clock (M3).
func (p *process) leased() bool { return p.alive && p.clock() < p.machine.LeaseEnd() }

// mayRead says whether the process may read the shard: told so, its lease unexpired, not
// released (I1).
func (p *process) mayRead(shard int) bool {
	if !p.leased() {
		return false
	}
	rd := p.readers[shard]
	return rd != nil && !rd.revoked
}

func (p *process) step(inputs ...membership.Input) {
	for _, action := range p.machine.Step(p.clock(), inputs...) {
		switch a := action.(type) {
		case membership.Send:
			p.send(a)
		case membership.Lease:
			p.s.oracle.leased(p)
		case membership.Own:
			p.s.log("%s owns %d under %d", p.name, a.Shard, a.Epoch)
			p.readers[a.Shard] = newReader(p, a.Shard, a.Epoch)
			p.s.oracle.leased(p)
		case membership.Revoke:
			p.s.log("%s is told to let %d go", p.name, a.Shard)
			if rd := p.readers[a.Shard]; rd != nil && rd.epoch == a.Epoch {
				rd.revoke()
			}
		case membership.Drop:
			p.s.log("%s drops %d: %s", p.name, a.Shard, a.Cause)
			if rd := p.readers[a.Shard]; rd != nil && rd.epoch == a.Epoch {
				rd.drop()
			}
		case membership.Session:
			p.lastSession = a.Incarnation
		case membership.Stopped:
			p.s.log("%s stops: %v", p.name, a.Err)
			p.alive = false
			p.s.stopped(p, a.Err)
		}
	}
	if !p.alive {
		return
	}
	p.wake++
	number := p.wake
	if at := p.machine.Wake(); at != membership.Never {
		d := protocol.Instant((at - p.clock()).Milliseconds())
		p.after(max(d, 0)+1, "wake", func() {
			if p.wake == number {
				p.step()
			}
		})
	}
}

// send makes a call; the one before it is given up.
func (p *process) send(a membership.Send) {
	req := a.Request
	if c := p.inFlight; c != nil {
		p.inFlight = nil
		p.s.deliver("hang up", func() { c.gone = true })
	}
	r := p.s.pickReplica(&p.replica)
	sent := p.s.now
	p.s.log("%s calls %s: e%d mv%d owned %v draining %d", p.name, r, req.MemberEpoch, req.MetadataVersion, protocol.Indexes(req.OwnedShards), len(req.RevokingShards))
	arrived := p.s.oracle.asked(p.group)
	p.s.deliver(p.name+" call", func() {
		if p.cutOff > p.s.now && p.s.now%2 == 0 { // else only the answer is lost
			return
		}
		if !r.up {
			p.after(p.s.hop(), "refused", func() { p.step(membership.Failed{Call: a.Call}) })
			return
		}
		copied := req
		var c *command
		c = r.heartbeat(p.group, &copied, func(resp protocol.HeartbeatResponse) {
			p.s.oracle.answered(p.group, &copied, resp, arrived)
			p.s.deliver(p.name+" answer", func() {
				if p.cutOff > p.s.now {
					return
				}
				p.after(0, "answer", func() {
					if p.inFlight == c {
						p.inFlight = nil
					}
					p.s.log("%s hears %s %s ge%d mv%d assigned %v (call of %d ms ago)", p.name, resp.Status, resp.Reason, resp.GroupEpoch, resp.MetadataVersion, protocol.Indexes(resp.Assignment.AssignedShards), p.s.now-sent)
					p.step(membership.Answered{Call: a.Call, Response: resp})
				})
			})
		})
		p.inFlight = c
	})
}

func (p *process) stop(static bool) {
	p.after(0, "stop", func() { p.step(membership.Stop{Static: static}) })
}

func (p *process) kill() {
	p.s.log("%s is killed", p.name)
	p.alive = false
	p.readers = map[int]*reader{}
}

func (p *process) freeze(d protocol.Instant) {
	p.s.log("%s frozen for %d ms", p.name, d)
	p.frozenUntil = p.s.now + d
}

// shards lists the shards with a reader, ascending.
func (p *process) shards() []int {
	out := make([]int, 0, len(p.readers))
	for i := range p.readers {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// pickReplica keeps to a replica while it is up, else takes another.
func (s *sim) pickReplica(current *int) *replica {
	if !s.replicas[*current].up || s.rng.IntN(8) == 0 {
		*current = s.rng.IntN(len(s.replicas))
	}
	return s.replicas[*current]
}
