package assign_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/server/assign"
)

// loads counts the shards of each member; members without any count too.
func loads(members, owners []string) map[string]int {
	n := map[string]int{}
	for _, m := range members {
		n[m] = 0
	}
	for _, o := range owners {
		n[o]++
	}
	return n
}

// losses counts the shards that a member which is still there has to let go.
func losses(members, prev, next []string) int {
	n := 0
	for i := range next {
		if i < len(prev) && slices.Contains(members, prev[i]) && next[i] != prev[i] {
			n++
		}
	}
	return n
}

// used keeps of prev what is in use.
func used(prev []string, inUse []bool) []string {
	out := slices.Clone(prev)
	for i := range out {
		if i >= len(inUse) || !inUse[i] {
			out[i] = ""
		}
	}
	return out
}

func balanced(members, owners []string) bool {
	n := loads(members, owners)
	least, most := len(owners)+1, -1
	for _, m := range members {
		least, most = min(least, n[m]), max(most, n[m])
	}
	return most-least <= 1
}

// fewestLosses tries every assignment: the fewest losses of shards in use, and the fewest of
// all that are possible with so few.
func fewestLosses(members []string, shards int, prev []string, inUse []bool) [2]int {
	best := [2]int{shards + 1, shards + 1}
	owners := make([]string, shards)
	var try func(i int)
	try = func(i int) {
		if i == shards {
			if balanced(members, owners) {
				n := [2]int{losses(members, used(prev, inUse), owners), losses(members, prev, owners)}
				if slices.Compare(n[:], best[:]) < 0 {
					best = n
				}
			}
			return
		}
		for _, m := range members {
			owners[i] = m
			try(i + 1)
		}
	}
	try(0)
	return best
}

func TestBalance(t *testing.T) {
	t.Parallel()

	t.Run("IsBalancedCompleteAndMovesTheFewest", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			all := []string{"a", "b", "c", "d", "e"}
			members := all[:rapid.IntRange(1, 4).Draw(t, "members")]
			shards := rapid.IntRange(0, 6).Draw(t, "shards")
			prev := rapid.SliceOfN(rapid.SampledFrom(append([]string{""}, all...)), 0, 8).Draw(t, "prev")

			inUse := rapid.SliceOfN(rapid.Bool(), 0, 8).Draw(t, "in use")

			next := assign.BalanceInUse(members, shards, prev, inUse)
			if len(next) != shards {
				t.Fatalf("got %d owners for %d shards", len(next), shards)
			}
			for i, o := range next {
				if !slices.Contains(members, o) {
					t.Fatalf("shard %d went to %q, which is no member", i, o)
				}
			}
			if !balanced(members, next) {
				t.Fatalf("unbalanced: %v", next)
			}
			got := [2]int{losses(members, used(prev, inUse), next), losses(members, prev, next)}
			if want := fewestLosses(members, shards, prev, inUse); got != want {
				t.Fatalf("%v -> %v takes %v shards away (in use, all), %v would do", prev, next, got, want)
			}
			next = assign.Balance(members, shards, prev)
			if got, want := losses(members, prev, next), fewestLosses(members, shards, prev, nil)[1]; got != want {
				t.Fatalf("%v -> %v takes %d shards away, %d would do", prev, next, got, want)
			}
		})
	})

	t.Run("IsTheSameForAnyOrderOfMembers", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 12, rapid.ID).Draw(t, "members")
			prev := rapid.SliceOfN(rapid.SampledFrom(append([]string{"", "gone!"}, members...)), 0, 64).Draw(t, "prev")
			shards := rapid.IntRange(0, 64).Draw(t, "shards")
			shuffled := rapid.Permutation(members).Draw(t, "shuffled")
			before := slices.Clone(shuffled)

			want := assign.Balance(members, shards, prev)
			if got := assign.Balance(shuffled, shards, prev); !slices.Equal(got, want) {
				t.Fatalf("order %v: got %v, want %v", shuffled, got, want)
			}
			if !slices.Equal(before, shuffled) {
				t.Fatalf("the caller's members were reordered: %v", shuffled)
			}
		})
	})

	t.Run("KeepsWhatIsBalanced", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 12, rapid.ID).Draw(t, "members")
			shards := rapid.IntRange(0, 200).Draw(t, "shards")
			prev := rapid.SliceOfN(rapid.SampledFrom(append([]string{""}, members...)), 0, 200).Draw(t, "prev")
			first := assign.Balance(members, shards, prev)
			if again := assign.Balance(members, shards, first); !slices.Equal(again, first) {
				t.Fatalf("balanced %v became %v", first, again)
			}
		})
	})

	for _, c := range []struct {
		name    string
		members []string
		shards  int
		prev    []string
		want    []string
	}{
		{"NobodyGetsNothing", nil, 2, []string{"a", "a"}, []string{"", ""}},
		{"NoShards", []string{"a"}, 0, []string{"a"}, []string{}},
		{"OneTakesAll", []string{"a"}, 3, nil, []string{"a", "a", "a"}},
		{"TheNewcomerGetsTheHighest", []string{"a", "b"}, 2, []string{"a", "a"}, []string{"a", "b"}},
		{"MoreMembersThanShards", []string{"c", "b", "a"}, 2, nil, []string{"a", "b"}},
		{"TheLargerQuotaSparesAMove", []string{"a", "b"}, 3, []string{"b", "b", "a"}, []string{"b", "b", "a"}},
		{"AGoneMembersShardsAreSpread", []string{"a", "b"}, 4, []string{"a", "x", "x", "b"}, []string{"a", "a", "b", "b"}},
		{"ScaleInAfterScaleOut", []string{"a", "b", "c", "d"}, 4, []string{"a", "a", "b", "b", "c", "c", "d", "d"}, []string{"a", "c", "b", "d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := assign.Balance(c.members, c.shards, c.prev); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func BenchmarkBalance(b *testing.B) {
	const shards = 10_000
	members := make([]string, 1000)
	for i := range members {
		members[i] = fmt.Sprintf("consumer-%04d.orders.example", i)
	}
	first := assign.Balance(members, shards, nil)
	mixed := slices.Clone(first)
	rand.New(rand.NewSource(1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	for _, c := range []struct {
		name    string
		members []string
		prev    []string
	}{
		{"first", members, nil},
		{"join", append(slices.Clone(members), "consumer-new"), mixed},
		{"leave", members[1:], mixed},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				assign.Balance(c.members, shards, c.prev)
			}
		})
	}
}
