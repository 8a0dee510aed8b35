package group

import (
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// recoveryLead is how far the epochs jump after lost writes, beyond all that is known of them.
const recoveryLead = 1000

// Epochs are the numbers of a group that only grow.
type Epochs struct{ GroupEpoch, MetadataVersion, OwnershipCounter int64 }

// Recover is rule S12, after Redis lost writes: highest is the highest of GE, MV and ownership
// counter that this replica has ever seen of the group (zero values where unknown).
//
// For one lease nothing is granted, expired or fenced, so that whatever the lost writes had
// told a member has run out before it is given to another. Rows.Renew lists every row that
// somebody waits for; the commit sets them to TIME + L even where they stand later.
func (t *Turn) Recover(highest Epochs, now protocol.Instant, leases Leases) {
	s := t.edit(now)
	cfg := s.Config()
	s.RecoverUntil = now.Add(max(cfg.MemberLease, time.Millisecond))
	s.GroupEpoch = max(s.GroupEpoch, highest.GroupEpoch) + recoveryLead
	s.MetadataVersion = max(s.MetadataVersion, highest.MetadataVersion) + recoveryLead
	s.OwnershipCounter = max(s.OwnershipCounter, highest.OwnershipCounter) + recoveryLead
	s.Correction = nil

	for i := range s.Shards {
		sh := &s.Shards[i]
		if sh.Holder == nil {
			continue
		}
		if sh.Deadline != 0 {
			sh.Deadline = now.Add(cfg.RebalanceTimeout)
		}
		if end, ok := leases[sh.Holder.Row()]; ok && end > now || sh.Orphaned {
			continue
		}
		m := s.session(sh.Holder)
		switch {
		case m == nil:
			t.orphan(i, now)
		case m.State == Active && sh.RevokedAt == 0:
			// In the lost writes the shard may have gone on to another. The session itself runs,
			// and its row will be renewed, so that the row cannot say when the shard is free: it
			// counts as told, and is released like any other or goes with the session.
			sh.RevokedAt, sh.Deadline = s.GroupEpoch, now.Add(cfg.RebalanceTimeout)
		}
	}
	t.RenewAll(leases)
}
