package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// fakeCoordinator answers as a coordinator does, and can be told to answer as none should.
// What must hold against the real one is tested in acceptance_test.go; this one is for what
// a real one does not do on demand.
type fakeCoordinator struct {
	*httptest.Server

	mu       sync.Mutex
	streams  map[string]*protocol.Stream
	records  map[string]*protocol.Resharding // by id
	groups   map[string]*protocol.Group      // by prefix/group
	requests []request
	changed  chan struct{}
	nextID   int
	// block keeps reshardings in DRAINING until finish is called.
	block bool
	// blockers and risks are what a dry run finds.
	blockers, risks []protocol.PreviewNote
	// slow groups are registered, and not ready on every shard until the test says so.
	slow bool
	// removal is what a dry run of a group's removal finds.
	removal protocol.RemovalPreview
	// intercept answers a request itself and returns true, or leaves it to the fake.
	intercept func(w http.ResponseWriter, r *http.Request, body []byte) bool
}

// request is what was received.
type request struct {
	method, path, query, body string
	header                    http.Header
}

func newFake(t *testing.T) *fakeCoordinator {
	t.Helper()
	f := &fakeCoordinator{
		streams: map[string]*protocol.Stream{}, records: map[string]*protocol.Resharding{}, groups: map[string]*protocol.Group{},
		changed: make(chan struct{}),
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeCoordinator) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, request{r.Method, r.URL.Path, r.URL.RawQuery, string(body), r.Header.Clone()})
	intercept := f.intercept
	f.mu.Unlock()
	if intercept != nil && intercept(w, r, body) {
		return
	}
	f.handle(w, r, body)
}

// handle is the behavior of a coordinator in good health.
func (f *fakeCoordinator) handle(w http.ResponseWriter, r *http.Request, body []byte) {
	_, rest, _ := strings.Cut(r.URL.Path, "/streams/")
	parts := strings.Split(rest, "/")
	prefix := parts[0]
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[prefix]
	switch {
	case len(parts) == 1 && r.Method == http.MethodPut && r.URL.Query().Get("dryRun") == "true":
		f.previewStream(w, prefix, s, body)
	case len(parts) == 1 && r.Method == http.MethodPut && !matches(r.Header, s != nil, generationOf(s)):
		refuse(w, protocol.ErrGenerationMismatch)
	case len(parts) == 1 && r.Method == http.MethodPut:
		f.putStream(w, prefix, s, body)
	case s == nil:
		refuse(w, protocol.ErrStreamNotFound)
	case len(parts) == 1 && r.Method == http.MethodGet:
		view := *s
		for _, g := range f.groups {
			if g.StreamPrefix == prefix && !slices.Contains(view.Groups, g.ConsumerGroup) {
				view.Groups = append(view.Groups, g.ConsumerGroup)
			}
		}
		reply(w, http.StatusOK, view)
	case len(parts) == 1 && r.Method == http.MethodDelete:
		var req protocol.DeleteStreamRequest
		_ = json.Unmarshal(body, &req) // an unreadable body forces nothing
		if forced := req.Force && req.Confirm == prefix; s.Status.ShardCount != 0 && !forced {
			refuse(w, protocol.NewError(protocol.CodeStreamNotEmpty, "scale it to 0 first"))
			return
		}
		delete(f.streams, prefix)
		w.WriteHeader(http.StatusNoContent)
	case len(parts) == 3 && parts[1] == "reshardings":
		f.getResharding(w, r, parts[2])
	case len(parts) == 3 && parts[1] == "groups":
		f.group(w, r, s, parts[2], body)
	default:
		refuse(w, protocol.NewError(protocol.CodeNotFound, "no such route"))
	}
}

// carryOut does what a request asks for, and nobody gets the answer.
func (f *fakeCoordinator) carryOut(r *http.Request, body []byte) {
	f.handle(httptest.NewRecorder(), r, body)
}

func (f *fakeCoordinator) putStream(w http.ResponseWriter, prefix string, s *protocol.Stream, body []byte) {
	var req protocol.PutStreamRequest
	if err := json.Unmarshal(body, &req); err != nil || req.ShardCount == nil {
		refuse(w, protocol.Invalid("shardCount", "is required"))
		return
	}
	want := protocol.StreamSpec{ShardCount: int(*req.ShardCount), Resharding: req.Resharding.WithDefaults(), Retention: req.Retention}
	status := http.StatusOK
	if s == nil {
		s = &protocol.Stream{StreamPrefix: prefix, Status: protocol.StreamStatus{PublishState: protocol.PublishOpen}}
		f.streams[prefix] = s
		status = http.StatusCreated
	}
	if active := f.records[s.Status.ActiveReshardingID]; active != nil {
		if active.FromShardCount == want.ShardCount {
			f.end(active, protocol.PhaseRolledBack, "the old shard count was asked for")
			s.Spec = want
			s.Status.ActiveReshardingID = active.ReshardingID // as it still was when the answer was made
			reply(w, http.StatusAccepted, s)
			s.Status.ActiveReshardingID = ""
			return
		}
		if active.ToShardCount != want.ShardCount {
			refuse(w, protocol.ErrActiveResharding)
			return
		}
		reply(w, http.StatusAccepted, s)
		return
	}
	s.Spec = want
	s.Generation++
	if s.Status.ShardCount != want.ShardCount {
		f.nextID++
		r := &protocol.Resharding{
			ReshardingID: fmt.Sprintf("rs-%d", f.nextID), StreamPrefix: prefix, Phase: protocol.PhaseProvisioning,
			FromShardCount: s.Status.ShardCount, ToShardCount: want.ShardCount, Strategy: want.Resharding.Strategy, RequestedBy: req.RequestedBy,
			Phases: []protocol.PhaseSpan{{Phase: protocol.PhaseProvisioning, StartedAt: time.Now()}},
		}
		f.records[r.ReshardingID] = r
		s.Status.ActiveReshardingID = r.ReshardingID
		if status == http.StatusOK {
			status = http.StatusAccepted
		}
		if f.block {
			r.Phase, r.WaitingFor = protocol.PhaseDraining, []string{`shard orders:0, group "billing": 1 pending`}
			s.Status.PublishState = protocol.PublishPaused
		}
	}
	reply(w, status, s)
}

// matches compares the generation that a request presupposes.
func matches(h http.Header, exists bool, generation int64) bool {
	if h.Get("If-None-Match") == "*" {
		return !exists
	}
	want := strings.Trim(h.Get("If-Match"), `"`)
	return want == "" || exists && want == strconv.FormatInt(generation, 10)
}

func generationOf(s *protocol.Stream) int64 {
	if s == nil {
		return 0
	}
	return s.Generation
}

func (f *fakeCoordinator) previewStream(w http.ResponseWriter, prefix string, s *protocol.Stream, body []byte) {
	var req protocol.PutStreamRequest
	if err := json.Unmarshal(body, &req); err != nil || req.ShardCount == nil {
		refuse(w, protocol.Invalid("shardCount", "is required"))
		return
	}
	p := protocol.Preview{
		StreamPrefix: prefix, TakenAt: time.Now(), Action: protocol.PreviewCreate, ToShardCount: int(*req.ShardCount), Resharding: req.Resharding.WithDefaults(),
		ShardsAdded: []int{}, ShardsRemoved: []int{}, Groups: []protocol.PreviewGroup{}, Unknown: []string{}, Blockers: f.blockers, Risks: f.risks,
	}
	if s != nil {
		p.Generation, p.FromShardCount, p.Action = s.Generation, s.Status.ShardCount, protocol.PreviewUpdate
		p.MovedFraction = protocol.MovedFraction(p.FromShardCount, p.ToShardCount)
		for i := p.FromShardCount; i < p.ToShardCount; i++ {
			p.ShardsAdded = append(p.ShardsAdded, i)
		}
		for i := p.ToShardCount; i < p.FromShardCount; i++ {
			p.ShardsRemoved = append(p.ShardsRemoved, i)
		}
		if p.FromShardCount != p.ToShardCount {
			p.Action = protocol.PreviewReshard
		}
		if r := f.records[s.Status.ActiveReshardingID]; r != nil {
			p.Action, p.ReshardingID = protocol.PreviewAttach, r.ReshardingID
			if r.FromShardCount == p.ToShardCount {
				p.Action = protocol.PreviewCancel
			}
		}
	}
	reply(w, http.StatusOK, p)
}

// step moves an unblocked resharding on when it is looked at.
func (f *fakeCoordinator) step(r *protocol.Resharding) {
	if !f.block && !r.Phase.Terminal() {
		if r.Phase == protocol.PhaseProvisioning {
			r.Phase = protocol.PhaseConverging
			return
		}
		f.end(r, protocol.PhaseCompleted, "")
	}
}

func (f *fakeCoordinator) end(r *protocol.Resharding, phase protocol.Phase, problem string) {
	s := f.streams[r.StreamPrefix]
	now := time.Now()
	r.Phase, r.Error = phase, problem
	r.Phases = append(r.Phases, protocol.PhaseSpan{Phase: phase, StartedAt: now, EndedAt: &now})
	if phase == protocol.PhaseCompleted {
		r.WaitingFor = nil
		s.Status.ShardCount = r.ToShardCount
		s.Status.LayoutEpoch++
		s.MetadataVersion++
		s.Shards = nil
		for i := range r.ToShardCount {
			s.Shards = append(s.Shards, protocol.StreamShard{ShardIndex: i, StreamKey: protocol.ShardKey(r.StreamPrefix, i), RedisSlot: i, State: "ACTIVE"})
		}
	}
	s.Status.PublishState = protocol.PublishOpen
	s.Status.LastReshardingID, s.Status.ActiveReshardingID = r.ReshardingID, ""
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeCoordinator) getResharding(w http.ResponseWriter, r *http.Request, id string) {
	rec := f.records[id]
	if rec == nil {
		refuse(w, protocol.ErrReshardingNotFound)
		return
	}
	wait, _ := strconv.ParseInt(r.URL.Query().Get("maxWaitMs"), 10, 64)
	if wait > 0 {
		f.step(rec)
	}
	if before := rec.Phase; f.block && wait > 0 && !before.Terminal() {
		timeout := time.NewTimer(time.Duration(wait) * time.Millisecond)
		defer timeout.Stop()
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-timeout.C:
		case <-r.Context().Done():
		}
		f.mu.Lock()
	}
	reply(w, http.StatusOK, rec)
}

func (f *fakeCoordinator) group(w http.ResponseWriter, r *http.Request, s *protocol.Stream, name string, body []byte) {
	key := s.StreamPrefix + "/" + name
	g := f.groups[key]
	switch r.Method {
	case http.MethodPut:
		var req protocol.PutGroupRequest
		if err := json.Unmarshal(body, &req); err != nil {
			refuse(w, protocol.Invalid("body", err.Error()))
			return
		}
		if !matches(r.Header, g != nil, f.generation(key)) {
			refuse(w, protocol.ErrGenerationMismatch)
			return
		}
		if g == nil {
			g = &protocol.Group{StreamPrefix: s.StreamPrefix, ConsumerGroup: name, State: protocol.GroupEmpty, Ready: !f.slow, CreatedAt: time.Now().Add(-time.Hour)}
			f.groups[key] = g
		}
		if spec := req.WithDefaults(); spec != g.Spec {
			g.Spec = spec
			g.Generation++
		}
		g.ShardCount = s.Status.ShardCount
		g.GroupEpoch++
		if !g.Ready {
			refuse(w, protocol.NewError(protocol.CodeProvisioningFailed, "registered, and the coordinator goes on"))
			return
		}
		reply(w, http.StatusOK, g)
	case http.MethodGet:
		if g == nil {
			refuse(w, protocol.ErrGroupNotFound)
			return
		}
		reply(w, http.StatusOK, g)
	case http.MethodDelete:
		var req protocol.DeleteGroupRequest
		if len(body) > 0 {
			_ = json.Unmarshal(body, &req) // an unreadable body forces nothing
		}
		switch {
		case g == nil:
			refuse(w, protocol.ErrGroupNotFound)
		case r.URL.Query().Get("dryRun") == "true":
			p := f.removal
			p.StreamPrefix, p.ConsumerGroup, p.TakenAt, p.Force = s.StreamPrefix, name, time.Now(), req.Force
			if req.Force {
				p.Blockers = nil
			} else {
				p.Risks = nil
			}
			reply(w, http.StatusOK, p)
		case !matches(r.Header, true, g.Generation):
			refuse(w, protocol.ErrGenerationMismatch)
		case g.State == protocol.GroupStable && !req.Force:
			refuse(w, protocol.NewError(protocol.CodeGroupHasMembers, "2 members are live"))
		default:
			delete(f.groups, key)
			reply(w, http.StatusOK, g)
		}
	}
}

// generation is that of a group, 0 where there is none.
func (f *fakeCoordinator) generation(key string) int64 {
	if g := f.groups[key]; g != nil {
		return g.Generation
	}
	return 0
}

// finish ends the running resharding of a stream.
func (f *fakeCoordinator) finish(t *testing.T, prefix string, phase protocol.Phase, problem string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[f.streams[prefix].Status.ActiveReshardingID]
	if r == nil {
		t.Fatalf("stream %q has no running resharding", prefix)
	}
	f.end(r, phase, problem)
}

// set changes the fake under its lock.
func (f *fakeCoordinator) set(change func()) { f.mu.Lock(); defer f.mu.Unlock(); change() }

// mutations lists the requests that could change something.
func (f *fakeCoordinator) mutations() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests), func(r request) bool {
		return r.method == http.MethodGet || strings.Contains(r.query, "dryRun=true")
	})
}

func (f *fakeCoordinator) reshardingIDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.records))
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has gone away is no concern of the fake
}

func refuse(w http.ResponseWriter, e *protocol.Error) { reply(w, e.Code.HTTPStatus(), e) }
