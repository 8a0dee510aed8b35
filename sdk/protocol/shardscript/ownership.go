package shardscript

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// MaxSlice is the most ids that one TAKEOVER claims.
const MaxSlice = 1000

// TakeoverSlice are the arguments of TAKEOVER. The first call leaves After empty, each next
// one passes TakeoverReply.Next, until that is empty.
type TakeoverSlice struct {
	Group    string
	Owner    Owner
	Consumer string // name under which the owner reads
	Max      int    // ids of one slice, at most MaxSlice
	After    string
}

// Args is the ARGV of the script.
func (s TakeoverSlice) Args() []any {
	return []any{mustJSON(struct {
		Group    string `json:"group"`
		Consumer string `json:"consumer"`
		Max      string `json:"max"`
		After    string `json:"after,omitempty"`
		ownerJSON
	}{s.Group, s.Consumer, strconv.Itoa(s.Max), s.After, ownerJSON{decimal(s.Owner.Epoch), s.Owner.MemberID, s.Owner.Incarnation}})}
}

// Claimed is an entry that was pending and is now the owner's.
type Claimed struct {
	ID         string
	Deliveries int64    // this one included
	Fields     []string // field, value, …
}

// TakeoverReply is what TAKEOVER answered: OK, NOTOWNER, RETIRED, NOSHARD or NOGROUP.
type TakeoverReply struct {
	Code    Code
	At      int64     // time of the shard's node, ms
	Stored  int64     // NOTOWNER: the stored ownership epoch
	Entries []Claimed // in id order
	Lost    []string  // pending ids without a body; they have been acknowledged
	Deleted []string  // consumer names that were removed: nothing was pending under them
	Next    string    // pass it as After; "" when nothing remains
}

// ParseTakeover reads the answer of EVALSHA to TAKEOVER.
func ParseTakeover(v any) (TakeoverReply, error) {
	bad := func(what any) (TakeoverReply, error) {
		return TakeoverReply{}, fmt.Errorf("reply of TAKEOVER: %v", what)
	}
	list, ok := v.([]any)
	if !ok || len(list) != 4 {
		return bad(fmt.Sprintf("%T is not a list of four", v))
	}
	head, err := stringList(list[:3])
	if err != nil {
		return bad(err)
	}
	var body struct {
		Owner   int64    `json:"owner,string"`
		Next    string   `json:"next"`
		Lost    []string `json:"lost"`
		Deleted []string `json:"deleted"`
	}
	if err := json.Unmarshal([]byte(head[2]), &body); err != nil {
		return bad(err)
	}
	r := TakeoverReply{Code: Code(head[0]), Stored: body.Owner, Lost: body.Lost, Deleted: body.Deleted, Next: body.Next}
	if r.At, err = strconv.ParseInt(head[1], 10, 64); err != nil {
		return bad(err)
	}
	rows, ok := list[3].([]any)
	if !ok {
		return bad(fmt.Sprintf("entries are %T", list[3]))
	}
	for _, row := range rows {
		cells, ok := row.([]any)
		if !ok || len(cells) != 3 {
			return bad(fmt.Sprintf("an entry is %T", row))
		}
		id, okID := cells[0].(string)
		n, okN := cells[1].(int64)
		fields, err := stringList(cells[2])
		if !okID || !okN || err != nil {
			return bad(fmt.Sprintf("entry %v: %v", cells[0], err))
		}
		r.Entries = append(r.Entries, Claimed{ID: id, Deliveries: n, Fields: fields})
	}
	return r, nil
}

// CheckAckArgs is the ARGV of CHECKACK: the ids are acknowledged if owner still is the owner.
// Without ids it only checks.
func CheckAckArgs(group string, owner Owner, consumer string, ids ...string) []any {
	args := make([]any, 0, 5+len(ids))
	args = append(args, group, decimal(owner.Epoch), owner.MemberID, owner.Incarnation, consumer)
	for _, id := range ids {
		args = append(args, id)
	}
	return args
}

// CheckAckReply is what CHECKACK answered: OK, NOTOWNER, LOSTOWNER, RETIRED, NOSHARD or NOGROUP.
type CheckAckReply struct {
	Code      Code
	Acked     int64 // of the ids that were pending
	Elsewhere int64 // pending in the group under other consumer names: to be taken over
	Own       int64 // pending under this name
	Stored    int64 // NOTOWNER, LOSTOWNER: the stored ownership epoch, 0 for none
}

// ParseCheckAck reads the answer of EVALSHA to CHECKACK.
func ParseCheckAck(v any) (CheckAckReply, error) {
	text, err := stringList(v)
	if err != nil || len(text) == 0 {
		return CheckAckReply{}, fmt.Errorf("reply of CHECKACK is %T: %w", v, err)
	}
	r := CheckAckReply{Code: Code(text[0])}
	var to []*int64
	switch r.Code {
	case OK:
		to = []*int64{&r.Acked, &r.Elsewhere, &r.Own}
	case NotOwner, LostOwner:
		to = []*int64{&r.Stored}
	default: // the code is all
	}
	if len(text) != 1+len(to) {
		return CheckAckReply{}, fmt.Errorf("reply %s of CHECKACK has %d elements", r.Code, len(text))
	}
	for i, n := range to {
		if text[i+1] == "" {
			continue
		}
		if *n, err = strconv.ParseInt(text[i+1], 10, 64); err != nil {
			return CheckAckReply{}, fmt.Errorf("reply %s of CHECKACK: %w", r.Code, err)
		}
	}
	return r, nil
}

// DeleteConsumerArgs is the ARGV of DELCONSUMER. Its answer is {code, pending}: OK, BUSY while
// something is pending under the name, RETIRED, NOSHARD or NOGROUP.
func DeleteConsumerArgs(group, consumer string) []any { return []any{group, consumer} }

// ParseDeleteConsumer reads that answer.
func ParseDeleteConsumer(v any) (Code, int64, error) {
	text, err := stringList(v)
	if err != nil || len(text) != 2 {
		return "", 0, fmt.Errorf("reply of DELCONSUMER is %T of %d: %w", v, len(text), err)
	}
	pending, err := strconv.ParseInt(text[1], 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("reply of DELCONSUMER: %w", err)
	}
	return Code(text[0]), pending, nil
}
