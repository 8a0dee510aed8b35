package ledger

import (
	"strings"
	"testing"
	"time"
)

// script writes a journal: instants are in ms of one run.
type script struct {
	j *Journal
}

func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }

func place(shard, ms int) Place { return Place{Shard: shard, ID: EntryID{Ms: uint64(ms)}} }

// land appends the next entry of key 0 at an instant, which is its id too.
func (s script) land(shard, ms int) {
	n := s.j.Next(0)
	s.j.Attempt(0, n, at(ms))
	s.j.Landed(0, n, place(shard, ms))
}

// handle is a handling of entry number of key 0 for 2 ms.
func (s script) handle(process, number int, p Place, ms int) {
	s.j.Begin(Handling{Process: process, Epoch: int64(process), Place: p, Number: number, Begun: at(ms)})
	s.j.End(process, p, at(ms+2))
}

func TestJournal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(s script)
		want string // part of the only problem, "" for none
	}{
		{"all is well", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.handle(1, 0, place(0, 10), 20)
			s.handle(1, 1, place(0, 11), 22)
		}, ""},
		{"lost", func(s script) { s.land(0, 10) }, "is lost"},
		{"begun and never ended is lost", func(s script) {
			s.land(0, 10)
			s.j.Begin(Handling{Process: 1, Place: place(0, 10), Begun: at(20)})
			s.j.Interrupt(Interruption{Process: 1, From: at(21)})
		}, "is lost"},
		{"an append without an answer need not be handled", func(s script) {
			s.j.Attempt(0, 0, at(10))
		}, ""},
		{"an append without an answer may be handled", func(s script) {
			s.j.Attempt(0, 0, at(10))
			s.handle(1, 0, place(0, 10), 20)
		}, ""},
		{"handled and never appended", func(s script) { s.handle(1, 0, place(0, 10), 20) }, "never appended"},
		{"twice in the stream", func(s script) {
			s.land(0, 10)
			s.handle(1, 0, place(0, 10), 20)
			s.handle(1, 0, place(1, 12), 30)
			s.j.Cut(Cut{Process: 1, Epoch: 1, At: at(25)})
			s.j.Disturb(Window{at(0), at(100)})
		}, "stands twice"},
		{"again without a reason", func(s script) {
			s.land(0, 10)
			s.handle(1, 0, place(0, 10), 20)
			s.handle(2, 0, place(0, 10), 30)
		}, "not pending at a kill"},
		{"again after a kill at which it was pending", func(s script) {
			s.land(0, 10)
			s.handle(1, 0, place(0, 10), 20)
			s.j.Interrupt(Interruption{Process: 1, From: at(25), Pending: map[Place]bool{place(0, 10): true}})
			s.handle(2, 0, place(0, 10), 30)
		}, ""},
		{"again after a kill at which it was acknowledged", func(s script) {
			s.land(0, 10)
			s.handle(1, 0, place(0, 10), 20)
			s.j.Interrupt(Interruption{Process: 1, From: at(25), Pending: map[Place]bool{place(1, 10): true}})
			s.handle(2, 0, place(0, 10), 30)
		}, "not pending at a kill"},
		{"again after the kill of somebody else", func(s script) {
			s.land(0, 10)
			s.handle(1, 0, place(0, 10), 20)
			s.j.Interrupt(Interruption{Process: 3, From: at(25), Pending: map[Place]bool{place(0, 10): true}})
			s.handle(2, 0, place(0, 10), 30)
		}, "not pending at a kill"},
		{"again long before its ownership was cut off", func(s script) {
			s.land(0, 10)
			s.handle(1, 0, place(0, 10), 20)
			s.j.Disturb(Window{at(0), at(9000)})
			s.j.Cut(Cut{Process: 1, Epoch: 1, At: at(9000)})
			s.handle(2, 0, place(0, 10), 9010)
		}, "not pending at a kill"},
		{"cut off without a disturbance", func(s script) { s.j.Cut(Cut{Process: 1, At: at(50)}) }, "undisturbed"},
		{"cut off after a freeze of its own", func(s script) {
			s.j.Interrupt(Interruption{Process: 1, From: at(20), To: at(50)})
			s.j.Cut(Cut{Process: 1, At: at(60)})
		}, ""},
		{"cut off after a freeze of another", func(s script) {
			s.j.Interrupt(Interruption{Process: 2, From: at(20), To: at(50)})
			s.j.Cut(Cut{Process: 1, At: at(60)})
		}, "undisturbed"},
		{"acknowledgement refused without a disturbance", func(s script) { s.j.AckRefused(Cut{Process: 1, At: at(50)}) }, "was refused"},
		{"append failed", func(s script) {
			s.j.Attempt(0, 0, at(10))
			s.j.Unanswered(0, 0, "boom", false)
		}, "boom"},
		{"out of order on one shard", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.handle(1, 1, place(0, 11), 20)
			s.handle(1, 0, place(0, 10), 30)
		}, "was handled after entry 1"},
		{"out of order across an online change", func(s script) {
			s.land(0, 10)
			s.land(1, 18)
			s.j.Excuse(Window{at(14), at(15)})
			s.handle(1, 1, place(1, 18), 20)
			s.handle(1, 0, place(0, 10), 30)
		}, ""},
		{"out of order before an online change", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.j.Excuse(Window{at(15), at(16)})
			s.handle(1, 1, place(0, 11), 20)
			s.handle(1, 0, place(0, 10), 30)
		}, "was handled after entry 1"},
		{"out of order after an online change", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.j.Excuse(Window{at(5), at(6)})
			s.handle(1, 1, place(0, 11), 20)
			s.handle(1, 0, place(0, 10), 30)
		}, "was handled after entry 1"},
		{"a repetition is not out of order", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.handle(1, 0, place(0, 10), 20)
			s.handle(1, 1, place(0, 11), 23)
			s.j.Interrupt(Interruption{Process: 1, From: at(26), Pending: map[Place]bool{place(0, 10): true}})
			s.handle(2, 0, place(0, 10), 30)
		}, ""},
		{"two at work on one shard", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.handle(1, 0, place(0, 10), 20)
			s.handle(2, 1, place(0, 11), 21)
		}, "is at work on"},
		{"one at work on a shard that a frozen one was at work on", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.j.Begin(Handling{Process: 1, Place: place(0, 10), Number: 0, Begun: at(20)})
			s.j.Interrupt(Interruption{Process: 1, From: at(21), To: at(90)})
			s.handle(2, 1, place(0, 11), 50)
			s.j.End(1, place(0, 10), at(91))
		}, ""},
		{"one at work on a shard on which a frozen one began before it stood still", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.j.Begin(Handling{Process: 1, Place: place(0, 10), Number: 0, Begun: at(22)})
			s.j.Interrupt(Interruption{Process: 1, From: at(21), Stopped: at(23), To: at(90)})
			s.handle(2, 1, place(0, 11), 50)
			s.j.End(1, place(0, 10), at(91))
		}, ""},
		{"two at work on one shard, one of them behind a freeze", func(s script) {
			s.land(0, 10)
			s.land(0, 11)
			s.j.Interrupt(Interruption{Process: 1, From: at(21), Stopped: at(23), To: at(90)})
			s.j.Begin(Handling{Process: 1, Place: place(0, 10), Number: 0, Begun: at(89)})
			s.handle(2, 1, place(0, 11), 91)
			s.j.End(1, place(0, 10), at(95))
		}, "is at work on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := script{NewJournal(1, 1)}
			c.run(s)
			v := s.j.Judge()
			switch {
			case c.want == "" && len(v.Problems) > 0:
				t.Errorf("problems %v, want none", v.Problems)
			case c.want != "" && (len(v.Problems) != 1 || !strings.Contains(v.Problems[0].Text, c.want)):
				t.Errorf("problems %v, want one with %q", v.Problems, c.want)
			}
			if again := s.j.Judge(); len(again.Problems) != len(v.Problems) {
				t.Errorf("the second judgement finds %v", again.Problems)
			}
		})
	}
}

// TestJournalCounts: what is missing is known at any time, in whatever order reports come.
func TestJournalCounts(t *testing.T) {
	t.Parallel()
	j := NewJournal(1, 2)
	j.Attempt(0, 0, at(1))
	h := Handling{Process: 1, Place: place(0, 1), Begun: at(2)}
	j.Begin(h)
	j.End(1, h.Place, at(3)) // before its producer has reported that it landed
	j.Landed(0, 0, h.Place)
	if p := j.Progress(); p.Landed != 1 || p.Handled[0] != 1 || p.Handled[1] != 0 || p.Missing != 1 {
		t.Errorf("progress %+v, want one entry missing at the second group", p)
	}
	h.Group, h.Process = 1, 2
	j.Begin(h)
	j.End(2, h.Place, at(3))
	if p := j.Progress(); p.Missing != 0 {
		t.Errorf("progress %+v, want nothing missing", p)
	}
	if v := j.Judge(); v.Attempted != 1 || v.Landed != 1 || v.Handled != 2 || len(v.Problems) != 0 {
		t.Errorf("verdict %+v", v)
	}
}

func TestParseEntryID(t *testing.T) {
	t.Parallel()
	if id, err := ParseEntryID("17-3"); err != nil || id != (EntryID{17, 3}) || id.String() != "17-3" {
		t.Errorf("17-3 is %v, %v", id, err)
	}
	for _, bad := range []string{"", "17", "-3", "17-", "a-b", "1-2-3"} {
		if id, err := ParseEntryID(bad); err == nil {
			t.Errorf("%q is read as %v", bad, id)
		}
	}
}
