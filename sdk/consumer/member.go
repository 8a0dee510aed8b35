package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/membership"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// member is one logical member: it drives a membership.Machine, and an ownership for each of
// its shards. One goroutine, run, owns all fields but those that say otherwise.
type member struct {
	c       *Consumer
	id      string
	log     *slog.Logger
	machine *membership.Machine
	file    *incarnationFile
	work    context.Context // of handlers and calls; ends with Run

	owned    map[int]*ownership // by shard, the newest
	call     context.CancelFunc // ends the call under way
	wg       sync.WaitGroup
	leaseEnd atomic.Int64 // read by ownerships; duration on the consumer's clock

	complained atomic.Int64 // when trouble was last logged as a warning; duration on the consumer's clock

	mu     sync.Mutex
	events []membership.Input
	signal chan struct{} // capacity 1: there are events

	health error
}

func newMember(work context.Context, c *Consumer, id string, file *incarnationFile, replaces string, spec protocol.GroupSpec) *member {
	return &member{
		c: c, id: id, work: work, file: file,
		log: c.cfg.Logger.With("stream", c.cfg.StreamPrefix, "group", c.cfg.Group, "member", id),
		machine: membership.New(membership.Config{
			MemberID: id, MemberName: c.cfg.MemberID, Hold: c.cfg.MaxHold, Replaces: replaces, NewIncarnation: rand.Text,
			Lease: time.Duration(spec.MemberLeaseMs) * time.Millisecond, Interval: time.Duration(spec.HeartbeatIntervalMs) * time.Millisecond,
		}),
		owned: map[int]*ownership{}, signal: make(chan struct{}, 1),
	}
}

// post gives the machine an input, from any goroutine.
func (m *member) post(in membership.Input) {
	m.mu.Lock()
	m.events = append(m.events, in)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

func (m *member) taken() []membership.Input {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := m.events
	m.events = nil
	return in
}

// run ends when the machine has stopped and nothing of the member runs any more. stop makes it
// leave, hard cuts its handlers off, abandon ends it without another word to the coordinator.
func (m *member) run(stop, hard, abandon <-chan struct{}) (err error) {
	defer m.wg.Wait()
	defer func() {
		if m.call != nil {
			m.call()
		}
		for _, o := range m.owned {
			o.drop(errors.Join(ErrOwnershipLost, err))
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for _, a := range m.machine.Step(m.c.clock.Now(), m.taken()...) {
			if done, ok := a.(membership.Stopped); ok {
				m.tellHealth()
				return done.Err
			}
			if err := m.act(a); err != nil {
				return err
			}
		}
		m.tellHealth()
		if wake := m.machine.Wake(); wake != membership.Never {
			timer.Reset(max(wake-m.c.clock.Now(), 0))
		}
		select {
		case <-m.signal:
		case <-timer.C:
		case <-stop:
			stop = nil
			m.post(membership.Stop{Static: m.c.cfg.Static})
		case <-hard:
			hard = nil
			for _, o := range m.owned {
				o.drop(errors.Join(ErrOwnershipLost, ErrDrainTimeout))
			}
		case <-abandon:
			return ErrDrainTimeout
		}
	}
}

// act carries out one action.
func (m *member) act(a membership.Action) error {
	switch a := a.(type) {
	case membership.Session:
		return m.file.store(a.Incarnation)
	case membership.Send:
		m.send(a)
	case membership.Lease:
		m.leaseEnd.Store(int64(a.End))
	case membership.Joined:
		m.log.Info("member joined", "memberEpoch", a.Epoch)
	case membership.Own:
		m.own(a)
	case membership.Revoke:
		m.log.Info("shard revoked", "shard", a.Shard, "ownershipEpoch", a.Epoch)
		m.owned[a.Shard].revoke()
	case membership.Drop:
		m.log.Warn("shard dropped", "shard", a.Shard, "ownershipEpoch", a.Epoch, "cause", string(a.Cause))
		m.owned[a.Shard].drop(errors.Join(ErrOwnershipLost, errors.New(string(a.Cause))))
	}
	return nil
}

// send calls the coordinator, in place of the call before.
func (m *member) send(a membership.Send) {
	if m.call != nil {
		m.call()
	}
	req := a.Request
	req.ShardProgress = m.progress()
	ctx, cancel := context.WithTimeout(m.work, a.Timeout)
	m.call = cancel
	m.wg.Go(func() {
		defer cancel()
		resp, _, err := m.c.cfg.Client.Heartbeat(ctx, m.c.cfg.StreamPrefix, m.c.cfg.Group, req)
		switch {
		case err == nil:
			switch resp.Status {
			case protocol.StatusUnknownMemberID:
				if req.MemberEpoch == protocol.EpochJoin {
					m.complain("the coordinator knows no such stream or group: register it", "status", string(resp.Status))
				}
			case protocol.StatusInvalidRequest, protocol.StatusUnsupportedProtocol:
				m.complain("the coordinator refuses the member", "status", string(resp.Status), "reason", resp.Reason)
			case protocol.StatusOK, protocol.StatusRetry, protocol.StatusSyncMetadata, protocol.StatusRevokePending, protocol.StatusFencedMemberEpoch:
			}
			m.post(membership.Answered{Call: a.Call, Response: resp})
		case errors.Is(ctx.Err(), context.Canceled): // replaced by a newer one
		default:
			m.complain("heartbeat failed", "error", err)
			m.post(membership.Failed{Call: a.Call, Err: err, Permanent: client.Permanent(err)})
		}
	})
}

// quietly is how often a failure that lasts is logged.
const quietly = 10 * time.Second

// complain logs that the coordinator could not be reached, or will not have the member: a
// consumer that is silent about it looks like one that has nothing to do.
func (m *member) complain(what string, args ...any) {
	now, last := int64(m.c.clock.Now()), m.complained.Load()
	level := slog.LevelDebug
	if (last == 0 || now-last >= int64(quietly)) && m.complained.CompareAndSwap(last, max(now, 1)) {
		level = slog.LevelWarn
	}
	m.log.Log(m.work, level, "trouble with the coordinator", append([]any{"what", what}, args...)...)
}

// own begins an ownership, once the one before it in this process is through.
func (m *member) own(a membership.Own) {
	m.log.Info("shard assigned", "shard", a.Shard, "ownershipEpoch", a.Epoch)
	o := newOwnership(m, a.Shard, a.Epoch, m.owned[a.Shard])
	m.owned[a.Shard] = o
	m.wg.Go(o.run)
}

// alive says whether the lease still runs.
func (m *member) alive() bool { return int64(m.c.clock.Now()) < m.leaseEnd.Load() }

func (m *member) progress() []protocol.ShardProgress {
	list := []protocol.ShardProgress{}
	for _, s := range append(m.machine.Owned(), m.machine.Draining()...) {
		if o := m.owned[s]; o != nil {
			list = append(list, o.progress())
		}
	}
	return list
}

// tellHealth reports a change between healthy and not, and a change of the reason.
func (m *member) tellHealth() {
	err := m.machine.Health()
	if m.machine.Stopped() {
		err = errors.New("the member has stopped")
	}
	m.c.setHealth(m.id, err)
	if (err == nil) == (m.health == nil) && (err == nil || err.Error() == m.health.Error()) {
		return
	}
	m.health = err
	switch {
	case err == nil:
		m.log.Info("member has its lease")
	case !m.machine.Stopped() && m.machine.Epoch() != 0:
		m.log.Warn("member has no lease", "error", err)
	}
	if hook := m.c.cfg.Hooks.Health; hook != nil {
		m.c.hook(func() { hook(m.id, err) })
	}
}
