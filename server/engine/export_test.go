package engine

import "github.com/redisstream/terraform-provider-redisstream/server/stream"

// BeforePass makes f run before every pass of e. It is set before Start.
func BeforePass(e *Engine, f func(stream.Pass)) { e.beforePass = f }
