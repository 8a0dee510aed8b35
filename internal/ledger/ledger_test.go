package ledger

import "testing"

// publish appends n entries to key and says that all have landed.
func publish(l *Ledger, key, n int) {
	for range n {
		l.Landed(key, l.Publish(key))
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(l *Ledger)
		want Tally
	}{
		{"in order", func(l *Ledger) {
			publish(l, 0, 3)
			for n := range 3 {
				l.Handle(0, n)
			}
		}, Tally{Published: 3, Handled: 3}},
		{"a duplicate is no violation", func(l *Ledger) {
			publish(l, 0, 2)
			l.Handle(0, 0)
			l.Handle(0, 1)
			l.Handle(0, 0)
		}, Tally{Published: 2, Handled: 2, Duplicates: 1}},
		{"an earlier entry handled later is one", func(l *Ledger) {
			publish(l, 0, 3)
			l.Handle(0, 0)
			l.Handle(0, 2)
			l.Handle(0, 1)
		}, Tally{Published: 3, Handled: 3, Strict: 1}},
		{"keys are independent", func(l *Ledger) {
			publish(l, 0, 1)
			publish(l, 1, 1)
			l.Handle(1, 0)
			l.Handle(0, 0)
		}, Tally{Published: 2, Handled: 2}},
		{"never handled is lost", func(l *Ledger) {
			publish(l, 0, 2)
			l.Handle(0, 1)
		}, Tally{Published: 2, Handled: 1, Lost: 1}},
		{"no answer is not lost", func(l *Ledger) {
			l.Publish(0)
		}, Tally{Unknown: 1}},
		{"an online change in between excuses", func(l *Ledger) {
			publish(l, 0, 1)
			l.Change("4 → 6", false)()
			publish(l, 0, 1)
			l.Handle(0, 1)
			l.Handle(0, 0)
		}, Tally{Published: 2, Handled: 2, Online: 1}},
		{"a quiesced change does not", func(l *Ledger) {
			publish(l, 0, 1)
			l.Change("4 → 8", true)()
			publish(l, 0, 1)
			l.Handle(0, 1)
			l.Handle(0, 0)
		}, Tally{Published: 2, Handled: 2, Strict: 1}},
		{"an online change before does not", func(l *Ledger) {
			l.Change("4 → 6", false)()
			publish(l, 0, 2)
			l.Handle(0, 1)
			l.Handle(0, 0)
		}, Tally{Published: 2, Handled: 2, Strict: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := New(2)
			c.run(l)
			got := l.Count()
			got.Examples = nil
			if got.Published != c.want.Published || got.Unknown != c.want.Unknown || got.Handled != c.want.Handled ||
				got.Duplicates != c.want.Duplicates || got.Lost != c.want.Lost || got.Strict != c.want.Strict || got.Online != c.want.Online {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	if New(1).Handle(0, 0) {
		t.Error("an entry that was never published is accepted")
	}
}
