package redisstore

import (
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// clocksAt makes clocks whose local time is d.
func clocksAt(d time.Duration) *clocks {
	c := newClocks()
	c.base = time.Now().Add(-d)
	return c
}

func TestClockSteady(t *testing.T) {
	t.Parallel()
	const server = protocol.Instant(1_700_000_000_000)
	estimate := func(c *clocks) protocol.Instant {
		k, ok := c.get(c.steady, "p")
		if !ok {
			t.Fatal("no sample was taken")
		}
		return k.now(0)
	}
	// ago is a sample with a round trip of a millisecond that ended now, of a server that is off.
	sample := func(c *clocks, off time.Duration) {
		sent := c.local() - time.Millisecond
		c.observe("p", server.Add(sent+off), sent)
	}
	c := clocksAt(time.Hour)
	sample(c, 0)
	first := estimate(c)
	if d := first.Sub(server); d < -3*time.Millisecond || d > 3*time.Millisecond {
		t.Fatalf("the first sample is off by %v", d)
	}
	sample(c, 20*time.Second)
	if got := estimate(c); got != first {
		t.Errorf("a step of 20 s was followed silently: by %v", got.Sub(first))
	}
	c.base = c.base.Add(-10 * time.Second) // ten seconds pass
	sample(c, 20*time.Second)
	sample(c, -20*time.Second)
	if got := estimate(c); got != first {
		t.Errorf("a step was followed after a while: by %v", got.Sub(first))
	}
	c.base = c.base.Add(-10 * time.Second)
	sample(c, 8*time.Millisecond) // drift: 0.04 %
	if d := estimate(c).Sub(first); d < 4*time.Millisecond || d > 12*time.Millisecond {
		t.Errorf("drift of 8 ms was corrected by %v", d)
	}
	sent := c.local()
	c.set("p", server.Add(sent+20*time.Second), sent)
	if d := estimate(c).Sub(server); d < 19*time.Second || d > 21*time.Second {
		t.Errorf("a sample that was asked for is off by %v", d)
	}
	if k, _ := c.get(c.origin, "p"); k.now(0).Sub(server) < 19*time.Second {
		t.Errorf("the clock of passes does not follow the step: %v", k.now(0).Sub(server))
	}
}

// Many small steps do not add up to a large one unnoticed.
func TestClockDoesNotCreep(t *testing.T) {
	t.Parallel()
	c := clocksAt(time.Hour)
	began := c.local()
	for i := range 1000 {
		sent := c.local() - time.Millisecond
		c.observe("p", protocol.Instant(1_700_000_000_000).Add(sent+time.Duration(i)*2*time.Millisecond), sent)
	}
	k, _ := c.get(c.steady, "p")
	// Drift is followed, so that the bound grows with the time that the loop took; what must not be
	// followed is the sum of the steps, two seconds.
	most := 10*time.Millisecond + (c.local()-began)/100
	if d := k.now(0).Sub(1_700_000_000_000); d > most {
		t.Fatalf("the estimate crept by %v, want at most %v", d, most)
	}
}

func TestSampleTime(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		if _, ok := f.Now(f.prefix); ok {
			t.Fatal("an estimate without a sample")
		}
		at, err := f.SampleTime(f.ctx, f.prefix)
		if err != nil {
			t.Fatal(err)
		}
		now, ok := f.Now(f.prefix)
		if d := now.Sub(at); !ok || d < -time.Second || d > time.Second {
			t.Fatalf("estimate %v off the sample", d)
		}
	})
}
