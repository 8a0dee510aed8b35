package main

import "testing"

// publish appends n entries to key and says that all have landed.
func publish(l *ledger, key, n int) {
	for range n {
		l.landed(key, l.publish(key))
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(l *ledger)
		want tally
	}{
		{"in order", func(l *ledger) {
			publish(l, 0, 3)
			for n := range 3 {
				l.handle(0, n)
			}
		}, tally{published: 3, handled: 3}},
		{"a duplicate is no violation", func(l *ledger) {
			publish(l, 0, 2)
			l.handle(0, 0)
			l.handle(0, 1)
			l.handle(0, 0)
		}, tally{published: 2, handled: 2, duplicates: 1}},
		{"an earlier entry handled later is one", func(l *ledger) {
			publish(l, 0, 3)
			l.handle(0, 0)
			l.handle(0, 2)
			l.handle(0, 1)
		}, tally{published: 3, handled: 3, strict: 1}},
		{"keys are independent", func(l *ledger) {
			publish(l, 0, 1)
			publish(l, 1, 1)
			l.handle(1, 0)
			l.handle(0, 0)
		}, tally{published: 2, handled: 2}},
		{"never handled is lost", func(l *ledger) {
			publish(l, 0, 2)
			l.handle(0, 1)
		}, tally{published: 2, handled: 1, lost: 1}},
		{"no answer is not lost", func(l *ledger) {
			l.publish(0)
		}, tally{unknown: 1}},
		{"an online change in between excuses", func(l *ledger) {
			publish(l, 0, 1)
			l.change("4 → 6", false)()
			publish(l, 0, 1)
			l.handle(0, 1)
			l.handle(0, 0)
		}, tally{published: 2, handled: 2, online: 1}},
		{"a quiesced change does not", func(l *ledger) {
			publish(l, 0, 1)
			l.change("4 → 8", true)()
			publish(l, 0, 1)
			l.handle(0, 1)
			l.handle(0, 0)
		}, tally{published: 2, handled: 2, strict: 1}},
		{"an online change before does not", func(l *ledger) {
			l.change("4 → 6", false)()
			publish(l, 0, 2)
			l.handle(0, 1)
			l.handle(0, 0)
		}, tally{published: 2, handled: 2, strict: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(2)
			c.run(l)
			got := l.count()
			got.examples = nil
			if got.published != c.want.published || got.unknown != c.want.unknown || got.handled != c.want.handled ||
				got.duplicates != c.want.duplicates || got.lost != c.want.lost || got.strict != c.want.strict || got.online != c.want.online {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	if newLedger(1).handle(0, 0) {
		t.Error("an entry that was never published is accepted")
	}
}
