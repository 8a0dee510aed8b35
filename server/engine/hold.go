package engine

import (
	"slices"
	"time"
)

// review moves the held commands that a change concerns, and whose answer is not the same any
// more, to those that are decided next. group "" is a change of the stream, which concerns all.
func (a *actor) review(group string) {
	u := a.unit()
	a.held = slices.DeleteFunc(a.held, func(c *command) bool {
		if c.abandoned() {
			return true
		}
		if group != "" && c.group != group || c.unchanged(u) {
			return false
		}
		a.ready = append(a.ready, c)
		return true
	})
}

// expireHolds moves the held commands whose time is up.
func (a *actor) expireHolds(now time.Time) {
	a.held = slices.DeleteFunc(a.held, func(c *command) bool {
		if c.abandoned() {
			return true
		}
		if c.deadline.After(now) {
			return false
		}
		a.ready = append(a.ready, c)
		return true
	})
}

// nextHold is the earliest deadline of a held command.
func (a *actor) nextHold() (at time.Time) {
	for _, c := range a.held {
		if at.IsZero() || c.deadline.Before(at) {
			at = c.deadline
		}
	}
	return at
}

// decideReady decides commands that were held as requests of this moment (4.8): what was true
// when the hold began is never sent. Whatever was loaded since they were last looked at may
// concern any of them.
func (a *actor) decideReady() {
	for {
		if a.fresh && a.cache != nil {
			a.fresh = false
			a.review("")
		}
		if len(a.ready) == 0 {
			return
		}
		n := min(len(a.ready), maxBatch)
		batch := slices.Clone(a.ready[:n])
		a.ready = slices.Delete(a.ready, 0, n)
		a.turn(batch)
	}
}
