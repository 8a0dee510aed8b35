package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// pythonClient speaks as the reference's Python client does (docs/protocol/wire.md): a 5 s
// transport timeout, no retry, a bearer token, percent-encoded paths; any HTTP status ≥ 400 and
// any Redis error ends the consumer for good.
type pythonClient struct {
	base, token, prefix, group string
	http                       *http.Client
	redis                      redis.UniversalClient
	cacheLifetime              time.Duration

	mu      sync.Mutex
	routing *protocol.ProducerRouting
	fetched time.Time
}

func newPythonClient(ctx context.Context, base, username, password, prefix, group string, rdb redis.UniversalClient) (*pythonClient, error) {
	c := &pythonClient{base: base, prefix: prefix, group: group, redis: rdb, http: &http.Client{Timeout: 5 * time.Second}, cacheLifetime: 5 * time.Second}
	var login map[string]any
	if err := c.call(ctx, http.MethodPost, "/coord/v1/auth/login", map[string]any{"username": username, "password": password}, &login); err != nil {
		return nil, err
	}
	token, ok := login["accessToken"].(string)
	if !ok {
		return nil, fmt.Errorf("login answer has no accessToken: %v", login)
	}
	c.token = token
	return c, nil
}

func (c *pythonClient) groupPath(rest string) string {
	return "/coord/v1/streams/" + quoteAll(c.prefix) + "/groups/" + quoteAll(c.group) + rest
}

// quoteAll encodes as Python's urllib.parse.quote(value, safe="") does: a colon is %3A.
func quoteAll(s string) string { return strings.ReplaceAll(url.PathEscape(s), ":", "%3A") }

type httpFailure struct {
	status int
	body   string
}

func (e *httpFailure) Error() string { return fmt.Sprintf("HTTP %d: %s", e.status, e.body) }

func (c *pythonClient) call(ctx context.Context, method, path string, body, answer any) error {
	var raw bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&raw).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, &raw)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return &httpFailure{resp.StatusCode, text.String()}
	}
	return json.Unmarshal(text.Bytes(), answer)
}

// publish routes by the cached table, writes with NOMKSTREAM, and tries twice in all.
func (c *pythonClient) publish(ctx context.Context, key string, fields map[string]any) error {
	var last error
	for range 2 {
		table, err := c.table(ctx)
		if err != nil {
			return err // fetch errors reach the publisher's caller
		}
		index, ok := protocol.ShardIndex([]byte(key), table.ShardCount)
		if !ok {
			return errors.New("no shard")
		}
		err = c.redis.XAdd(ctx, &redis.XAddArgs{Stream: table.Shards[index].StreamKey, NoMkStream: true, MaxLen: 100000, Approx: true, Values: fields}).Err()
		if err == nil {
			return nil
		}
		last = err
		c.mu.Lock()
		c.routing = nil
		c.mu.Unlock()
	}
	return fmt.Errorf("publish %q: %w", key, last)
}

func (c *pythonClient) table(ctx context.Context) (*protocol.ProducerRouting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.routing != nil && time.Since(c.fetched) < c.cacheLifetime {
		return c.routing, nil
	}
	c.routing = nil
	var raw map[string]any
	if err := c.call(ctx, http.MethodGet, c.groupPath("/producer-routing"), nil, &raw); err != nil {
		return nil, err
	}
	if raw["streamPrefix"] != c.prefix || raw["consumerGroup"] != c.group {
		return nil, fmt.Errorf("routing of %v/%v, asked for %s/%s", raw["streamPrefix"], raw["consumerGroup"], c.prefix, c.group)
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	var table protocol.ProducerRouting
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, err
	}
	c.routing, c.fetched = &table, time.Now()
	return c.routing, nil
}

// consume is the reference's consumer thread: beats between polls in one thread, one group read
// over all owned keys, never claims, never leaves. handle is called before the ack.
func (c *pythonClient) consume(ctx context.Context, memberID string, handle func(shardKey, id string, fields map[string]any)) error {
	var (
		epoch, version int64
		owned          []int
		polling        bool
		nextBeat       time.Time
		rotate         int
		seq            int
	)
	for ctx.Err() == nil {
		if !time.Now().Before(nextBeat) {
			seq++
			req := map[string]any{
				"protocolVersion": 1, "requestId": fmt.Sprintf("%s-%d", memberID, seq), "memberId": memberID, "memberName": memberID,
				"memberEpoch": epoch, "metadataVersion": version,
				"runtimeConsumerCapacity": map[string]any{"runtimeMaxConcurrency": 1, "availableConcurrency": 1},
				"ownedShards":             protocol.Shards(owned), "revokingShards": []any{}, "shardProgress": []any{},
			}
			var resp struct {
				Status                                       string
				MemberID                                     string
				MemberEpoch, HeartbeatIntervalMs             *int64
				GroupEpoch, AssignmentEpoch, MetadataVersion *int64
				Assignment                                   protocol.Assignment
			}
			if err := c.call(ctx, http.MethodPost, c.groupPath("/members/"+quoteAll(memberID)+"/heartbeat"), req, &resp); err != nil {
				return fmt.Errorf("heartbeat of %s: %w", memberID, err)
			}
			for name, field := range map[string]*int64{"memberEpoch": resp.MemberEpoch, "heartbeatIntervalMs": resp.HeartbeatIntervalMs, "groupEpoch": resp.GroupEpoch, "assignmentEpoch": resp.AssignmentEpoch, "metadataVersion": resp.MetadataVersion} {
				if field == nil {
					return fmt.Errorf("heartbeat answer of %s lacks %s", memberID, name)
				}
			}
			nextBeat = time.Now().Add(time.Duration(*resp.HeartbeatIntervalMs) * time.Millisecond)
			assigned := protocol.Indexes(resp.Assignment.AssignedShards)
			switch protocol.HeartbeatStatus(resp.Status) {
			case protocol.StatusOK:
				owned, polling = assigned, true
				epoch, version = *resp.MemberEpoch, *resp.MetadataVersion
			case protocol.StatusSyncMetadata, protocol.StatusRevokePending:
				owned, polling = intersect(owned, assigned), false
				epoch, version = *resp.MemberEpoch, *resp.MetadataVersion
			case protocol.StatusRetry:
				polling = false
			case protocol.StatusUnknownMemberID, protocol.StatusFencedMemberEpoch:
				owned, polling = nil, false
				epoch, version = 0, *resp.MetadataVersion
				nextBeat = time.Now()
			case protocol.StatusInvalidRequest, protocol.StatusUnsupportedProtocol:
				polling = false
				epoch, version = *resp.MemberEpoch, *resp.MetadataVersion
			default:
				return fmt.Errorf("unknown heartbeat status %q", resp.Status)
			}
		}
		if !polling || len(owned) == 0 {
			_ = pause(ctx, time.Until(nextBeat)) // the loop sees when the test has ended
			continue
		}
		rotate++
		keys := make([]string, 0, 2*len(owned))
		for i := range owned {
			keys = append(keys, protocol.ShardKey(c.prefix, owned[(i+rotate)%len(owned)]))
		}
		for range owned {
			keys = append(keys, ">")
		}
		streams, err := c.redis.XReadGroup(ctx, &redis.XReadGroupArgs{Group: c.group, Consumer: memberID, Streams: keys, Count: 10, Block: 100 * time.Millisecond}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the test has ended
		}
		if err != nil {
			return fmt.Errorf("read of %s: %w", memberID, err)
		}
		for _, s := range streams {
			for _, m := range s.Messages {
				handle(s.Stream, m.ID, m.Values)
				if err := c.redis.XAck(ctx, s.Stream, c.group, m.ID).Err(); err != nil && ctx.Err() == nil {
					return fmt.Errorf("ack of %s: %w", memberID, err)
				}
			}
		}
	}
	return nil
}

func intersect(a, b []int) []int {
	var out []int
	for _, x := range a {
		for _, y := range b {
			if x == y {
				out = append(out, x)
			}
		}
	}
	return out
}

// pause waits d: it is how often the client looks, not a guess at what others have done.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
