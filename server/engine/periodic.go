package engine

import (
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const (
	idleTick     = time.Second           // at least so often the actor looks around
	leaseRefresh = 5 * time.Second       // at least so often the holder reads all lease rows
	leastTick    = 20 * time.Millisecond // between two ticks of one group
)

// periodic is the work that time alone causes: expiry, deadlines, phases, sweeps. It is done by
// the replica that holds the stream's soft lock; two doing it at once is harmless.
type periodic struct {
	holder   bool
	lockDue  time.Time
	indexDue time.Time
	wanted   bool                 // take the lock now: there is work that should not wait
	groupDue map[string]time.Time // next tick of each group
	ticked   map[string]time.Time // last one
}

// refresh makes the group's next tick be worked out again.
func (p *periodic) refresh(name string) { delete(p.groupDue, name) }

func (p *periodic) refreshAll() { p.groupDue = nil }

// tick runs what is due. Called when the timer fires.
func (a *actor) tick() {
	now := time.Now()
	a.expireHolds(now)
	if a.cache == nil || a.missing {
		if a.load() != nil || a.missing {
			return
		}
	}
	if a.cache.recover {
		a.turn(nil) // with no command: it recovers
	}
	a.holdLock(now)
	if !a.periodic.holder || a.cache == nil {
		return
	}
	a.index(now)
	for _, name := range a.cache.unit.GroupNames() {
		if due, ok := a.periodic.groupDue[name]; ok && !due.After(now) {
			a.tickGroup(name, now)
			if a.cache == nil || a.cache.unit.Stream == nil { // failed, or deleted by another replica
				return
			}
		}
	}
	if at := stream.Next(a.cache.unit.Stream); at != 0 && at <= a.now() {
		a.turn([]*command{newCommand(func(t *aggregate.Turn) *protocol.Error { t.Advance(); return nil })})
	}
}

// holdLock takes or renews the soft lock when that is due.
func (a *actor) holdLock(now time.Time) {
	if now.Before(a.periodic.lockDue) && !a.periodic.wanted {
		return
	}
	a.periodic.wanted = false
	a.periodic.lockDue = now.Add(a.tickerRenewal())
	if r := &a.runner; r.running && now.Sub(r.started) > a.e.cfg.TickerTTL {
		a.periodic.holder = false // its pass hangs: another replica may get further
		return
	}
	ctx, cancel := a.call()
	defer cancel()
	held, err := a.e.cfg.Store.HoldTicker(ctx, a.prefix, a.e.cfg.CoordinatorID, a.e.cfg.TickerTTL)
	if err != nil {
		a.log.Debug("taking the ticker lock", zap.Error(err))
		held = false
	}
	if held && !a.periodic.holder {
		a.drop() // what this replica knows of leases may be old
		a.periodic.refreshAll()
		if a.load() != nil || a.missing {
			held = false
		}
	}
	a.periodic.holder = held
}

// index enters the stream in the index again now and then: the index can be lost by itself, and
// after a restart it is how this work finds the stream.
func (a *actor) index(now time.Time) {
	if now.Before(a.periodic.indexDue) {
		return
	}
	a.periodic.indexDue = now.Add(a.e.cfg.SweepInterval)
	ctx, cancel := a.call()
	defer cancel()
	if err := a.e.cfg.Store.Index(ctx, a.prefix); err != nil {
		a.log.Debug("entering the stream in the index", zap.Error(err))
	}
}

// tickerRenewal is how often the soft lock is taken or renewed.
func (a *actor) tickerRenewal() time.Duration { return a.e.cfg.TickerTTL / 3 }

// tickGroup reads the lease rows, since other replicas renew too, and lets the core look.
func (a *actor) tickGroup(name string, now time.Time) {
	ctx, cancel := a.call()
	rows, at, err := a.e.cfg.Store.Leases(ctx, a.prefix, name, 0)
	cancel()
	if err != nil {
		a.log.Debug("reading lease rows", zap.String("group", name), zap.Error(err))
		a.setDue(name, now.Add(idleTick))
		return
	}
	a.e.sawRedis()
	a.cache.unit.Leases[name] = rows
	if a.periodic.ticked == nil {
		a.periodic.ticked = map[string]time.Time{}
	}
	a.periodic.ticked[name] = now
	a.setDue(name, now.Add(leaseRefresh))
	if g := a.cache.unit.Groups[name]; g != nil {
		if next := group.Next(g, rows); next != 0 && next <= at {
			a.turn([]*command{newCommand(func(t *aggregate.Turn) *protocol.Error { t.Tick(name); return nil })})
		}
	}
	a.periodic.refresh(name)
}

func (a *actor) setDue(name string, at time.Time) {
	if a.periodic.groupDue == nil {
		a.periodic.groupDue = map[string]time.Time{}
	}
	a.periodic.groupDue[name] = at
}

// dueOf is when a group must be looked at: when the next row that is known ends, at a deadline,
// and now and then for rows that are missing.
func (a *actor) dueOf(name string, now time.Time) time.Time {
	if due, ok := a.periodic.groupDue[name]; ok {
		return due
	}
	last := a.periodic.ticked[name]
	due := now.Add(leaseRefresh)
	if !last.IsZero() {
		due = last.Add(leaseRefresh)
	}
	if g := a.cache.unit.Groups[name]; g != nil {
		if next := group.Next(g, a.cache.unit.Leases[name]); next != 0 {
			at := now.Add(next.Sub(a.now())).Add(time.Millisecond)
			if at.Before(due) {
				due = at
			}
		}
	}
	if least := last.Add(leastTick); due.Before(least) {
		due = least
	}
	a.setDue(name, due)
	return due
}

// schedule sets the timer to the next thing that time causes.
func (a *actor) schedule() {
	now := time.Now()
	at := now.Add(idleTick)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	sooner(a.nextHold())
	if len(a.ready) > 0 {
		at = now
	}
	if a.cache != nil && a.cache.unit.Stream != nil {
		sooner(a.periodic.lockDue)
		if a.periodic.wanted {
			at = now
		}
		if a.periodic.holder {
			for name := range a.cache.unit.Groups {
				sooner(a.dueOf(name, now))
			}
			if next := stream.Next(a.cache.unit.Stream); next != 0 {
				sooner(now.Add(max(next.Sub(a.now()), 0) + time.Millisecond))
			}
			if r := &a.runner; !r.running && r.due.After(now) { // one that has passed has had its chance
				sooner(r.due)
			}
		}
	}
	a.timer.Reset(max(time.Until(at), 0))
}
