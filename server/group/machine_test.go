package group_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// message is a request in the network: it may arrive late, or more than once.
type message struct {
	from *process
	req  *protocol.HeartbeatRequest
}

// machine drives a world at random: joins, calls, lost answers, late and repeated requests,
// leaves, deaths, pauses, slow handlers, reshardings, and replicas that know old lease rows.
type machine struct {
	*world
	network []message
	stale   []group.Leases
	saved   []saved
}

// saved is what a Redis replica may have that lags behind.
type saved struct {
	state *group.State
	rows  group.Leases
}

func (m *machine) live(t *rapid.T) *process {
	var all []*process
	for _, p := range m.procs {
		if !p.dead {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		t.Skip("no process")
	}
	return rapid.SampledFrom(all).Draw(t, "process")
}

func (m *machine) start(t *rapid.T) {
	if len(m.procs) > 24 {
		t.Skip("enough processes")
	}
	id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
	p := m.process(fmt.Sprintf("%s#%d", id, len(m.procs)), id, rapid.IntRange(0, 3).Draw(t, "plain") == 0)
	p.slow = rapid.Bool().Draw(t, "slow")
	for _, old := range m.procs {
		if old != p && old.id == id && old.dead && rapid.Bool().Draw(t, "proves the death of "+old.name) {
			p.replaces = old.incarnation
		}
	}
	m.send(t, p)
}

// send makes the next call of the process. It may be delayed, or its answer lost.
func (m *machine) send(t *rapid.T, p *process) {
	p.expire(m.now)
	req := p.request()
	if len(m.network) < 40 {
		m.network = append(m.network, message{p, req})
	}
	switch rapid.SampledFrom([]string{"answered", "answered", "answered", "delayed", "answer lost"}).Draw(t, "fate") {
	case "answered":
		p.apply(req, m.batch(req)[0])
	case "answer lost":
		m.batch(req)
	}
}

// rapidActions are the steps.
func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"start": m.start,
		"call": func(t *rapid.T) {
			m.send(t, m.live(t))
		},
		"call2": func(t *rapid.T) { // calls are the most of what happens
			m.send(t, m.live(t))
		},
		"arrive": func(t *rapid.T) {
			if len(m.network) == 0 {
				t.Skip("nothing under way")
			}
			i := rapid.IntRange(0, len(m.network)-1).Draw(t, "message")
			msg := m.network[i]
			if rapid.Bool().Draw(t, "last copy") {
				m.network = slices.Delete(m.network, i, i+1)
			}
			msg.from.apply(msg.req, m.batch(msg.req)[0])
		},
		"batch": func(t *rapid.T) {
			if len(m.network) < 2 {
				t.Skip("too few under way")
			}
			picked := rapid.SliceOfNDistinct(rapid.IntRange(0, len(m.network)-1), 2, min(5, len(m.network)), rapid.ID).Draw(t, "messages")
			var reqs []*protocol.HeartbeatRequest
			for _, i := range picked {
				reqs = append(reqs, m.network[i].req)
			}
			for i, a := range m.batch(reqs...) {
				msg := m.network[picked[i]]
				msg.from.apply(msg.req, a)
			}
		},
		"drained": func(t *rapid.T) { m.live(t).drained() },
		"kill":    func(t *rapid.T) { m.live(t).kill() },
		"leave": func(t *rapid.T) {
			p := m.live(t)
			if p.left != 0 || p.epoch == 0 {
				t.Skip("has no session")
			}
			if rapid.Bool().Draw(t, "for good") {
				p.leave()
			} else if len(p.drains) == 0 {
				p.away()
			}
		},
		"wait": func(t *rapid.T) {
			m.advance(time.Duration(rapid.OneOf(rapid.IntRange(100, 4000), rapid.IntRange(8500, 15500)).Draw(t, "ms")) * time.Millisecond)
			m.stale = append(m.stale, m.replica().leases)
			m.saved = append(m.saved, saved{m.stored, m.replica().leases})
		},
		"tick": func(*rapid.T) { m.tick() },
		"stale tick": func(t *rapid.T) {
			if len(m.stale) == 0 {
				t.Skip("no time has passed")
			}
			r := m.replica()
			r.leases = rapid.SampledFrom(m.stale).Draw(t, "leases")
			if _, err := m.batchFrom(r); err != nil {
				t.Logf("refused: %v", err)
			}
		},
		"stale batch": func(t *rapid.T) {
			if len(m.stale) == 0 || len(m.network) == 0 {
				t.Skip("no time has passed")
			}
			r := m.replica()
			r.leases = rapid.SampledFrom(m.stale).Draw(t, "leases")
			msg := rapid.SampledFrom(m.network).Draw(t, "message")
			answers, err := m.batchFrom(r, msg.req)
			if err != nil {
				t.Logf("refused: %v", err)
				return
			}
			msg.from.apply(msg.req, answers[0])
		},
		"claim": func(t *rapid.T) { // a client that reports what it was never given
			p := m.live(t)
			if p.epoch == 0 || p.left != 0 {
				t.Skip("has no session")
			}
			req := p.request()
			req.OwnedShards = protocol.Shards([]int{rapid.IntRange(0, 8).Draw(t, "shard")})
			p.apply(req, m.batch(req)[0])
		},
		"metadata ahead": func(t *rapid.T) {
			p := m.live(t)
			if p.epoch == 0 || p.left != 0 || p.plain { // see superseded
				t.Skip("has no session")
			}
			req := p.request()
			req.MetadataVersion += 10
			p.apply(req, m.batch(req)[0])
		},
		"epochs seen": func(t *rapid.T) {
			p := m.live(t)
			if p.epoch == 0 || p.left != 0 {
				t.Skip("has no session")
			}
			req := p.request()
			epoch := m.stored.OwnershipCounter + rapid.Int64Range(-3, 3).Draw(t, "over")
			req.OwnershipSeen = []protocol.OwnershipSeen{{Shard: protocol.Shard{ShardIndex: rapid.IntRange(-1, 8).Draw(t, "shard")}, Epoch: epoch}}
			p.apply(req, m.batch(req)[0])
		},
		"failover": func(t *rapid.T) {
			if len(m.saved) == 0 || rapid.IntRange(0, 3).Draw(t, "rare") != 0 {
				t.Skip("nothing to lose")
			}
			m.failover(t, rapid.SampledFrom(m.saved).Draw(t, "copy"))
		},
		"hold": func(t *rapid.T) { m.checkHold(t, m.live(t)) },
		"next": func(t *rapid.T) { m.checkNext(t) },
		"resize": func(t *rapid.T) {
			turn := group.Begin(m.stored)
			turn.SetAssignable(rapid.IntRange(0, 8).Draw(t, "shards"), m.now)
			if err := m.commit(m.rev, turn, false); err != nil {
				t.Fatalf("resize: %v", err)
			}
		},
	}
}

// failover loses all writes since the copy was taken; the group recovers (S12).
func (m *machine) failover(t *rapid.T, to saved) {
	// Of two reference processes under one id, of which the second's admission was lost, nobody
	// can tell which is which: they name no incarnation.
	newest := map[string]*process{}
	for _, p := range m.procs {
		if p.plain {
			if old := newest[p.id]; old != nil {
				old.kill()
			}
			newest[p.id] = p
		}
	}
	highest := group.Epochs{GroupEpoch: m.stored.GroupEpoch, MetadataVersion: m.stored.MetadataVersion, OwnershipCounter: m.stored.OwnershipCounter}
	m.lost = true
	m.rev++
	m.stored, m.rows = to.state, maps.Clone(to.rows)
	turn := group.Begin(m.stored)
	turn.Recover(highest, m.now, maps.Clone(m.rows))
	if err := m.commit(m.rev, turn, true); err != nil {
		t.Fatalf("recovery: %v", err)
	}
	m.stale, m.saved = nil, nil
}

// checkHold compares Settled with the answer that a request gets (4.8).
func (m *machine) checkHold(t *rapid.T, p *process) {
	newest, sent := p.newest, p.sent
	req := p.request()
	p.newest, p.sent = newest, sent

	turn := group.Begin(m.stored)
	a := turn.Heartbeat(req, m.now, m.rows)
	same := a.Status == protocol.StatusOK && a.GroupEpoch == req.MemberEpoch &&
		slices.Equal(a.Assignment.AssignedShards, req.OwnedShards) && len(req.RevokingShards) == 0 && !turn.Changed()
	if m.stored.RecoverUntil != 0 && m.now >= m.stored.RecoverUntil {
		return // the tick that ends the recovery comes first
	}
	if settled := group.Settled(m.stored, req); settled != same {
		t.Fatalf("settled is %v for %+v, which is answered %+v (changed: %v)\n%s", settled, req, a, turn.Changed(), dump(m.stored))
	}
}

// checkNext demands that a tick before Next does nothing.
func (m *machine) checkNext(t *rapid.T) {
	next := group.Next(m.stored, m.rows)
	at := m.now.Add(time.Minute)
	if next != 0 {
		at = next - 1
	}
	if at < m.now {
		return
	}
	turn := group.Begin(m.stored)
	turn.Tick(at, m.rows, nil)
	if rows := turn.Rows(); turn.Changed() || len(rows.Renew)+len(rows.Drop)+len(rows.Check) > 0 {
		t.Fatalf("next is %d but a tick at %d does %+v\n%s\n%s", next, at, rows, dump(m.stored), dump(turn.State()))
	}
}

// converge ends the faults: who lives calls each second and lets go in time. Then every shard
// must be read by its target.
func (m *machine) converge(t *rapid.T) {
	m.network = nil
	for range 60 {
		m.advance(time.Second)
		m.tick()
		for _, p := range m.procs {
			if p.dead || p.inUse != 0 && m.now.Sub(p.inUse) > 15*time.Second {
				p.kill()
				continue
			}
			if p.left != 0 && len(p.drains) == 0 {
				p.kill()
				continue
			}
			p.expire(m.now)
			p.drained()
			p.call()
		}
	}
	live, _, _ := group.ProgressOf(m.stored, m.stored.Assignable)
	if !live {
		return
	}
	if got := group.GroupState(m.stored); got != protocol.GroupStable {
		t.Fatalf("the group is %s and does not converge\n%s", got, dump(m.stored))
	}
	for i := range m.stored.Assignable {
		read := false
		for _, p := range m.procs {
			if epoch, ok := p.reads[i]; ok {
				read = p.id == m.stored.Shards[i].Target && epoch == m.stored.Shards[i].OwnershipEpoch
			}
		}
		if !read {
			t.Fatalf("shard %d is not read by its target\n%s", i, dump(m.stored))
		}
	}
}

// TestMachine checks I1 to I3, I6 and I7 of the design, and with them that no shard is offered
// before it was let go or handed back before its revocation ended, in random histories.
func TestMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{world: newWorld(t, rapid.IntRange(0, 8).Draw(t, "shards"))}
		if rapid.Bool().Draw(t, "short rebalance timeout") {
			m.stored.Spec.RebalanceTimeoutMs = 5000
		}
		t.Repeat(m.actions())
		m.converge(t)
	})
}
