package group_test

import (
	"fmt"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// large is a settled group of 1,000 members and 10,000 shards, and a steady request of each.
func large(b *testing.B) (*group.State, group.Leases, []*protocol.HeartbeatRequest) {
	const members, shards = 1000, 10_000
	s := group.New("orders", "billing", protocol.GroupSpec{}, 0, start)
	leases := group.Leases{}
	turn := group.Begin(s)
	for i := range members {
		id := fmt.Sprintf("consumer-%04d", i)
		turn.Heartbeat(&protocol.HeartbeatRequest{MemberID: id, RequestID: id, Incarnation: id}, start, leases)
	}
	turn.SetAssignable(shards, start)
	s = turn.State()
	for id, m := range s.Members {
		leases[group.Row(id, m.JoinEpoch)] = start.Add(s.Config().MemberLease)
	}
	turn = group.Begin(s)
	reqs := make([]*protocol.HeartbeatRequest, members)
	for i := range reqs {
		id := fmt.Sprintf("consumer-%04d", i)
		reqs[i] = &protocol.HeartbeatRequest{MemberID: id, RequestID: id, Incarnation: id, MemberEpoch: s.GroupEpoch, MetadataVersion: s.MetadataVersion}
		answer := turn.Heartbeat(reqs[i], start, leases)
		if len(answer.Assignment.AssignedShards) != shards/members {
			b.Fatalf("%s is assigned %d shards", id, len(answer.Assignment.AssignedShards))
		}
		reqs[i].OwnedShards = answer.Assignment.AssignedShards
	}
	s = turn.State()
	if bad := group.Check(s); len(bad) > 0 {
		b.Fatal(bad)
	}
	return s, leases, reqs
}

func BenchmarkTurn(b *testing.B) {
	s, leases, reqs := large(b)
	present := map[string]bool{}
	b.Run("steady-heartbeat", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			turn := group.Begin(s)
			turn.Heartbeat(reqs[i%len(reqs)], start, leases)
			if turn.Changed() {
				b.Fatal("a steady heartbeat changed the state")
			}
		}
	})
	b.Run("steady-batch-1000", func(b *testing.B) {
		for b.Loop() {
			turn := group.Begin(s)
			for _, req := range reqs {
				turn.Heartbeat(req, start, leases)
			}
			turn.Rows()
		}
	})
	b.Run("tick", func(b *testing.B) {
		for b.Loop() {
			group.Begin(s).Tick(start, leases, present)
		}
	})
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			group.Next(s, leases)
		}
	})
	b.Run("settled", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if !group.Settled(s, reqs[i%len(reqs)]) {
				b.Fatal("not settled")
			}
		}
	})
	b.Run("join", func(b *testing.B) {
		req := &protocol.HeartbeatRequest{MemberID: "new", RequestID: "new", Incarnation: "new"}
		for b.Loop() {
			group.Begin(s).Heartbeat(req, start, leases)
		}
	})
}
