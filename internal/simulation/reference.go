package simulation

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// reference is a member of the reference implementation: no incarnation, no lease of its own, no
// fence. It follows the Python client: it beats every interval, takes what an answer assigns, and
// ends when a call fails.
type reference struct {
	s       *sim
	name    string
	member  string
	group   string
	alive   bool
	replica int

	epoch, version int64
	owned          []int
	leaseEnd       protocol.Instant // of the row that its newest accepted call renewed, at the latest
	calls          int64
	answeredCall   int64
}

// startReference runs a client like those of the reference implementation.
func startReference(s *sim, member, groupName string) {
	ref := &reference{s: s, name: s.id(member + "."), member: member, group: groupName, alive: true, replica: s.rng.IntN(len(s.replicas))}
	s.log("%s starts in %s, a reference client", ref.name, groupName)
	s.refs = append(s.refs, ref)
	s.after(s.between(0, 2000), "join", ref.beat)
}

// mayRead counts a shard only while the coordinator must count it as well: cut off from its
// coordinator, such a client reads on, which is documented (handover.md §7).
func (ref *reference) mayRead(shard int) bool {
	return ref.alive && ref.s.now < ref.leaseEnd && slices.Contains(ref.owned, shard)
}

func (ref *reference) beat() {
	if !ref.alive {
		return
	}
	ref.calls++
	call, sent := ref.calls, ref.s.now
	req := protocol.HeartbeatRequest{
		ProtocolVersion: protocol.HeartbeatVersion, RequestID: ref.s.id("r"), MemberID: ref.member, MemberEpoch: ref.epoch, MetadataVersion: ref.version,
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
		OwnedShards:             protocol.Shards(ref.owned), RevokingShards: []protocol.RevokingShard{}, ShardProgress: []protocol.ShardProgress{},
	}
	r := ref.s.pickReplica(&ref.replica)
	ref.s.log("%s calls %s: e%d mv%d owned %v", ref.name, r, req.MemberEpoch, req.MetadataVersion, ref.owned)
	asked := ref.s.oracle.asked(ref.group)
	ref.s.deliver(ref.name+" call", func() {
		if !r.up {
			return
		}
		copied := req
		r.heartbeat(ref.group, &copied, func(resp protocol.HeartbeatResponse) {
			ref.s.oracle.answered(ref.group, &copied, resp, asked)
			ref.s.deliver(ref.name+" answer", func() {
				if ref.alive && ref.answeredCall < call && ref.calls == call {
					ref.answeredCall = call
					ref.apply(resp, sent)
				}
			})
		})
	})
	// Its transport gives up after 5 s; nobody catches the error, and the process ends.
	ref.s.after(5000, "timeout", func() {
		if ref.alive && ref.answeredCall < call {
			ref.s.log("%s ends: no answer", ref.name)
			ref.alive = false
			ref.s.referenceEnded(ref)
		}
	})
}

func (ref *reference) apply(resp protocol.HeartbeatResponse, sent protocol.Instant) {
	assigned := protocol.Indexes(resp.Assignment.AssignedShards)
	ref.s.log("%s hears %s ge%d assigned %v", ref.name, resp.Status, resp.GroupEpoch, assigned)
	switch resp.Status {
	case protocol.StatusOK:
		ref.epoch, ref.version, ref.owned = resp.MemberEpoch, resp.MetadataVersion, assigned
	case protocol.StatusSyncMetadata, protocol.StatusRevokePending:
		ref.epoch, ref.version = resp.MemberEpoch, resp.MetadataVersion
		ref.owned = slices.DeleteFunc(slices.Clone(ref.owned), func(i int) bool { return !slices.Contains(assigned, i) })
	case protocol.StatusUnknownMemberID, protocol.StatusFencedMemberEpoch:
		ref.owned, ref.epoch, ref.version = nil, 0, resp.MetadataVersion
	case protocol.StatusInvalidRequest, protocol.StatusUnsupportedProtocol:
		ref.epoch, ref.version = resp.MemberEpoch, resp.MetadataVersion
		if resp.GroupEpoch == 0 {
			ref.epoch, ref.version = 0, 0
		}
	default: // the same again at the next beat
	}
	if resp.Status.ExtendsLease() {
		ref.leaseEnd = sent + protocol.Instant(ref.s.sc.spec.MemberLeaseMs)
		ref.s.oracle.referenceLeased(ref)
	}
	ref.s.after(protocol.Instant(ref.s.sc.spec.HeartbeatIntervalMs), "beat", ref.beat)
}
