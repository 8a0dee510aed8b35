package group

import (
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// rowBook collects what a turn does to lease rows, in the order in which it was decided.
type rowBook struct {
	renewed, dropped map[string]bool
	checked          map[string]time.Duration
	renew, drop      []string
	check            []string
}

// Renew sets the end of the row to TIME + L in the commit.
func (b *rowBook) Renew(row string) {
	if b.renewed[row] {
		return
	}
	if b.renewed == nil {
		b.renewed = map[string]bool{}
	}
	b.renewed[row] = true
	b.renew = append(b.renew, row)
}

// Drop removes the row in the commit. A renewal that an earlier input of the turn asked for
// goes with it: nobody waits for the row any more.
func (b *rowBook) Drop(row string) {
	if b.dropped[row] {
		return
	}
	if b.dropped == nil {
		b.dropped = map[string]bool{}
	}
	b.dropped[row] = true
	b.drop = append(b.drop, row)
}

// Check makes the commit depend on the row having at most remaining left.
func (b *rowBook) Check(row string, remaining time.Duration) {
	if b.checked == nil {
		b.checked = map[string]time.Duration{}
	}
	before, ok := b.checked[row]
	if !ok {
		b.check = append(b.check, row)
	}
	if !ok || remaining < before {
		b.checked[row] = remaining
	}
}

// end is what this turn may take for the end of the row: a row that it renews ends a whole
// lease from now, whatever the caller knew before (C7). A row that is not known is missing.
func (b *rowBook) end(row string, now protocol.Instant, lease time.Duration, leases Leases) (protocol.Instant, bool) {
	if b.renewed[row] {
		return now.Add(lease), true
	}
	end, ok := leases[row]
	return end, ok
}

// rows gives the result, or a zero Rows when there is nothing.
func (b *rowBook) rows() Rows {
	var out Rows
	for _, row := range b.renew {
		if !b.dropped[row] {
			out.Renew = append(out.Renew, row)
		}
	}
	out.Drop = append(out.Drop, b.drop...)
	for _, row := range b.check {
		if !b.renewed[row] {
			out.Check = append(out.Check, RowCheck{Row: row, MaxRemaining: b.checked[row]})
		}
	}
	return out
}
