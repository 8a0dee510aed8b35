package client

import (
	"testing"
	"time"
)

func TestPacer(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var p pacer
	for range 100 {
		if d, placed := p.reserve(now); d != 0 || !placed {
			t.Fatalf("held back for %v without a refusal", d)
		}
	}
	sent := now
	for range 10 { // one round: they were under way together
		p.overloaded(sent, now.Add(10*time.Millisecond), 2*time.Second)
	}
	if p.gap != firstGap {
		t.Errorf("gap after one round is %v", p.gap)
	}
	if d, placed := p.reserve(now.Add(time.Second)); placed || d != 1010*time.Millisecond || !p.held(now.Add(time.Second)) {
		t.Errorf("within Retry-After: %v, %v", d, placed)
	}
	before := time.Duration(-1)
	for i := range 20 {
		d, placed := p.reserve(now.Add(2010 * time.Millisecond))
		if !placed || (before >= 0 && d-before < firstGap/2) {
			t.Errorf("call %d waits %v after one that waits %v", i, d, before)
		}
		before = d
	}
	for i := range 20 {
		at := now.Add(time.Duration(i+1) * time.Second)
		p.overloaded(at, at.Add(time.Millisecond), 0)
	}
	if p.gap != lastGap {
		t.Errorf("gap has no bound: %v", p.gap)
	}
	for range 1000 {
		p.accepted()
	}
	if p.gap > firstGap {
		t.Errorf("gap does not shrink: %v", p.gap)
	}
	later := now.Add(time.Hour)
	p.reserve(later)
	if d, placed := p.reserve(later); d != 0 || !placed {
		t.Errorf("held back for %v long after the last refusal", d)
	}
}
