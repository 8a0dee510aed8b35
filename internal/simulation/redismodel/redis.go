package redismodel

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Redis is all nodes together. Coordinator keys are on node 0.
type Redis struct {
	Now   protocol.Instant // true time; the caller sets it before each call
	Nodes []*Node

	home   []int // node of each shard
	shards []*Shard
	unit   *Unit
}

// Node is one server and its replica.
type Node struct {
	Offset   protocol.Instant // its clock is this much ahead of true time
	Identity string

	down  bool
	fails int
	lag   *image // what the replica has, while it lags
}

// image is the data of one node at one instant.
type image struct {
	shards map[int]*Shard
	unit   *Unit
}

// New makes a Redis of as many nodes as there are offsets; home gives the node of each shard.
func New(offsets []protocol.Instant, home []int) *Redis {
	r := &Redis{home: home, unit: &Unit{}}
	for i, o := range offsets {
		r.Nodes = append(r.Nodes, &Node{Offset: o, Identity: identity(i, 0)})
	}
	for i := range home {
		r.shards = append(r.shards, &Shard{Index: i})
	}
	return r
}

func identity(node, fails int) string {
	return string(rune('a'+node)) + string(rune('0'+fails))
}

// MaxShards is how many shard indexes the model has room for.
func (r *Redis) MaxShards() int { return len(r.shards) }

// Shard gives one shard; the oracle reads it, nobody writes it from outside.
func (r *Redis) Shard(index int) *Shard { return r.shards[index] }

// Home is the node of a shard.
func (r *Redis) Home(index int) int { return r.home[index] }

// TimeOf is TIME of the node of a shard; index −1 is the coordinator's.
func (r *Redis) TimeOf(index int) protocol.Instant {
	node := 0
	if index >= 0 {
		node = r.home[index]
	}
	return r.Now + r.Nodes[node].Offset
}

// Lag cuts the replica of a node off: from now on it misses what is written, until Wait reaches
// it or CatchUp ends the cut.
func (r *Redis) Lag(node int) { r.Nodes[node].lag = r.image(node) }

// CatchUp ends a lag.
func (r *Redis) CatchUp(node int) { r.Nodes[node].lag = nil }

// Down says whether the node of a shard (−1: of the coordinator) answers nothing at present.
func (r *Redis) Down(index int) bool {
	if index < 0 {
		return r.Nodes[0].down
	}
	return r.Nodes[r.home[index]].down
}

// IsDown says whether the node answers nothing at present.
func (n *Node) IsDown() bool { return n.down }

// Stop ends the primary of a node; Fail promotes its replica later.
func (r *Redis) Stop(node int) { r.Nodes[node].down = true }

// LagsNode says whether the replica of a node misses writes, or the node is down.
func (r *Redis) LagsNode(node int) bool { return r.Nodes[node].lag != nil || r.Nodes[node].down }

// Lags says whether the replica of a shard's node misses writes at present.
func (r *Redis) Lags(index int) bool { return r.Nodes[r.home[index]].lag != nil }

// Wait is WAIT 1 behind the writes to a shard: the replica has everything, or reached is false
// and nothing was confirmed.
func (r *Redis) Wait(index int, reached bool) bool {
	n := r.Nodes[r.home[index]]
	if n.lag == nil {
		return true
	}
	if reached {
		n.lag = r.image(r.home[index])
	}
	return reached
}

// Fail promotes the replica of a node: what it missed is lost. The identity is another one, if
// shown is set.
func (r *Redis) Fail(node int, shown bool) {
	n := r.Nodes[node]
	n.fails++
	n.down = false
	if shown {
		n.Identity = identity(node, n.fails)
	}
	if n.lag == nil {
		return
	}
	for i, s := range n.lag.shards {
		r.shards[i] = s
	}
	if node == 0 {
		r.unit = n.lag.unit
	}
	n.lag = nil
}

func (r *Redis) image(node int) *image {
	im := &image{shards: map[int]*Shard{}}
	for i, s := range r.shards {
		if r.home[i] == node {
			im.shards[i] = s.clone()
		}
	}
	if node == 0 {
		im.unit = r.unit.clone()
	}
	return im
}
