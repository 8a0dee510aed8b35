package membership

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"pgregory.net/rapid"
)

// driver carries out actions as a real one would and checks what no sequence of inputs may
// break.
type driver struct {
	t       rapid.TB
	m       *Machine
	now     time.Duration
	end     time.Duration
	reading map[int]int64 // shard -> epoch
	drains  map[int]int64
	last    Send
	sends   []Send
	drops   []Drop
	revokes []Revoke
	stopped *Stopped
	left    bool
	incs    int
}

func newDriver(t rapid.TB, change func(*Config)) *driver {
	d := &driver{t: t, reading: map[int]int64{}, drains: map[int]int64{}}
	cfg := Config{MemberID: "a", NewIncarnation: func() string { d.incs++; return fmt.Sprintf("inc-%d", d.incs) }}
	if change != nil {
		change(&cfg)
	}
	d.m = New(cfg)
	return d
}

func (d *driver) step(in ...Input) []Action {
	d.t.Helper()
	for _, i := range in {
		switch i := i.(type) {
		case Stop:
			d.left = true
		case Drained:
			if d.drains[i.Shard] == i.Epoch {
				delete(d.drains, i.Shard)
			}
		}
	}
	actions := d.m.Step(d.now, in...)
	for _, a := range actions {
		if d.stopped != nil {
			d.t.Fatalf("%T after Stopped", a)
		}
		switch a := a.(type) {
		case Send:
			if a.Call <= d.last.Call {
				d.t.Fatalf("call %d after call %d", a.Call, d.last.Call)
			}
			d.last = a
			d.sends = append(d.sends, a)
			d.checkRequest(a.Request)
		case Lease:
			d.end = a.End
		case Own:
			if e, ok := d.reading[a.Shard]; ok {
				d.t.Fatalf("shard %d owned twice: %d and %d", a.Shard, e, a.Epoch)
			}
			if _, ok := d.drains[a.Shard]; ok {
				d.t.Fatalf("shard %d owned while it drains", a.Shard)
			}
			if d.now >= d.end {
				d.t.Fatalf("shard %d owned at %v with a lease to %v", a.Shard, d.now, d.end)
			}
			if d.left {
				d.t.Fatalf("shard %d owned after stop", a.Shard)
			}
			d.reading[a.Shard] = a.Epoch
		case Revoke:
			if d.reading[a.Shard] != a.Epoch {
				d.t.Fatalf("revoke of shard %d under %d, reading %v", a.Shard, a.Epoch, d.reading)
			}
			delete(d.reading, a.Shard)
			d.drains[a.Shard] = a.Epoch
			d.revokes = append(d.revokes, a)
		case Drop:
			if d.reading[a.Shard] != a.Epoch && d.drains[a.Shard] != a.Epoch {
				d.t.Fatalf("drop of shard %d under %d, which it has not", a.Shard, a.Epoch)
			}
			delete(d.reading, a.Shard)
			delete(d.drains, a.Shard)
			d.drops = append(d.drops, a)
		case Stopped:
			d.stopped = &a
		}
	}
	if d.now >= d.end && len(d.reading)+len(d.drains) > 0 {
		d.t.Fatalf("at %v, past the lease end %v, it still has %v %v", d.now, d.end, d.reading, d.drains)
	}
	if w := d.m.Wake(); w <= d.now && d.stopped == nil {
		d.t.Fatalf("wake at %v, now %v: a loop without end", w, d.now)
	}
	return actions
}

func (d *driver) checkRequest(r protocol.HeartbeatRequest) {
	d.t.Helper()
	if r.MemberEpoch == protocol.EpochJoin && len(r.OwnedShards)+len(r.RevokingShards) > 0 {
		d.t.Fatalf("a join lists shards: %+v", r)
	}
	if r.MemberEpoch < 0 && len(r.OwnedShards) > 0 {
		d.t.Fatalf("it leaves and lists shards as owned: %+v", r)
	}
	for _, s := range r.OwnedShards {
		for _, v := range r.RevokingShards {
			if v.Shard == s {
				d.t.Fatalf("shard %d is listed as owned and as draining", s.ShardIndex)
			}
		}
	}
	if r.Replaces == r.Incarnation {
		d.t.Fatalf("a session replaces itself: %+v", r)
	}
}

// at moves the clock and steps if that is due.
func (d *driver) at(now time.Duration) {
	d.t.Helper()
	for d.m.Wake() <= now {
		d.now = max(d.now, d.m.Wake())
		d.step()
	}
	d.now = now
	d.step()
}

func (d *driver) response(epoch int64, assigned map[int]int64) protocol.HeartbeatResponse {
	r := protocol.HeartbeatResponse{
		Status: protocol.StatusOK, MemberID: "a", MemberEpoch: epoch, MetadataVersion: epoch,
		HeartbeatIntervalMs: 3000, MemberLeaseMs: 15000,
		Assignment: protocol.Assignment{OwnershipEpochs: map[string]int64{}},
	}
	for s, e := range assigned {
		r.Assignment.AssignedShards = append(r.Assignment.AssignedShards, protocol.Shard{ShardIndex: s})
		r.Assignment.OwnershipEpochs[strconv.Itoa(s)] = e
	}
	return r
}

func (d *driver) ok(epoch int64, assigned map[int]int64) {
	d.t.Helper()
	d.step(Answered{Call: d.last.Call, Response: d.response(epoch, assigned)})
}

func (d *driver) status(s protocol.HeartbeatStatus, reason string) {
	d.t.Helper()
	d.step(Answered{Call: d.last.Call, Response: protocol.HeartbeatResponse{Status: s, Reason: reason, MemberID: "a"}})
}

func (d *driver) wantReport(epoch int64, owned, draining string) {
	d.t.Helper()
	r := d.last.Request
	var drains []int
	for _, s := range r.RevokingShards {
		drains = append(drains, s.Shard.ShardIndex)
	}
	got := fmt.Sprintf("%d %v %v", r.MemberEpoch, protocol.Indexes(r.OwnedShards), drains)
	if want := fmt.Sprintf("%d %s %s", epoch, owned, draining); got != want {
		d.t.Fatalf("last call: epoch, owned, draining = %s, want %s", got, want)
	}
}

func joined(t *testing.T, shards map[int]int64) *driver {
	d := newDriver(t, nil)
	d.step()
	d.wantReport(0, "[]", "[]")
	d.ok(2, shards)
	return d
}

func TestMember(t *testing.T) {
	t.Run("M1/only the answer to the newest call is applied", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10})
		old := d.last
		d.at(5 * time.Second) // the call is given up after W + 2 s
		if d.last.Call == old.Call {
			d.at(6 * time.Second)
		}
		if d.last.Call == old.Call {
			t.Fatalf("no new call after the old one was given up")
		}
		d.step(Answered{Call: old.Call, Response: d.response(3, map[int]int64{0: 10, 1: 11})})
		if len(d.reading) != 1 {
			t.Fatalf("reading %v, want only shard 0", d.reading)
		}
	})
	t.Run("M2/the lease runs from the sending", func(t *testing.T) {
		d := newDriver(t, func(c *Config) { c.Hold = -1 })
		d.step()
		d.now = time.Second // the answer is slow
		d.ok(2, map[int]int64{0: 10})
		if want := 15*time.Second - 1500*time.Millisecond; d.end != want {
			t.Fatalf("lease end %v, want %v", d.end, want)
		}
	})
	t.Run("M3/at the lease end everything is dropped and the epoch kept", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10, 1: 11})
		d.step(Answered{Call: d.last.Call, Response: d.response(3, map[int]int64{0: 10})})
		for d.now < 20*time.Second {
			d.at(d.now + 100*time.Millisecond)
		}
		if len(d.drops) != 2 || d.drops[0].Cause != LeaseEnded {
			t.Fatalf("drops %v, want the read and the draining shard", d.drops)
		}
		d.wantReport(3, "[]", "[]")
	})
	t.Run("M3/an answer whose own lease is over brings nothing", func(t *testing.T) {
		d := newDriver(t, func(c *Config) { c.Lease, c.Interval = 15*time.Second, 14*time.Second })
		d.step()
		d.now = 14 * time.Second
		d.ok(2, map[int]int64{0: 10})
		if len(d.reading) != 0 {
			t.Fatalf("reading %v at %v", d.reading, d.now)
		}
	})
	t.Run("M4 and M5/a shard left out drains, then is listed nowhere", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10, 1: 11})
		d.wantReport(2, "[0 1]", "[]")
		d.ok(3, map[int]int64{0: 10})
		d.wantReport(3, "[0]", "[1]")
		d.ok(3, map[int]int64{0: 10, 1: 12}) // a server that does not wait for the drain
		if _, ok := d.reading[1]; ok {
			t.Fatal("shard 1 is read again while it drains")
		}
		d.step(Drained{Shard: 1, Epoch: 99}) // of another ownership
		d.wantReport(3, "[0]", "[1]")
		d.step(Drained{Shard: 1, Epoch: 11})
		d.wantReport(3, "[0]", "[]")
		d.ok(3, map[int]int64{0: 10, 1: 12})
		if d.reading[1] != 12 {
			t.Fatalf("reading %v, want shard 1 under 12", d.reading)
		}
	})
	t.Run("M6/a higher ownership epoch is told at once and answered by a new one", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10})
		before := d.last.Call
		d.step(Seen{Shard: 0, Epoch: 50})
		if d.last.Call == before || len(d.last.Request.OwnershipSeen) != 1 {
			t.Fatalf("not told: %+v", d.last)
		}
		d.ok(2, map[int]int64{0: 10}) // not raised: told again, but at the pace of heartbeats
		call := d.last.Call
		d.at(2900 * time.Millisecond)
		if d.last.Call != call {
			t.Fatal("called again at once")
		}
		d.at(3100 * time.Millisecond)
		if len(d.last.Request.OwnershipSeen) != 1 {
			t.Fatal("not told again")
		}
		d.ok(2, map[int]int64{0: 51})
		if d.reading[0] != 51 || d.drops[len(d.drops)-1].Cause != NewEpoch {
			t.Fatalf("reading %v, drops %v", d.reading, d.drops)
		}
	})
	for _, s := range []protocol.HeartbeatStatus{protocol.StatusFencedMemberEpoch, protocol.StatusUnknownMemberID} {
		t.Run("M7/"+string(s), func(t *testing.T) {
			d := joined(t, map[int]int64{0: 10})
			d.status(s, protocol.ReasonSessionOver)
			d.wantReport(0, "[]", "[]")
			if len(d.reading) != 0 || d.last.Request.Incarnation != "inc-2" || d.last.Request.Replaces != "inc-1" {
				t.Fatalf("reading %v, request %+v", d.reading, d.last.Request)
			}
			d.step(Failed{Call: d.last.Call, Err: errors.New("lost")})
			d.at(d.now + 3*time.Second)
			if d.last.Request.Incarnation != "inc-2" || d.last.Request.Replaces != "inc-1" {
				t.Fatalf("the repeated join differs: %+v", d.last.Request)
			}
			d.ok(5, nil)
			d.wantReport(5, "[]", "[]")
		})
	}
	t.Run("M7/a group that does not exist is no reason for a tight loop", func(t *testing.T) {
		d := newDriver(t, nil)
		d.step()
		for i := range 20 {
			d.status(protocol.StatusUnknownMemberID, "")
			d.at(d.now + 3*time.Second)
			if len(d.sends) != i+2 {
				t.Fatalf("%d calls after %d refusals", len(d.sends), i+1)
			}
		}
		if d.stopped != nil {
			t.Fatal("it gave up")
		}
	})
	t.Run("M8/an id in use for a whole lease is a duplicate", func(t *testing.T) {
		d := newDriver(t, nil)
		d.step()
		for d.stopped == nil {
			d.status(protocol.StatusInvalidRequest, protocol.ReasonIDInUse)
			if d.stopped == nil && !errors.Is(d.m.Health(), ErrDuplicateID) {
				t.Fatalf("health %v", d.m.Health())
			}
			d.at(d.now + 3*time.Second)
		}
		if !errors.Is(d.stopped.Err, ErrDuplicateID) || d.now < 15*time.Second || d.now > 18*time.Second {
			t.Fatalf("stopped at %v with %v", d.now, d.stopped.Err)
		}
	})
	t.Run("M8/a call that fails in between begins the wait anew", func(t *testing.T) {
		d := newDriver(t, nil)
		d.step()
		for d.now < 12*time.Second {
			d.status(protocol.StatusInvalidRequest, protocol.ReasonIDInUse)
			d.at(d.now + 3*time.Second)
		}
		d.status(protocol.StatusRetry, "")
		for failed := d.now; d.stopped == nil; d.at(d.now + 3*time.Second) {
			d.status(protocol.StatusInvalidRequest, protocol.ReasonIDInUse)
			if d.stopped != nil && d.now < failed+15*time.Second {
				t.Fatalf("stopped %v after a failure with %v", d.now-failed, d.stopped.Err)
			}
			if d.now > failed+60*time.Second {
				t.Fatal("it never gives up")
			}
		}
	})
	t.Run("M8/admitted in time", func(t *testing.T) {
		d := newDriver(t, nil)
		d.step()
		for d.now < 9*time.Second {
			d.status(protocol.StatusInvalidRequest, protocol.ReasonIDInUse)
			d.at(d.now + 3*time.Second)
		}
		d.ok(4, map[int]int64{0: 1})
		if d.m.Health() != nil || len(d.reading) != 1 {
			t.Fatalf("health %v, reading %v", d.m.Health(), d.reading)
		}
	})
	t.Run("M9/the predecessor is named in the first join", func(t *testing.T) {
		d := newDriver(t, func(c *Config) { c.Replaces = "dead" })
		d.step()
		if d.last.Request.Replaces != "dead" {
			t.Fatalf("request %+v", d.last.Request)
		}
	})
	t.Run("M10/leave", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10, 1: 11})
		d.step(Drained{Shard: 1, Epoch: 11}) // not revoked: means nothing
		d.step(Stop{})
		d.wantReport(-1, "[]", "[0 1]")
		d.ok(3, map[int]int64{0: 10})
		d.step(Drained{Shard: 0, Epoch: 10})
		d.wantReport(-1, "[]", "[1]")
		call := d.last.Call
		d.ok(3, nil)
		d.at(d.now + 3*time.Second)
		if d.last.Call == call {
			t.Fatal("the leave is not repeated while it drains")
		}
		d.step(Drained{Shard: 1, Epoch: 11})
		d.wantReport(-1, "[]", "[]")
		if d.stopped != nil {
			t.Fatal("stopped before the last call was answered")
		}
		d.ok(3, nil)
		if d.stopped == nil || d.stopped.Err != nil {
			t.Fatalf("stopped %v", d.stopped)
		}
	})
	t.Run("M10/static: drains first", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10})
		d.step(Stop{Static: true})
		d.wantReport(2, "[]", "[0]")
		d.ok(2, map[int]int64{0: 10})
		d.at(d.now + 3*time.Second)
		d.wantReport(2, "[]", "[0]")
		d.step(Drained{Shard: 0, Epoch: 10})
		d.wantReport(-2, "[]", "[]")
		d.ok(2, map[int]int64{0: 10})
		if d.stopped == nil || d.stopped.Err != nil {
			t.Fatalf("stopped %v", d.stopped)
		}
	})
	t.Run("M10/nobody answers", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10})
		d.step(Stop{})
		d.step(Drained{Shard: 0, Epoch: 10})
		for d.stopped == nil && d.now < time.Minute {
			d.at(d.now + 500*time.Millisecond)
		}
		if d.stopped == nil || d.now > 20*time.Second {
			t.Fatalf("stopped %v at %v", d.stopped, d.now)
		}
	})
	t.Run("M10/before the first call", func(t *testing.T) {
		d := newDriver(t, nil)
		d.step(Stop{})
		if d.stopped == nil || len(d.sends) != 0 {
			t.Fatalf("stopped %v after %d calls", d.stopped, len(d.sends))
		}
	})
	t.Run("M11/failures change nothing and back off within the interval", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10})
		end := d.end
		for range 8 {
			before := d.now
			d.status(protocol.StatusRetry, "")
			for call := d.last.Call; d.last.Call == call; {
				d.at(d.m.Wake())
			}
			if gap := d.now - before; gap > 3*time.Second {
				t.Fatalf("waited %v", gap)
			}
			if d.now < end && (len(d.reading) != 1 || d.end != end) {
				t.Fatalf("reading %v, lease end %v, was %v", d.reading, d.end, end)
			}
		}
	})
	t.Run("an answer after a failure is not kept waiting behind a hold", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10, 1: 11})
		d.ok(3, map[int]int64{0: 10})
		d.step(Failed{Call: d.last.Call, Err: errors.New("lost")})
		for call := d.last.Call; d.last.Call == call; {
			d.at(d.m.Wake())
		}
		d.step(Drained{Shard: 1, Epoch: 11})
		d.wantReport(3, "[0]", "[]")
	})
	t.Run("a steady member calls once per interval", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10})
		d.ok(2, map[int]int64{0: 10})
		n := len(d.sends)
		for range 10 {
			d.at(d.now + 3*time.Second)
			d.ok(2, map[int]int64{0: 10})
		}
		if got := len(d.sends) - n; got != 10 {
			t.Fatalf("%d calls in 10 intervals", got)
		}
	})
	t.Run("a refused client stops reading at once", func(t *testing.T) {
		d := joined(t, map[int]int64{0: 10})
		d.step(Failed{Call: d.last.Call, Err: errors.New("403"), Permanent: true})
		if len(d.reading) != 0 {
			t.Fatalf("reading %v", d.reading)
		}
		for d.stopped == nil && d.now < time.Minute {
			d.at(d.now + 3*time.Second)
			d.step(Failed{Call: d.last.Call, Err: errors.New("403"), Permanent: true})
		}
		if d.stopped == nil || !errors.Is(d.stopped.Err, ErrRefused) || d.now > 18*time.Second {
			t.Fatalf("stopped %v at %v", d.stopped, d.now)
		}
	})
}

// Any sequence of answers, losses, drains and stops keeps what driver.step checks, and a
// member that is told to stop does stop.
func TestMemberProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(t, nil)
		d.step()
		epoch := int64(1)
		calls := []int64{}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if d.stopped != nil {
				break
			}
			calls = append(calls, d.last.Call)
			call := d.last.Call
			if rapid.IntRange(0, 9).Draw(t, "old") == 0 {
				call = rapid.SampledFrom(calls).Draw(t, "call")
			}
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3:
				epoch += int64(rapid.IntRange(0, 1).Draw(t, "up"))
				assigned := map[int]int64{}
				for s := range 3 {
					if rapid.Bool().Draw(t, "assigned") {
						assigned[s] = int64(rapid.IntRange(0, 60).Draw(t, "ownership"))
					}
				}
				r := d.response(epoch, assigned)
				r.Status = rapid.SampledFrom([]protocol.HeartbeatStatus{
					protocol.StatusOK, protocol.StatusOK, protocol.StatusSyncMetadata, protocol.StatusRevokePending,
				}).Draw(t, "status")
				d.step(Answered{Call: call, Response: r})
			case 4:
				d.step(Answered{Call: call, Response: protocol.HeartbeatResponse{MemberID: "a", Status: rapid.SampledFrom([]protocol.HeartbeatStatus{
					protocol.StatusRetry, protocol.StatusFencedMemberEpoch, protocol.StatusUnknownMemberID, protocol.StatusInvalidRequest,
				}).Draw(t, "refusal")}})
			case 5:
				d.step(Failed{Call: call, Err: errors.New("lost"), Permanent: rapid.IntRange(0, 9).Draw(t, "permanent") == 0})
			case 6:
				for s, e := range d.drains {
					d.step(Drained{Shard: s, Epoch: e})
					break
				}
			case 7:
				d.step(Seen{Shard: rapid.IntRange(0, 2).Draw(t, "shard"), Epoch: int64(rapid.IntRange(0, 90).Draw(t, "seen"))})
			case 8:
				d.at(d.now + time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms"))*time.Millisecond)
			case 9:
				if rapid.IntRange(0, 19).Draw(t, "stop") == 0 {
					d.step(Stop{Static: rapid.Bool().Draw(t, "static")})
				}
			}
		}
		if d.stopped == nil {
			d.step(Stop{Static: rapid.Bool().Draw(t, "static")})
		}
		for deadline := d.now + 2*time.Minute; d.stopped == nil; {
			if d.now > deadline {
				t.Fatalf("not stopped: owned %v, draining %v", d.m.Owned(), d.m.Draining())
			}
			d.at(d.now + time.Second)
		}
	})
}
