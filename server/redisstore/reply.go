package redisstore

import (
	"fmt"
	"strconv"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// readHead takes time and identity from the front of a script's reply.
func readHead(v []any) (at protocol.Instant, identity string, rest []any, err error) {
	if len(v) < 2 {
		return 0, "", nil, fmt.Errorf("script reply has %d elements", len(v))
	}
	text, okTime := v[0].(string)
	identity, okID := v[1].(string)
	if !okTime || !okID {
		return 0, "", nil, fmt.Errorf("script reply begins with %T, %T", v[0], v[1])
	}
	at, err = readInstant(text)
	return at, identity, v[2:], err
}

func readInstant(text string) (protocol.Instant, error) {
	// Scores of sorted sets come as doubles.
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("instant %q: %w", text, err)
	}
	return protocol.Instant(n), nil
}

// readRows takes a list of row, end, row, end, ….
func readRows(v any) (map[string]protocol.Instant, error) {
	list, ok := v.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, fmt.Errorf("lease rows are %T of %d", v, len(list))
	}
	rows := make(map[string]protocol.Instant, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		row, okRow := list[i].(string)
		ends, okEnd := list[i+1].(string)
		if !okRow || !okEnd {
			return nil, fmt.Errorf("lease row is %T, %T", list[i], list[i+1])
		}
		at, err := readInstant(ends)
		if err != nil {
			return nil, err
		}
		rows[row] = at
	}
	return rows, nil
}
