package redismodel

import (
	"slices"
	"sort"
	"strings"
)

// Entry is one entry of a shard.
type Entry struct {
	ID    ID
	Value string
}

// Pending is one row of a group's pending entries list.
type Pending struct {
	ID       ID
	Consumer string
}

// Group is one Redis consumer group of a shard.
type Group struct {
	Name          string
	LastDelivered ID
	Pending       []Pending // ascending by id
	Consumers     []string  // ascending
}

// Stream is one Redis Stream.
type Stream struct {
	Entries    []Entry // ascending by id
	LastID     ID
	MaxDeleted ID
	Added      int64
	Groups     []*Group // ascending by name
}

// Sealed says whether no id is left.
func (s *Stream) Sealed() bool { return s.LastID == MaxID }

// Group finds a group, nil when there is none.
func (s *Stream) Group(name string) *Group {
	for _, g := range s.Groups {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// createGroup is XGROUP CREATE: an existing group is kept.
func (s *Stream) createGroup(name string, start ID) {
	if s.Group(name) != nil {
		return
	}
	s.Groups = append(s.Groups, &Group{Name: name, LastDelivered: start})
	sort.Slice(s.Groups, func(i, j int) bool { return s.Groups[i].Name < s.Groups[j].Name })
}

// add is XADD *: false when the ids are exhausted.
func (s *Stream) add(value string, ms uint64) (ID, bool) {
	if s.Sealed() {
		return ID{}, false
	}
	id := ID{ms, 0}
	if !s.LastID.Less(id) {
		id = s.LastID.Next()
	}
	s.Entries = append(s.Entries, Entry{ID: id, Value: value})
	s.LastID = id
	s.Added++
	return id, true
}

// entryAfter says whether the group has something left to deliver.
func (s *Stream) entryAfter(g *Group) bool {
	n := len(s.Entries)
	return n > 0 && g.LastDelivered.Less(s.Entries[n-1].ID)
}

// entry finds an entry by id.
func (s *Stream) entry(id ID) (Entry, bool) {
	i := sort.Search(len(s.Entries), func(i int) bool { return !s.Entries[i].ID.Less(id) })
	if i < len(s.Entries) && s.Entries[i].ID == id {
		return s.Entries[i], true
	}
	return Entry{}, false
}

// read is XREADGROUP GROUP name consumer COUNT n STREAMS key >.
func (s *Stream) read(g *Group, consumer string, n int) []Entry {
	g.touch(consumer)
	i := sort.Search(len(s.Entries), func(i int) bool { return g.LastDelivered.Less(s.Entries[i].ID) })
	got := slices.Clone(s.Entries[i:min(i+n, len(s.Entries))])
	for _, e := range got {
		g.LastDelivered = e.ID
		g.Pending = append(g.Pending, Pending{ID: e.ID, Consumer: consumer})
	}
	sort.Slice(g.Pending, func(i, j int) bool { return g.Pending[i].ID.Less(g.Pending[j].ID) })
	return got
}

// ack is XACK of one id.
func (g *Group) ack(id ID) bool {
	for i, p := range g.Pending {
		if p.ID == id {
			g.Pending = slices.Delete(g.Pending, i, i+1)
			return true
		}
	}
	return false
}

// claim moves everything that is pending to consumer, and deletes the names that this emptied,
// and those of earlier ownerships that were left empty.
func (s *Stream) claim(g *Group, consumer string) {
	g.touch(consumer)
	emptied := map[string]bool{}
	for i := range g.Pending {
		if p := &g.Pending[i]; p.Consumer != consumer {
			emptied[p.Consumer] = true
			p.Consumer = consumer
		}
	}
	_, mine, _ := strings.Cut(consumer, "~")
	g.Consumers = slices.DeleteFunc(g.Consumers, func(name string) bool {
		_, theirs, ownership := strings.Cut(name, "~")
		earlier := ownership && (len(theirs) < len(mine) || len(theirs) == len(mine) && theirs < mine)
		return name != consumer && (emptied[name] || earlier)
	})
}

func (g *Group) touch(consumer string) {
	if i, found := slices.BinarySearchFunc(g.Consumers, consumer, strings.Compare); !found {
		g.Consumers = slices.Insert(g.Consumers, i, consumer)
	}
}

func (s *Stream) clone() *Stream {
	if s == nil {
		return nil
	}
	out := *s
	out.Entries = slices.Clip(s.Entries) // entries are never changed in place
	out.Groups = make([]*Group, len(s.Groups))
	for i, g := range s.Groups {
		c := *g
		c.Pending = slices.Clone(g.Pending)
		c.Consumers = slices.Clone(g.Consumers)
		out.Groups[i] = &c
	}
	return &out
}
