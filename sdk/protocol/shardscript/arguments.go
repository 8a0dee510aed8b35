package shardscript

import (
	"encoding/json"
	"strconv"
)

// Arguments are those of the coordinator's scripts and of RESOLVE and BRING. The head of each
// script says which ones it reads; the others are ignored. Instants are milliseconds of Redis
// time; where the head of the script calls one optional, 0 is none.
type Arguments struct {
	Revision int64  // of the stream aggregate that the command was computed from
	ID       string // of the resharding
	NotAfter int64  // in the time of the shard's node

	Epoch    int64
	Count    int
	ToEpoch  int64
	ToCount  int
	Index    int
	Until    int64
	Hold     int64
	High     int
	Groups   []string
	Ignored  []string
	Quiesced bool
	Drained  bool
	Archive  string
	Start    string
	Most     int    // EVIDENCE, PROBE: how many undelivered entries to count per group; 0: 100. RECHECK: archive names to try. RETAIN: entries of a slice; 0: 1000
	LastID   string // RECHECK: the certified last id
	Owner    *Owner // MKGROUP by the owner of a shard; RMGROUP: Epoch is higher than any that was granted
	Policy   string // RETAIN: ACKED, MAX_AGE or MAX_LEN
	MaxAge   int64  // RETAIN by MAX_AGE, ms
	MaxLen   int64  // RETAIN by MAX_LEN, entries
}

// Owner is one ownership of a shard by a group's member (rule D1).
type Owner struct {
	Epoch       int64
	MemberID    string
	Incarnation string
}

type ownerJSON struct {
	Epoch       string `json:"epoch"`
	MemberID    string `json:"member"`
	Incarnation string `json:"incarnation"`
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// optional is decimal, but "" for zero, which is then left out.
func optional(n int64) string {
	if n == 0 {
		return ""
	}
	return decimal(n)
}

// Args is the ARGV of the script.
func (a Arguments) Args() []any {
	wire := struct {
		Revision string     `json:"rev"`
		ID       string     `json:"id,omitempty"`
		NotAfter string     `json:"notAfter"`
		Epoch    string     `json:"epoch"`
		Count    string     `json:"count"`
		ToEpoch  string     `json:"toEpoch"`
		ToCount  string     `json:"toCount"`
		Index    string     `json:"index"`
		Until    string     `json:"until,omitempty"`
		Hold     string     `json:"hold,omitempty"`
		High     string     `json:"high"`
		Groups   []string   `json:"groups,omitempty"`
		Ignored  []string   `json:"ignored,omitempty"`
		Quiesced bool       `json:"quiesced,omitempty"`
		Drained  bool       `json:"drained,omitempty"`
		Archive  string     `json:"archive,omitempty"`
		Start    string     `json:"start,omitempty"`
		Most     string     `json:"most,omitempty"`
		LastID   string     `json:"lastId,omitempty"`
		Owner    *ownerJSON `json:"owner,omitempty"`
		Policy   string     `json:"policy,omitempty"`
		MaxAge   string     `json:"maxAge,omitempty"`
		MaxLen   string     `json:"maxLen,omitempty"`
	}{
		Revision: decimal(a.Revision), ID: a.ID, NotAfter: decimal(a.NotAfter),
		Epoch: decimal(a.Epoch), Count: strconv.Itoa(a.Count),
		ToEpoch: decimal(a.ToEpoch), ToCount: strconv.Itoa(a.ToCount), Index: strconv.Itoa(a.Index),
		Until: optional(a.Until), Hold: optional(a.Hold), High: strconv.Itoa(a.High),
		Groups: a.Groups, Ignored: a.Ignored, Quiesced: a.Quiesced, Drained: a.Drained,
		Archive: a.Archive, Start: a.Start, Most: optional(int64(a.Most)), LastID: a.LastID,
		Policy: a.Policy, MaxAge: optional(a.MaxAge), MaxLen: optional(a.MaxLen),
	}
	if a.Owner != nil {
		wire.Owner = &ownerJSON{decimal(a.Owner.Epoch), a.Owner.MemberID, a.Owner.Incarnation}
	}
	return []any{mustJSON(wire)}
}

// mustJSON encodes what this package built itself: strings, booleans and lists of them.
func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
