package redismodel

import (
	"fmt"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// Run is one coordinator script on one shard, computed from the aggregate's revision rev and
// valid before notAfter, in the time of the shard's node. The reply is that of the script.
func (r *Redis) Run(step stream.Step, rev int64, notAfter protocol.Instant) stream.Reply {
	sh := r.Shard(step.Index)
	at := r.TimeOf(step.Index)
	if step.NotAfter != 0 {
		notAfter = min(notAfter, step.NotAfter)
	}
	x := &script{sh: sh, step: step, rev: rev, at: at, notAfter: notAfter}
	code := x.run()
	return stream.Reply{Step: step, Code: code, At: at, Control: sh.show(), Evidence: x.evidence}
}

// script is one run of a coordinator's script.
type script struct {
	sh           *Shard
	step         stream.Step
	rev          int64
	at, notAfter protocol.Instant
	evidence     *protocol.ShardEvidence
}

func (x *script) run() shardscript.Code {
	switch x.step.Script {
	case shardscript.Prepare:
		return x.prepare()
	case shardscript.Provision:
		return x.provision()
	case shardscript.Seal:
		return x.seal()
	case shardscript.Evidence:
		return x.look()
	case shardscript.Decide:
		return x.decide()
	case shardscript.Look:
		if x.unfenced() {
			return shardscript.Unfenced
		}
		if x.sh.Control.By == "" {
			x.sh.Control.By = x.name()
		}
		return shardscript.OK
	case shardscript.Open:
		return x.open()
	case shardscript.Release:
		return x.release()
	case shardscript.Undo:
		return x.undo()
	case shardscript.RetireOne:
		return x.retire()
	case shardscript.Hold:
		return x.hold()
	case shardscript.MkGroup:
		return x.mkgroup()
	case shardscript.Survey:
		return shardscript.OK
	default:
		panic(fmt.Sprintf("redismodel: no coordinator script %q", x.step.Script))
	}
}

func (x *script) name() string { return by(x.step.ID, x.step.Script) }

// by is the text that tells people who wrote last.
func by(id string, script shardscript.Name) string {
	if id == "" {
		id = "-"
	}
	return id + "/" + string(script)
}

// stamp writes rev and by, a repeat too.
func (x *script) stamp() *Control {
	c := x.sh.control()
	c.Rev, c.By = x.rev, x.name()
	return c
}

// old says whether the shard has met a higher revision: the sender is behind.
func (x *script) old() bool { return x.sh.Control != nil && x.rev < x.sh.Control.Rev }

// higher says whether the shard is at a higher layout epoch than the script's.
func (x *script) higher() bool {
	return x.sh.Control != nil && x.sh.Control.HasEpoch && x.step.Epoch < x.sh.Control.Epoch
}

func (x *script) unfenced() bool { return x.sh.Control == nil || !x.sh.Control.HasEpoch }

func (x *script) late() bool { return x.at >= x.notAfter }

// guard is the common head of most scripts, "" when all is well.
func (x *script) guard() shardscript.Code {
	switch {
	case x.old():
		return shardscript.Ahead
	case x.unfenced():
		return shardscript.Unfenced
	case x.late():
		return shardscript.Late
	}
	return ""
}

func (x *script) prepare() shardscript.Code {
	switch {
	case x.old(), x.higher():
		return shardscript.Ahead
	case x.late():
		return shardscript.Late
	case x.sh.Control != nil && x.sh.Control.Retired != "":
		return shardscript.Ahead
	case x.sh.Stream == nil:
		return shardscript.Unknown
	}
	c := x.stamp()
	if c.Gate != "" && c.Gate != x.step.ID {
		c.Until = 0 // it was the deadline of the other
	}
	c.HasEpoch, c.Epoch, c.Count = true, x.step.Epoch, x.step.Count
	c.Gate = x.step.ID
	if x.sh.Index == 0 {
		c.High = max(c.High, x.step.High)
	}
	return shardscript.OK
}

func (x *script) provision() shardscript.Code {
	sh := x.sh
	switch {
	case x.old(), x.higher():
		return shardscript.Ahead
	case x.late():
		return shardscript.Late
	case sh.Stream != nil && x.unfenced():
		return shardscript.Foreign
	case sh.Stream != nil && len(sh.Stream.Entries) > 0 && sh.Control.Gate != x.step.ID && !x.removed():
		return shardscript.Leftover
	}
	c := x.stamp()
	if c.Gate != "" && c.Gate != x.step.ID {
		c.Until = 0
	}
	if sh.Stream == nil {
		sh.Stream = &Stream{}
	}
	for _, g := range x.step.Groups {
		sh.Stream.createGroup(g, ID{})
	}
	c.HasEpoch, c.Epoch, c.Count = true, x.step.Epoch, x.step.Count
	c.Gate = x.step.ID
	if x.step.Until != 0 {
		c.Until = x.step.Until
	}
	c.Retired, c.Aborted = "", ""
	if sh.Index == 0 {
		c.High = max(c.High, x.step.High)
	}
	return sh.settle(x.at)
}

// removed: the shard is one that the layout in force has removed and that still waits to be drained.
func (x *script) removed() bool {
	c := x.sh.Control
	return c.Retired == "" && c.Epoch == x.step.Epoch && c.Count == x.step.Count
}

func (x *script) seal() shardscript.Code {
	sh := x.sh
	if x.higher() {
		return shardscript.Ahead
	}
	if code := x.guard(); code != "" {
		return code
	}
	switch {
	case sh.Control.Epoch < x.step.Epoch:
		return shardscript.NotHeld
	case sh.Control.Aborted == x.step.ID:
		return shardscript.Aborted
	case x.at >= x.step.Until:
		return shardscript.Late
	case sh.Stream == nil:
		return shardscript.Unknown
	}
	c := x.stamp()
	c.Gate, c.Until = x.step.ID, x.step.Until
	return sh.settle(x.at)
}

// look is EVIDENCE: one atomic look, nothing written.
func (x *script) look() shardscript.Code {
	if code := x.guard(); code != "" {
		return code
	}
	return x.verdict()
}

// verdict fills the evidence and says DRAINED, BUSY or UNKNOWN.
func (x *script) verdict() shardscript.Code {
	sh := x.sh
	if sh.tombstone() {
		return shardscript.Retired
	}
	if sh.Stream == nil {
		return shardscript.Unknown
	}
	st := sh.Stream
	ev := &protocol.ShardEvidence{ShardIndex: sh.Index, Sealed: st.Sealed(), LastID: st.LastID.String(), EntriesAdded: st.Added}
	if st.Sealed() && sh.Control.HasKept {
		ev.LastID = sh.Control.Kept.String()
	}
	code := shardscript.Drained
	for _, g := range st.Groups {
		ge := protocol.GroupEvidence{
			Group: g.Name, Pending: int64(len(g.Pending)), LastDeliveredID: g.LastDelivered.String(),
			EntryAfter: st.entryAfter(g), Ignored: slices.Contains(x.step.Ignored, g.Name),
		}
		ev.Groups = append(ev.Groups, ge)
		if !ge.Ignored && (ge.Pending > 0 || ge.EntryAfter) {
			code = shardscript.Busy
		}
	}
	for _, name := range x.step.Groups {
		if st.Group(name) == nil && !slices.Contains(x.step.Ignored, name) {
			code = shardscript.Unknown
		}
	}
	ev.Verdict = string(code)
	x.evidence = ev
	return code
}

func (x *script) decide() shardscript.Code {
	sh, c := x.sh, x.sh.Control
	if c != nil && c.HasEpoch && c.Epoch == x.step.ToEpoch && c.Count == x.step.ToCount {
		c.By = x.name()
		return shardscript.Decided
	}
	if x.higher() {
		return shardscript.Ahead
	}
	if code := x.guard(); code != "" {
		return code
	}
	switch {
	case c.Aborted == x.step.ID:
		return shardscript.Aborted
	case c.Gate != x.step.ID, c.Epoch < x.step.Epoch:
		return shardscript.NotHeld
	case c.Until != 0 && x.at >= c.Until:
		return shardscript.Late
	case x.step.Quiesced && (sh.Stream == nil || !sh.Stream.Sealed()):
		return shardscript.Unsealed
	}
	if x.step.Drained {
		if code := x.verdict(); code != shardscript.Drained {
			return code
		}
		x.evidence = nil // shown only where it is the reason
	}
	x.stamp()
	c.Epoch, c.Count = x.step.ToEpoch, x.step.ToCount
	c.Gate, c.Until = "", 0
	return sh.settle(x.at)
}

func (x *script) open() shardscript.Code {
	sh := x.sh
	switch {
	case x.old(), x.higher():
		return shardscript.Ahead
	case x.late():
		return shardscript.Late
	}
	c := x.stamp()
	c.HasEpoch, c.Epoch, c.Count = true, x.step.Epoch, x.step.Count
	c.Gate, c.Until = "", 0
	if sh.Index >= x.step.Count {
		// What lies beside a tombstone is not ours, and stays as it is.
		if c.Retired != "" || sh.Stream == nil {
			if c.Retired == "" {
				c.Retired = x.step.ID
			}
			c.Hold, c.HasKept, c.Kept = 0, false, ID{}
			return shardscript.Gone
		}
		return sh.settle(x.at)
	}
	c.Hold, c.Retired = x.step.Hold, ""
	if sh.Stream == nil {
		sh.Stream = &Stream{}
		for _, g := range x.step.Groups {
			sh.Stream.createGroup(g, ID{})
		}
	}
	return sh.settle(x.at)
}

func (x *script) release() shardscript.Code {
	switch {
	case x.old():
		return shardscript.Ahead
	case x.higher():
		return shardscript.Decided
	}
	if code := x.guard(); code != "" {
		return code
	}
	c := x.stamp()
	c.Aborted = x.step.ID
	c.Gate, c.Until = "", 0
	return x.sh.settle(x.at)
}

func (x *script) undo() shardscript.Code {
	sh := x.sh
	switch {
	case x.old():
		return shardscript.Ahead
	case x.higher():
		return shardscript.Decided
	case x.late():
		return shardscript.Late
	case sh.Stream != nil && x.unfenced():
		x.stamp().Aborted = x.step.ID // foreign, and stays so: no layout beside it
		return shardscript.OK
	case sh.Stream != nil && sh.Stream.Added > 0:
		return shardscript.NotEmpty
	}
	c := x.stamp()
	if !c.HasEpoch {
		c.HasEpoch, c.Epoch, c.Count = true, x.step.Epoch, x.step.Count
	}
	c.Gate, c.Until = "", 0
	c.HasKept, c.Kept = false, ID{}
	c.Aborted, c.Retired = x.step.ID, x.step.ID
	sh.Stream = nil
	return shardscript.OK
}

func (x *script) retire() shardscript.Code {
	sh := x.sh
	if x.higher() {
		return shardscript.Ahead
	}
	if code := x.guard(); code != "" {
		return code
	}
	switch {
	case sh.tombstone():
		x.stamp()
		return shardscript.OK
	case sh.Control.Epoch != x.step.Epoch || sh.Control.Count != x.step.Count || sh.Index < sh.Control.Count:
		return shardscript.NotFenced
	case sh.Stream == nil || !sh.Stream.Sealed():
		return shardscript.Unsealed
	}
	if code := x.verdict(); code != shardscript.Drained {
		return code
	}
	if x.step.Archive != "" {
		if slices.Contains(sh.Archived, x.step.Archive) {
			return shardscript.Exists
		}
		sh.Archived = append(slices.Clip(sh.Archived), x.step.Archive)
	}
	c := x.stamp()
	c.Retired = x.step.ID
	c.Gate, c.Until, c.Hold = "", 0, 0
	c.HasKept, c.Kept = false, ID{}
	sh.Stream = nil
	return shardscript.OK
}

func (x *script) hold() shardscript.Code {
	if code := x.guard(); code != "" {
		return code
	}
	c := x.stamp()
	if c.Retired != "" {
		return shardscript.OK
	}
	c.Hold = x.step.Hold
	return x.sh.settle(x.at)
}

func (x *script) mkgroup() shardscript.Code {
	sh := x.sh
	if code := x.guard(); code != "" {
		return code
	}
	switch {
	case sh.Control.Retired != "":
		return shardscript.Retired
	case sh.Stream == nil:
		return shardscript.Unknown
	}
	x.stamp()
	for _, name := range x.step.Groups {
		start := ID{}
		if x.step.Start == "$" {
			start = sh.Stream.LastID
		}
		sh.Stream.createGroup(name, start)
	}
	return shardscript.OK
}

// show is the control hash as replies carry it.
func (s *Shard) show() stream.Control {
	out := stream.Control{StreamExists: s.Stream != nil}
	if s.Stream != nil {
		out.Sealed, out.Length, out.EntriesAdded = s.Stream.Sealed(), int64(len(s.Stream.Entries)), s.Stream.Added
	}
	if c := s.Control; c != nil {
		out.Present, out.HasEpoch, out.Epoch, out.Count = true, c.HasEpoch, c.Epoch, c.Count
		out.Rev, out.By, out.Gate, out.Until, out.Hold = c.Rev, c.By, c.Gate, c.Until, c.Hold
		out.Aborted, out.Retired, out.High = c.Aborted, c.Retired, c.High
	}
	return out
}
