package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// Modes of one aggregate in a commit, as the script knows them.
const (
	modeNone   = ""
	modeCheck  = "CHECK"
	modeWrite  = "WRITE"
	modeDelete = "DELETE"
)

// aggregateWrite is what the script is told of one aggregate.
type aggregateWrite struct {
	mode     string
	expect   Token
	create   bool // over whatever is there
	revision int64
	text     []byte
}

func newAggregateWrite(expect Token, next any, isNil, remove bool, minRevision int64) (aggregateWrite, error) {
	w := aggregateWrite{mode: modeCheck, expect: expect, revision: max(expect.Revision+1, minRevision)}
	switch {
	case remove:
		w.mode = modeDelete
	case !isNil:
		w.mode = modeWrite
		text, err := json.Marshal(next)
		if err != nil {
			return w, err
		}
		w.text = text
	}
	return w, nil
}

func (w aggregateWrite) args() []any {
	expect := any(w.expect.Revision)
	if w.create {
		expect = "NEW"
	}
	return []any{w.mode, expect, w.expect.Nonce, w.revision, w.text}
}

// Commit makes c, all or nothing.
func (s *Store) Commit(ctx context.Context, c Commit) (CommitResult, error) {
	res, err := s.commit(ctx, c)
	if err != nil {
		return res, fmt.Errorf("commit stream %q: %w", c.Prefix, err)
	}
	return res, nil
}

func (s *Store) commit(ctx context.Context, c Commit) (CommitResult, error) {
	call, err := s.newCommitCall(c)
	if err != nil {
		return CommitResult{}, err
	}
	if c.creates() {
		// Before the stream: an entry without a stream is tolerated, a stream without an entry is not found.
		if err := s.cfg.Client.SAdd(ctx, s.keys.index(), c.Prefix).Err(); err != nil {
			return CommitResult{}, fmt.Errorf("index: %w", err)
		}
	}
	if c.Stream != nil && c.Stream.Delete {
		// Before the deletion, so that who deleted it can be found whatever happens in between.
		if err := s.cfg.Client.SAdd(ctx, s.keys.formerIndex(), c.Prefix).Err(); err != nil {
			return CommitResult{}, fmt.Errorf("index of former streams: %w", err)
		}
	}
	var res CommitResult
	err = s.chain(c.Prefix, c.Audit, func(links chain) (string, error) {
		args := append(slices.Clip(call.args), links.args(s.auditLimit())...)
		sent := s.clocks.local()
		v, err := commitScript.Run(ctx, s.cfg.Client, call.keys, args...).Slice()
		if err != nil {
			return "", s.explain(ctx, err, s.keys.stream(c.Prefix), s.rightsOfStream(c.Prefix))
		}
		return s.committed(c, call, v, sent, &res)
	})
	if err != nil {
		return res, err
	}
	if c.Stream != nil && c.Stream.Delete {
		s.names.set(c.Prefix, nil)
		if err := s.cfg.Client.SRem(ctx, s.keys.index(), c.Prefix).Err(); err != nil {
			s.log.Warn("stream is deleted but still in the index") // Streams tolerates it
		}
	}
	return res, nil
}

// creates says whether c stores a stream that was not stored.
func (c Commit) creates() bool {
	return c.Stream != nil && c.Stream.Next != nil && c.Stream.Expect == Token{}
}

// commitCall is the script call of a commit, but for the audit entries.
type commitCall struct {
	keys   []string
	args   []any
	groups []string // sorted; the script numbers them from 1
	stream aggregateWrite
	group  map[string]aggregateWrite
}

func (s *Store) newCommitCall(c Commit) (commitCall, error) {
	k := s.keys
	call := commitCall{
		keys:   []string{k.stream(c.Prefix), k.audit(c.Prefix), k.auditHead(c.Prefix), k.producers(c.Prefix), k.plainSeen(c.Prefix), k.ticker(c.Prefix)},
		groups: slices.Sorted(maps.Keys(c.Groups)),
		group:  map[string]aggregateWrite{},
	}
	if c.Nonce == "" {
		return call, errors.New("a commit needs a nonce")
	}
	publish := "PUBLISH"
	if _, ok := s.cluster(); ok {
		publish = "SPUBLISH"
	}
	call.args = []any{c.Identity, c.Nonce, int64(c.NotAfter), int64(c.Estimate), c.Tolerance.Milliseconds(), publish, k.channel(c.Prefix)}
	if w := c.Stream; w != nil {
		var err error
		if call.stream, err = newAggregateWrite(w.Expect, w.Next, w.Next == nil, w.Delete, w.MinRevision); err != nil {
			return call, fmt.Errorf("encode the stream aggregate: %w", err)
		}
	}
	call.args = append(call.args, call.stream.args()...)
	call.args = append(call.args, len(call.groups))
	for _, name := range call.groups {
		w := c.Groups[name]
		call.keys = append(call.keys, k.group(c.Prefix, name), k.leases(c.Prefix, name), k.progress(c.Prefix, name))
		a, err := newAggregateWrite(w.Expect, w.Next, w.Next == nil, w.Delete, 0)
		if err != nil {
			return call, fmt.Errorf("encode the aggregate of group %q: %w", name, err)
		}
		if a.create = w.Create; w.Create && (c.Stream == nil || c.Stream.Next == nil) {
			return call, fmt.Errorf("group %q is made without an entry in the registry", name)
		}
		call.group[name] = a
		call.args = append(call.args, a.args()...)
		call.args = append(call.args, w.args()...)
	}
	return call, nil
}

// args are lease, reset, and the five lists.
func (w *GroupWrite) args() []any {
	reset := 0
	if w.ResetRows {
		reset = 1
	}
	n := 7 + 2*len(w.Rows.Check) + len(w.Rows.Renew) + len(w.Rows.Drop) + 2*len(w.Observations) + len(w.Forget)
	args := append(make([]any, 0, n), w.Lease.Milliseconds(), reset, len(w.Rows.Check))
	for _, check := range w.Rows.Check {
		args = append(args, check.Row, check.MaxRemaining.Milliseconds())
	}
	for _, rows := range [][]string{w.Rows.Renew, w.Rows.Drop} {
		args = append(args, len(rows))
		for _, row := range rows {
			args = append(args, row)
		}
	}
	args = append(args, len(w.Observations))
	for member, report := range w.Observations {
		args = append(args, member, []byte(report))
	}
	args = append(args, len(w.Forget))
	for _, member := range w.Forget {
		args = append(args, member)
	}
	return args
}

// committed reads the script's reply. With ErrAuditHead it returns the present head.
func (s *Store) committed(c Commit, call commitCall, v []any, sent time.Duration, res *CommitResult) (head string, err error) {
	if len(v) < 3 {
		return "", fmt.Errorf("reply of %d elements", len(v))
	}
	code, _ := v[0].(string)
	var rest []any
	if res.Time, res.Identity, rest, err = readHead(v[1:]); err != nil {
		return "", err
	}
	if code == "IDENTITY" {
		return "", &IdentityError{Actual: res.Identity}
	}
	s.clocks.observe(c.Prefix, res.Time, sent)
	switch code {
	case "OK":
		if call.stream.mode == modeWrite {
			res.StreamToken = Token{call.stream.revision, c.Nonce}
		}
		res.GroupTokens = map[string]Token{}
		for name, w := range call.group {
			if w.mode == modeWrite {
				res.GroupTokens[name] = Token{w.revision, c.Nonce}
			}
		}
		return "", nil
	case "CONFLICT":
		return "", ErrConflict
	case "LATE":
		return "", ErrLate
	case "CLOCK":
		return "", &ClockError{Time: res.Time}
	case "ROWS":
		return "", readRowsError(call.groups, rest, res.Time)
	case "AUDITHEAD":
		if len(rest) == 1 {
			head, _ = rest[0].(string)
		}
		return head, ErrAuditHead
	}
	return "", fmt.Errorf("reply %q", code)
}

// readRowsError reads group number, row, end, ….
func readRowsError(groups []string, rest []any, at protocol.Instant) error {
	e := &RowsError{Ends: map[string]group.Leases{}, Time: at}
	if len(rest)%3 != 0 {
		return fmt.Errorf("refused rows: %d elements", len(rest))
	}
	for i := 0; i < len(rest); i += 3 {
		var cell [3]string
		for j := range cell {
			cell[j], _ = rest[i+j].(string)
		}
		n, err := strconv.Atoi(cell[0])
		if err != nil || n < 1 || n > len(groups) {
			return fmt.Errorf("refused row of group number %q", cell[0])
		}
		ends, err := readInstant(cell[2])
		if err != nil {
			return err
		}
		name := groups[n-1]
		if e.Ends[name] == nil {
			e.Ends[name] = group.Leases{}
		}
		e.Ends[name][cell[1]] = ends
	}
	return e
}

// Streams lists the index of stream prefixes, sorted. It may hold one that has just been
// deleted, or whose creation failed.
func (s *Store) Streams(ctx context.Context) ([]string, error) {
	list, err := s.cfg.Client.SMembers(ctx, s.keys.index()).Result()
	if err != nil {
		return nil, fmt.Errorf("index of streams: %w", err)
	}
	slices.Sort(list)
	return list, nil
}
