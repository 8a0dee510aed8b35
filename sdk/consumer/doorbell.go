package consumer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/internal/shard"
)

// doorbell waits for entries without reading them for the group: an abandoned XREAD has no
// side effect, an abandoned XREADGROUP still receives the next entry. It waits from the last id
// that was seen, never from "$", which would not wake on a shard that is sealed.
//
// A ring is a hint. Whoever waits looks for himself after Config.Block at the latest.
type doorbell interface {
	// wait returns when an entry after lastID may be there, with its id if it is known, or
	// when ctx ends or Config.Block has passed: "".
	wait(ctx context.Context, key, lastID string) string
	close()
}

func newDoorbell(rdb redis.UniversalClient, block time.Duration) (doorbell, error) {
	// One connection waits for all shards of a server. On a cluster each shard has its own: two
	// at most, since the one before may not have ended yet.
	size := 1
	_, clustered := rdb.(*redis.ClusterClient)
	if clustered {
		size = 1024
	}
	client, err := shard.Blocking(rdb, size)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	if clustered {
		return &shardBells{ctx: ctx, stop: stop, client: client, block: block}, nil
	}
	b := &serverBell{
		stop: stop, client: client, control: rdb, block: block,
		waiting: map[string]*ringing{}, changed: make(chan struct{}, 1),
	}
	b.wg.Go(func() { b.run(ctx) })
	return b, nil
}

// ringing is one shard that somebody waits for.
type ringing struct {
	lastID string
	rung   chan string // capacity 1
}

// serverBell waits for all shards of one server on one connection.
type serverBell struct {
	stop    context.CancelFunc
	wg      sync.WaitGroup
	client  redis.UniversalClient
	control redis.UniversalClient // for CLIENT UNBLOCK
	block   time.Duration

	mu      sync.Mutex
	waiting map[string]*ringing
	changed chan struct{} // capacity 1: somebody has come
}

func (b *serverBell) wait(ctx context.Context, key, lastID string) string {
	r := &ringing{lastID: lastID, rung: make(chan string, 1)}
	b.mu.Lock()
	b.waiting[key] = r
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
	timer := time.NewTimer(b.block)
	defer timer.Stop()
	id := ""
	select {
	case id = <-r.rung:
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	if b.waiting[key] == r {
		delete(b.waiting, key)
	}
	b.mu.Unlock()
	return id
}

func (b *serverBell) close() {
	b.stop()
	_ = b.client.Close() // ends the read that waits
	b.wg.Wait()
}

// snapshot is what to wait for now.
func (b *serverBell) snapshot() (streams []string, covered map[string]*ringing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	covered = make(map[string]*ringing, len(b.waiting))
	ids := make([]string, 0, len(b.waiting))
	for key, r := range b.waiting {
		covered[key] = r
		streams, ids = append(streams, key), append(ids, r.lastID)
	}
	return append(streams, ids...), covered
}

// uncovered says whether somebody waits for a shard that a read does not cover.
func (b *serverBell) uncovered(covered map[string]*ringing) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, r := range b.waiting {
		if covered[key] != r {
			return true
		}
	}
	return false
}

func (b *serverBell) run(ctx context.Context) {
	const pause = 200 * time.Millisecond // after an error, and where reads cannot be interrupted
	block := b.block
	var on *line
	defer func() { on.hangUp() }()
	for ctx.Err() == nil {
		streams, covered := b.snapshot()
		if len(streams) == 0 {
			select {
			case <-b.changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		var err error
		if on == nil {
			on, err = b.dial(ctx)
		}
		if err == nil {
			err = b.read(ctx, on, streams, covered, block)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errNoUnblock):
			block = min(block, pause)
			continue
		}
		on.hangUp()
		on = nil
		select { // those who wait look for themselves meanwhile
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// errNoUnblock: the user may not run CLIENT UNBLOCK, so that waits have to be short.
var errNoUnblock = errors.New("reads cannot be interrupted")

// line is the connection on which a server bell waits.
type line struct {
	conn *redis.Conn
	id   int64 // of the connection, for CLIENT UNBLOCK
}

func (b *serverBell) dial(ctx context.Context) (*line, error) {
	conn := b.client.(*redis.Client).Conn() //nolint:forcetypeassert // Blocking makes the type that it was given
	id, err := conn.ClientID(ctx).Result()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &line{conn, id}, nil
}

func (l *line) hangUp() {
	if l != nil {
		_ = l.conn.Close() // it goes back to its pool
	}
}

// read waits once, and is interrupted when somebody comes whom it does not cover.
func (b *serverBell) read(ctx context.Context, on *line, streams []string, covered map[string]*ringing, block time.Duration) error {
	type outcome struct {
		streams []redis.XStream
		err     error
	}
	done := make(chan outcome, 1)
	b.wg.Go(func() {
		s, err := on.conn.XRead(ctx, &redis.XReadArgs{Streams: streams, Count: 1, Block: block}).Result()
		done <- outcome{s, err}
	})
	var refused error
	for {
		var retry <-chan time.Time
		if refused == nil && b.uncovered(covered) {
			n, err := b.control.ClientUnblock(ctx, on.id).Result()
			if err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
				refused = errNoUnblock
			}
			if n == 0 && refused == nil { // the read has not begun to wait, or has just ended
				retry = time.After(2 * time.Millisecond)
			}
		}
		select {
		case o := <-done:
			if o.err != nil && !errors.Is(o.err, redis.Nil) {
				return o.err
			}
			for _, s := range o.streams {
				if r := covered[s.Stream]; r != nil && len(s.Messages) > 0 {
					b.ring(s.Stream, r, s.Messages[0].ID)
				}
			}
			return refused
		case <-b.changed:
		case <-retry:
		}
	}
}

func (b *serverBell) ring(key string, r *ringing, id string) {
	b.mu.Lock()
	if b.waiting[key] == r {
		delete(b.waiting, key)
	}
	b.mu.Unlock()
	select {
	case r.rung <- id:
	default:
	}
}

// shardBells waits for each shard on a connection of its own.
type shardBells struct {
	ctx    context.Context // ends with close
	stop   context.CancelFunc
	wg     sync.WaitGroup
	client redis.UniversalClient
	block  time.Duration
}

func (b *shardBells) wait(ctx context.Context, key, lastID string) string {
	rung := make(chan string, 1)
	b.wg.Go(func() { // abandoned when ctx ends; it ends by itself, and changes nothing
		s, err := b.client.XRead(b.ctx, &redis.XReadArgs{Streams: []string{key, lastID}, Count: 1, Block: b.block}).Result()
		if err == nil && len(s) > 0 && len(s[0].Messages) > 0 {
			rung <- s[0].Messages[0].ID
		}
	})
	timer := time.NewTimer(b.block)
	defer timer.Stop()
	select {
	case id := <-rung:
		return id
	case <-timer.C:
	case <-ctx.Done():
	}
	return ""
}

func (b *shardBells) close() {
	b.stop()
	_ = b.client.Close()
	b.wg.Wait()
}
