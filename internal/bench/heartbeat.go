package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// steadyHeartbeats measures how many heartbeats of n members that change nothing the
// coordinator answers each second, each member over its own connection, beside the bare twin.
func (b *bench) steadyHeartbeats(ctx context.Context, n int) ([]result, error) {
	prefix, group := fmt.Sprintf("beats-%d", n), "workers"
	if err := b.makeStream(ctx, prefix, n, group); err != nil {
		return nil, err
	}
	members, err := b.settle(ctx, prefix, group, n)
	if err != nil {
		return nil, err
	}
	check := func(body []byte) error {
		if !bytes.Contains(body, []byte(`"status":"OK"`)) {
			return fmt.Errorf("heartbeat answered %s", body)
		}
		return nil
	}
	ours, bare := b.heartbeatRequests(b.coordinatorAddr, prefix, group, members), b.heartbeatRequests(b.referenceAddr, prefix, group, members)
	if _, err := hammer(ctx, b.coordinatorAddr, ours, b.span/4, check); err != nil { // warm up
		return nil, err
	}
	value, reference, err := interleave(b.rounds,
		func() (float64, error) { return hammer(ctx, b.coordinatorAddr, ours, b.span, check) },
		func() (float64, error) { return hammer(ctx, b.referenceAddr, bare, b.span, check) })
	if err != nil {
		return nil, err
	}
	return []result{atLeast(fmt.Sprintf("steady heartbeats, %d members", n), value, reference, "requests/s", 0.6)}, nil
}

// heartbeatRequests are complete HTTP messages, one for each member.
func (b *bench) heartbeatRequests(host, prefix, group string, members []protocol.HeartbeatRequest) [][]byte {
	all := make([][]byte, len(members))
	for i, m := range members {
		body, _ := json.Marshal(m) // it was just sent as JSON
		var req bytes.Buffer
		fmt.Fprintf(&req, "POST /coord/v1/streams/%s/groups/%s/members/%s/heartbeat HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			prefix, group, m.MemberID, host, b.authorization(), len(body), body)
		all[i] = req.Bytes()
	}
	return all
}

// settle joins n members and beats until every one has got and reported its share; it returns
// the steady request of each.
func (b *bench) settle(ctx context.Context, prefix, group string, n int) ([]protocol.HeartbeatRequest, error) {
	members := make([]protocol.HeartbeatRequest, n)
	for i := range members {
		members[i] = protocol.HeartbeatRequest{
			ProtocolVersion: protocol.HeartbeatVersion, RequestID: fmt.Sprintf("join-%d", i), MemberID: fmt.Sprintf("member-%d", i),
			RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
			OwnedShards:             []protocol.Shard{}, RevokingShards: []protocol.RevokingShard{}, ShardProgress: []protocol.ShardProgress{},
			Incarnation: fmt.Sprintf("%032x", i+1),
		}
	}
	begin := time.Now()
	for round := range 60 {
		calls, callCtx := errgroup.WithContext(ctx)
		calls.SetLimit(256)
		changed := make([]bool, n)
		for i := range members {
			calls.Go(func() error {
				m := &members[i]
				resp, _, err := b.client.Heartbeat(callCtx, prefix, group, *m)
				switch {
				case err != nil:
					return err
				case resp.Status == protocol.StatusRetry:
					changed[i] = true
					return nil
				case resp.Status != protocol.StatusOK:
					return fmt.Errorf("member %s: %s %s", m.MemberID, resp.Status, resp.Reason)
				}
				next := *m
				next.RequestID = fmt.Sprintf("beat-%d", i)
				next.MemberEpoch, next.MetadataVersion, next.OwnedShards = resp.MemberEpoch, resp.MetadataVersion, resp.Assignment.AssignedShards
				changed[i] = !reflect.DeepEqual(*m, next) || len(resp.Assignment.PendingShards) > 0
				*m = next
				return nil
			})
		}
		if err := calls.Wait(); err != nil {
			return nil, err
		}
		if round == 0 {
			fmt.Fprintf(os.Stderr, "  %d joins in %s\n", n, time.Since(begin).Round(time.Millisecond))
		}
		if round > 0 && !anyTrue(changed) {
			return members, nil
		}
	}
	return nil, errors.New("members did not settle in 60 rounds")
}

func anyTrue(bits []bool) bool {
	for _, b := range bits {
		if b {
			return true
		}
	}
	return false
}

// makeStream creates a stream and a group on it, and waits until both are in force.
func (b *bench) makeStream(ctx context.Context, prefix string, shards int, group string) error {
	if err := b.reshard(ctx, prefix, shards, protocol.StrategyQuiesce); err != nil {
		return err
	}
	if group == "" {
		return nil
	}
	if _, err := b.client.PutGroup(ctx, prefix, group, protocol.PutGroupRequest{RequestedBy: "bench"}, noCall); err != nil {
		return fmt.Errorf("group %s of %s: %w", group, prefix, err)
	}
	return nil
}

// reshard wants a shard count and waits until the stream has it.
func (b *bench) reshard(ctx context.Context, prefix string, shards int, strategy protocol.Strategy) error {
	n := int64(shards)
	put, err := b.client.PutStream(ctx, prefix, protocol.PutStreamRequest{
		ShardCount: &n, Resharding: protocol.ReshardingPolicy{Strategy: strategy}, RequestedBy: "bench",
	}, noCall)
	if err != nil {
		return fmt.Errorf("stream %s: %w", prefix, err)
	}
	id := cmp.Or(put.ReshardingID, put.Stream.Status.ActiveReshardingID)
	for seen := protocol.Phase(""); id != ""; {
		r, err := b.client.Resharding(ctx, prefix, id, seen, time.Second)
		if err != nil {
			return fmt.Errorf("resharding of %s: %w", prefix, err)
		}
		if seen = r.Phase; seen.Terminal() {
			if seen != protocol.PhaseCompleted {
				return fmt.Errorf("resharding of %s to %d ended %s: %s", prefix, shards, seen, r.Error)
			}
			return nil
		}
	}
	return nil
}

// last is the newest resharding of a stream.
func (b *bench) last(ctx context.Context, prefix string) (protocol.Resharding, error) {
	list, err := b.client.Reshardings(ctx, prefix)
	if err != nil {
		return protocol.Resharding{}, err
	}
	if len(list.Reshardings) == 0 {
		return protocol.Resharding{}, fmt.Errorf("stream %s has no resharding", prefix)
	}
	return list.Reshardings[0], nil
}

// authorization is the value of the header that the bench sends.
func (b *bench) authorization() string {
	req := http.Request{Header: http.Header{}}
	req.SetBasicAuth(username, password)
	return req.Header.Get("Authorization")
}
