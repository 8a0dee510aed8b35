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

// What to do after a resharding that came to nothing depends on what was wanted, and on what it
// waited for.
func TestAdviceAfterARollback(t *testing.T) {
	var c connection
	for _, tt := range []struct {
		name   string
		to     int
		phases []protocol.Phase
		again  string
		groups bool
	}{
		{"a change that was draining", 4, []protocol.Phase{protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseRollingBack, protocol.PhaseRolledBack}, "apply again", true},
		{"a destroy that was draining", 0, []protocol.Phase{protocol.PhaseDraining, protocol.PhaseRollingBack}, "destroy again", true},
		{"a change that did not come so far", 4, []protocol.Phase{protocol.PhaseProvisioning, protocol.PhaseRollingBack}, "apply again", false},
	} {
		r := protocol.Resharding{StreamPrefix: "orders", FromShardCount: 2, ToShardCount: tt.to, Phase: protocol.PhaseRolledBack}
		for _, phase := range tt.phases {
			r.Phases = append(r.Phases, protocol.PhaseSpan{Phase: phase})
		}
		text := c.ended(r).Detail()
		if !strings.Contains(text, "Remove the cause and "+tt.again) || strings.Contains(text, "nobody reads for") != tt.groups {
			t.Errorf("%s: %s", tt.name, text)
		}
	}
}
