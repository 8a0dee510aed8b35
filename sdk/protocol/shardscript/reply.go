package shardscript

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// The barriers: what keeps appends from a sealed shard.
const (
	BarrierXSetID = "XSETID" // Redis itself refuses, whoever tries
	BarrierLease  = "LEASE"  // the user may not run XSETID: only fenced appends are refused
)

// Reply is what a script of the coordinator, RESOLVE or BRING answered.
type Reply struct {
	Code    Code
	At      int64   // time of the shard's node, ms
	Control Control // as the script left it
	// The stream as the script left it; Sealed is the fact that the last generated id is the
	// highest possible one. LastID is the kept one while sealed.
	Exists, Sealed bool
	Length, Added  int64
	LastID         string
	Barrier        string
	Error          string // of SEALERR, EXHAUSTED and UNKNOWN
	Owner          int64  // of NOTOWNER: the stored ownership epoch
	Verdict        Code   // "" where no evidence was taken
	Groups         []GroupEvidence
	// Of RETAIN: entries that went, how many acknowledgements were still due for them (summed over
	// the groups), and whether there is another slice.
	Removed, Unacked int64
	More             bool
}

// GroupEvidence is one consumer group of a shard.
type GroupEvidence struct {
	Group           string
	Pending         int64
	LastDeliveredID string
	EntryAfter      bool
	Undelivered     int64  // entries after LastDeliveredID, counted up to a limit
	UndeliveredMore bool   // there are more than that
	Lag             *int64 // nil: Redis does not know it
	PossibleLoss    *int64 // entries that went before they were delivered, by Redis's counters; nil: not known
	Trimmed         int64  // entries that RETAIN removed before the group had acknowledged them
	Gone            int64  // pending entries whose body was gone when an owner came to them
	Ignored         bool
}

// ParseReply reads the answer of EVALSHA to one of those scripts.
func ParseReply(v any) (Reply, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 3 {
		return Reply{}, fmt.Errorf("reply of a shard script is %T, not a list of three", v)
	}
	var text [3]string
	for i := range text {
		if text[i], ok = list[i].(string); !ok {
			return Reply{}, fmt.Errorf("element %d of a shard script's reply is %T, not a string", i, list[i])
		}
	}
	at, err := strconv.ParseInt(text[1], 10, 64)
	if err != nil {
		return Reply{}, fmt.Errorf("time in a shard script's reply: %w", err)
	}
	var body struct {
		Control map[string]string `json:"control"`
		Exists  bool              `json:"exists"`
		Sealed  bool              `json:"sealed"`
		Length  int64             `json:"length,string"`
		Added   int64             `json:"added,string"`
		Last    string            `json:"last"`
		Barrier string            `json:"barrier"`
		Error   string            `json:"error"`
		Owner   int64             `json:"owner,string"`
		Verdict Code              `json:"verdict"`
		Removed int64             `json:"removed,string"`
		Unacked int64             `json:"unacked,string"`
		More    bool              `json:"more"`
		Groups  []struct {
			Name    string `json:"name"`
			Pending int64  `json:"pending,string"`
			Last    string `json:"last"`
			After   bool   `json:"after"`
			Left    int64  `json:"left,string"`
			More    bool   `json:"more"`
			Lag     *int64 `json:"lag,string"`
			Missed  *int64 `json:"missed,string"`
			Trimmed int64  `json:"trimmed,string"`
			Gone    int64  `json:"gone,string"`
			Ignored bool   `json:"ignored"`
		} `json:"groups"`
	}
	if err := json.Unmarshal([]byte(text[2]), &body); err != nil {
		return Reply{}, fmt.Errorf("body of a shard script's reply: %w", err)
	}
	r := Reply{
		Code: Code(text[0]), At: at, Exists: body.Exists, Sealed: body.Sealed, Length: body.Length, Added: body.Added,
		LastID: body.Last, Barrier: body.Barrier, Error: body.Error, Owner: body.Owner, Verdict: body.Verdict,
		Removed: body.Removed, Unacked: body.Unacked, More: body.More,
	}
	for _, g := range body.Groups {
		r.Groups = append(r.Groups, GroupEvidence{
			Group: g.Name, Pending: g.Pending, LastDeliveredID: g.Last, EntryAfter: g.After,
			Undelivered: g.Left, UndeliveredMore: g.More, Lag: g.Lag, PossibleLoss: g.Missed,
			Trimmed: g.Trimmed, Gone: g.Gone, Ignored: g.Ignored,
		})
	}
	if r.Control, err = ParseControl(body.Control); err != nil {
		return Reply{}, err
	}
	return r, nil
}
