package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// TestReferenceClientThroughReshardings: the reference's Python client, unchanged, creates the
// stream, produces and consumes while it is scaled 2 → 4 → 1 by the reference's own call. Nothing
// that it published is lost, and no consumer thread ends: for that client any HTTP status of 400
// and any Redis error would be the end.
func TestReferenceClientThroughReshardings(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, redis.URL(), redistest.KeyPrefix(t))
	rdb := redis.Client(t)
	prefix, group := "orders:eu", "orders:eu" // a colon arrives percent-encoded
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	c, err := newPythonClient(ctx, s.URL(), username, password, prefix, group, rdb)
	if err != nil {
		t.Fatal(err)
	}
	var created map[string]any
	if err := c.call(ctx, http.MethodPost, "/coord/v1/streams/"+quoteAll(prefix), map[string]any{"initialShardCount": 2, "requestedBy": "python", "reason": nil}, &created); err != nil {
		t.Fatalf("create: %v", err)
	}
	if created["shardCount"] != 2.0 || created["metadataVersion"] != 1.0 {
		t.Errorf("created %v, want 2 shards and metadata version 1", created)
	}

	type entry struct {
		key string
		seq int
	}
	var (
		mu        sync.Mutex
		published = map[entry]bool{}
		handled   = map[entry]int{}
		refusals  int
	)
	consuming, stopConsumers := context.WithCancel(ctx)
	defer stopConsumers()
	var consumers sync.WaitGroup
	for i := range 3 {
		consumers.Go(func() {
			err := c.consume(consuming, fmt.Sprintf("10.0.0.%d", i+1), func(_, _ string, fields map[string]any) {
				seq, err := strconv.Atoi(fields["seq"].(string))
				if err != nil {
					t.Errorf("entry %v: %v", fields, err)
				}
				mu.Lock()
				handled[entry{fields["key"].(string), seq}]++
				mu.Unlock()
			})
			if err != nil {
				t.Errorf("consumer %d ended: %v", i, err)
			}
		})
	}
	producing, stopProducers := context.WithCancel(ctx)
	defer stopProducers()
	var producers sync.WaitGroup
	for p := range 2 {
		producers.Go(func() {
			for seq := 0; producing.Err() == nil; seq++ {
				e := entry{fmt.Sprintf("p%d-k%d", p, seq%20), seq}
				err := c.publish(ctx, e.key, map[string]any{"key": e.key, "seq": strconv.Itoa(e.seq), "payload": "x"})
				mu.Lock()
				if err == nil {
					published[e] = true
				} else {
					refusals++ // the caller is told, and goes on later: publishing is paused
				}
				mu.Unlock()
				wait := 5 * time.Millisecond
				if err != nil {
					wait = 50 * time.Millisecond
				}
				_ = pause(producing, wait)
			}
		})
	}

	for _, target := range []int{4, 1} {
		var scaled struct {
			AffectedConsumerGroups []string
			Migrations             []protocol.Migration
		}
		if err := c.call(ctx, http.MethodPost, "/coord/v1/streams/"+quoteAll(prefix)+"/scale", map[string]any{"targetShardCount": target, "requestedBy": "python", "reason": "load", "deprecatedAfter": nil}, &scaled); err != nil {
			t.Fatalf("scale to %d: %v", target, err)
		}
		if len(scaled.Migrations) != 1 || len(scaled.AffectedConsumerGroups) != 1 {
			t.Fatalf("scale to %d answered %+v", target, scaled)
		}
		id := scaled.Migrations[0].ReshardingID
		for state := protocol.MigrationState(""); state != protocol.MigrationDeprecated; {
			var m protocol.Migration
			if err := c.call(ctx, http.MethodGet, c.groupPath("/migrations/"+id), nil, &m); err != nil {
				t.Fatalf("migration to %d: %v", target, err)
			}
			if m.State == protocol.MigrationRolledBack {
				t.Fatalf("scale to %d was rolled back", target)
			}
			state = m.State
			if err := pause(ctx, 200*time.Millisecond); err != nil {
				t.Fatalf("scale to %d hangs in %s", target, state)
			}
		}
		if table, err := c.table(ctx); err != nil || table.ShardCount != target && time.Since(c.fetched) < time.Second {
			t.Errorf("routing after the scale to %d: %+v, %v", target, table, err)
		}
	}
	stopProducers()
	producers.Wait()
	missing := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for e := range published {
			if handled[e] == 0 {
				n++
			}
		}
		return n
	}
	for missing() > 0 {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			t.Fatalf("%d of %d published entries were never handled", missing(), len(published))
		}
	}
	stopConsumers()
	consumers.Wait()
	if len(published) < 500 {
		t.Errorf("only %d entries were published: the test shows little", len(published))
	}
	if n, err := rdb.Exists(context.WithoutCancel(ctx), prefix+":1", prefix+":2", prefix+":3").Result(); err != nil || n != 0 {
		t.Errorf("%d removed shards still exist (%v)", n, err)
	}
	t.Logf("published %d, refused %d while paused", len(published), refusals)
}

// TestReferenceErrors: what the reference's clients and automation branch on.
func TestReferenceErrors(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	s := startServer(t, redis.URL(), redistest.KeyPrefix(t))
	prefix := redistest.Prefix(t)
	c, err := newPythonClient(t.Context(), s.URL(), username, password, prefix, prefix, redis.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	create := func(path string, body map[string]any) error {
		var out map[string]any
		return c.call(t.Context(), http.MethodPost, path, body, &out)
	}
	stream := "/coord/v1/streams/" + quoteAll(prefix)
	body := map[string]any{"initialShardCount": 2, "requestedBy": "test"}
	if err := create(stream, body); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		path string
		body map[string]any
		want int
	}{
		"the stream exists":      {stream, body, 409},
		"the group exists":       {stream + "/groups/" + quoteAll(prefix), body, 409},
		"another count":          {stream + "/groups/other", map[string]any{"initialShardCount": 3, "requestedBy": "test"}, 400},
		"no requester":           {stream + "/groups/other", map[string]any{"initialShardCount": 2}, 400},
		"braces in the prefix":   {"/coord/v1/streams/a%7Bb%7D", body, 400},
		"scale without a stream": {"/coord/v1/streams/nobody/scale", map[string]any{"targetShardCount": 2, "requestedBy": "t", "reason": "t"}, 404},
		"a negative target":      {stream + "/scale", map[string]any{"targetShardCount": -1, "requestedBy": "t", "reason": "t"}, 400},
	} {
		var failure *httpFailure
		if err := create(tc.path, tc.body); !errors.As(err, &failure) || failure.status != tc.want {
			t.Errorf("%s: got %v, want HTTP %d", name, err, tc.want)
		}
	}
	var noop struct{ Migrations []protocol.Migration }
	if err := c.call(t.Context(), http.MethodPost, stream+"/scale", map[string]any{"targetShardCount": 2, "requestedBy": "t", "reason": "t"}, &noop); err != nil || len(noop.Migrations) != 1 || noop.Migrations[0].ReshardingID != "noop" {
		t.Errorf("scale to the same count: %+v, %v", noop, err)
	}
}
