package group

// RenewAll puts the row of every session that is not over, and of every orphan, into Rows.Renew:
// the clock of Redis has stepped (C5). The state does not change. What is known of the rows
// does not matter: a row that is missing is written too.
func (t *Turn) RenewAll(_ Leases) {
	s := t.State()
	for _, id := range sortedMembers(s) {
		if m := s.Members[id]; !m.State.SessionOver() {
			t.rows.Renew(Row(id, m.JoinEpoch))
		}
	}
	for i := range s.Shards {
		if s.Shards[i].Orphaned {
			t.rows.Renew(s.Shards[i].Holder.Row())
		}
	}
}
