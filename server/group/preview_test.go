package group_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// grouped is a group of members that hold what they are to hold.
func grouped(shards int, ids ...string) *group.State {
	s := group.New("orders", "g", protocol.DefaultGroupSpec(), shards, 1000)
	for _, id := range ids {
		t := group.Begin(s)
		t.Heartbeat(&protocol.HeartbeatRequest{ProtocolVersion: 1, RequestID: "r", MemberID: id, Incarnation: id}, 1000, group.Leases{})
		s = t.State()
	}
	return s
}

// TestAffected: only members that lose or gain a shard are named, and nothing is changed.
func TestAffected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards, count int
		members       []string
		want          int // members
	}{
		{4, 4, []string{"a", "b"}, 0},
		{2, 4, []string{"a", "b"}, 2},
		{2, 3, []string{"a", "b", "c"}, 1}, // the one that has none
		{3, 2, []string{"a", "b", "c"}, 1}, // the one that has shard 2
		{4, 0, []string{"a", "b"}, 2},
		{4, 8, nil, 0},
	} {
		t.Run(fmt.Sprintf("%d to %d of %v", c.shards, c.count, c.members), func(t *testing.T) {
			t.Parallel()
			s := grouped(c.shards, c.members...)
			epoch := s.GroupEpoch
			got := group.Affected(s, c.count, 2000)
			if len(got) != c.want || !slices.IsSorted(got) {
				t.Errorf("got %v, want %d", got, c.want)
			}
			if s.GroupEpoch != epoch || s.Assignable != c.shards {
				t.Errorf("the group was changed: %+v", s)
			}
			// What is said is what SetAssignable then does.
			x := group.Begin(s)
			x.SetAssignable(c.count, 2000)
			moved := map[string]bool{}
			for i := range max(len(s.Shards), len(x.State().Shards)) {
				was, is := "", ""
				if i < len(s.Shards) {
					was = s.Shards[i].Target
				}
				if i < len(x.State().Shards) {
					is = x.State().Shards[i].Target
				}
				if was != is {
					moved[was], moved[is] = true, true
				}
			}
			for _, id := range c.members {
				if moved[id] != slices.Contains(got, id) {
					t.Errorf("%s is affected: %v; got %v", id, moved[id], got)
				}
			}
		})
	}
}

// TestLive counts members whose lease has not ended.
func TestLive(t *testing.T) {
	t.Parallel()
	s := grouped(4, "a", "b", "c")
	row := func(id string) string { return group.Row(id, s.Members[id].JoinEpoch) }
	leases := group.Leases{row("a"): 5000, row("b"): 2000}
	if got := group.Live(s, leases, 2000); got != 1 {
		t.Errorf("%d are alive; want a alone: b's lease has ended, c has none", got)
	}
	t2 := group.Begin(s)
	t2.Heartbeat(&protocol.HeartbeatRequest{ProtocolVersion: 1, RequestID: "r2", MemberID: "a", MemberEpoch: -1, Incarnation: "a"}, 1500, leases)
	if got := group.Live(t2.State(), leases, 1500); got != 1 {
		t.Errorf("%d are alive; want b alone: a is leaving", got)
	}
}
