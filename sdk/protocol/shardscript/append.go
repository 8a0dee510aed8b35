package shardscript

import (
	"fmt"
	"strconv"
)

// AppendArgs is the ARGV of APPEND: entries appended under the layout (epoch, count), each a
// list of field, value, field, value, … of strings or byte slices. maxLen trims the shard
// roughly to that length after each append; 0 does not trim. Without entries only the checks
// are made.
func AppendArgs(epoch int64, count int, maxLen int64, entries ...[]any) []any {
	n := 4
	for _, e := range entries {
		n += 1 + len(e)
	}
	args := make([]any, 0, n)
	args = append(args, decimal(epoch), strconv.Itoa(count), optional(maxLen), strconv.Itoa(len(entries)))
	for _, e := range entries {
		args = append(args, strconv.Itoa(len(e)))
		args = append(args, e...)
	}
	return args
}

// AppendReply is what APPEND answered. With OK all entries have landed and IDs are theirs. With
// FAILED those in IDs have, the others have not, and Error says why. With any other code none
// has, and the rest is what the shard's control hash shows.
type AppendReply struct {
	Code      Code
	IDs       []string
	Error     string
	HasLayout bool // Epoch and Count are known
	Epoch     int64
	Count     int
	Gate      string
	Until     int64 // ms of the time of the shard's node, 0 for none
	Hold      int64
	At        int64 // that node's time
}

// ParseAppend reads the answer of EVALSHA to APPEND.
func ParseAppend(v any) (AppendReply, error) {
	text, err := stringList(v)
	if err != nil || len(text) == 0 {
		return AppendReply{}, fmt.Errorf("reply of APPEND is %T: %w", v, err)
	}
	r := AppendReply{Code: Code(text[0])}
	switch {
	case r.Code == OK:
		r.IDs = text[1:]
		return r, nil
	case r.Code == Failed && len(text) >= 2:
		r.Error, r.IDs = text[1], text[2:]
		return r, nil
	case len(text) != 7:
		return AppendReply{}, fmt.Errorf("reply %s of APPEND has %d elements", r.Code, len(text))
	}
	r.HasLayout = text[1] != "" && text[2] != ""
	r.Gate = text[3]
	var count int64
	for i, to := range map[int]*int64{1: &r.Epoch, 2: &count, 4: &r.Until, 5: &r.Hold, 6: &r.At} {
		if text[i] == "" {
			continue
		}
		if *to, err = strconv.ParseInt(text[i], 10, 64); err != nil {
			return AppendReply{}, fmt.Errorf("element %d of APPEND's reply: %w", i, err)
		}
	}
	r.Count = int(count)
	return r, nil
}

func stringList(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("not a list")
	}
	text := make([]string, len(list))
	for i, e := range list {
		switch e := e.(type) {
		case string:
			text[i] = e
		case int64:
			text[i] = decimal(e)
		default:
			return nil, fmt.Errorf("element %d is %T", i, e)
		}
	}
	return text, nil
}
