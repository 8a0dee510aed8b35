package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// migration shows a resharding as the reference's clients know it.
func migration(r protocol.Resharding) protocol.Migration {
	m := protocol.Migration{
		ReshardingID: r.ReshardingID, FromShardCount: r.FromShardCount, ToShardCount: r.ToShardCount,
		State: protocol.MigrationStateOf(r.Phase),
	}
	if len(r.Phases) == 0 { // nothing changed, nothing is stored
		m.CreatedAt = time.Now().UTC().Truncate(time.Millisecond)
		m.UpdatedAt = m.CreatedAt
		return m
	}
	last := r.Phases[len(r.Phases)-1]
	m.CreatedAt, m.UpdatedAt = r.Phases[0].StartedAt, last.StartedAt
	if last.EndedAt != nil {
		m.UpdatedAt = *last.EndedAt
	}
	return m
}

func (h *Handler) getMigration(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	id, err := c.resharding()
	if err != nil {
		return reply{}, err
	}
	if _, err := h.engine.Group(ctx, prefix, name); err != nil {
		return reply{}, err
	}
	resharding, err := h.engine.Resharding(ctx, prefix, id, "", 0)
	return ok(migration(resharding)), err
}

func (h *Handler) rollbackMigration(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	if _, err := h.engine.Group(ctx, prefix, name); err != nil {
		return reply{}, err
	}
	resharding, err := h.rollback(ctx, c, prefix, lenient)
	return reply{status: http.StatusAccepted, body: migration(resharding)}, err
}

// listMigrations has the history of the stream, oldest first, as the reference's monitoring
// shows it for each group.
func (h *Handler) listMigrations(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	if _, err := h.engine.Group(ctx, prefix, name); err != nil {
		return reply{}, err
	}
	newestFirst, err := h.engine.Reshardings(ctx, prefix)
	if err != nil {
		return reply{}, err
	}
	answer := protocol.MigrationList{Migrations: []protocol.Migration{}}
	for _, r := range slices.Backward(newestFirst) {
		answer.Migrations = append(answer.Migrations, migration(r))
		if !r.Phase.Terminal() {
			answer.ActiveReshardingID = &r.ReshardingID
		}
	}
	return ok(answer), nil
}
