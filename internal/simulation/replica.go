package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

const (
	effectLease  protocol.Instant = 2000
	redisTimeout protocol.Instant = 2000
	maxAttempts                   = 6
	batchMost                     = 8
)

// replica is one coordinator process: the actor of the one stream, as server/engine has it.
type replica struct {
	s    *sim
	name string

	up          bool
	life        int              // rises with every crash: what an earlier life awaited is void
	frozenUntil protocol.Instant // stopped like by SIGSTOP

	unit     *redismodel.Unit // cache; nil: to be loaded
	checked  protocol.Instant // when the newest proof that the cache is current was sent, true time
	identity string           // of the server that the cache was read from
	sampled  bool
	offset   protocol.Instant // what this replica takes Redis time to be ahead of true time
	recover  bool             // Redis lost writes: the next commit is S12
	reset    bool             // the clock of Redis stepped: all rows are set first (C5)

	seen         redismodel.Token            // highest token of the stream that was read
	seenGroups   map[string]redismodel.Token // and of its groups
	seenIdentity string                      // of the server that these were read from
	highest      map[string]group.Epochs

	queue   []*command
	working bool
	held    []*command
	pass    passRunner
}

// command is one input of the actor.
type command struct {
	what  string
	apply func(t *aggregate.Turn)
	// done runs after the commit; ok is false when the command was given up (RETRY).
	done func(ok bool)

	// of a heartbeat
	req      *protocol.HeartbeatRequest
	group    string
	resp     protocol.HeartbeatResponse
	arrived  protocol.Instant
	deadline protocol.Instant // of the hold
	final    bool             // the hold is over
	gone     bool             // the caller hung up
	answer   func(resp protocol.HeartbeatResponse)

	// of the outcome of a pass: it counts no longer than this (time of node 0)
	notAfter protocol.Instant
	expired  bool
}

func (r *replica) String() string { return r.name }

func newReplica(s *sim, name string) *replica {
	r := &replica{s: s, name: name, up: true, seenGroups: map[string]redismodel.Token{}, highest: map[string]group.Epochs{}}
	r.pass.r = r
	r.tickLater()
	return r
}

// after schedules run in this life of the replica; a frozen one runs it when it continues.
func (r *replica) after(d protocol.Instant, what string, run func()) {
	life := r.life
	var step func()
	step = func() {
		switch {
		case r.life != life:
		case r.frozenUntil > r.s.now:
			r.s.q.push(r.frozenUntil, what, step)
		default:
			run()
		}
	}
	r.s.after(d, what, step)
}

// call sends a command to the node of a shard (−1: of the coordinator's keys); then runs with ok
// false when there was no reply in time.
func (r *replica) call(what string, shard int, timeout protocol.Instant, op func(), then func(ok bool)) {
	life, settled := r.life, false
	finish := func(ok bool) {
		if !settled && r.life == life {
			settled = true
			then(ok)
		}
	}
	r.s.command(r.name+" "+what, shard, op, func() {
		r.after(0, what, func() { finish(true) })
	})
	r.after(timeout, "timeout", func() { finish(false) })
}

// now is the replica's estimate of Redis time.
func (r *replica) now() protocol.Instant { return r.s.now + r.offset }

func (r *replica) tickLater() {
	r.after(r.s.between(700, 1300), "tick", func() {
		r.tick()
		r.tickLater()
	})
}

// tick is the periodic work.
func (r *replica) tick() {
	if !r.up || len(r.queue) > 3 {
		return
	}
	r.enqueue(&command{what: "tick", apply: func(t *aggregate.Turn) {
		if t.Stream() == nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(r.unit.Groups)) {
			t.Tick(name)
		}
		t.Advance()
	}})
	r.pass.sweep()
}

// crash ends this life; restart begins another.
func (r *replica) crash() {
	r.s.log("%s crashes", r.name)
	r.life++
	r.up = false
	r.unit, r.queue, r.held, r.working = nil, nil, nil, false
	r.recover, r.reset = false, false
	r.seen, r.seenIdentity = redismodel.Token{}, ""
	r.seenGroups, r.highest = map[string]redismodel.Token{}, map[string]group.Epochs{}
	r.pass.reset()
}

func (r *replica) restart() {
	r.s.log("%s starts", r.name)
	r.up = true
	r.frozenUntil = 0
	r.tickLater()
}

func (r *replica) freeze(d protocol.Instant) {
	r.s.log("%s frozen for %d ms", r.name, d)
	r.frozenUntil = r.s.now + d
}

func (r *replica) enqueue(c *command) {
	if !r.up {
		return
	}
	r.queue = append(r.queue, c)
	r.kick()
}

func (r *replica) kick() {
	if r.working || !r.up || len(r.queue) == 0 {
		return
	}
	r.working = true
	n := min(len(r.queue), batchMost)
	batch := slices.Clone(r.queue[:n])
	r.queue = slices.Clone(r.queue[n:])
	r.attempt(batch, 0)
}

// attempt applies a batch and commits it; what was lost is loaded and applied again.
func (r *replica) attempt(batch []*command, tries int) {
	batch = slices.DeleteFunc(batch, func(c *command) bool { return c.gone })
	if tries > maxAttempts {
		r.giveUp(batch)
		return
	}
	if r.unit == nil {
		r.load(func(ok bool) {
			if !ok {
				r.giveUp(batch)
				return
			}
			r.attempt(batch, tries+1)
		})
		return
	}
	now := r.now()
	present := map[string]map[string]bool{}
	for _, c := range batch {
		if c.req != nil {
			if present[c.group] == nil {
				present[c.group] = map[string]bool{}
			}
			present[c.group][c.req.MemberID] = true
		}
	}
	unit := aggregate.Unit{Stream: r.unit.Stream, Groups: r.unit.Groups, Leases: r.unit.Leases}
	t := aggregate.Begin(unit, now, present)
	// What Redis lost and what its clock did is put right by a commit of its own, before the batch.
	recovering, resetting := r.recover && unit.Stream != nil, r.reset && unit.Stream != nil
	mending := recovering || resetting
	switch {
	case recovering:
		t.Recover(r.identity, r.highest)
	case resetting:
		t.ResetLeases()
	}
	var notAfter protocol.Instant
	for _, c := range batch {
		if mending {
			break
		}
		if c.expired {
			continue
		}
		if c.req != nil {
			c.resp = t.Heartbeat(c.group, c.req.MemberID, c.req)
			continue
		}
		c.apply(t)
		if c.notAfter != 0 && (notAfter == 0 || c.notAfter < notAfter) {
			notAfter = c.notAfter
		}
	}
	out := t.Finish()
	c, bases := r.commitOf(out, now, notAfter, recovering)
	var res redismodel.Result
	sent := r.s.now
	r.call("commit", -1, redisTimeout, func() { res = r.s.oracle.commit(r, c, bases, recovering) }, func(ok bool) {
		if !ok { // nobody knows whether it was made
			r.s.log("%s commit without reply", r.name)
			r.unit = nil
			r.giveUp(batch)
			return
		}
		r.identity = res.Identity
		switch res.Outcome {
		case redismodel.Committed:
			r.checked = sent
			if mending {
				r.recover, r.reset = r.recover && !recovering, r.reset && recovering
				r.store(c, out, res)
				r.tell(out)
				r.attempt(batch, tries+1)
				return
			}
			r.store(c, out, res)
			r.answer(batch)
			r.tell(out)
			r.pass.plan()
			r.idle()
		case redismodel.Conflict:
			r.s.counts.Conflicts++
			r.unit = nil
			r.attempt(batch, tries+1)
		case redismodel.OtherServer:
			r.s.log("%s meets another server: %s", r.name, res.Identity)
			r.unit = nil
			r.attempt(batch, tries+1)
		case redismodel.RowsLive:
			r.learnRows(res)
			r.attempt(batch, tries+1)
		case redismodel.OtherClock:
			r.sample(c.Tolerance, func(ok bool) {
				if !ok {
					r.giveUp(batch)
					return
				}
				r.attempt(batch, tries+1)
			})
		case redismodel.TooLate:
			for _, c := range batch {
				c.expired = c.expired || c.notAfter != 0
			}
			r.attempt(batch, tries+1)
		}
	})
}

// commitOf makes the commit of an outcome; bases are the states that it was computed from.
func (r *replica) commitOf(out aggregate.Outcome, now, notAfter protocol.Instant, recovering bool) (redismodel.Commit, bases) {
	c := redismodel.Commit{Nonce: r.s.id("n"), NotAfter: notAfter}
	b := bases{stream: r.unit.Stream, groups: map[string]*group.State{}}
	if r.unit.Stream != nil {
		c.Identity = r.identity
	}
	if out.StreamTouched {
		c.CheckStream, c.Expect, c.Next, c.Delete, c.MinRevision = true, r.unit.StreamToken, out.Stream, out.StreamDeleted, out.MinRevision
	}
	for _, name := range slices.Sorted(maps.Keys(out.Groups)) {
		g := out.Groups[name]
		b.groups[name] = r.unit.Groups[name]
		w := redismodel.GroupCommit{
			Name: name, Expect: r.unit.GroupTokens[name], Next: g.Next, Delete: g.Deleted, Rows: g.Rows, ResetRows: g.ResetRows,
		}
		switch {
		case g.Next != nil:
			w.Lease = g.Next.Config().MemberLease
		case r.unit.Groups[name] != nil:
			w.Lease = r.unit.Groups[name].Config().MemberLease
		}
		base := r.unit.Groups[name]
		silent := g.Next != nil && base != nil && base.RecoverUntil != 0 // the silence may be over by it
		if (len(g.Rows.Check) > 0 || recovering || silent) && w.Lease != 0 {
			c.Estimate, c.Tolerance = now, protocol.LeaseMargin(w.Lease)/2
		}
		c.Groups = append(c.Groups, w)
	}
	return c, b
}

// load reads the unit and notices when Redis has lost writes (S12).
func (r *replica) load(then func(ok bool)) {
	var u *redismodel.Unit
	var at protocol.Instant
	var identity string
	sent := r.s.now
	r.call("load", -1, redisTimeout, func() { u, at, identity = r.s.redis.Load() }, func(ok bool) {
		if !ok {
			then(false)
			return
		}
		r.identity, r.checked = identity, sent
		if !r.sampled {
			r.offset, r.sampled = at-r.s.now, true
		}
		r.unit = u
		if u.Stream == nil {
			then(true)
			return
		}
		stored := u.Stream.ServerIdentity
		if stored != r.seenIdentity { // recovered by somebody else, or never seen
			r.seen, r.seenIdentity = redismodel.Token{}, stored
			r.seenGroups = map[string]redismodel.Token{}
		}
		lost := stored != identity || wentBack(r.seen, u.StreamToken)
		for _, name := range slices.Sorted(maps.Keys(u.GroupTokens)) {
			lost = lost || wentBack(r.seenGroups[name], u.GroupTokens[name])
		}
		if lost && !r.recover {
			r.s.log("%s: redis lost writes", r.name)
			// The clock that counts is that of the server that is there now. All rows begin anew, so
			// nothing ends because of it.
			r.offset = at - r.s.now
		}
		r.recover = lost
		r.remember()
		then(true)
	})
}

// wentBack says whether a token that was read before proves that a later commit is lost.
func wentBack(seen, now redismodel.Token) bool {
	return now.Revision < seen.Revision || now.Revision == seen.Revision && seen.Nonce != "" && now.Nonce != seen.Nonce
}

// remember keeps the highest of everything that was read.
func (r *replica) remember() {
	u := r.unit
	if u.StreamToken.Revision > r.seen.Revision || r.seen.Nonce == "" {
		r.seen = u.StreamToken
	}
	for _, name := range slices.Sorted(maps.Keys(u.Groups)) {
		g := u.Groups[name]
		if tok := u.GroupTokens[name]; tok.Revision > r.seenGroups[name].Revision || r.seenGroups[name].Nonce == "" {
			r.seenGroups[name] = tok
		}
		h := r.highest[name]
		r.highest[name] = group.Epochs{
			GroupEpoch: max(h.GroupEpoch, g.GroupEpoch), MetadataVersion: max(h.MetadataVersion, g.MetadataVersion),
			OwnershipCounter: max(h.OwnershipCounter, g.OwnershipCounter),
		}
	}
}

// learnRows takes the true ends of rows that refused a commit.
func (r *replica) learnRows(res redismodel.Result) {
	for _, name := range slices.Sorted(maps.Keys(res.Ends)) {
		rows := maps.Clone(r.unit.Leases[name])
		if rows == nil {
			rows = group.Leases{}
		}
		for row, end := range res.Ends[name] {
			if end == 0 {
				delete(rows, row)
			} else {
				rows[row] = end
			}
		}
		leases := maps.Clone(r.unit.Leases)
		leases[name] = rows
		u := *r.unit
		u.Leases = leases
		r.unit = &u
	}
}

// sample is the second half of C5: was the call slow, or did the clock of Redis step?
func (r *replica) sample(tolerance time.Duration, then func(ok bool)) {
	sent := r.s.now
	var at protocol.Instant
	r.call("time", -1, redisTimeout, func() { at = r.s.redis.TimeOf(-1) }, func(ok bool) {
		if !ok {
			then(false)
			return
		}
		trip := r.s.now - sent
		if off := at.Sub(r.now()).Abs(); off > tolerance+trip.Sub(0) {
			r.s.log("%s: the clock of redis stepped by %v", r.name, at.Sub(r.now()))
			r.offset = at - r.s.now
			r.reset = true
		}
		then(true)
	})
}

// giveUp answers RETRY.
func (r *replica) giveUp(batch []*command) {
	for _, c := range batch {
		r.finish(c, false)
	}
	r.idle()
}

func (r *replica) idle() {
	r.working = false
	r.kick()
}

func (r *replica) finish(c *command, ok bool) {
	switch {
	case c.req != nil && !ok:
		c.answer(aggregate.Retry(c.req.MemberID, c.req))
	case c.req != nil:
		c.answer(c.resp)
	case c.done != nil:
		c.done(ok && !c.expired)
	}
}

// store takes a commit into the cache.
func (r *replica) store(c redismodel.Commit, out aggregate.Outcome, res redismodel.Result) {
	u := *r.unit
	if out.Stream != nil {
		u.Stream, u.StreamToken = out.Stream, res.StreamToken
	}
	if out.StreamDeleted {
		u.Stream, u.StreamToken = nil, redismodel.Token{}
	}
	if len(c.Groups) > 0 {
		u.Groups, u.GroupTokens, u.Leases = maps.Clone(u.Groups), maps.Clone(u.GroupTokens), maps.Clone(u.Leases)
		if u.Groups == nil {
			u.Groups, u.GroupTokens, u.Leases = map[string]*group.State{}, map[string]redismodel.Token{}, map[string]group.Leases{}
		}
	}
	for _, g := range c.Groups {
		if g.Delete {
			delete(u.Groups, g.Name)
			delete(u.GroupTokens, g.Name)
			delete(u.Leases, g.Name)
			continue
		}
		if g.Next != nil {
			u.Groups[g.Name], u.GroupTokens[g.Name] = g.Next, res.GroupTokens[g.Name]
		}
		rows := maps.Clone(u.Leases[g.Name])
		if rows == nil {
			rows = group.Leases{}
		}
		for _, row := range g.Rows.Drop {
			delete(rows, row)
		}
		for _, row := range g.Rows.Renew {
			if end := res.Time.Add(g.Lease); g.ResetRows || rows[row] < end {
				rows[row] = end
			}
		}
		u.Leases[g.Name] = rows
	}
	r.unit = &u
	if u.Stream != nil && r.seenIdentity != u.Stream.ServerIdentity {
		r.seen, r.seenIdentity, r.seenGroups = redismodel.Token{}, u.Stream.ServerIdentity, map[string]redismodel.Token{}
	}
	r.remember()
}

// answer tells everybody in the batch what was stored, or holds the request.
func (r *replica) answer(batch []*command) {
	for _, c := range batch {
		if c.req != nil && r.holds(c) {
			continue
		}
		r.finish(c, true)
	}
}

// tell wakes what waits for a change, here and at the other replicas.
func (r *replica) tell(out aggregate.Outcome) {
	r.wake()
	if !out.Writes() {
		return
	}
	for _, other := range r.s.replicas {
		if other != r {
			r.s.deliver("notice", func() { other.noticed() })
		}
	}
}

// holds keeps a settled heartbeat until its answer would change (4.8).
func (r *replica) holds(c *command) bool {
	if c.final || c.req.MaxWaitMs <= 0 || !c.resp.Status.ExtendsLease() {
		return false
	}
	g := r.unit.Groups[c.group]
	if g == nil || !group.Settled(g, c.req) {
		return false
	}
	wait := min(protocol.Instant(c.req.MaxWaitMs), protocol.Instant(g.Config().MaxHold().Milliseconds()))
	c.deadline = c.arrived + wait
	if c.deadline <= r.s.now {
		return false
	}
	r.held = append(r.held, c)
	r.after(c.deadline-r.s.now, "hold ends", func() {
		if i := slices.Index(r.held, c); i >= 0 {
			r.held = slices.Delete(r.held, i, i+1)
			r.again(c)
		}
	})
	return true
}

// again decides a held heartbeat anew, as a request of this moment.
func (r *replica) again(c *command) {
	if c.gone {
		return
	}
	c.final = true
	r.enqueue(c)
}

// wake ends the holds whose answers have changed.
func (r *replica) wake() {
	var still, due []*command
	for _, c := range r.held {
		g := r.unit.Groups[c.group]
		if g != nil && group.Settled(g, c.req) {
			still = append(still, c)
		} else {
			due = append(due, c)
		}
	}
	r.held = still
	for _, c := range due {
		r.again(c)
	}
}

// noticed: another replica has committed; the cache is old.
func (r *replica) noticed() {
	if !r.up || r.frozenUntil > r.s.now || r.working {
		if r.up {
			r.after(r.s.between(1, 5), "notice", func() { r.noticed() })
		}
		return
	}
	r.unit = nil
	r.working = true
	r.load(func(ok bool) {
		if ok {
			r.wake()
			r.pass.plan()
		}
		r.idle()
	})
}

// heartbeat takes a request from the network.
func (r *replica) heartbeat(name string, req *protocol.HeartbeatRequest, answer func(protocol.HeartbeatResponse)) *command {
	c := &command{what: "heartbeat", req: req, group: name, arrived: r.s.now, answer: answer}
	r.after(0, "heartbeat", func() {
		if r.up {
			r.enqueue(c)
		}
	})
	return c
}
