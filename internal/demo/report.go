package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// change is one terraform apply and what came of it.
type change struct {
	step
	apply  time.Duration // of the whole terraform apply
	gap    time.Duration // longest time in which no append of any producer was answered; 0: none ran
	record protocol.Resharding
}

// throughput is what the producers did.
type throughput struct {
	rate    float64 // entries a second over the whole time, pauses included
	failed  int     // appends that gave an error
	example error
}

// report prints the tables and gives back whether the promises were kept.
func report(w io.Writer, changes []change, events []protocol.AuditEvent, t ledger.Tally, p throughput) bool {
	good := t.Lost == 0 && t.Strict == 0 && p.failed == 0 && t.Published > 0

	section := func(title string) *tabwriter.Writer {
		fmt.Fprintf(w, "\n%s\n", title)
		return tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	}
	table := section("Changes")
	fmt.Fprintln(table, "  shards\tstrategy\tended\tpublishing paused\tlongest gap seen\tterraform apply\tphases")
	for _, c := range changes {
		gap := "–"
		if c.gap > 0 {
			gap = short(c.gap)
		}
		fmt.Fprintf(table, "  %d → %d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.record.FromShardCount, c.record.ToShardCount, c.record.Strategy,
			c.record.Phase, short(time.Duration(c.record.PausedMs)*time.Millisecond), gap, short(c.apply), phases(c.record))
		good = good && c.record.Phase == protocol.PhaseCompleted && c.record.ToShardCount == c.shards
	}
	table.Flush()

	table = section("Entries")
	fmt.Fprintf(table, "  published\t%d\t%.0f/s\n", t.Published, p.rate)
	fmt.Fprintf(table, "  handled\t%d\t\n", t.Handled)
	fmt.Fprintf(table, "  lost\t%d\tmust be 0\n", t.Lost)
	fmt.Fprintf(table, "  duplicates\t%d\tat-least-once: allowed\n", t.Duplicates)
	fmt.Fprintf(table, "  out of order, quiesced\t%d\tmust be 0\n", t.Strict)
	fmt.Fprintf(table, "  out of order, online\t%d\tallowed across an online change\n", t.Online)
	if t.Unknown > 0 || p.failed > 0 {
		fmt.Fprintf(table, "  appends without an answer\t%d\t\n", t.Unknown)
		fmt.Fprintf(table, "  appends that failed\t%d\tmust be 0\n", p.failed)
	}
	table.Flush()
	if p.example != nil {
		fmt.Fprintf(w, "  for example: %v\n", p.example)
	}
	for i, f := range t.Examples {
		if i == 5 {
			fmt.Fprintf(w, "  … and %d more\n", len(t.Examples)-i)
			break
		}
		fmt.Fprintf(w, "  key %d: entry %d was handled after entry %d (appended %s and %s into the run)\n", f.Key, f.Late, f.Early, short(f.From), short(f.To))
	}

	table = section("Audit")
	fmt.Fprintln(table, "  time\taction\toutcome\tby\tchange\treason")
	for _, e := range slices.Backward(events) {
		fmt.Fprintf(table, "  %s\t%s\t%s %d\t%s\t%s\t%s\n", e.Timestamp.Local().Format("15:04:05.000"), e.Action, e.Outcome, e.Status, e.Principal, e.Summary, e.Reason)
	}
	table.Flush()

	if good {
		fmt.Fprintln(w, "\nNothing was lost, and no quiesced change broke the order of a key.")
	} else {
		fmt.Fprintln(w, "\nFAILED: a promise was broken.")
	}
	return good
}

// phases gives name and duration of the phases of a resharding.
func phases(r protocol.Resharding) string {
	var text string
	for _, p := range r.Phases {
		if p.EndedAt == nil || p.Phase.Terminal() {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s", p.Phase, short(p.EndedAt.Sub(p.StartedAt)))
	}
	return text
}

func randomPassword() string { return rand.Text() }
