package group

import "slices"

// shardIndex lists, for each member id, the shards that may concern it: every shard that it is
// the target of or holds under any of its sessions is there, ascending. It may list more: a
// grant makes the target the holder, which is listed already, and a release removes nothing;
// so an index stays good until targets change. Readers look at the shard itself.
type shardIndex struct {
	of map[string][]int
}

// shardsOf lists the shards that may concern the member. The result is not to be modified, and
// may have indexes beyond the end of s.Shards. Safe for concurrent readers of s.
func (s *State) shardsOf(memberID string) []int {
	ix := s.index.Load()
	if ix == nil {
		ix = buildIndex(s)
		s.index.Store(ix) // two readers may both build it; either is right
	}
	return ix.of[memberID]
}

func buildIndex(s *State) *shardIndex {
	ix := &shardIndex{of: make(map[string][]int, len(s.Members))}
	room := 0
	if len(s.Members) > 0 {
		room = len(s.Shards)/len(s.Members) + 1
	}
	lists := make(map[string]*[]int, len(s.Members))
	add := func(id string, shard int) {
		if id == "" {
			return
		}
		list := lists[id]
		if list == nil {
			list = new([]int)
			*list = make([]int, 0, room)
			lists[id] = list
		}
		*list = append(*list, shard)
	}
	for i := range s.Shards {
		sh := &s.Shards[i]
		add(sh.Target, i)
		if sh.Holder != nil && sh.Holder.MemberID != sh.Target {
			add(sh.Holder.MemberID, i)
		}
	}
	for id, list := range lists {
		ix.of[id] = slices.Clip(*list)
	}
	return ix
}
