package engine

import (
	"context"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Recheck reads a resharding with its certificate compared with Redis as it is now.
func (e *Engine) Recheck(context.Context, string, string) (protocol.Resharding, error) {
	panic("not built yet")
}
