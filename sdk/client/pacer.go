package client

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Bounds of a pacer.
const (
	firstGap  = 50 * time.Millisecond
	lastGap   = 2 * time.Second
	calmAfter = 30 * time.Second // without a refusal, calls are not spaced any more
)

// pacer spaces the calls of one client after the coordinator has refused one for overload (429,
// 503): all that share it hold back together, instead of each finding out alone and coming back
// in step. The gap between two calls doubles with each round of refusals and shrinks slowly
// with each answer, as TCP finds its rate (AIMD, Chiu and Jain 1989). The zero value holds
// nothing back.
type pacer struct {
	mu      sync.Mutex
	next    time.Time     // no call goes before
	gap     time.Duration // mean time between two calls; 0: as they come
	refused time.Time     // when the last refusal came
	changed time.Time     // when gap was last raised
}

// reserve takes the place of one call and says how long it has to wait for it.
func (p *pacer) reserve(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.refused) > calmAfter {
		p.gap = 0
	}
	at := p.next
	if at.Before(now) {
		at = now
	}
	if p.gap > 0 {
		p.next = at.Add(p.gap/2 + rand.N(p.gap))
	}
	return at.Sub(now)
}

// overloaded notes that a call that was sent at sent has been refused at now, with a wish to be
// left alone for retryAfter. Refusals of calls that were under way together are one round.
func (p *pacer) overloaded(sent, now time.Time, retryAfter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = now
	if p.gap == 0 || sent.After(p.changed) {
		p.gap = min(max(2*p.gap, firstGap), lastGap)
		p.changed = now
	}
	if until := now.Add(retryAfter); until.After(p.next) {
		p.next = until
	}
}

// accepted notes an answer that is no refusal for overload.
func (p *pacer) accepted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gap -= p.gap / 32
}
