package stream

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Decision is what a PUT of a spec makes of a stream, found out on a turn that is thrown away. The
// shell makes it by the very call that a real PUT makes, so that a dry run cannot tell anything
// else than what would happen.
type Decision struct {
	Prefix       string
	Spec         protocol.StreamSpec // as asked for
	Before       *State              // nil: no such stream
	After        *State              // nil: no such stream, and the call was refused
	ReshardingID string              // as the call answers it, "" for none
	NewID        string              // that a new resharding would have taken
	// Refused are the reasons for which the call would be refused; without the generation, the
	// rest is what it would do if it were asked for the present one.
	Refused []*protocol.Error
	At      protocol.Instant
}

// refusedWith says whether the call would be refused with the code.
func (d Decision) refusedWith(code protocol.Code) bool {
	return slices.ContainsFunc(d.Refused, func(e *protocol.Error) bool { return e.Code == code })
}

// creates says whether the call is about a stream that does not exist, or will not for long.
func (d Decision) creates() bool { return d.Before == nil || d.Before.Deleting }

// action names what the call does, or would do if nothing refused it.
func (d Decision) action() protocol.PreviewAction {
	switch {
	case d.creates():
		return protocol.PreviewCreate
	case d.blocked():
		return protocol.PreviewReshard // only changes are refused
	case d.ReshardingID == "" && d.After.Generation == d.Before.Generation:
		return protocol.PreviewNone
	case d.ReshardingID == "":
		return protocol.PreviewUpdate
	case d.ReshardingID == d.NewID:
		return protocol.PreviewReshard
	case d.After.Active.Phase == protocol.PhaseRollingBack:
		return protocol.PreviewCancel
	}
	return protocol.PreviewAttach
}

// blocked says whether the call was refused for another reason than its generation: After is
// then the state before.
func (d Decision) blocked() bool {
	return slices.ContainsFunc(d.Refused, func(e *protocol.Error) bool { return e.Code != protocol.CodeGenerationMismatch })
}

// change is the record of the resharding that the preview is about, nil when there is none. For
// a call that is refused it is the one that would have been accepted at rest.
func (d Decision) change() *Resharding {
	switch {
	case d.creates() && d.Before != nil: // it is being deleted
		return New(d.Prefix, d.Spec, "", Request{ID: d.NewID}, d.At).Active
	case d.After == nil:
		return nil
	case d.blocked():
		s := d.After.clone()
		s.accept(KindScale, d.Spec.ShardCount, normal(d.Spec).Resharding, Request{ID: d.NewID}, d.At)
		return s.Active
	case d.ReshardingID == "":
		return nil
	}
	return d.After.Active
}

// Assigned is how many shards the groups' members have when all is done.
func (d Decision) Assigned() int {
	if r := d.change(); r != nil && r.Phase != protocol.PhaseRollingBack {
		return r.To.Count
	}
	return d.inForce().Count
}

// inForce is the layout that the shards have now.
func (d Decision) inForce() Layout {
	if d.creates() {
		return Layout{}
	}
	return d.Before.Layout
}
