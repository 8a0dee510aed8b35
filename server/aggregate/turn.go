package aggregate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// Turn applies a batch of commands to one unit, one after the other; each gets the answer of its
// own application (C7). Refusals are *protocol.Error and change nothing.
type Turn struct {
	unit    Unit
	now     protocol.Instant
	present map[string]map[string]bool // group → members with a request in the batch (C7)

	stream        *stream.Turn // nil: no such stream
	created       bool
	streamTouched bool
	streamDeleted bool
	minRevision   int64

	groups map[string]*groupTurn
}

type groupTurn struct {
	turn    *group.Turn
	created bool
	deleted bool
	reset   bool
}

// Begin starts a turn on u at the instant now. present lists the members that have a request in
// the batch, by group: they are not expired by it.
func Begin(u Unit, now protocol.Instant, present map[string]map[string]bool) *Turn {
	t := &Turn{unit: u, now: now, present: present, groups: map[string]*groupTurn{}}
	if u.Stream != nil {
		t.stream = stream.Begin(u.Stream)
	}
	return t
}

// Now is the instant of the turn.
func (t *Turn) Now() protocol.Instant { return t.now }

// Stream is the stream as it stands in this turn, nil when there is none. An answer that rests
// on it needs its token proven, so it counts as touched.
func (t *Turn) Stream() *stream.State {
	if t.stream == nil || t.streamDeleted {
		return nil
	}
	t.streamTouched = true
	return t.stream.State()
}

// Group is a group as it stands in this turn, nil when there is none; touched like Stream.
func (t *Turn) Group(name string) *group.State {
	if g := t.group(name); g != nil {
		return g.turn.State()
	}
	t.streamTouched = true // the registry is what proves that there is none
	return nil
}

// Leases is what is known of the lease rows of a group.
func (t *Turn) Leases(name string) group.Leases { return t.unit.Leases[name] }

func (t *Turn) group(name string) *groupTurn {
	if g, ok := t.groups[name]; ok {
		if g.deleted {
			return nil
		}
		return g
	}
	s, ok := t.unit.Groups[name]
	if !ok {
		return nil
	}
	g := &groupTurn{turn: group.Begin(s)}
	t.groups[name] = g
	return g
}

// GroupNames lists the groups as they stand in this turn, sorted.
func (t *Turn) GroupNames() []string {
	t.streamTouched = true
	return t.groupNames()
}

// groupNames lists the groups as they stand in this turn, sorted.
func (t *Turn) groupNames() []string {
	names := make([]string, 0, len(t.unit.Groups))
	for name := range t.unit.Groups {
		if g, ok := t.groups[name]; !ok || !g.deleted {
			names = append(names, name)
		}
	}
	for name, g := range t.groups {
		if _, stored := t.unit.Groups[name]; !stored && !g.deleted {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Heartbeat decides one heartbeat; memberID is that of the path. Rows 1–3 of the contract's
// decision table come first; they touch no group.
func (t *Turn) Heartbeat(groupName, memberID string, req *protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	if resp, refused := RefuseForm(memberID, req); refused {
		return resp
	}
	g := t.group(groupName)
	if g == nil {
		t.streamTouched = true
		return Rejected(memberID, req, protocol.StatusUnknownMemberID)
	}
	return g.turn.Heartbeat(req, t.now, t.unit.Leases[groupName])
}

// RefuseForm is rows 1 and 2 of the decision table, which need no state.
func RefuseForm(memberID string, req *protocol.HeartbeatRequest) (protocol.HeartbeatResponse, bool) {
	switch {
	case req.ProtocolVersion > protocol.HeartbeatVersion:
		return Rejected(memberID, req, protocol.StatusUnsupportedProtocol), true
	case req.MemberID != memberID:
		return Rejected(memberID, req, protocol.StatusInvalidRequest), true
	}
	return protocol.HeartbeatResponse{}, false
}

// Rejected is the answer that echoes the request's epoch and shows nothing.
func Rejected(memberID string, req *protocol.HeartbeatRequest, status protocol.HeartbeatStatus) protocol.HeartbeatResponse {
	d := protocol.DefaultGroupSpec()
	return protocol.HeartbeatResponse{
		ResponseTo: req.RequestID, Status: status, MemberID: memberID, MemberEpoch: req.MemberEpoch,
		HeartbeatIntervalMs: d.HeartbeatIntervalMs, RebalanceTimeoutMs: d.RebalanceTimeoutMs,
		Assignment: protocol.Assignment{AssignedShards: []protocol.Shard{}, PendingShards: []protocol.Shard{}},
	}
}

// Retry is the answer when nothing could be decided: it changes nothing and extends no lease.
func Retry(memberID string, req *protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	resp := Rejected(memberID, req, protocol.StatusRetry)
	resp.MetadataVersion = req.MetadataVersion
	resp.Assignment.MetadataVersion = req.MetadataVersion
	return resp
}

// PutStream declares the desired state of the stream named prefix, creating it when there is
// none. identity is that of the Redis server.
func (t *Turn) PutStream(prefix string, spec protocol.StreamSpec, identity string, req stream.Request) (created bool, reshardingID string, err *protocol.Error) {
	t.streamTouched = true
	if t.stream == nil || t.streamDeleted {
		if err := stream.CheckGeneration(fmt.Sprintf("stream %q", prefix), 0, req.IfMatch); err != nil {
			return false, "", err
		}
		if err := spec.Retention.Check("retention"); err != nil {
			return false, "", err
		}
		t.stream = stream.Begin(stream.New(prefix, spec, identity, req, t.now))
		t.created, t.streamDeleted = true, false
		t.minRevision = max(t.minRevision, CreationRevision(t.now))
		if r := t.stream.State().Active; r != nil {
			reshardingID = r.ID
		}
		return true, reshardingID, nil
	}
	id, _, err := t.stream.Put(spec, req, t.now)
	if err != nil {
		return false, "", err
	}
	t.sync()
	return false, id, nil
}

// errNoStream is the refusal of anything that needs the stream.
func errNoStream() *protocol.Error {
	return protocol.NewError(protocol.CodeStreamNotFound, "no such stream")
}

func errNoGroup(name string) *protocol.Error {
	return protocol.NewError(protocol.CodeGroupNotFound, fmt.Sprintf("no consumer group %q on this stream", name))
}

// ChangeStream applies f to the stream; STREAM_NOT_FOUND when there is none.
func (t *Turn) ChangeStream(f func(*stream.Turn) *protocol.Error) *protocol.Error {
	t.streamTouched = true
	if t.stream == nil || t.streamDeleted {
		return errNoStream()
	}
	if err := f(t.stream); err != nil {
		return err
	}
	t.sync()
	return nil
}

// PutGroup declares the desired state of a group, registering it when there is none. It is
// ready only after its Redis consumer group exists on every shard. ifMatch is the generation of the
// group that the request presupposes: 0 any, stream.MustBeNew none.
func (t *Turn) PutGroup(name string, spec protocol.GroupSpec, ifMatch int64) (created bool, err *protocol.Error) {
	t.streamTouched = true
	if t.stream == nil || t.streamDeleted {
		return false, errNoStream()
	}
	g := t.group(name)
	if err := matches(name, g, ifMatch); err != nil {
		return false, err
	}
	if g != nil {
		if stored := g.turn.State().Spec; spec.StartPosition != "" && spec.StartPosition != stored.StartPosition {
			return false, protocol.Invalid("startPosition", fmt.Sprintf("is %s since the group was registered; it cannot be changed: delete the group and register it again", stored.StartPosition))
		}
		g.turn.SetSpec(spec, t.now)
		return false, nil
	}
	if s := t.stream.State(); s.Deleting {
		return false, protocol.NewError(protocol.CodeStateVersionConflict, fmt.Sprintf("stream %q is being deleted; ask again when it is gone", s.Prefix))
	}
	if _, goes := t.stream.State().Removing[name]; goes {
		return false, protocol.NewError(protocol.CodeStateVersionConflict, fmt.Sprintf("group %q is being deleted: its Redis consumer groups have not gone from every shard yet; ask again when they have", name))
	}
	if len(t.groupNames())+len(t.stream.State().Removing) >= protocol.MaxGroups {
		return false, protocol.Invalid("consumerGroup", fmt.Sprintf("the stream already has %d groups, which is the most", protocol.MaxGroups))
	}
	s := group.New(t.stream.State().Prefix, name, spec, 0, t.now)
	t.stream.RegisterGroup(name, s.Spec.StartPosition, t.now)
	t.groups[name] = &groupTurn{turn: group.Begin(s), created: true}
	t.sync()
	return true, nil
}

// mostNamed bounds the members that a refusal names.
const mostNamed = 20

// liveMembers names the active members of a group, quoted and sorted.
func liveMembers(s *group.State) []string {
	var live []string
	for _, id := range sortedKeys(s.Members) {
		if s.Members[id].State == group.Active {
			live = append(live, strconv.Quote(id))
		}
	}
	return live
}

// DeleteGroup deletes a group: its members are unknown from here on, and its Redis consumer groups
// are destroyed. Without force it is refused with live members, and with unfinished, when that is
// not nil: what the shards showed of the group before. ifMatch is as with PutGroup.
func (t *Turn) DeleteGroup(name string, force bool, ifMatch int64, unfinished *protocol.Error) *protocol.Error {
	t.streamTouched = true
	g := t.group(name)
	if t.stream == nil || t.streamDeleted {
		return errNoStream()
	}
	if g == nil {
		return errNoGroup(name)
	}
	if err := matches(name, g, ifMatch); err != nil {
		return err
	}
	if !force {
		if live := liveMembers(g.turn.State()); len(live) > 0 {
			n := len(live)
			if n > mostNamed {
				live = append(live[:mostNamed], fmt.Sprintf("and %d more", n-mostNamed))
			}
			return protocol.NewError(protocol.CodeGroupHasMembers, fmt.Sprintf(
				"group %q has %s (%s): stop its consumers, or delete the group by force, which fences them", name, stream.Counted(n, "live member"), strings.Join(live, ", ")))
		}
		if unfinished != nil {
			return unfinished
		}
	}
	g.deleted = true
	t.stream.RemoveGroup(name, g.turn.State().OwnershipCounter, t.now)
	t.sync()
	return nil
}

// matches refuses what presupposes another generation than the group has; g is nil where there is none.
func matches(name string, g *groupTurn, ifMatch int64) *protocol.Error {
	now := int64(0)
	if g != nil {
		now = g.turn.State().SpecGeneration()
	}
	return stream.CheckGeneration(fmt.Sprintf("group %q", name), now, ifMatch)
}

// ApplyPass takes the outcome of a pass over the shards.
func (t *Turn) ApplyPass(res stream.PassResult) {
	if t.stream == nil || t.streamDeleted {
		return
	}
	t.streamTouched = true
	t.stream.Apply(res, t.now)
	t.sync()
}

// PlainProducersSeen tells when a producer that does not fence last asked for the routing; 0 for
// never. It comes before ApplyPass of the phases that seal and drain.
func (t *Turn) PlainProducersSeen(at protocol.Instant) {
	if t.stream != nil && !t.streamDeleted {
		t.stream.PlainProducersSeen(at, t.now)
	}
}

// ApplySurvey takes the outcome of a sweep; id is what a repair would be named.
func (t *Turn) ApplySurvey(res stream.PassResult, id string) {
	if t.stream == nil || t.streamDeleted {
		return
	}
	t.streamTouched = true
	t.stream.ApplySurvey(res, id, t.now)
	t.sync()
}

// Adopt follows shards that are ahead of the aggregate (protocol/resharding.md 1.7.1).
func (t *Turn) Adopt(seen stream.Control, id string) {
	if t.stream == nil || t.streamDeleted {
		return
	}
	t.streamTouched = true
	t.minRevision = max(t.minRevision, t.stream.Adopt(seen, id, t.now))
	t.sync()
}

// Advance makes the transitions of the stream that time or members cause.
func (t *Turn) Advance() {
	if t.stream == nil || t.streamDeleted {
		return
	}
	t.streamTouched = true
	t.advance()
	t.sync()
}

func (t *Turn) advance() {
	s := t.stream.State()
	to := s.Layout.Count
	if s.Active != nil {
		to = s.Active.To.Count
	}
	var progress []stream.GroupProgress
	for _, name := range t.groupNames() {
		live, above, unowned := group.ProgressOf(t.groupState(name), to)
		progress = append(progress, stream.GroupProgress{Group: name, LiveMember: live, HeldAbove: above, Unowned: unowned})
	}
	t.stream.Advance(progress, t.now)
}

// groupState looks at a group without touching it.
func (t *Turn) groupState(name string) *group.State {
	if g, ok := t.groups[name]; ok {
		return g.turn.State()
	}
	return t.unit.Groups[name]
}

// Tick does the periodic work of one group: expiry, deadlines, orphans, missing rows.
func (t *Turn) Tick(name string) {
	if g := t.group(name); g != nil {
		g.turn.Tick(t.now, t.unit.Leases[name], t.present[name])
	}
}

// Recover is S12 for the whole unit, after Redis lost writes: identity is the server's now,
// highest what this replica has ever seen of each group.
func (t *Turn) Recover(identity string, highest map[string]group.Epochs) {
	if t.stream == nil {
		return
	}
	t.streamTouched = true
	t.stream.SetIdentity(identity, t.now)
	for _, name := range t.groupNames() {
		g := t.group(name)
		g.turn.Recover(highest[name], t.now, t.unit.Leases[name])
		g.reset = true
	}
}

// ResetLeases sets every lease row of every group to TIME + L: the clock of Redis has stepped,
// so nothing may end before its holder has had a whole lease to renew (C5).
func (t *Turn) ResetLeases() {
	for _, name := range t.groupNames() {
		g := t.group(name)
		g.turn.RenewAll(t.unit.Leases[name])
		g.reset = true
	}
}

// sync keeps the groups' assignable shards what the stream's phase says, in the same commit.
func (t *Turn) sync() {
	if t.stream == nil || t.streamDeleted || !t.stream.Changed() && !t.created {
		return
	}
	s := t.stream.State()
	if s.Gone {
		t.streamDeleted = true
		for _, name := range t.groupNames() {
			t.group(name).deleted = true
		}
		return
	}
	for _, name := range t.groupNames() {
		want := 0
		if e := s.Groups[name]; e != nil && e.Ready {
			want = s.Assignable()
		}
		if t.groupState(name).Assignable != want {
			t.group(name).turn.SetAssignable(want, t.now)
		}
	}
}

// Finish ends the turn. While a resharding waits for members, every turn may be the one in which
// they have converged.
func (t *Turn) Finish() Outcome {
	if t.stream != nil && !t.streamDeleted && t.converging() {
		t.advance()
		t.sync()
	}
	out := Outcome{StreamTouched: t.streamTouched, StreamDeleted: t.streamDeleted && t.unit.Stream != nil, MinRevision: t.minRevision, Groups: map[string]GroupOutcome{}}
	if t.stream != nil && !t.streamDeleted && (t.created || t.stream.Changed()) {
		out.Stream = t.stream.State()
		out.StreamTouched = true
	}
	for name, g := range t.groups {
		o := GroupOutcome{Created: g.created, Deleted: g.deleted, ResetRows: g.reset}
		if g.deleted {
			if g.created {
				continue
			}
			out.Groups[name] = o
			continue
		}
		o.Rows = g.turn.Rows()
		if g.created || g.turn.Changed() {
			o.Next = g.turn.State()
		}
		out.Groups[name] = o
	}
	return out
}

func (t *Turn) converging() bool {
	r := t.stream.State().Active
	return r != nil && r.Phase == protocol.PhaseConverging
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
