package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// actor owns one stream in this replica: everything below is used by its goroutine alone, but
// for the channels. A command goes this way:
//
//	queue ─ gather ─▶ turn: load, apply, commit ─▶ answer ─▶ done
//	                   ▲                             │ the client has this answer already
//	                   │                             ▼
//	                   └── ready ◀── review, time ── held
type actor struct {
	e      *Engine
	prefix string
	log    *zap.Logger

	queue   chan *command
	notices chan string            // nonces of commits; "" means that some may have been missed
	missed  atomic.Bool            // notices was full: some have been missed
	passes  chan stream.PassResult // of the one pass that may be running

	cache    *cache
	memory   memory
	own      nonces // of commits made here, so that their notices are not news
	held     []*command
	ready    []*command // held commands that are due: decided at the next occasion
	periodic periodic
	runner   runner
	timer    *time.Timer
	missing  bool  // the last load found no stream
	fresh    bool  // the state was loaded since the held commands were last looked at
	unstored error // of the last commit that failed
	stepped  bool  // the clock of Redis has stepped and the leases have not begun anew yet (C5)
	heldNow  atomic.Int64
}

// cache is what the actor believes to be stored. Dropped on any doubt.
type cache struct {
	unit        aggregate.Unit
	streamToken redisstore.Token
	groupTokens map[string]redisstore.Token
	identity    string           // of the Redis server that it was read from
	checkedAt   protocol.Instant // when the stream's revision was last proven current
	recover     bool             // Redis lost writes: S12 comes before anything else
}

// memory outlives the cache: the newest of everything that this replica has read, to notice
// that Redis lost writes (S12).
type memory struct {
	stream      redisstore.Token
	streamSince protocol.Instant
	groups      map[string]seenGroup
}

type seenGroup struct {
	token  redisstore.Token
	since  protocol.Instant
	epochs group.Epochs
}

func newActor(e *Engine, prefix string) *actor {
	a := &actor{
		e: e, prefix: prefix, log: e.log.With(zap.String("stream", prefix)),
		queue: make(chan *command, commandQueue), notices: make(chan string, 64), passes: make(chan stream.PassResult, 1),
		memory: memory{groups: map[string]seenGroup{}},
	}
	a.timer = time.NewTimer(0)
	return a
}

// notice is called by the engine; it never blocks. What is in a full channel may all be news of
// this actor's own commits, so that what does not fit is noted.
func (a *actor) notice(nonce string) {
	select {
	case a.notices <- nonce:
	default:
		a.missed.Store(true)
	}
}

func (a *actor) run() {
	defer a.timer.Stop()
	for {
		select {
		case <-a.e.ctx.Done():
			a.stop()
			return
		case c := <-a.queue:
			a.guarded(func() { a.turn(a.gather(c)) })
		case nonce := <-a.notices:
			a.guarded(func() { a.heard(nonce) })
		case res := <-a.passes:
			a.guarded(func() { a.passed(res) })
		case <-a.timer.C:
			a.guarded(a.tick)
		}
		a.guarded(a.decideReady)
		a.guarded(a.startPass)
		if a.missing && a.idle() && a.e.retire(a) {
			return
		}
		a.heldNow.Store(int64(len(a.held)))
		a.timer.Reset(time.Second) // should schedule fail
		a.guarded(a.schedule)
	}
}

// guarded keeps an error of the coordinator itself with one stream from ending all others. What
// the actor believes is dropped; a turn has failed its own commands already.
func (a *actor) guarded(step func()) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("panic in an actor", zap.Any("panic", p), zap.Stack("stack"))
			a.e.metrics.panics.Inc()
			a.drop()
		}
	}()
	step()
}

func (a *actor) idle() bool {
	return len(a.held) == 0 && len(a.ready) == 0 && !a.runner.running
}

// gather takes what else is queued, up to a whole batch.
func (a *actor) gather(first *command) []*command {
	batch := []*command{first}
	for len(batch) < maxBatch {
		select {
		case c := <-a.queue:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// stop answers everything that is queued or held with a decision of this moment, gives the soft
// lock back and waits for the running pass.
func (a *actor) stop() {
	a.ready = append(a.ready, a.held...)
	a.held = nil
	a.e.mu.Lock() // after this nothing is queued: submit sees that the engine is stopping
	for len(a.queue) > 0 {
		a.ready = append(a.ready, <-a.queue)
	}
	a.e.mu.Unlock()
	for _, c := range a.ready {
		c.unchanged = nil
	}
	a.decideReady()
	if a.runner.running {
		<-a.passes // its context ended with the engine's
	}
	if a.periodic.holder {
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		defer cancel()
		if err := a.e.cfg.Store.ReleaseTicker(ctx, a.prefix, a.e.cfg.CoordinatorID); err != nil {
			a.log.Debug("giving the ticker lock back", zap.Error(err))
		}
	}
}

// now is the estimate of Redis time by which turns plan; scripts decide.
func (a *actor) now() protocol.Instant {
	if now, ok := a.e.cfg.Store.Now(a.prefix); ok {
		return now
	}
	return protocol.InstantOf(time.Now())
}

// call gives a context for one Redis call. It outlives the engine's: what is decided at the stop
// must still be committed.
func (a *actor) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(a.e.ctx), commitTimeout)
}

// load fills the cache. A stream that does not exist is loaded too: its unit has no Stream.
func (a *actor) load() *protocol.Error {
	if a.cache != nil {
		return nil
	}
	ctx, cancel := a.call()
	defer cancel()
	u, err := a.e.cfg.Store.Load(ctx, a.prefix)
	switch {
	case errors.Is(err, redisstore.ErrNotFound):
		a.e.sawRedis()
		a.missing, a.fresh = true, true
		a.cache = &cache{}
		if u != nil {
			a.cache.identity, a.cache.checkedAt = u.Identity, u.Time
		}
		return nil
	case errors.Is(err, redisstore.ErrUnreadable):
		a.e.metrics.unreadable.Inc()
		a.log.Error("stored state is unreadable: the stream is not served", zap.Error(err))
		return protocol.NewError(protocol.CodeStateUnreadable, fmt.Sprintf("the stored state of stream %q is unreadable; it is not served until it is repaired", a.prefix))
	case err != nil:
		a.log.Warn("loading the stream", zap.Error(err))
		return protocol.NewError(protocol.CodeRedisUnavailable, because("redis cannot be reached: nothing was changed", err))
	}
	a.e.sawRedis()
	a.missing, a.fresh = false, true
	a.cache = &cache{
		unit:        aggregate.Unit{Stream: u.Stream, Groups: u.Groups, Leases: u.Leases},
		streamToken: u.StreamToken, groupTokens: u.GroupTokens, identity: u.Identity, checkedAt: u.Time,
	}
	if a.cache.unit.Leases == nil {
		a.cache.unit.Leases = map[string]group.Leases{}
	}
	a.cache.recover = a.lostWrites()
	a.remember()
	a.periodic.refreshAll()
	return nil
}

// lostWrites says whether what was loaded proves that Redis lost writes (S12): another server,
// or a revision below one that was read before, or an equal one with another id.
func (a *actor) lostWrites() bool {
	behind := func(now, seen redisstore.Token) bool {
		return now.Revision < seen.Revision || now.Revision == seen.Revision && now.Nonce != seen.Nonce
	}
	s := a.cache.unit.Stream
	if s.ServerIdentity != a.cache.identity {
		return true
	}
	if a.memory.streamSince == s.CreatedAt && behind(a.cache.streamToken, a.memory.stream) {
		return true
	}
	for name, g := range a.cache.unit.Groups {
		if seen, ok := a.memory.groups[name]; ok && seen.since == g.CreatedAt && behind(a.cache.groupTokens[name], seen.token) {
			return true
		}
	}
	return false
}

// remember notes the newest of what was read or committed.
func (a *actor) remember() {
	c := a.cache
	if c.unit.Stream == nil {
		return
	}
	if a.memory.streamSince != c.unit.Stream.CreatedAt || c.streamToken.Revision >= a.memory.stream.Revision {
		a.memory.stream, a.memory.streamSince = c.streamToken, c.unit.Stream.CreatedAt
	}
	maps.DeleteFunc(a.memory.groups, func(name string, _ seenGroup) bool { return c.unit.Groups[name] == nil })
	for name, g := range c.unit.Groups {
		seen := a.memory.groups[name]
		if seen.since != g.CreatedAt {
			seen = seenGroup{since: g.CreatedAt}
		}
		if t := c.groupTokens[name]; t.Revision >= seen.token.Revision {
			seen.token = t
		}
		seen.epochs.GroupEpoch = max(seen.epochs.GroupEpoch, g.GroupEpoch)
		seen.epochs.MetadataVersion = max(seen.epochs.MetadataVersion, g.MetadataVersion)
		seen.epochs.OwnershipCounter = max(seen.epochs.OwnershipCounter, g.OwnershipCounter)
		a.memory.groups[name] = seen
	}
}

// accept takes the tokens of the present state for the newest, whatever was read of the history
// that Redis has lost. The epochs stay: they never fall.
func (m *memory) accept() {
	m.stream = redisstore.Token{}
	for name, seen := range m.groups {
		seen.token = redisstore.Token{}
		m.groups[name] = seen
	}
}

// drop forgets the cache; the next turn reads the stored state again.
func (a *actor) drop() { a.cache = nil }

// heard is told of a commit. Those of this actor are no news.
func (a *actor) heard(nonce string) {
	if missed := a.missed.Swap(false); !missed && nonce != "" && a.own.has(nonce) {
		return
	}
	a.drop()
	if len(a.held) > 0 || a.periodic.holder {
		a.reload()
	}
}

// reload loads now; decideReady looks at what the held commands make of it.
func (a *actor) reload() {
	if a.load() == nil && a.cache.recover {
		a.turn(nil) // with no command: it recovers
	}
}

const maxAttempts = 64 // of one turn; another replica wins each time

// turn applies a batch to the cached state, commits once, and answers. Nobody is answered before
// the commit (I5); a lost compare-and-set throws all answers away (C7).
func (a *actor) turn(batch []*command) {
	batch = slices.DeleteFunc(batch, func(c *command) bool { return !c.take() })
	if a.missing {
		a.drop() // no token proves that there is still no stream: it is looked at again
	}
	defer func() {
		if p := recover(); p != nil { // one stream must not end the others
			a.log.Error("panic in a turn", zap.Any("panic", p), zap.Stack("stack"))
			a.e.metrics.panics.Inc()
			a.drop()
			a.held = slices.DeleteFunc(a.held, func(c *command) bool { return slices.Contains(batch, c) })
			a.fail(batch, protocol.NewError(protocol.CodeInternal, "the coordinator hit an error of its own; it has been logged"))
		}
	}()
	for range maxAttempts {
		if err := a.load(); err != nil {
			a.fail(batch, err)
			return
		}
		if a.cache.recover && a.cache.unit.Stream != nil {
			if !a.recover() {
				a.fail(batch, protocol.NewError(protocol.CodeRedisUnavailable, "redis lost writes and the recovery could not be stored yet"))
				return
			}
			continue
		}
		if a.stepped {
			switch a.resetLeases() {
			case turnAgain:
				continue
			case turnFailed:
				a.fail(batch, protocol.NewError(protocol.CodeRedisUnavailable, "the clock of redis has stepped and the leases could not be set anew yet"))
				return
			default: // they are
			}
		}
		t := aggregate.Begin(a.cache.unit, a.now(), present(batch))
		for _, c := range batch {
			c.refused = c.apply(t)
		}
		out := t.Finish()
		switch a.commit(out, batch, t.Now()) {
		case turnStored:
			a.answer(batch)
			return
		case turnAgain:
			continue
		case turnOutdated: // replies of shards that are too old: as if they had not come
			a.answer(batch)
			return
		case turnFailed:
			a.fail(batch, protocol.NewError(protocol.CodeRedisUnavailable, because("redis did not confirm the change; whether it was stored is unknown: repeat the request", a.unstored)))
			return
		}
	}
	a.log.Warn("a turn lost the compare-and-set too often")
	a.fail(batch, protocol.NewError(protocol.CodeStateVersionConflict, "other replicas were faster each time; repeat the request"))
}

func present(batch []*command) map[string]map[string]bool {
	var p map[string]map[string]bool
	for _, c := range batch {
		if c.member == "" {
			continue
		}
		if p == nil {
			p = map[string]map[string]bool{}
		}
		if p[c.group] == nil {
			p[c.group] = map[string]bool{}
		}
		p[c.group][c.member] = true
	}
	return p
}

// answer finishes a committed batch, but for commands whose answer the client already has.
func (a *actor) answer(batch []*command) {
	now := time.Now()
	for _, c := range batch {
		if c.unchanged != nil && c.deadline.After(now) {
			same := c.unchanged(a.unit())
			if (same || c.steady) && c.hold() {
				if same {
					a.held = append(a.held, c)
				} else {
					a.ready = append(a.ready, c)
				}
				continue
			}
		}
		if c.inspect != nil {
			c.inspect(a)
		}
		c.finish(nil)
	}
}

// unit is the cached unit; empty while nothing is cached.
func (a *actor) unit() aggregate.Unit {
	if a.cache == nil {
		return aggregate.Unit{}
	}
	return a.cache.unit
}

func (a *actor) fail(batch []*command, err *protocol.Error) {
	for _, c := range batch {
		c.finish(err)
	}
}

type result int

const (
	turnStored   result = iota // or proven current
	turnAgain                  // reload, apply again
	turnOutdated               // not-after has passed: what it rested on counts no longer
	turnFailed                 // nothing is known
)

// commit stores or proves what a turn came to.
func (a *actor) commit(out aggregate.Outcome, batch []*command, now protocol.Instant) result {
	commit := a.commitOf(out, batch, now)
	if commit == nil {
		return turnStored
	}
	ctx, cancel := a.call()
	defer cancel()
	started := time.Now()
	res, err := a.e.cfg.Store.Commit(ctx, *commit)
	a.e.metrics.commit(started, out.Writes())
	var (
		rows     *redisstore.RowsError
		identity *redisstore.IdentityError
		clock    *redisstore.ClockError
	)
	switch {
	case err == nil:
		a.e.sawRedis()
		a.keepCommit(out, commit, res)
		return turnStored
	case errors.Is(err, redisstore.ErrConflict), errors.As(err, &identity):
		a.e.metrics.conflicts.Inc()
		a.drop()
		return turnAgain
	case errors.As(err, &rows):
		for name, ends := range rows.Ends {
			known := a.leases(name)
			for row, end := range ends {
				if end == 0 {
					delete(known, row)
				} else {
					known[row] = end
				}
			}
		}
		return turnAgain
	case errors.As(err, &clock):
		return a.clockDisagrees(*commit)
	case errors.Is(err, redisstore.ErrLate):
		a.e.metrics.late()
		return turnOutdated
	}
	a.log.Warn("commit", zap.Error(err))
	a.unstored = err
	a.drop()
	if out.Writes() && a.stored(commit.Nonce) {
		return turnStored
	}
	a.drop()
	return turnFailed
}

// stored looks whether a commit whose answer was lost took place.
func (a *actor) stored(nonce string) bool {
	if a.load() != nil {
		return false
	}
	if a.cache.streamToken.Nonce == nonce {
		return true
	}
	for _, t := range a.cache.groupTokens {
		if t.Nonce == nonce {
			return true
		}
	}
	return false
}

// commitOf is the commit for out, nil when there is nothing to store, prove or record.
func (a *actor) commitOf(out aggregate.Outcome, batch []*command, now protocol.Instant) *redisstore.Commit {
	c := redisstore.Commit{Prefix: a.prefix, Nonce: newNonce(), Groups: map[string]*redisstore.GroupWrite{}}
	exists := a.cache.unit.Stream != nil
	if exists {
		c.Identity = a.cache.unit.Stream.ServerIdentity
	} else if out.Stream != nil {
		c.Identity = out.Stream.ServerIdentity
	}
	for _, cmd := range batch {
		if cmd.audit != nil && cmd.refused == nil {
			c.Audit = append(c.Audit, *cmd.audit)
		}
		if cmd.notAfter != 0 && (c.NotAfter == 0 || cmd.notAfter < c.NotAfter) {
			c.NotAfter = cmd.notAfter
		}
	}
	if out.StreamTouched && (exists || out.Stream != nil) || len(c.Audit) > 0 && exists {
		c.Stream = &redisstore.StreamWrite{Expect: a.cache.streamToken, Next: out.Stream, Delete: out.StreamDeleted, MinRevision: out.MinRevision}
	}
	checks := false
	for name, g := range out.Groups {
		w := &redisstore.GroupWrite{Expect: a.cache.groupTokens[name], Create: g.Created, Next: g.Next, Delete: g.Deleted, Rows: g.Rows, ResetRows: g.ResetRows}
		if s := g.Next; s != nil {
			w.Lease = s.Config().MemberLease
			w.Forget = pruned(a.cache.unit.Groups[name], s)
		} else if s := a.cache.unit.Groups[name]; s != nil {
			w.Lease = s.Config().MemberLease
		}
		checks = checks || a.restsOnClock(name, g)
		c.Groups[name] = w
	}
	for _, cmd := range batch {
		if cmd.observation == nil {
			continue
		}
		if w := c.Groups[cmd.group]; w != nil && !w.Delete {
			if w.Observations == nil {
				w.Observations = map[string]json.RawMessage{}
			}
			w.Observations[cmd.member] = cmd.observation
		}
	}
	if checks {
		c.Estimate, c.Tolerance = now, a.tolerance(out)
	}
	if c.Stream == nil && len(c.Groups) == 0 {
		return nil
	}
	return &c
}

// pruned lists the members whose records a turn removed.
func pruned(before, after *group.State) []string {
	if before == nil {
		return nil
	}
	var ids []string
	for id := range before.Members {
		if after.Members[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// shortestMargin is δ of the group with the shortest lease, 0 without groups.
func (a *actor) shortestMargin() time.Duration {
	least := time.Duration(0)
	for _, g := range a.cache.unit.Groups {
		if d := g.Config().Margin(); least == 0 || d < least {
			least = d
		}
	}
	return least
}

// restsOnClock says whether the commit of a group would be wrong by a wrong estimate of Redis
// time: it ends something with a lease row, or the silence after lost writes may be over by it.
func (a *actor) restsOnClock(name string, g aggregate.GroupOutcome) bool {
	if len(g.Rows.Check) > 0 {
		return true
	}
	s := a.cache.unit.Groups[name]
	return g.Next != nil && s != nil && s.RecoverUntil != 0
}

// tolerance is δ/2 of the shortest lease whose end the commit rests on (C5, T2).
func (a *actor) tolerance(out aggregate.Outcome) time.Duration {
	least := time.Duration(0)
	for name, g := range out.Groups {
		s := g.Next
		if s == nil {
			s = a.cache.unit.Groups[name]
		}
		if s == nil || !a.restsOnClock(name, g) {
			continue
		}
		if d := s.Config().Margin() / 2; least == 0 || d < least {
			least = d
		}
	}
	return least
}

// keepCommit caches what a successful commit stored.
func (a *actor) keepCommit(out aggregate.Outcome, commit *redisstore.Commit, res redisstore.CommitResult) {
	c := a.cache
	if commit.Stream != nil { // a commit of groups alone proves nothing of the stream
		c.checkedAt = res.Time
	}
	if out.StreamDeleted {
		a.log.Info("stream deleted")
		a.own.add(commit.Nonce)
		a.cache = &cache{identity: c.identity, checkedAt: c.checkedAt}
		a.missing = true
		a.review("")
		return
	}
	if out.Stream != nil {
		a.missing = false
		a.logPhase(c.unit.Stream, out.Stream)
		c.unit.Stream, c.streamToken = out.Stream, res.StreamToken
	}
	if out.Writes() {
		a.own.add(commit.Nonce)
		a.runner.changed()
	}
	groups, tokens := c.unit.Groups, c.groupTokens
	if groups == nil {
		groups, tokens = map[string]*group.State{}, map[string]redisstore.Token{}
		c.unit.Leases = map[string]group.Leases{}
	}
	for name, g := range out.Groups {
		switch {
		case g.Deleted:
			delete(groups, name)
			delete(tokens, name)
			delete(c.unit.Leases, name)
			delete(a.memory.groups, name)
			continue
		case g.Next != nil:
			a.logGroup(groups[name], g.Next)
			groups[name], tokens[name] = g.Next, res.GroupTokens[name]
		}
		known := a.leases(name)
		lease := groups[name].Config().MemberLease
		for _, row := range g.Rows.Renew {
			known[row] = res.Time.Add(lease)
		}
		for _, row := range g.Rows.Drop {
			delete(known, row)
		}
		if g.Next != nil {
			a.periodic.refresh(name)
		}
	}
	c.unit.Groups, c.groupTokens = groups, tokens
	a.remember()
	if out.Stream != nil {
		a.review("")
		return
	}
	for name, g := range out.Groups {
		if g.Next != nil {
			a.review(name)
		}
	}
}

// leases is what is known of the lease rows of a group; never nil.
func (a *actor) leases(name string) group.Leases {
	l := a.cache.unit.Leases[name]
	if l == nil {
		l = group.Leases{}
		a.cache.unit.Leases[name] = l
	}
	return l
}

// recover commits S12 for the loaded unit; false when that failed.
func (a *actor) recover() bool {
	highest := map[string]group.Epochs{}
	for name, seen := range a.memory.groups {
		highest[name] = seen.epochs
	}
	identity := a.cache.identity
	ctx, cancel := a.call()
	defer cancel()
	// The clock that counts from here on is that of the server that is there now, which need not
	// agree with the one before: by an old estimate the lease of silence could be over at once.
	now, err := a.e.cfg.Store.SampleTime(ctx, a.prefix)
	if err != nil {
		a.log.Warn("sampling the clock after lost writes", zap.Error(err))
		a.drop()
		return false
	}
	t := aggregate.Begin(a.cache.unit, now, nil)
	t.Recover(identity, highest)
	out := t.Finish()
	commit := a.commitOf(out, nil, now)
	commit.Identity = identity
	commit.Estimate, commit.Tolerance = now, a.shortestMargin()/2
	res, err := a.e.cfg.Store.Commit(ctx, *commit)
	if err != nil {
		a.log.Warn("storing the recovery after lost writes", zap.Error(err))
		a.drop()
		return errors.Is(err, redisstore.ErrConflict)
	}
	a.e.metrics.recoveries.Inc()
	a.log.Warn("redis lost writes or is another server now: no shard is granted for one lease", zap.String("identity", identity))
	a.cache.recover, a.stepped = false, false
	a.memory.accept()
	a.keepCommit(out, commit, res)
	a.runner.survey()
	return true
}

// clockDisagrees is C5: Redis time is off this replica's estimate. If a new sample agrees with
// the monotonic clock the call was merely slow; else the clock has stepped, and every lease
// begins anew before any may end.
func (a *actor) clockDisagrees(commit redisstore.Commit) result {
	ctx, cancel := a.call()
	defer cancel()
	before := a.now()
	started := time.Now()
	sample, err := a.e.cfg.Store.SampleTime(ctx, a.prefix)
	if err != nil {
		a.drop()
		return turnFailed
	}
	half := time.Since(started) / 2 // the server read its clock in the middle of the trip, give or take that
	off := sample.Sub(before.Add(half))
	if off.Abs() <= half+commit.Tolerance {
		return turnAgain
	}
	a.log.Warn("the clock of redis has stepped: all leases begin anew", zap.Duration("by", off))
	a.e.metrics.clockSteps.Inc()
	a.stepped = true
	return turnAgain
}

// resetLeases makes all leases begin anew after a step of the clock. The estimate has followed the
// step by now: until this is stored nothing may be decided by it.
func (a *actor) resetLeases() result {
	t := aggregate.Begin(a.cache.unit, a.now(), nil)
	t.ResetLeases()
	out := t.Finish()
	commit := a.commitOf(out, nil, t.Now())
	if commit == nil { // no groups
		a.stepped = false
		return turnStored
	}
	ctx, cancel := a.call()
	defer cancel()
	res, err := a.e.cfg.Store.Commit(ctx, *commit)
	var identity *redisstore.IdentityError
	switch {
	case err == nil:
		a.stepped = false
		a.keepCommit(out, commit, res)
		return turnStored
	case errors.Is(err, redisstore.ErrConflict), errors.As(err, &identity):
		a.drop()
		return turnAgain
	}
	a.log.Warn("setting the leases anew", zap.Error(err))
	a.drop()
	return turnFailed
}

// logPhase makes every change of a resharding's phase one line.
func (a *actor) logPhase(before, after *stream.State) {
	var was protocol.Phase
	if before != nil && before.Active != nil {
		was = before.Active.Phase
	}
	r := after.Active
	if r == nil {
		if was == "" || len(after.History) == 0 {
			return
		}
		r = after.History[len(after.History)-1]
	}
	if r.Phase == was {
		return
	}
	a.e.metrics.phase(r.Phase)
	a.log.Info("resharding", zap.String("resharding", r.ID), zap.String("phase", string(r.Phase)),
		zap.Int("from", r.From.Count), zap.Int("to", r.To.Count), zap.String("error", r.Error))
}

func (a *actor) logGroup(before, after *group.State) {
	if before != nil && before.GroupEpoch == after.GroupEpoch {
		return
	}
	a.log.Info("group changed", zap.String("group", after.Group), zap.Int64("epoch", after.GroupEpoch), zap.Int("members", len(after.Members)))
}

// newNonce is the random id of a commit, 128 bit.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// nonces remembers the last commits of this actor.
type nonces struct {
	ring [256]string
	next int
}

func (n *nonces) add(nonce string) {
	n.ring[n.next] = nonce
	n.next = (n.next + 1) % len(n.ring)
}

func (n *nonces) has(nonce string) bool { return slices.Contains(n.ring[:], nonce) }

// because adds to a text what the Redis user lacks, if that is the reason: whoever asks cannot see the log.
func because(text string, err error) string {
	if lacks := (*redisstore.RightsError)(nil); errors.As(err, &lacks) {
		return text + ": " + lacks.Error()
	}
	return text
}
