package engine

import "github.com/redisstream/terraform-provider-redisstream/server/stream"

// BeforePass makes f run before every pass of e. It is set before Start.
func BeforePass(e *Engine, f func(stream.Pass)) { e.beforePass = f }

// Held is the number of requests that are held at the stream's actor.
func Held(e *Engine, prefix string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.actors[prefix]; a != nil {
		return int(a.heldNow.Load())
	}
	return 0
}

// Probing is the number of passes that calls run to look at shards.
func Probing(e *Engine) int { return len(e.probing) }
