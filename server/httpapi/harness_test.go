package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/crypto/bcrypt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

// recorded is what the engine was asked to do.
type recorded struct {
	call     string
	prefix   string
	group    string
	id       string
	count    int
	force    bool
	timeout  time.Duration
	spec     protocol.StreamSpec
	group2   protocol.GroupSpec
	mutation engine.Mutation
	query    redisstore.AuditQuery
}

type auditRecord struct {
	log   string
	event protocol.AuditEvent
}

// fakeEngine stands for the engine at this boundary: it answers every call with a full sample,
// or with err, and remembers what it was told.
type fakeEngine struct {
	mu       sync.Mutex
	calls    []recorded
	audits   []auditRecord
	err      error // of every call but Audit
	auditErr error
	notReady error
	created  bool
	started  string // resharding id of PutStream
	panics   bool
	unknown  map[string]bool // stream prefixes that do not exist
	hold     func(ctx context.Context, wait time.Duration)
	sessions map[string]string // id → user; they live until they are ended
	asked    int               // how often a session was looked for
	beats    []*protocol.HeartbeatRequest
	members  []string
}

var _ engine.API = (*fakeEngine)(nil)

func (f *fakeEngine) record(r recorded) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, r)
	if f.panics {
		panic("boom")
	}
	if f.unknown[r.prefix] {
		return protocol.ErrStreamNotFound
	}
	return f.err
}

func (f *fakeEngine) wait(ctx context.Context, wait time.Duration) {
	if f.hold != nil {
		f.hold(ctx, wait)
	}
}

var at = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func sampleStream(prefix string) protocol.Stream {
	return protocol.Stream{
		StreamPrefix: prefix, Generation: 7, MetadataVersion: 9,
		Spec: protocol.StreamSpec{ShardCount: 2, Resharding: protocol.DefaultPolicy()},
		Status: protocol.StreamStatus{ShardCount: 2, LayoutEpoch: 3, PublishState: protocol.PublishPaused, PausedUntil: &at,
			Conditions: []protocol.Condition{{Type: "Converged", Status: "True", Reason: "InForce", Since: at}}},
		Shards: []protocol.StreamShard{{StreamKey: prefix + ":0", RedisSlot: 5, State: "ACTIVE"}},
		Groups: []string{"billing", "search"}, CreatedAt: at, UpdatedAt: at,
	}
}

func samplePreview(prefix string) protocol.Preview {
	rate, ms := 12.5, int64(800)
	return protocol.Preview{
		StreamPrefix: prefix, TakenAt: at, Generation: 7, Action: protocol.PreviewReshard, FromShardCount: 4, ToShardCount: 2,
		Resharding: protocol.DefaultPolicy(), ShardsAdded: []int{}, ShardsRemoved: []int{2, 3}, MovedFraction: 0.5,
		Publishing: protocol.PreviewPublishing{Paused: true, EstimateMs: nil, LimitMs: 300000, Basis: "because", Producers: []string{"p1"}},
		Barrier:    "XSETID",
		Groups: []protocol.PreviewGroup{
			{Group: "billing", Managed: true, LiveMembers: 2, AffectedMembers: []string{"m1"}, AffectedCount: 1, Pending: 3, Undelivered: 7, UndeliveredMore: true, RatePerSecond: &rate, DrainEstimateMs: &ms, Basis: "seen"},
			{Group: "stray", AffectedMembers: []string{}, Basis: "nothing"},
		},
		Blockers: []protocol.PreviewNote{{Code: "FOREIGN_KEYS_EXIST", Message: "in the way"}},
		Risks:    []protocol.PreviewNote{}, Unknown: []string{"how long"},
	}
}

func sampleGroup(prefix, group string) protocol.Group {
	m := migration(sampleResharding(prefix, "r1"))
	return protocol.Group{StreamPrefix: prefix, ConsumerGroup: group, State: protocol.GroupStable, GroupEpoch: 2, AssignmentEpoch: 2,
		MetadataVersion: 4, ShardCount: 2, ActiveMigration: &m, TargetAssignmentSummary: map[string]int{"m1": 2},
		CurrentAssignmentSummary: map[string]int{}, Spec: protocol.DefaultGroupSpec(), Generation: 5, Ready: true}
}

func sampleResharding(prefix, id string) protocol.Resharding {
	lag := int64(0)
	return protocol.Resharding{ReshardingID: id, StreamPrefix: prefix, FromShardCount: 2, ToShardCount: 4, Strategy: protocol.StrategyQuiesce,
		DrainScope: protocol.DrainAll, Retire: protocol.RetireDelete, Phase: protocol.PhaseDraining,
		Phases:     []protocol.PhaseSpan{{Phase: protocol.PhaseSealing, StartedAt: at, EndedAt: &at}, {Phase: protocol.PhaseDraining, StartedAt: at}},
		WaitingFor: []string{"billing: 3 pending on orders:1"},
		Certificate: &protocol.DrainCertificate{TakenAt: at, Barrier: "XSETID", Shards: []protocol.ShardEvidence{{LastID: "1-0", Verdict: "DRAINED", Sealed: true,
			Groups: []protocol.GroupEvidence{{Group: "billing", LastDeliveredID: "1-0", Lag: &lag}, {Group: "search", LastDeliveredID: "1-0"}}}}}}
}

func (f *fakeEngine) Heartbeat(ctx context.Context, prefix, group, member string, req *protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	f.mu.Lock()
	f.beats, f.members = append(f.beats, req), append(f.members, member)
	f.mu.Unlock()
	f.wait(ctx, time.Duration(req.MaxWaitMs)*time.Millisecond)
	return protocol.HeartbeatResponse{ResponseTo: req.RequestID, Status: protocol.StatusOK, MemberID: member, MemberEpoch: 3,
		HeartbeatIntervalMs: 3000, RebalanceTimeoutMs: 60000, GroupEpoch: 3, AssignmentEpoch: 3, MetadataVersion: 3, MemberLeaseMs: 15000,
		Assignment: protocol.Assignment{AssignedShards: protocol.Shards([]int{0}), PendingShards: []protocol.Shard{}, MetadataVersion: 3,
			OwnershipEpochs: map[string]int64{"0": 17}}}
}

func (f *fakeEngine) Routing(ctx context.Context, prefix string, _ int64, wait time.Duration, producer string, _ bool) (protocol.Routing, error) {
	err := f.record(recorded{call: "Routing", prefix: prefix, id: producer, timeout: wait})
	f.wait(ctx, wait)
	return protocol.Routing{StreamPrefix: prefix, PublishState: protocol.PublishOpen, Hash: "murmur3", Shards: []protocol.RoutingShard{}, RoutingVersion: 4}, err
}

func (f *fakeEngine) ProducerRouting(_ context.Context, prefix, group string) (protocol.ProducerRouting, error) {
	return protocol.ProducerRouting{StreamPrefix: prefix, ConsumerGroup: group, Shards: []protocol.RoutingShard{{StreamKey: prefix + ":0"}}},
		f.record(recorded{call: "ProducerRouting", prefix: prefix, group: group})
}

func (f *fakeEngine) PutStream(_ context.Context, prefix string, spec protocol.StreamSpec, m engine.Mutation) (engine.PutStreamResult, error) {
	err := f.record(recorded{call: "PutStream", prefix: prefix, spec: spec, mutation: m})
	return engine.PutStreamResult{Stream: sampleStream(prefix), Created: f.created, ReshardingID: f.started}, err
}

func (f *fakeEngine) PreviewStream(_ context.Context, prefix string, spec protocol.StreamSpec, ifMatch int64) (protocol.Preview, error) {
	return samplePreview(prefix), f.record(recorded{call: "PreviewStream", prefix: prefix, spec: spec, mutation: engine.Mutation{IfMatch: ifMatch}})
}

func (f *fakeEngine) Recheck(_ context.Context, prefix, id string) (protocol.Resharding, error) {
	r := sampleResharding(prefix, id)
	r.Warnings, r.OrderWindow = []string{"something went"}, &protocol.TimeWindow{From: at}
	r.Recheck = &protocol.CertificateCheck{CheckedAt: at, Shards: []protocol.ShardCheck{{State: "UNKNOWN", Problems: []string{"no answer"}}, {ShardIndex: 1, State: "KEPT", Holds: true, Problems: []string{}}}}
	return r, f.record(recorded{call: "Recheck", prefix: prefix, id: id})
}

func (f *fakeEngine) Stream(_ context.Context, prefix string) (protocol.Stream, error) {
	return sampleStream(prefix), f.record(recorded{call: "Stream", prefix: prefix})
}

func (f *fakeEngine) Retention(_ context.Context, prefix string) (protocol.RetentionReport, error) {
	return protocol.RetentionReport{StreamPrefix: prefix, TakenAt: at, Retention: protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 9},
			Groups:  []protocol.GroupLosses{{Group: "billing", Managed: true, Trimmed: 3, Gone: 1, Shards: []protocol.ShardLosses{{ShardIndex: 1, Trimmed: 3, Gone: 1}}}},
			Unknown: []string{"shard 2: no answer"}},
		f.record(recorded{call: "Retention", prefix: prefix})
}

func (f *fakeEngine) Streams(context.Context) (protocol.StreamList, error) {
	return protocol.StreamList{Streams: []protocol.Stream{}, Unreadable: []string{}}, f.record(recorded{call: "Streams"})
}

func (f *fakeEngine) DeleteStream(_ context.Context, prefix string, force bool, m engine.Mutation) error {
	return f.record(recorded{call: "DeleteStream", prefix: prefix, force: force, mutation: m})
}

func (f *fakeEngine) CreateStream(_ context.Context, prefix string, n int, m engine.Mutation) (protocol.Stream, error) {
	return sampleStream(prefix), f.record(recorded{call: "CreateStream", prefix: prefix, count: n, mutation: m})
}

func (f *fakeEngine) PutGroup(_ context.Context, prefix, group string, spec protocol.GroupSpec, m engine.Mutation) (protocol.Group, bool, error) {
	return sampleGroup(prefix, group), f.created, f.record(recorded{call: "PutGroup", prefix: prefix, group: group, group2: spec, mutation: m})
}

func (f *fakeEngine) CreateGroup(_ context.Context, prefix, group string, n int, m engine.Mutation) (protocol.Group, error) {
	return sampleGroup(prefix, group), f.record(recorded{call: "CreateGroup", prefix: prefix, group: group, count: n, mutation: m})
}

func (f *fakeEngine) Group(_ context.Context, prefix, group string) (protocol.Group, error) {
	return sampleGroup(prefix, group), f.record(recorded{call: "Group", prefix: prefix, group: group})
}

func (f *fakeEngine) Groups(context.Context) ([]protocol.Group, error) {
	return []protocol.Group{sampleGroup("orders", "billing")}, f.record(recorded{call: "Groups"})
}

func (f *fakeEngine) DeleteGroup(_ context.Context, prefix, group string, force bool, m engine.Mutation) (protocol.Group, error) {
	return sampleGroup(prefix, group), f.record(recorded{call: "DeleteGroup", prefix: prefix, group: group, force: force, mutation: m})
}

func sampleRemovalPreview(prefix, group string, force bool) protocol.RemovalPreview {
	return protocol.RemovalPreview{
		StreamPrefix: prefix, ConsumerGroup: group, TakenAt: at, Generation: 3, Force: force, LiveMembers: 1, Pending: 3, Undelivered: 1007, UndeliveredMore: true,
		Shards:   []protocol.ShardBacklog{{ShardIndex: 1, Pending: 3, Undelivered: 7}, {ShardIndex: 4, Undelivered: 1000, UndeliveredMore: true}},
		Blockers: []protocol.PreviewNote{{Code: "GROUP_NOT_EMPTY", Message: "not yet"}}, Risks: []protocol.PreviewNote{}, Unknown: []string{"shard 2"},
	}
}

func (f *fakeEngine) PreviewGroupRemoval(_ context.Context, prefix, group string, force bool, ifMatch int64) (protocol.RemovalPreview, error) {
	return sampleRemovalPreview(prefix, group, force), f.record(recorded{call: "PreviewGroupRemoval", prefix: prefix, group: group, force: force, mutation: engine.Mutation{IfMatch: ifMatch}})
}

func (f *fakeEngine) Members(_ context.Context, prefix, group string) ([]protocol.MemberView, error) {
	id := "1-0"
	member := func(name string, shards ...int) protocol.MemberView {
		v := protocol.MemberView{MemberID: name, MemberName: name, State: protocol.MemberActive, CurrentAssignment: protocol.Shards(shards),
			GrantedAssignment: []protocol.Shard{}, Revoking: []protocol.Shard{}, LastHeartbeatAt: at, MemberLeaseExpiresAt: at, ShardProgress: []protocol.ShardProgress{}}
		for _, s := range shards {
			v.ShardProgress = append(v.ShardProgress, protocol.ShardProgress{Shard: protocol.Shard{ShardIndex: s}, StreamKey: protocol.ShardKey(prefix, s), LastAckedID: &id})
		}
		return v
	}
	return []protocol.MemberView{member("m2", 1), member("m1", 2, 0)}, f.record(recorded{call: "Members", prefix: prefix, group: group})
}

func (f *fakeEngine) Assignments(_ context.Context, prefix, group string) (protocol.Assignments, error) {
	one := map[string][]protocol.Shard{"m1": protocol.Shards([]int{0})}
	return protocol.Assignments{TargetAssignment: one, CurrentAssignments: one, RevokeProgress: map[string][]protocol.Shard{}, InvariantViolations: []string{}},
		f.record(recorded{call: "Assignments", prefix: prefix, group: group})
}

func (f *fakeEngine) Scale(_ context.Context, prefix string, n int, m engine.Mutation) (protocol.Resharding, error) {
	return sampleResharding(prefix, "r1"), f.record(recorded{call: "Scale", prefix: prefix, count: n, mutation: m})
}

func (f *fakeEngine) Reshardings(_ context.Context, prefix string) ([]protocol.Resharding, error) {
	old := sampleResharding(prefix, "r0")
	old.Phase = protocol.PhaseCompleted
	return []protocol.Resharding{sampleResharding(prefix, "r1"), old}, f.record(recorded{call: "Reshardings", prefix: prefix})
}

func (f *fakeEngine) Resharding(ctx context.Context, prefix, id string, _ protocol.Phase, wait time.Duration) (protocol.Resharding, error) {
	err := f.record(recorded{call: "Resharding", prefix: prefix, id: id, timeout: wait})
	f.wait(ctx, wait)
	return sampleResharding(prefix, id), err
}

func (f *fakeEngine) Rollback(_ context.Context, prefix, id string, m engine.Mutation) (protocol.Resharding, error) {
	return sampleResharding(prefix, id), f.record(recorded{call: "Rollback", prefix: prefix, id: id, mutation: m})
}

func (f *fakeEngine) Pause(_ context.Context, prefix string, timeout time.Duration, m engine.Mutation) (protocol.Stream, error) {
	return sampleStream(prefix), f.record(recorded{call: "Pause", prefix: prefix, timeout: timeout, mutation: m})
}

func (f *fakeEngine) Resume(_ context.Context, prefix string, m engine.Mutation) (protocol.Stream, error) {
	return sampleStream(prefix), f.record(recorded{call: "Resume", prefix: prefix, mutation: m})
}

func (f *fakeEngine) Audit(_ context.Context, log string, ev protocol.AuditEvent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.auditErr != nil {
		return f.auditErr
	}
	f.audits = append(f.audits, auditRecord{log, ev})
	return nil
}

func (f *fakeEngine) AuditEvents(_ context.Context, q redisstore.AuditQuery) (protocol.AuditList, error) {
	return protocol.AuditList{Events: []protocol.AuditEvent{{ID: "1-0", Timestamp: at, Outcome: "SUCCESS", Roles: []string{"ADMIN"}}}},
		f.record(recorded{call: "AuditEvents", query: q})
}

func (f *fakeEngine) OpenSession(_ context.Context, id, user string, life time.Duration) error {
	err := f.record(recorded{call: "OpenSession", id: id, timeout: life})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions == nil {
		f.sessions = map[string]string{}
	}
	f.sessions[id] = user
	return err
}

func (f *fakeEngine) HasSession(_ context.Context, id, user string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.sessions[id] == user, f.err
}

func (f *fakeEngine) RenewSession(_ context.Context, id string, life time.Duration) (bool, error) {
	err := f.record(recorded{call: "RenewSession", id: id, timeout: life})
	f.mu.Lock()
	defer f.mu.Unlock()
	_, lives := f.sessions[id]
	return lives, err
}

func (f *fakeEngine) EndSession(_ context.Context, id string) error {
	err := f.record(recorded{call: "EndSession", id: id})
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, id)
	return err
}

func (f *fakeEngine) Ready() error { return f.notReady }

// last is the last call of that name.
func (f *fakeEngine) last(t *testing.T, call string) recorded {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, made := range slices.Backward(f.calls) {
		if made.call == call {
			return made
		}
	}
	t.Fatalf("the engine was not asked for %s; calls: %v", call, f.calls)
	return recorded{}
}

// bundle is a handler with everything around it that a test looks at.
type bundle struct {
	t        *testing.T
	h        *Handler
	engine   *fakeEngine
	logs     *observer.ObservedLogs
	registry *prometheus.Registry
}

var testUsers = []User{
	{"root", "root-password", []Role{RoleAdmin}},
	{"reader", "reader-password", []Role{RoleRead}},
	{"monitor", "monitor-password", []Role{RoleMonitor}},
	{"writer", "writer-password", []Role{RoleWrite}},
	{"member", "member-password", []Role{RoleMember}},
}

func setup(t *testing.T, change ...func(*Config)) *bundle {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	b := &bundle{t: t, engine: &fakeEngine{}, logs: logs, registry: prometheus.NewRegistry()}
	cfg := Config{Engine: b.engine, Logger: zap.New(core), Registry: b.registry, CoordinatorID: "c1", Users: testUsers[:1], bcryptCost: bcrypt.MinCost}
	for _, c := range change {
		c(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	b.h = h
	return b
}

func allUsers(c *Config) { c.Users = testUsers }

// answer is a recorded response.
type answer struct {
	*httptest.ResponseRecorder
	t *testing.T
}

func (a answer) json(into any) {
	a.t.Helper()
	if err := json.Unmarshal(a.Body.Bytes(), into); err != nil {
		a.t.Fatalf("body %q: %v", a.Body, err)
	}
}

func (a answer) refusal() protocol.Error {
	a.t.Helper()
	var e protocol.Error
	a.json(&e)
	return e
}

type option func(*http.Request)

func as(name string) option {
	return func(r *http.Request) { r.SetBasicAuth(name, name+"-password") }
}

func header(name, value string) option { return func(r *http.Request) { r.Header.Set(name, value) } }

func noAuth(r *http.Request) { r.Header.Del("Authorization") }

// do sends one request as root, unless an option says otherwise, and holds the answer against
// the OpenAPI description. A request that was accepted is held against it too.
func (b *bundle) do(method, target, body string, options ...option) answer {
	b.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	as("root")(r)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, o := range options {
		o(r)
	}
	w := httptest.NewRecorder()
	copied := r.Clone(context.Background())
	b.h.ServeHTTP(w, r)
	b.checkContract(copied, body, w)
	return answer{w, b.t}
}

var description = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(OpenAPI)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

func (b *bundle) checkContract(r *http.Request, body string, w *httptest.ResponseRecorder) {
	b.t.Helper()
	doc, err := description()
	if err != nil {
		b.t.Fatalf("openapi.yaml: %v", err)
	}
	rctx := chi.NewRouteContext()
	pattern := b.h.mux.Find(rctx, r.Method, r.URL.EscapedPath())
	if pattern == "" || r.Method == http.MethodHead {
		return
	}
	item := doc.Paths.Value(pattern)
	if item == nil || item.GetOperation(r.Method) == nil {
		b.t.Fatalf("%s %s is served but not described", r.Method, pattern)
	}
	route := &routers.Route{Spec: doc, Path: pattern, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)}
	r.Body = io.NopCloser(strings.NewReader(body))
	params := map[string]string{}
	for i, key := range rctx.URLParams.Keys {
		value, err := urlUnescape(rctx.URLParams.Values[i])
		if err != nil {
			return
		}
		params[key] = value
	}
	opts := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: opts}
	if w.Code < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			b.t.Errorf("%s %s %s was accepted, though the description refuses it: %v", r.Method, r.URL, body, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(), Options: opts}
	out.SetBodyBytes(bytes.Clone(w.Body.Bytes()))
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		b.t.Errorf("%s %s answered %d %s, against the description: %v", r.Method, r.URL, w.Code, w.Body, err)
	}
}
