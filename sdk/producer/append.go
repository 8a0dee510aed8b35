package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/internal/appendflow"
)

// Errors of appends, for errors.Is.
var (
	// ErrOutcomeUnknown: the append was sent and not answered; the entry may have landed.
	ErrOutcomeUnknown = appendflow.ErrOutcomeUnknown
	// ErrPaused: publishing is paused, and Config.FailFast is set. Nothing landed.
	ErrPaused = appendflow.ErrPaused
	// ErrNoShards: the stream has no shards. Nothing landed. A stream that was just made and is to
	// get its first shards is waited for, up to 30 s; with Config.FailFast it is not.
	ErrNoShards = appendflow.ErrNoShards
	// ErrClosed: the producer was closed or not started. Nothing landed.
	ErrClosed = errors.New("the producer is not running")
)

// Fields are the content of an entry: field, value, field, value, …, each a string or []byte.
// Byte slices must not be changed before the append has ended.
type Fields []any

func (f Fields) check() error {
	switch {
	case len(f) == 0:
		return errors.New("an entry needs at least one field")
	case len(f)%2 != 0:
		return fmt.Errorf("an entry needs a value for each field: %d strings", len(f))
	case len(f) > maxFields:
		return fmt.Errorf("an entry has %d strings; at most %d are allowed", len(f), maxFields)
	}
	for i, x := range f {
		switch x.(type) {
		case string, []byte:
		default:
			return fmt.Errorf("element %d of an entry is %T, neither string nor []byte", i, x)
		}
	}
	return nil
}

// get is the value of a field, if it is there.
func (f Fields) get(name string) (string, bool) {
	for i := 0; i+1 < len(f); i += 2 {
		if text(f[i]) == name {
			return text(f[i+1]), true
		}
	}
	return "", false
}

func text(x any) string {
	if b, ok := x.([]byte); ok {
		return string(b)
	}
	s, _ := x.(string) // check has seen to it
	return s
}

// Result is where an entry landed. EventID is also set when the append failed.
type Result struct {
	Shard   int
	ID      string
	EventID string // "" without Config.EventIDField
}

// pending is one append under way.
type pending struct {
	entry  appendflow.Entry
	number uint64 // in the order of acceptance
	fields []any
	result Result
	err    error
	done   chan struct{}       // of a synchronous append
	call   func(Result, error) // of an asynchronous one
}

// Append appends one entry and waits until it has landed. Calls at the same time share batches.
//
// When ctx ends before the entry was sent, nothing has landed and the error is that of ctx. When
// it ends while the entry is under way the error is ErrOutcomeUnknown as well.
func (p *Producer) Append(ctx context.Context, key string, fields Fields) (Result, error) {
	a, err := p.enqueue(ctx, key, fields, nil)
	if err != nil {
		return Result{}, err
	}
	select {
	case <-a.done:
		return a.result, a.err
	case <-ctx.Done():
	}
	if p.withdraw(a) {
		return Result{EventID: a.result.EventID}, ctx.Err()
	}
	select {
	case <-a.done: // it ended meanwhile
		return a.result, a.err
	default:
		return Result{EventID: a.result.EventID}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

// AppendAsync appends one entry and calls done with the outcome, exactly once. It waits only
// for room in the queue; ctx bounds that wait and nothing else. Calls of done are made one at a
// time, those of one key in order; done must not append.
func (p *Producer) AppendAsync(ctx context.Context, key string, fields Fields, done func(Result, error)) error {
	if done == nil {
		done = func(Result, error) {}
	}
	_, err := p.enqueue(ctx, key, fields, done)
	return err
}

func (p *Producer) enqueue(ctx context.Context, key string, fields Fields, call func(Result, error)) (*pending, error) {
	if err := fields.check(); err != nil {
		return nil, err
	}
	a := &pending{fields: fields, call: call}
	if call == nil {
		a.done = make(chan struct{})
	}
	if name := p.cfg.EventIDField; name != "" {
		id, ok := fields.get(name)
		if !ok {
			id = randomID()
			a.fields = append(append(make([]any, 0, len(fields)+2), fields...), name, id)
		}
		a.result.EventID = id
	}
	a.entry.Key, a.entry.Value = []byte(key), a
	select {
	case p.room <- struct{}{}:
	default:
		select {
		case p.room <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.stopped:
			return nil, ErrClosed
		}
	}
	if !p.push(a) {
		<-p.room
		return nil, ErrClosed
	}
	return a, nil
}
