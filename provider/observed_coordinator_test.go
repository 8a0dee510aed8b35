package provider

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// observed is the part of a fake coordinator that resources do not use: monitoring, audit, login,
// routing, the operator's pause, lists.
type observed struct {
	*fakeCoordinator

	mu     sync.Mutex
	events []protocol.AuditEvent // newest first
	tokens map[string]bool       // those that hold
	opened map[string]*session   // of session tokens
	life   time.Duration         // longest life of a token
	pages  []int                 // limits that were asked for
	plain  int                   // routings that were asked for as a producer would

	health   protocol.Health
	versions protocol.Compatibility
}

// session is that of a session token.
type session struct {
	life        time.Duration
	ends, until time.Time
}

func (s *session) view() protocol.TokenSession {
	return protocol.TokenSession{ExpiresAt: s.ends, ExpiresInMs: time.Until(s.ends).Milliseconds(), RenewableUntil: s.until}
}

// holds is called with mu held.
func (o *observed) holds(token string) bool {
	s := o.opened[token]
	return o.tokens[token] && (s == nil || time.Now().Before(s.ends))
}

func (o *observed) renewToken(w http.ResponseWriter, token string, body []byte) {
	var req protocol.RenewRequest
	_ = json.Unmarshal(body, &req) // an empty one asks for nothing
	switch s := o.opened[token]; {
	case !o.holds(token):
		refuse(w, protocol.NewError(protocol.CodeUnauthenticated, "the session has ended"))
	case s == nil:
		refuse(w, protocol.Invalid("Authorization", "must carry a session token"))
	default:
		life := s.life
		if req.TTLMs > 0 {
			life = time.Duration(req.TTLMs) * time.Millisecond
		}
		if s.ends = time.Now().Add(life); s.ends.After(s.until) {
			s.ends = s.until
		}
		reply(w, http.StatusOK, s.view())
	}
}

func (o *observed) revokeToken(w http.ResponseWriter, token string) {
	switch s := o.opened[token]; {
	case !o.tokens[token]:
		refuse(w, protocol.NewError(protocol.CodeUnauthenticated, "the token is not good"))
	case s == nil:
		refuse(w, protocol.Invalid("Authorization", "must carry a session token"))
	default:
		s.ends = time.Time{}
		w.WriteHeader(http.StatusNoContent)
	}
}

func observe(t *testing.T, f *fakeCoordinator) *observed {
	t.Helper()
	o := &observed{
		fakeCoordinator: f, tokens: map[string]bool{}, opened: map[string]*session{}, life: 24 * time.Hour,
		health:   protocol.Health{Status: "UP", CoordinatorID: "c-1", Redis: "UP", Loop: "UP", Version: "1.2.3"},
		versions: protocol.Compatibility{Current: 1, Supported: protocol.VersionRange{Min: 1, Max: 2}},
	}
	f.set(func() { f.intercept = o.serve })
	return o
}

func (o *observed) serve(w http.ResponseWriter, r *http.Request, body []byte) bool {
	path := strings.TrimPrefix(r.URL.Path, "/coord/v1")
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case path == "/auth/renew":
		o.renewToken(w, token, body)
	case path == "/auth/revoke":
		o.revokeToken(w, token)
	case bearer && !o.holds(token):
		refuse(w, protocol.NewError(protocol.CodeUnauthenticated, "the token is not good"))
	case path == "/auth/login":
		o.login(w, r, body)
	case path == "/monitoring/session":
		reply(w, http.StatusOK, protocol.Session{Authenticated: true, Username: "terraform", Roles: []string{"WRITE", "READ"}})
	case path == "/monitoring/health":
		reply(w, http.StatusOK, o.health)
	case path == "/monitoring/compatibility":
		reply(w, http.StatusOK, o.versions)
	case path == "/monitoring/groups":
		var l protocol.GroupList
		o.set(func() {
			for _, g := range o.groups {
				l.Groups = append(l.Groups, *g)
			}
		})
		reply(w, http.StatusOK, l)
	case path == "/streams":
		var l protocol.StreamList
		o.set(func() {
			for _, s := range o.streams {
				l.Streams = append(l.Streams, *s)
			}
		})
		reply(w, http.StatusOK, l)
	case path == "/audit/events":
		o.audit(w, r)
	case len(parts) == 3 && parts[2] == "reshardings":
		var l protocol.ReshardingList
		known := false
		o.set(func() {
			known = o.streams[parts[1]] != nil
			for _, r := range o.records {
				if r.StreamPrefix == parts[1] {
					l.Reshardings = append(l.Reshardings, *r)
				}
			}
		})
		if !known {
			refuse(w, protocol.ErrStreamNotFound)
			return true
		}
		slices.SortFunc(l.Reshardings, func(a, b protocol.Resharding) int { return strings.Compare(b.ReshardingID, a.ReshardingID) })
		reply(w, http.StatusOK, l)
	case len(parts) == 3 && parts[2] == "routing":
		if r.URL.Query().Get("fenced") != "true" || r.URL.Query().Get("producerId") != "" {
			o.plain++
		}
		var s *protocol.Stream
		o.set(func() { s = o.streams[parts[1]] })
		if s == nil {
			refuse(w, protocol.ErrStreamNotFound)
			return true
		}
		reply(w, http.StatusOK, protocol.Routing{
			StreamPrefix: parts[1], ShardCount: 2, Hash: protocol.HashName, LeaseMs: 30_000, PublishState: protocol.PublishOpen, StreamKeyPattern: protocol.StreamKeyPattern(parts[1]),
			Shards: []protocol.RoutingShard{{ShardIndex: 0, StreamKey: parts[1] + ":0", RedisSlot: 7}, {ShardIndex: 1, StreamKey: parts[1] + ":1", RedisSlot: 9}},
		})
	case len(parts) == 4 && parts[2] == "publishing":
		o.publishing(w, parts[1], parts[3], body)
	case len(parts) == 5 && parts[4] == "rollback":
		o.rollback(w, parts[3])
	default:
		return false
	}
	return true
}

func (o *observed) login(w http.ResponseWriter, r *http.Request, body []byte) {
	var req protocol.LoginRequest
	_ = json.Unmarshal(body, &req) // an empty one has no user name
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if o.opened[bearer] != nil && req.Username == "" {
		refuse(w, protocol.NewError(protocol.CodeForbidden, "a session token cannot be exchanged"))
		return
	}
	name, pass := req.Username, req.Password
	if name == "" {
		name, pass, _ = r.BasicAuth()
	}
	if pass != "correct-horse-battery" && pass != "other-password" {
		refuse(w, protocol.NewError(protocol.CodeUnauthenticated, "user name or password is wrong"))
		return
	}
	token := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "token-%d-of-%s", len(o.tokens), name))
	o.tokens[token] = true
	until := time.Now().Add(o.life)
	answer := protocol.LoginResponse{AccessToken: token, TokenType: "Bearer", ExpiresAt: until, Roles: []string{"WRITE", "READ"}}
	if life := time.Duration(req.TTLMs) * time.Millisecond; life > 0 {
		s := &session{life: min(life, o.life), until: until}
		s.ends = time.Now().Add(s.life)
		if s.ends.After(until) {
			s.ends = until
		}
		o.opened[token] = s
		view := s.view()
		answer.ExpiresAt, answer.Session = view.ExpiresAt, &view
	}
	reply(w, http.StatusOK, answer)
}

func (o *observed) audit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	o.pages = append(o.pages, limit)
	begin, _ := strconv.Atoi(q.Get("cursor"))
	l := protocol.AuditList{Events: []protocol.AuditEvent{}}
	at := begin
	for ; at < len(o.events) && len(l.Events) < min(limit, 400); at++ { // a page may be shorter than asked for
		if a := q.Get("action"); a == "" || a == o.events[at].Action {
			l.Events = append(l.Events, o.events[at])
		}
	}
	if at < len(o.events) {
		next := strconv.Itoa(at)
		l.NextCursor = &next
	}
	reply(w, http.StatusOK, l)
}

func (o *observed) publishing(w http.ResponseWriter, prefix, verb string, body []byte) {
	var s protocol.Stream
	known := false
	o.set(func() {
		stored := o.streams[prefix]
		if known = stored != nil; !known {
			return
		}
		stored.Status.PublishState, stored.Status.PausedUntil = protocol.PublishOpen, nil
		if verb == "pause" {
			var req protocol.PauseRequest
			_ = json.Unmarshal(body, &req) // a test looks at what was sent
			until := time.Now().Add(time.Duration(req.TimeoutMs) * time.Millisecond)
			stored.Status.PublishState, stored.Status.PausedUntil = protocol.PublishPaused, &until
		}
		s = *stored
	})
	if !known {
		refuse(w, protocol.ErrStreamNotFound)
		return
	}
	reply(w, http.StatusOK, s)
}

func (o *observed) rollback(w http.ResponseWriter, id string) {
	var r *protocol.Resharding
	o.set(func() {
		if r = o.records[id]; r != nil && !r.Phase.Terminal() {
			r.Phase = protocol.PhaseRollingBack
		}
	})
	if r == nil {
		refuse(w, protocol.ErrReshardingNotFound)
		return
	}
	var copied protocol.Resharding
	o.set(func() { copied = *r })
	reply(w, http.StatusAccepted, copied)
}
