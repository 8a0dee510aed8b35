package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// serveReference is the bare twin of the heartbeat endpoint: a chi route that decodes the same
// request and encodes an answer of the same shape, and does nothing in between. It runs in a
// process of its own, as the coordinator does, until ctx ends.
func serveReference(ctx context.Context, addr string) error {
	r := chi.NewRouter()
	r.Post("/coord/v1/streams/{prefix}/groups/{group}/members/{memberId}/heartbeat", func(w http.ResponseWriter, req *http.Request) {
		var in protocol.HeartbeatRequest
		if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		epochs := make(map[string]int64, len(in.OwnedShards))
		for _, s := range in.OwnedShards {
			epochs[fmt.Sprint(s.ShardIndex)] = 1764460800000
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(protocol.HeartbeatResponse{
			ResponseTo: in.RequestID, Status: protocol.StatusOK, MemberID: chi.URLParam(req, "memberId"), MemberEpoch: in.MemberEpoch,
			HeartbeatIntervalMs: 3000, RebalanceTimeoutMs: 60000, GroupEpoch: in.MemberEpoch, AssignmentEpoch: in.MemberEpoch,
			MetadataVersion: in.MetadataVersion, MemberLeaseMs: 15000,
			Assignment: protocol.Assignment{AssignedShards: in.OwnedShards, PendingShards: []protocol.Shard{}, MetadataVersion: in.MetadataVersion, OwnershipEpochs: epochs},
		}); err != nil {
			return // the client is gone
		}
	})
	r.Get("/livez", func(http.ResponseWriter, *http.Request) {})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if err := srv.Close(); err != nil {
		return err
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
