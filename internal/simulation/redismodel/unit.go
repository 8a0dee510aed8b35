package redismodel

import (
	"maps"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// Token guards one aggregate: revision and id of the commit that wrote it (rule C1). The zero
// Token means "not stored".
type Token struct {
	Revision int64
	Nonce    string
}

// Unit is what is stored of one stream in the coordinator's slot. States are immutable, so they
// are shared with whoever loaded them.
type Unit struct {
	Stream      *stream.State
	StreamToken Token
	Groups      map[string]*group.State
	GroupTokens map[string]Token
	Leases      map[string]group.Leases
}

func (u *Unit) clone() *Unit {
	out := *u
	out.Groups, out.GroupTokens = maps.Clone(u.Groups), maps.Clone(u.GroupTokens)
	out.Leases = make(map[string]group.Leases, len(u.Leases))
	for name, rows := range u.Leases {
		out.Leases[name] = maps.Clone(rows)
	}
	return &out
}

// Load reads everything in one atomic step, with TIME and the server's identity.
func (r *Redis) Load() (u *Unit, at protocol.Instant, identity string) {
	return r.unit.clone(), r.TimeOf(-1), r.Nodes[0].Identity
}

// Stored is the unit as it stands; the oracle reads it.
func (r *Redis) Stored() *Unit { return r.unit }

// Outcome says how a commit ended.
type Outcome string

// The outcomes: done, or refused by rule C2, C1, the not-after time, C5, C4.
const (
	Committed   Outcome = "OK"
	OtherServer Outcome = "IDENTITY"
	Conflict    Outcome = "CONFLICT"
	TooLate     Outcome = "LATE"
	OtherClock  Outcome = "CLOCK"
	RowsLive    Outcome = "ROWS"
)

// GroupCommit is the part of one group. Next nil: only check the token and renew.
type GroupCommit struct {
	Name      string
	Expect    Token
	Next      *group.State
	Delete    bool
	Rows      group.Rows
	Lease     time.Duration
	ResetRows bool
}

// Commit is one atomic step on the aggregates of the stream.
type Commit struct {
	Identity    string // "" skips the check
	Nonce       string
	CheckStream bool
	Expect      Token
	Next        *stream.State // nil: only check
	Delete      bool
	MinRevision int64
	Groups      []GroupCommit
	NotAfter    protocol.Instant // 0: none
	Estimate    protocol.Instant
	Tolerance   time.Duration // 0: no check of the clock
}

// Result is the reply of a commit. Ends has the true ends of the rows that refused it.
type Result struct {
	Outcome     Outcome
	Time        protocol.Instant
	Identity    string
	StreamToken Token
	GroupTokens map[string]Token
	Ends        map[string]group.Leases
}

// Commit makes c, all or nothing.
func (r *Redis) Commit(c Commit) Result {
	u, now := r.unit, r.TimeOf(-1)
	res := Result{Outcome: Committed, Time: now, Identity: r.Nodes[0].Identity, GroupTokens: map[string]Token{}}
	refuse := func(o Outcome) Result { res.Outcome = o; return res }
	if c.Identity != "" && c.Identity != res.Identity {
		return refuse(OtherServer)
	}
	if c.CheckStream && u.StreamToken != c.Expect {
		return refuse(Conflict)
	}
	for _, g := range c.Groups {
		if u.GroupTokens[g.Name] != g.Expect {
			return refuse(Conflict)
		}
	}
	if c.NotAfter != 0 && now >= c.NotAfter {
		return refuse(TooLate)
	}
	if c.Tolerance != 0 && now.Sub(c.Estimate).Abs() > c.Tolerance {
		return refuse(OtherClock)
	}
	for _, g := range c.Groups {
		for _, check := range g.Rows.Check {
			end, ok := u.Leases[g.Name][check.Row]
			if ok && end.Sub(now) <= check.MaxRemaining {
				continue
			}
			if res.Ends == nil {
				res.Ends = map[string]group.Leases{}
			}
			if res.Ends[g.Name] == nil {
				res.Ends[g.Name] = group.Leases{}
			}
			res.Ends[g.Name][check.Row] = end
		}
	}
	if res.Ends != nil {
		return refuse(RowsLive)
	}
	r.write(c, &res)
	return res
}

func (r *Redis) write(c Commit, res *Result) {
	u, now := r.unit, res.Time
	if u.Groups == nil {
		u.Groups, u.GroupTokens, u.Leases = map[string]*group.State{}, map[string]Token{}, map[string]group.Leases{}
	}
	switch {
	case c.Delete:
		u.Stream, u.StreamToken = nil, Token{}
	case c.Next != nil:
		u.Stream = c.Next
		u.StreamToken = Token{max(c.Expect.Revision+1, c.MinRevision), c.Nonce}
		res.StreamToken = u.StreamToken
	}
	for _, g := range c.Groups {
		if g.Delete {
			delete(u.Groups, g.Name)
			delete(u.GroupTokens, g.Name)
			delete(u.Leases, g.Name)
			continue
		}
		if g.Next != nil {
			u.Groups[g.Name] = g.Next
			u.GroupTokens[g.Name] = Token{g.Expect.Revision + 1, c.Nonce}
			res.GroupTokens[g.Name] = u.GroupTokens[g.Name]
		}
		rows := u.Leases[g.Name]
		if rows == nil {
			rows = group.Leases{}
			u.Leases[g.Name] = rows
		}
		for _, row := range g.Rows.Drop {
			delete(rows, row)
		}
		for _, row := range g.Rows.Renew {
			if end := now.Add(g.Lease); g.ResetRows || rows[row] < end {
				rows[row] = end
			}
		}
	}
}
