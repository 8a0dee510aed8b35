package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The audit log is a Redis stream for each stream prefix, and one for requests that belong to
// no stream. Entries are chained: the hash of an entry is the SHA-256, in lower-case hex, of
// the hash before it (as text, nothing for the first), a line feed, and the event as it is
// stored, byte for byte. The hash of the newest entry stands in audit-head.

// heads remembers the newest hash of each chain, so that most appends need one try.
type heads struct {
	mu sync.Mutex
	of map[string]string
}

func (h *heads) get(prefix string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[prefix]
}

func (h *heads) set(prefix, head string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[string]string{}
	}
	h.of[prefix] = head
}

// forget drops the head of a stream that is not served any more.
func (h *heads) forget(prefix string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, prefix)
}

// chain is a run of entries behind head.
type chain struct {
	head   string
	events [][]byte // as stored
	hashes []string
}

func link(head string, event []byte) string {
	sum := sha256.New()
	sum.Write([]byte(head + "\n"))
	sum.Write(event)
	return hex.EncodeToString(sum.Sum(nil))
}

// encodeEvent is the event as it is stored. Id and hash are known only to its entry.
func encodeEvent(ev protocol.AuditEvent) ([]byte, error) {
	ev.ID, ev.Hash = "", ""
	b, err := json.Marshal(ev)
	if err != nil {
		return nil, fmt.Errorf("encode audit event: %w", err)
	}
	return b, nil
}

func newChain(head string, events [][]byte) chain {
	c := chain{head: head, events: events, hashes: make([]string, len(events))}
	for i, ev := range events {
		head = link(head, ev)
		c.hashes[i] = head
	}
	return c
}

// last is the hash that the chain ends with.
func (c chain) last() string {
	if n := len(c.hashes); n > 0 {
		return c.hashes[n-1]
	}
	return c.head
}

// pairs are event, hash, event, hash, ….
func (c chain) pairs() []any {
	args := make([]any, 0, 2*len(c.events))
	for i, ev := range c.events {
		args = append(args, ev, c.hashes[i])
	}
	return args
}

// args are what the commit script takes of the chain.
func (c chain) args(limit int64) []any {
	return append([]any{c.head, limit, len(c.events)}, c.pairs()...)
}

// auditLimit as the scripts take it: 0 is none.
func (s *Store) auditLimit() int64 { return max(s.cfg.AuditLimit, 0) }

// chain links events behind the newest entry of the log and calls write, which answers
// ErrAuditHead with the true head when another replica was first; then it links again.
func (s *Store) chain(prefix string, events []protocol.AuditEvent, write func(chain) (head string, err error)) error {
	stored := make([][]byte, len(events))
	for i, ev := range events {
		var err error
		if stored[i], err = encodeEvent(ev); err != nil {
			return err
		}
	}
	head := s.heads.get(prefix)
	for range 100 { // each lost try is another replica's entry
		c := newChain(head, stored)
		actual, err := write(c)
		switch {
		case err == nil, errors.Is(err, ErrAuditHead) && actual == c.last():
			// The second case is this very call, sent again by a client library that lost the answer.
			if len(events) > 0 {
				s.heads.set(prefix, c.last())
			}
			return nil
		case !errors.Is(err, ErrAuditHead):
			return err
		}
		head = actual
	}
	return ErrAuditHead
}

// AppendAudit records requests that never committed. prefix "" is the log of requests that
// belong to no stream.
func (s *Store) AppendAudit(ctx context.Context, prefix string, events ...protocol.AuditEvent) error {
	if len(events) == 0 {
		return nil
	}
	keys := []string{s.keys.audit(prefix), s.keys.auditHead(prefix)}
	err := s.chain(prefix, events, func(c chain) (string, error) {
		v, err := auditScript.Run(ctx, s.cfg.Client, keys, append([]any{c.head, s.auditLimit()}, c.pairs()...)...).Slice()
		if err != nil {
			return "", err
		}
		if len(v) < 3 {
			return "", fmt.Errorf("reply of %d elements", len(v))
		}
		if v[0] == "AUDITHEAD" && len(v) == 4 {
			head, _ := v[3].(string)
			return head, ErrAuditHead
		}
		if v[0] != "OK" {
			return "", fmt.Errorf("reply %v", v[0])
		}
		return "", nil
	})
	if err != nil {
		return fmt.Errorf("append to the audit log of %q: %w", prefix, err)
	}
	return nil
}
