package provider

import (
	"testing"
	"time"
)

// A stream that was removed and made anew has the generation of the one that was planned for, and is
// still another: a stale plan neither changes nor removes it.
func TestStalePlanOfAnotherStream(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	f.set(func() { f.streams["orders"].CreatedAt = time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC) })
	i = c.refresh(i)
	change, destroy := c.plan(i, orders(3)), c.plan(i, nil)
	f.set(func() {
		s := f.streams["orders"]
		s.CreatedAt, s.Spec.ShardCount, s.Status.ShardCount = s.CreatedAt.Add(time.Minute), 5, 5
	})
	for _, p := range []planned{change, destroy} {
		_, diags := c.apply(t.Context(), p)
		oneError(t, diags, "changed since the plan", "made anew", "5 shards", "Nothing was done")
	}
	if n := f.streams["orders"].Status.ShardCount; n != 5 {
		t.Errorf("the other stream has %d shards", n)
	}
	_, diags := c.apply(t.Context(), c.plan(c.refresh(i), nil)) // looked at again, it is meant
	c.ok(diags)
}

// One that was made anew just as the plan wants it is taken, and is what the state rests on from then on.
func TestStreamMadeAnewAsPlanned(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	f.set(func() { f.streams["orders"].CreatedAt = time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC) })
	change := c.plan(c.refresh(i), orders(3))
	f.set(func() {
		s := f.streams["orders"]
		s.CreatedAt, s.Spec.ShardCount, s.Status.ShardCount = s.CreatedAt.Add(time.Minute), 3, 3
	})
	i, diags := c.apply(t.Context(), change)
	c.ok(diags)
	_, diags = c.apply(t.Context(), c.plan(i, orders(4))) // without a refresh
	c.ok(diags)
}

// A stream that was removed since the plan is no mistake of the configuration.
func TestStalePlanOfNoStream(t *testing.T) {
	c, f := setup(t)
	change := c.plan(c.must(c.none(shardCount), orders(2)), orders(3))
	f.set(func() { delete(f.streams, "orders") })
	_, diags := c.apply(t.Context(), change)
	oneError(t, diags, "changed since the plan", "does not exist any more", "terraform plan again")
}

// The same of a group.
func TestStalePlanOfAnotherGroup(t *testing.T) {
	c, f := setupGroup(t)
	i := c.must(c.none(streamGroup), billing())
	change, destroy := c.plan(i, billing(attrs{"member_lease": "30s"})), c.plan(i, nil)
	f.set(func() { f.groups["orders/billing"].CreatedAt = time.Now().Add(time.Minute) })
	for _, p := range []planned{change, destroy} {
		_, diags := c.apply(t.Context(), p)
		oneError(t, diags, "changed since the plan", "made anew", "positions of its own", "Nothing was done")
	}
	if g := f.groups["orders/billing"]; g == nil || g.Generation != 1 {
		t.Errorf("the other group is %+v", g)
	}
	_, diags := c.apply(t.Context(), c.plan(c.refresh(i), nil)) // looked at again, it is meant
	c.ok(diags)
}
