package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	defaultAuditPage = 100
	maxAuditPage     = 1000
	auditBatch       = 500
	// maxAuditScan bounds one query: with a filter that rarely matches, a page may hold fewer
	// events than asked for, and its cursor goes on from where the search stopped.
	maxAuditScan = 20_000
)

// AuditQuery selects audit events; zero values select all. With a Prefix the log of that stream is
// read, merged with what the log of requests that belong to no stream has of that name: refusals
// while there was no such stream. Without one all logs are read, those of deleted streams too.
// RequestID is the coordinator's id of a request or the one that its client gave it.
type AuditQuery struct {
	Prefix, Group, Principal, Action, Outcome, RequestID, ReshardingID, Fingerprint string
	From, To                                                                        time.Time
	Cursor                                                                          string
	Limit                                                                           int // default 100, at most 1000
}

// matches says whether the query selects ev.
func (q AuditQuery) matches(ev *protocol.AuditEvent) bool {
	for _, pair := range [][2]string{
		{q.Group, ev.ConsumerGroup}, {q.Principal, ev.Principal}, {q.Action, ev.Action}, {q.Outcome, ev.Outcome},
		{q.ReshardingID, ev.ReshardingID}, {q.Fingerprint, ev.Fingerprint},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	if q.RequestID != "" && q.RequestID != ev.RequestID && q.RequestID != ev.ClientRequest {
		return false
	}
	if !q.From.IsZero() && ev.Timestamp.Before(q.From) {
		return false
	}
	return q.To.IsZero() || ev.Timestamp.Before(q.To)
}

// AuditEvents lists events, newest first.
func (s *Store) AuditEvents(ctx context.Context, q AuditQuery) (protocol.AuditList, error) {
	list, err := s.auditEvents(ctx, q)
	if err != nil {
		return protocol.AuditList{}, fmt.Errorf("audit events of %q: %w", q.Prefix, err)
	}
	return list, nil
}

func (s *Store) auditEvents(ctx context.Context, q AuditQuery) (protocol.AuditList, error) {
	if q.Limit <= 0 {
		q.Limit = defaultAuditPage
	}
	q.Limit = min(q.Limit, maxAuditPage)
	after, err := parseAuditCursor(q.Cursor)
	if err != nil {
		return protocol.AuditList{}, err
	}
	prefixes := []string{"", q.Prefix}
	if q.Prefix == "" {
		if prefixes, err = s.AuditPrefixes(ctx); err != nil {
			return protocol.AuditList{}, err
		}
	}
	logs := make([]*auditLog, 0, len(prefixes))
	for _, prefix := range prefixes {
		l := &auditLog{prefix: prefix, key: s.keys.audit(prefix), max: "+"}
		if !after.zero() {
			// Entries of the same id in logs that sort before were already given.
			l.max = after.id.String()
			if prefix <= after.prefix {
				l.max = "(" + l.max
			}
		}
		logs = append(logs, l)
	}
	// Many logs share what one query may hold at a time.
	batch := max(10, min(auditBatch, 2*q.Limit, maxAuditScan/len(logs)))
	list := protocol.AuditList{Events: []protocol.AuditEvent{}}
	for range maxAuditScan {
		if err := s.fillAudit(ctx, logs, batch); err != nil {
			return protocol.AuditList{}, err
		}
		newest := newestAudit(logs)
		if newest == nil {
			return list, nil
		}
		entry := newest.take()
		ev, err := readAudit(entry)
		if err != nil {
			return protocol.AuditList{}, err
		}
		id, err := parseID(entry.ID)
		if err != nil {
			return protocol.AuditList{}, err
		}
		after = auditCursor{id: id, prefix: newest.prefix}
		ofAnother := newest.prefix == "" && q.Prefix != "" && ev.StreamPrefix != q.Prefix
		if !ofAnother && q.matches(&ev) {
			list.Events = append(list.Events, ev)
		}
		if len(list.Events) == q.Limit {
			break
		}
	}
	next := after.String()
	list.NextCursor = &next
	return list, nil
}

// auditLog is one audit stream, read backwards in batches.
type auditLog struct {
	prefix, key string
	max         string // where the next batch begins
	entries     []redis.XMessage
	ended       bool
}

func (l *auditLog) take() redis.XMessage {
	entry := l.entries[0]
	l.entries = l.entries[1:]
	l.max = "(" + entry.ID
	return entry
}

// fillAudit reads a batch of every log that has run out, in one pipeline.
func (s *Store) fillAudit(ctx context.Context, logs []*auditLog, batch int) error {
	var empty []*auditLog
	for _, l := range logs {
		if len(l.entries) == 0 && !l.ended {
			empty = append(empty, l)
		}
	}
	if len(empty) == 0 {
		return nil
	}
	reads := make([]*redis.XMessageSliceCmd, len(empty))
	_, err := s.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, l := range empty {
			reads[i] = p.XRevRangeN(ctx, l.key, l.max, "-", int64(batch))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, l := range empty {
		l.entries = reads[i].Val()
		l.ended = len(l.entries) < batch
	}
	return nil
}

// newestAudit is the log whose next entry is the newest; equal ids go by prefix. nil: all have ended.
func newestAudit(logs []*auditLog) *auditLog {
	var best *auditLog
	var bestID entryID
	for _, l := range logs {
		if len(l.entries) == 0 {
			continue
		}
		id, err := parseID(l.entries[0].ID)
		if err != nil {
			continue // Redis gives no other ids
		}
		if best == nil || bestID.less(id) || id == bestID && l.prefix < best.prefix {
			best, bestID = l, id
		}
	}
	return best
}

// readAudit makes the event of an entry.
func readAudit(m redis.XMessage) (protocol.AuditEvent, error) {
	var ev protocol.AuditEvent
	text, _ := m.Values["event"].(string)
	if err := json.Unmarshal([]byte(text), &ev); err != nil {
		return ev, fmt.Errorf("audit entry %s: %w", m.ID, err)
	}
	ev.ID = m.ID
	ev.Hash, _ = m.Values["hash"].(string)
	return ev, nil
}

// entryID is the id of a stream entry.
type entryID struct{ ms, seq uint64 }

func (a entryID) less(b entryID) bool { return a.ms < b.ms || a.ms == b.ms && a.seq < b.seq }

func (a entryID) String() string {
	return strconv.FormatUint(a.ms, 10) + "-" + strconv.FormatUint(a.seq, 10)
}

func parseID(text string) (entryID, error) {
	ms, seq, ok := strings.Cut(text, "-")
	var id entryID
	var err error
	if !ok {
		return id, fmt.Errorf("entry id %q has no sequence", text)
	}
	if id.ms, err = strconv.ParseUint(ms, 10, 64); err != nil {
		return id, fmt.Errorf("entry id: %w", err)
	}
	if id.seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
		return id, fmt.Errorf("entry id: %w", err)
	}
	return id, nil
}

// auditCursor is the last event of a page: its entry id and log.
type auditCursor struct {
	id     entryID
	prefix string
}

func (c auditCursor) zero() bool { return c == auditCursor{} }

func (c auditCursor) String() string { return c.id.String() + "/" + c.prefix }

func parseAuditCursor(text string) (auditCursor, error) {
	if text == "" {
		return auditCursor{}, nil
	}
	id, prefix, ok := strings.Cut(text, "/")
	parsed, err := parseID(id)
	if !ok || err != nil {
		return auditCursor{}, protocol.Invalid("cursor", "is not one that a listing returned")
	}
	return auditCursor{parsed, prefix}, nil
}

// AuditVerification is the outcome of VerifyAudit.
type AuditVerification struct {
	Entries int    // that were checked
	Intact  bool   // every entry's hash follows from the one before, up to the head
	Broken  string // id of the first entry that does not, "" when the head differs
	// TrimmedBefore is the hash that the oldest entry continues; "" when nothing was trimmed.
	TrimmedBefore string
}

// VerifyAudit computes the chain of one audit log anew, oldest entry first.
func (s *Store) VerifyAudit(ctx context.Context, prefix string) (AuditVerification, error) {
	var v AuditVerification
	// The head first: entries that come meanwhile lie behind it.
	stored, err := s.cfg.Client.Get(ctx, s.keys.auditHead(prefix)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return v, fmt.Errorf("head of the audit log of %q: %w", prefix, err)
	}
	from, head, met := "-", "", stored == ""
	for {
		batch, err := s.cfg.Client.XRangeN(ctx, s.keys.audit(prefix), from, "+", auditBatch).Result()
		if err != nil {
			return v, fmt.Errorf("audit log of %q: %w", prefix, err)
		}
		for _, m := range batch {
			event, _ := m.Values["event"].(string)
			hash, _ := m.Values["hash"].(string)
			prev, _ := m.Values["prev"].(string)
			if v.Entries == 0 {
				v.TrimmedBefore, head = prev, prev
			}
			v.Entries++
			if prev != head || link(head, []byte(event)) != hash {
				v.Broken = m.ID
				return v, nil
			}
			head, from = hash, "("+m.ID
			met = met || hash == stored
		}
		if len(batch) < auditBatch {
			v.Intact = met
			return v, nil
		}
	}
}

// AuditPrefixes lists the logs that there are, sorted: "", every stream of the index, and every
// stream that was deleted.
func (s *Store) AuditPrefixes(ctx context.Context) ([]string, error) {
	all, err := s.Streams(ctx)
	if err != nil {
		return nil, err
	}
	former, err := s.cfg.Client.SMembers(ctx, s.keys.formerIndex()).Result()
	if err != nil {
		return nil, fmt.Errorf("index of former streams: %w", err)
	}
	all = append(append(all, former...), "")
	slices.Sort(all)
	return slices.Compact(all), nil
}
