package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Observations reads the last reports of all members of a group: memberId → report.
func (s *Store) Observations(ctx context.Context, prefix, groupName string) (map[string]json.RawMessage, error) {
	fields, err := s.cfg.Client.HGetAll(ctx, s.keys.progress(prefix, groupName)).Result()
	if err != nil {
		return nil, fmt.Errorf("reports of group %q of stream %q: %w", groupName, prefix, err)
	}
	reports := make(map[string]json.RawMessage, len(fields))
	for member, report := range fields {
		reports[member] = json.RawMessage(report)
	}
	return reports, nil
}

// SeeProducer records that a producer asked for the routing (observation). An empty id is an
// unknown client: only whether it appends by script is noted. ErrNotFound when there is no such
// stream.
func (s *Store) SeeProducer(ctx context.Context, prefix, producerID string, fenced bool) error {
	flag := 0
	if fenced {
		flag = 1
	}
	keys := []string{s.keys.producers(prefix), s.keys.plainSeen(prefix), s.keys.stream(prefix)}
	v, err := producerScript.Run(ctx, s.cfg.Client, keys, producerID, flag).Slice()
	switch {
	case err == nil && len(v) == 3 && v[0] == "NOTFOUND":
		err = ErrNotFound
	case err == nil:
		return nil
	}
	return fmt.Errorf("note a producer of stream %q: %w", prefix, err)
}

// PlainSeen is the last time at which a producer that does not announce fencing asked for the
// routing, 0 for never (or more than a day ago).
func (s *Store) PlainSeen(ctx context.Context, prefix string) (protocol.Instant, error) {
	ms, err := s.cfg.Client.Get(ctx, s.keys.plainSeen(prefix)).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("plain producers of stream %q: %w", prefix, err)
	}
	return protocol.Instant(ms), nil
}

// Producers lists the ids of the producers that asked for the routing since then, sorted; when
// there are more than most, the ones seen last.
func (s *Store) Producers(ctx context.Context, prefix string, since protocol.Instant, most int) ([]string, error) {
	ids, err := s.cfg.Client.ZRevRangeByScore(ctx, s.keys.producers(prefix), &redis.ZRangeBy{Min: since.String(), Max: "+inf", Count: int64(most)}).Result()
	if err != nil {
		return nil, fmt.Errorf("producers of stream %q: %w", prefix, err)
	}
	slices.Sort(ids)
	return ids, nil
}

// Index enters the stream in the index, from where it can have been lost: it is in another slot
// than the stream's own keys.
func (s *Store) Index(ctx context.Context, prefix string) error {
	if err := s.cfg.Client.SAdd(ctx, s.keys.index(), prefix).Err(); err != nil {
		return fmt.Errorf("enter stream %q in the index: %w", prefix, err)
	}
	return nil
}
