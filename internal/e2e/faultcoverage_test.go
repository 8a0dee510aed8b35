package e2e_test

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// silent are points that a coordinator does not pass here, with the reason.
var silent = map[string]string{
	"XRANGE": "the chain of the audit log is verified by tests alone",
}

// TestEveryCommandIsAFaultPoint records what coordinators send to Redis while everything that they
// can do is asked of them, on a replicated server and on a cluster. No command may be without a
// point, and no point without a command.
func TestEveryCommandIsAFaultPoint(t *testing.T) {
	t.Parallel()
	var seen []command
	t.Run("replicated", func(t *testing.T) {
		primary, _ := redistest.StartReplicated(t)
		r := &rig{t: t, redis: primary, rdb: primary.Client(t), redisURL: primary.URL(), addr: quietAddress(t)}
		seen = append(seen, r.doEverything()...)
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.SharedCluster(t)
		r := &rig{t: t, redisURL: clusterURL(cluster), addr: quietAddress(t), keyPrefix: redistest.KeyPrefix(t), prefix: redistest.Prefix(t)}
		seen = append(seen, r.doEverything()...)
	})
	t.Run("rollback", func(t *testing.T) {
		for _, w := range []way{goingBack, goingBackLate} {
			r, _ := killCase{change: change{protocol.StrategyQuiesce, 2, 3, false}, way: w}.play(t)
			seen = append(seen, r.commands()...)
		}
	})
	if t.Failed() {
		return
	}
	passed := map[string]bool{}
	for _, c := range seen {
		if _, ok := faultpoint.Lookup(c.point); !ok && !passed[c.point] {
			t.Errorf("the coordinator sends %s, which is no fault point", c.point)
		}
		passed[c.point] = true
	}
	for _, p := range faultpoint.Points {
		why, quiet := silent[p.Name]
		switch {
		case p.Work == faultpoint.Connection: // depends on the server and on the library
		case !passed[p.Name] && !quiet:
			t.Errorf("no coordinator passed %s: %s", p.Name, p.When)
		case passed[p.Name] && quiet:
			t.Errorf("a coordinator passed %s after all, though %s", p.Name, why)
		}
	}
}

// doEverything asks one coordinator for everything, and returns what it sent until its orderly end.
func (r *rig) doEverything() []command {
	r.t.Helper()
	t, ctx := r.t, r.t.Context()
	if r.prefix == "" {
		r.keyPrefix, r.prefix = rigKeyPrefix, rigPrefix
	}
	api := connect(t, "http://"+r.addr)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	r.start("")
	r.arm()
	quiesce, online := protocol.ReshardingPolicy{}, protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline}
	declare(t, api, r.prefix, 3, quiesce)
	putGroup(t, api, r.prefix, "g", protocol.GroupSpec{})
	_, err := api.Routing(ctx, r.prefix, client.RoutingQuery{ProducerID: "p", Fenced: true})
	must("routing", err)
	for _, step := range []struct {
		count  int64
		policy protocol.ReshardingPolicy
	}{{2, quiesce}, {3, quiesce}, {4, online}, {3, online}} {
		done := declare(t, api, r.prefix, step.count, step.policy)
		if done.Certificate != nil {
			_, err = api.RecheckResharding(ctx, r.prefix, done.ReshardingID)
			must("re-check", err)
		}
	}
	five := int64(5)
	_, err = api.PreviewStream(ctx, r.prefix, protocol.PutStreamRequest{ShardCount: &five, RequestedBy: "e2e"}, client.Call{})
	must("dry run", err)
	_, err = api.PausePublishing(ctx, r.prefix, protocol.PauseRequest{TimeoutMs: 60_000, RequestedBy: "e2e", Reason: "a test"}, client.Call{})
	must("pause", err)
	_, err = api.ResumePublishing(ctx, r.prefix, protocol.ResumeRequest{RequestedBy: "e2e", Reason: "a test"}, client.Call{})
	must("resume", err)

	login, err := api.LoginFor(ctx, "", "", time.Minute)
	must("login", err)
	_, err = api.SessionOf(ctx, login.AccessToken)
	must("session", err)
	_, err = api.RenewToken(ctx, login.AccessToken, 0)
	must("renewal", err)
	must("revocation", api.RevokeToken(ctx, login.AccessToken, client.Call{}))

	_, _, err = api.Heartbeat(ctx, r.prefix, "g", protocol.HeartbeatRequest{
		ProtocolVersion: protocol.HeartbeatVersion, RequestID: "r", MemberID: "m", Incarnation: "i",
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
		OwnedShards:             []protocol.Shard{}, RevokingShards: []protocol.RevokingShard{}, ShardProgress: []protocol.ShardProgress{},
	})
	must("heartbeat", err)
	r.ask("/coord/v1/monitoring/streams/" + r.prefix + "/groups/g/consumption")
	r.ask("/coord/v1/monitoring/streams/" + r.prefix + "/groups/g/members")
	_, err = api.AuditEvents(ctx, client.AuditQuery{StreamPrefix: r.prefix})
	must("audit", err)
	if _, err := api.Rollback(ctx, r.prefix, "no-such", protocol.RollbackRequest{RequestedBy: "e2e", Reason: "a test"}, client.Call{}); err == nil {
		t.Error("a rollback of nothing was accepted")
	}

	kept := int64(3)
	_, err = api.PutStream(ctx, r.prefix, protocol.PutStreamRequest{ShardCount: &kept, Retention: protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 10}, RequestedBy: "e2e"}, client.Call{})
	must("retention", err)
	r.eventually("retention", func() bool {
		return slices.ContainsFunc(r.commands(), func(c command) bool { return c.point == "RETAIN" })
	})
	must("deletion of the group", api.DeleteGroup(ctx, r.prefix, "g", protocol.DeleteGroupRequest{Force: true, RequestedBy: "e2e", Reason: "a test"}, client.Call{}))
	r.eventually("the end of the group", func() bool {
		return slices.ContainsFunc(r.commands(), func(c command) bool { return c.point == "RMGROUP" && c.outcome == "OK" })
	})
	must("deletion of the stream", api.DeleteStream(ctx, r.prefix, protocol.DeleteStreamRequest{Force: true, Confirm: r.prefix, RequestedBy: "e2e", Reason: "a test"}, client.Call{}))
	r.proc.Stop()
	return r.commands()
}

// ask reads a page that the client has no call for.
func (r *rig) ask(path string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.addr+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.SetBasicAuth(username, password)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s, %v: %s", path, resp.Status, err, body)
	}
	return string(body)
}
