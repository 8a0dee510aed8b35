package group_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// The generation rises with each change of the spec that changes something, and survives being
// stored; a state of before there were generations is the first.
func TestGeneration(t *testing.T) {
	t.Parallel()
	now := protocol.InstantOf(time.Unix(1000, 0))
	s := group.New("orders", "billing", protocol.GroupSpec{}, 2, now)
	want := func(what string, n int64) {
		t.Helper()
		if got := s.SpecGeneration(); got != n {
			t.Errorf("%s: generation %d, want %d", what, got, n)
		}
	}
	reload := func() {
		t.Helper()
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		s = new(group.State)
		if err := json.Unmarshal(text, s); err != nil {
			t.Fatal(err)
		}
	}
	set := func(spec protocol.GroupSpec) {
		turn := group.Begin(s)
		turn.SetSpec(spec, now)
		s = turn.State()
	}
	want("registered", 1)
	set(protocol.GroupSpec{StartPosition: protocol.StartEarliest})
	want("the same spec, with its defaults left out", 1)
	set(protocol.GroupSpec{RebalanceTimeoutMs: 5000})
	want("changed", 2)
	reload()
	want("stored", 2)
	turn := group.Begin(s)
	turn.SetAssignable(3, now)
	s = turn.State()
	want("resized", 2)
	set(protocol.GroupSpec{})
	want("changed back", 3)

	s.Generation = 0 // as it was stored before
	reload()
	want("stored without one", 1)
	set(protocol.GroupSpec{RebalanceTimeoutMs: 5000})
	want("changed since", 2)
}
