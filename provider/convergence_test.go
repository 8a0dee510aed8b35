package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Why a wait has ended is told by the operation's context. A request that the client gave up in its
// own time ends with the same error as an operation whose timeouts has passed, and is another thing.
func TestWhyAWaitEnded(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	unanswered := fmt.Errorf("no answer for 2m: %w", context.DeadlineExceeded)
	for word, tt := range map[string]struct {
		ctx context.Context
		err error
	}{
		"Interrupted":  {interrupted, context.Canceled},
		"Timed out":    {late, context.DeadlineExceeded},
		"Lost contact": {t.Context(), unanswered},
	} {
		var c connection
		r := protocol.Resharding{ReshardingID: "rs-1", StreamPrefix: "orders", Phase: protocol.PhaseDraining}
		stream, _ := c.stopped(tt.ctx, r, tt.err, "timeouts.update", time.Hour)
		group, _ := c.groupStopped(tt.ctx, "It is registered.", tt.err, "timeouts.update", time.Hour)
		other := c.diagnose("update", &unfinished{r, tt.err, tt.ctx.Err()}).Summary()
		for _, summary := range []string{stream, group, other} {
			if !strings.HasPrefix(summary, word) {
				t.Errorf("%v: %q, want %s", errors.Unwrap(tt.err), summary, word)
			}
		}
	}
}
