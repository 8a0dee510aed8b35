package appendflow

import (
	"errors"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// names renders the actions of one step.
func names(actions []Action) string {
	out := ""
	for _, a := range actions {
		if out != "" {
			out += " "
		}
		switch a := a.(type) {
		case Send:
			out += "send"
			if a.Batch.Plain {
				out += "-plain"
			}
			out += ":"
			for _, e := range a.Batch.Entries {
				out += e.Value.(string)
			}
		case Refresh:
			out += "refresh"
		case Look:
			out += "look"
		case Resolve:
			out += "resolve"
		case Bring:
			out += "bring"
		case Done:
			out += "done:" + a.Entry.Value.(string)
			switch {
			case errors.Is(a.Err, ErrOutcomeUnknown):
				out += "?"
			case errors.Is(a.Err, ErrPaused):
				out += "!paused"
			case errors.Is(a.Err, ErrNoShards):
				out += "!noshards"
			case a.Err != nil:
				out += "!"
			}
		}
	}
	return out
}

func sent(t *testing.T, actions []Action) *Batch {
	t.Helper()
	for _, a := range actions {
		if s, ok := a.(Send); ok {
			return s.Batch
		}
	}
	t.Fatalf("nothing sent in %q", names(actions))
	return nil
}

func started(t *testing.T, cfg Config, l Layout) *Machine {
	t.Helper()
	m := New(cfg)
	if got := names(m.Step(0)); got != "refresh" {
		t.Fatalf("first step: %s", got)
	}
	m.Step(0, Routing{Layout: l, Open: true, LeaseEnd: time.Minute})
	return m
}

func push(m *Machine, values string) []Action {
	for _, v := range values {
		m.Push(0, &Entry{Key: []byte("k"), Value: string(v)})
	}
	return m.Step(0)
}

// keyFor finds a key of the shard.
func keyFor(shard, count int) []byte {
	for i := 0; ; i++ {
		k := []byte{byte(i), byte(i >> 8)}
		if s, _ := protocol.ShardIndex(k, count); s == shard {
			return k
		}
	}
}

func check(t *testing.T, actions []Action, want string) []Action {
	t.Helper()
	if got := names(actions); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	return actions
}

func TestMachine(t *testing.T) {
	one := Layout{Epoch: 1, Count: 1}
	refusal := func(code shardscript.Code, inForce Layout) Reply {
		return Reply{Code: code, InForce: inForce, Remaining: -1}
	}

	t.Run("batches form while one is in flight", func(t *testing.T) {
		m := started(t, Config{MaxBatch: 3}, one)
		b := sent(t, check(t, push(m, "a"), "send:a"))
		check(t, push(m, "bcde"), "")
		b = sent(t, check(t, m.Step(1, Replied{b, Reply{Code: shardscript.OK}}), "done:a send:bcd"))
		check(t, m.Step(1, Replied{b, Reply{Code: shardscript.OK}}), "done:b done:c done:d send:e")
	})
	t.Run("linger", func(t *testing.T) {
		m := started(t, Config{MaxBatch: 3, Linger: 5 * time.Millisecond}, one)
		check(t, push(m, "ab"), "")
		if w := m.Wake(); w != 5*time.Millisecond {
			t.Fatalf("wake at %v", w)
		}
		check(t, m.Step(5*time.Millisecond), "send:ab")
	})
	t.Run("full batch does not linger", func(t *testing.T) {
		m := started(t, Config{MaxBatch: 2, Linger: 5 * time.Millisecond}, one)
		check(t, push(m, "abc"), "send:ab")
	})
	t.Run("cancelled before it was sent", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "a"))
		e := &Entry{Key: []byte("k"), Value: "b"}
		m.Push(0, e)
		if !m.Cancel(e) || m.Cancel(b.Entries[0]) {
			t.Fatal("the queued one can be cancelled, the one in flight cannot")
		}
		check(t, m.Step(1, Replied{b, Reply{Code: shardscript.OK}}), "done:a")
	})
	t.Run("STALE/higher layout is taken after all answers", func(t *testing.T) {
		two := Layout{Epoch: 1, Count: 2}
		m := started(t, Config{}, two)
		m.Push(0, &Entry{Key: keyFor(0, 2), Value: "a"})
		m.Push(0, &Entry{Key: keyFor(1, 2), Value: "b"})
		acts := check(t, m.Step(0), "send:a send:b")
		b0, b1 := acts[0].(Send).Batch, acts[1].(Send).Batch
		check(t, m.Step(1, Replied{b0, refusal(shardscript.Stale, Layout{2, 1})}), "")
		m.Push(1, &Entry{Key: keyFor(0, 2), Value: "c"})
		check(t, m.Step(1), "")
		acts = check(t, m.Step(2, Replied{b1, Reply{Code: shardscript.OK}}), "done:b send:ac")
		if b := sent(t, acts); b.Layout != (Layout{2, 1}) {
			t.Fatalf("sent under %+v", b.Layout)
		}
	})
	t.Run("STALE/by count alone asks", func(t *testing.T) {
		m := started(t, Config{}, Layout{2, 1})
		b := sent(t, push(m, "a"))
		check(t, m.Step(1, Replied{b, refusal(shardscript.Stale, Layout{2, 3})}), "refresh")
		acts := m.Step(2, Routing{Layout: Layout{2, 3}, Open: true})
		if b := sent(t, acts); b.Layout != (Layout{2, 3}) {
			t.Fatalf("sent under %+v", b.Layout)
		}
	})
	t.Run("SEALED/waits for the routing", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "ab"))
		check(t, m.Step(1, Replied{b, Reply{Code: shardscript.Sealed, InForce: one, Remaining: time.Hour}}), "")
		check(t, push(m, "c"), "")
		m.Step(1, Routing{Layout: one, Open: false})
		b = sent(t, m.Step(m.Wake())) // it had not heard of the pause
		m.Step(1, Replied{b, Reply{Code: shardscript.Sealed, InForce: one, Remaining: time.Hour}})
		check(t, m.Step(time.Second, Routing{Layout: one, Open: false}), "")
		check(t, m.Step(2*time.Second, Routing{Layout: one, Open: true}), "send:abc")
	})
	t.Run("SEALED/the answer is ahead of the shard", func(t *testing.T) {
		m := started(t, Config{}, one)
		m.Step(0, Routing{Layout: one, Open: false})
		b := sent(t, push(m, "a"))
		m.Step(0, Replied{b, Reply{Code: shardscript.Sealed, InForce: one, Remaining: time.Hour}})
		b = sent(t, m.Step(0, Routing{Layout: one, Open: true}))
		m.Step(0, Replied{b, Reply{Code: shardscript.Sealed, InForce: one, Remaining: time.Hour}})
		if w := m.Wake(); w > 50*time.Millisecond {
			t.Fatalf("tries again after %v", w)
		}
	})
	t.Run("SEALED/probes at the deadline", func(t *testing.T) {
		m := started(t, Config{}, one)
		m.Step(0, Routing{Layout: one, Open: false})
		b := sent(t, push(m, "a"))
		m.Step(0, Replied{b, Reply{Code: shardscript.Sealed, InForce: one, Remaining: time.Second}})
		if w := m.Wake(); w != 1001*time.Millisecond {
			t.Fatalf("wake at %v", w)
		}
		check(t, m.Step(m.Wake()), "send:a")
	})
	t.Run("SEALED/fail fast", func(t *testing.T) {
		m := started(t, Config{FailFast: true}, one)
		b := sent(t, push(m, "ab"))
		check(t, m.Step(0, Replied{b, Reply{Code: shardscript.Sealed, InForce: one, Remaining: time.Second}}), "done:a!paused done:b!paused")
		check(t, push(m, "c"), "send:c")
	})
	t.Run("OVERDUE/shard 0 decides", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "a"))
		r := Reply{Code: shardscript.Overdue, InForce: one, Gate: "g", Until: 5}
		acts := check(t, m.Step(0, Replied{b, r}), "resolve")
		if got := acts[0].(Resolve); got != (Resolve{Shard: 0, Gate: "g", Until: 5, Epoch: 1}) {
			t.Fatalf("%+v", got)
		}
		check(t, m.Step(0, Resolved{Shard: 0, Code: shardscript.Wait}), "")
		b = sent(t, m.Step(m.Wake()))
		m.Step(m.Wake(), Replied{b, r})
		acts = check(t, m.Step(0, Resolved{Shard: 0, Code: shardscript.InForce, Layout: Layout{2, 1}}), "bring")
		if got := acts[0].(Bring); got != (Bring{Shard: 0, Layout: Layout{2, 1}, Gate: "g"}) {
			t.Fatalf("%+v", got)
		}
		if b := sent(t, m.Step(0, Brought{Shard: 0})); b.Layout != (Layout{2, 1}) {
			t.Fatalf("sent under %+v", b.Layout)
		}
	})
	t.Run("OVERDUE/only an operator's pause", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "a"))
		check(t, m.Step(0, Replied{b, Reply{Code: shardscript.Overdue, InForce: one, Hold: 5}}), "bring")
		check(t, m.Step(0, Brought{Shard: 0}), "send:a")
	})
	t.Run("BEHIND/the shard missed the opening", func(t *testing.T) {
		m := started(t, Config{}, Layout{3, 1})
		b := sent(t, push(m, "a"))
		check(t, m.Step(0, Replied{b, refusal(shardscript.Behind, one)}), "look")
		check(t, m.Step(0, Shard0{Layout: Layout{3, 1}, Found: true}), "bring")
		check(t, m.Step(0, Brought{Shard: 0}), "send:a")
	})
	t.Run("BEHIND/a lost history: follows shard 0 down", func(t *testing.T) {
		m := started(t, Config{}, Layout{3, 1})
		b := sent(t, push(m, "a"))
		check(t, m.Step(0, Replied{b, refusal(shardscript.Behind, one)}), "look")
		if b := sent(t, m.Step(0, Shard0{Layout: one, Found: true})); b.Layout != one {
			t.Fatalf("sent under %+v", b.Layout)
		}
	})
	for _, code := range []shardscript.Code{shardscript.NoShard, shardscript.Unfenced} {
		t.Run(string(code)+"/asks and backs off", func(t *testing.T) {
			m := started(t, Config{}, one)
			b := sent(t, push(m, "a"))
			check(t, m.Step(0, Replied{b, refusal(code, Layout{})}), "refresh")
			check(t, m.Step(0, Routing{Layout: one, Open: true}), "")
			last := time.Duration(0)
			for range 12 {
				gap := m.Wake() - last
				if gap > time.Second {
					t.Fatalf("waits %v", gap)
				}
				last = m.Wake()
				b = sent(t, m.Step(last))
				m.Step(last, Replied{b, refusal(code, Layout{})}, Routing{Layout: one, Open: true})
			}
			if last < time.Second {
				t.Fatalf("12 refusals within %v", last)
			}
		})
	}
	t.Run("FAILED/what landed is done, the rest is not tried again", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "abc"))
		check(t, m.Step(0, Replied{b, Reply{Code: shardscript.Failed, Landed: 1, Err: errors.New("OOM")}}), "done:a done:b! done:c!")
	})
	t.Run("FAILED/ran into a seal", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "abc"))
		check(t, m.Step(0, Replied{b, Reply{Code: shardscript.Failed, Landed: 1, Sealed: true}}), "done:a")
		check(t, m.Step(0, Routing{Layout: one, Open: true}), "send:bc")
	})
	t.Run("a lost reply is never repeated", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "a"))
		check(t, m.Step(0, Replied{b, Reply{Err: errors.New("cut"), Lost: true}}), "done:a?")
		check(t, m.Step(time.Minute), "")
	})
	t.Run("what was not sent is repeated", func(t *testing.T) {
		m := started(t, Config{}, one)
		b := sent(t, push(m, "a"))
		check(t, m.Step(0, Replied{b, Reply{Err: errors.New("refused"), Retriable: true}}), "")
		check(t, push(m, "b"), "")
		check(t, m.Step(m.Wake()), "send:ab")
	})
	t.Run("no coordinator: the layout of shard 0", func(t *testing.T) {
		m := New(Config{})
		check(t, push(m, "a"), "refresh")
		m.Step(0, RoutingFailed{Err: errors.New("away")})
		check(t, m.Step(m.Wake()), "refresh look")
		check(t, m.Step(0, Shard0{Layout: one, Found: true}), "send:a")
	})
	t.Run("a stale coordinator does not take the layout down", func(t *testing.T) {
		m := started(t, Config{}, Layout{3, 1})
		check(t, m.Step(0, Routing{Layout: one, Open: true}), "look")
		m.Step(0, Shard0{Layout: Layout{3, 1}, Found: true})
		if b := sent(t, push(m, "a")); b.Layout != (Layout{3, 1}) {
			t.Fatalf("sent under %+v", b.Layout)
		}
	})
	t.Run("refused for good", func(t *testing.T) {
		m := New(Config{})
		push(m, "a")
		check(t, m.Step(0, RoutingFailed{Err: errors.New("no such stream"), Permanent: true}), "done:a!")
		m = New(Config{})
		push(m, "a")
		check(t, m.Step(0, Routing{Err: errors.New("unknown hash")}), "done:a!")
		check(t, push(m, "b"), "done:b!")
	})
	t.Run("no shards", func(t *testing.T) {
		m := started(t, Config{}, Layout{2, 0})
		check(t, push(m, "a"), "done:a!noshards")
		m.Step(0, Routing{Layout: Layout{3, 1}, Open: true})
		check(t, push(m, "b"), "send:b")
	})
	t.Run("the first shards are on their way", func(t *testing.T) {
		m := New(Config{})
		push(m, "a")
		check(t, m.Step(0, Routing{Open: true, Awaited: true}), "")
		check(t, push(m, "b"), "")
		if at := m.Wake(); at != FirstLayoutWait {
			t.Errorf("wakes at %v", at)
		}
		check(t, m.Step(time.Second, Routing{Layout: one, Open: true}), "send:ab")
	})
	t.Run("the first shards do not come", func(t *testing.T) {
		m := New(Config{})
		push(m, "a")
		m.Step(0, Routing{Open: true, Awaited: true})
		check(t, m.Step(time.Second, Routing{Open: true, Awaited: true}), "") // no longer than from the first answer on
		check(t, m.Step(m.Wake()), "done:a!noshards")
		check(t, push(m, "b"), "done:b!noshards")
		check(t, m.Step(m.Wake(), Routing{Open: true, Awaited: true}), "")
		check(t, push(m, "c"), "done:c!noshards")
		m.Step(0, Routing{Layout: one, Open: true})
		check(t, push(m, "d"), "send:d")
	})
	t.Run("the first shards are not waited for", func(t *testing.T) {
		m := New(Config{FailFast: true})
		push(m, "a")
		check(t, m.Step(0, Routing{Open: true, Awaited: true}), "done:a!noshards")
	})
	t.Run("plain/while the lease lasts", func(t *testing.T) {
		m := started(t, Config{Plain: true}, one)
		b := sent(t, check(t, push(m, "ab"), "send-plain:ab"))
		check(t, m.Step(1, Replied{b, Reply{Fates: []Fate{{}, {Refused: true}}}}), "done:a send:b")
	})
	t.Run("plain/the script is asked until it accepts", func(t *testing.T) {
		m := started(t, Config{Plain: true}, one)
		b := sent(t, push(m, "a"))
		b = sent(t, check(t, m.Step(1, Replied{b, Reply{Fates: []Fate{{Refused: true}}}}), "send:a"))
		m.Step(1, Replied{b, Reply{Code: shardscript.Sealed, InForce: one, Remaining: time.Hour}})
		b = sent(t, check(t, m.Step(2, Routing{Layout: one, Open: true, LeaseEnd: time.Minute}), "send:a"))
		check(t, m.Step(3, Replied{b, Reply{Code: shardscript.OK}}), "done:a")
		check(t, push(m, "b"), "send-plain:b")
	})
	t.Run("plain/without a lease the script is asked", func(t *testing.T) {
		m := started(t, Config{Plain: true}, one)
		m.Step(2 * time.Minute)
		check(t, push(m, "a"), "send:a")
	})
	t.Run("abort", func(t *testing.T) {
		m := started(t, Config{MaxBatch: 1}, one)
		b := sent(t, push(m, "abc"))
		check(t, m.Abort(errors.New("closed")), "done:b! done:c!")
		check(t, m.Step(0, Replied{b, Reply{Code: shardscript.OK}}), "done:a")
	})
}
