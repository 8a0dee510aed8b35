package redisstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// schemaVersion is the newest schema of stored aggregates that this program knows.
const schemaVersion = 1

// stored is an aggregate hash as it was read: rev, nonce, schema, aggregate. ok is false when
// the key does not exist.
type stored struct {
	token Token
	text  string
	ok    bool
}

// readStored takes the four fields of HMGET. Anything but all or none of them is unreadable: an
// aggregate is never rebuilt from parts.
func readStored(name string, v any) (stored, error) {
	fields, ok := v.([]any)
	if !ok || len(fields) != 4 {
		return stored{}, fmt.Errorf("reply for %s is %T", name, v)
	}
	var text [4]string
	missing := 0
	for i, f := range fields {
		if f == nil {
			missing++
			continue
		}
		if text[i], ok = f.(string); !ok {
			return stored{}, fmt.Errorf("field %d of %s is %T", i, name, f)
		}
	}
	if missing == len(fields) {
		return stored{}, nil
	}
	if missing > 0 || text[1] == "" {
		return stored{}, fmt.Errorf("%w: %s lacks fields", ErrUnreadable, name)
	}
	schema, err := strconv.Atoi(text[2])
	if err != nil {
		return stored{}, fmt.Errorf("%w: schema %q of %s", ErrUnreadable, text[2], name)
	}
	if schema < 1 || schema > schemaVersion {
		return stored{}, fmt.Errorf("%w: %s has schema %d, this program knows up to %d", ErrUnreadable, name, schema, schemaVersion)
	}
	rev, err := strconv.ParseInt(text[0], 10, 64)
	if err != nil || rev <= 0 {
		return stored{}, fmt.Errorf("%w: revision %q of %s", ErrUnreadable, text[0], name)
	}
	return stored{Token{Revision: rev, Nonce: text[1]}, text[3], true}, nil
}

// decode reads the aggregate's text.
func decode[T any](name, text string) (*T, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	state := new(T)
	if err := d.Decode(state); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, name, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%w: %s: text behind the aggregate", ErrUnreadable, name)
	}
	return state, nil
}
