package group

// RenewAll puts the row of every session that is not over, and of every orphan, into Rows.Renew:
// the clock of Redis has stepped (C5). The state does not change.
func (t *Turn) RenewAll(leases Leases) { panic("not built yet") }
