package engine

import (
	"context"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// PreviewStream is what PutStream would do, as far as it can be known; it changes nothing.
func (e *Engine) PreviewStream(context.Context, string, protocol.StreamSpec, int64) (protocol.Preview, error) {
	panic("not built yet")
}
