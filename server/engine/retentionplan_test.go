package engine

import (
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// TestRetentionPlan: shards that have more to give up neither hold up the others, nor all of
// retention when a change has taken them away.
func TestRetentionPlan(t *testing.T) {
	t.Parallel()
	s := stream.New("orders", protocol.StreamSpec{ShardCount: 0, Retention: protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 1}}, "", stream.Request{}, 1)
	s.Layout.Count = 3
	const every = time.Minute
	var r retention
	now := time.Now()
	slice := func(want int, more ...int) {
		t.Helper()
		pass := r.plan(s, now)
		var steps []stream.Step
		for _, stage := range pass.Stages {
			steps = append(steps, stage...)
		}
		if len(steps) != want {
			t.Fatalf("a slice of %d shards, want %d: %+v", len(steps), want, steps)
		}
		if want == 0 {
			return
		}
		r.begun(s, now, every)
		res := stream.PassResult{Pass: pass}
		for _, i := range more {
			res.Replies = append(res.Replies, stream.Reply{Step: stream.Step{Script: shardscript.Retain, Index: i}, More: true})
		}
		r.todo = append(r.todo, stream.Unfinished(res)...)
	}
	slice(3, 2) // everything; shard 2 has more
	slice(1, 2)
	now = now.Add(2 * every)
	slice(3, 2) // it is never done: the others have their turn
	slice(1, 2)
	s.Layout.Count = 2 // it is gone
	slice(0)
	now = now.Add(2 * every)
	slice(2)
	slice(0)

	// Of many shards a pass takes some, the ones that have waited first.
	s.Layout.Count = 450
	now = now.Add(2 * every)
	slice(200, 3, 7)
	slice(200)
	now = now.Add(2 * every)
	if list := r.queue(s, now); len(list) != 450 || list[0] != 400 || list[50] != 3 || list[51] != 7 || list[52] != 0 {
		t.Fatalf("%d shards wait: %v", len(list), list[:53])
	}
	slice(200)
	slice(200)
	slice(50)
	slice(0)
}
