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
	until   time.Time     // no call goes before, as the coordinator wishes
	next    time.Time     // place of the next call
	gap     time.Duration // mean time between two calls; 0: as they come
	refused time.Time     // when the last refusal came
	changed time.Time     // when gap was last raised
}

// reserve says how long a call has to wait. If it has got a place, it goes then, unless held says
// otherwise by that time; else it asks again.
func (p *pacer) reserve(now time.Time) (wait time.Duration, placed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.until) {
		return p.until.Sub(now), false
	}
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
	return at.Sub(now), true
}

// held says whether no call may go now: the coordinator has refused one since a place was got.
func (p *pacer) held(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.until)
}

// overloaded notes that a call that was sent at sent has been refused at now, with a wish to be
// left alone for retryAfter. Refusals of calls that were under way together are one round. Places
// that were given out are void.
func (p *pacer) overloaded(sent, now time.Time, retryAfter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = now
	if p.gap == 0 || sent.After(p.changed) {
		p.gap = min(max(2*p.gap, firstGap), lastGap)
		p.changed = now
	}
	if until := now.Add(max(retryAfter, p.gap)); until.After(p.until) {
		p.until, p.next = until, until
	}
}

// accepted notes an answer that is no refusal for overload.
func (p *pacer) accepted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gap -= p.gap / 32
}
