package provider

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	pauseKind    = "redisstream_pause_publishing"
	resumeKind   = "redisstream_resume_publishing"
	rollbackKind = "redisstream_rollback_resharding"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	progress, diags := c.invoke(pauseKind, attrs{"stream_prefix": "orders", "timeout": "10m", "reason": "maintenance"})
	c.ok(diags)
	if len(progress) != 1 || !strings.Contains(progress[0], "paused, until ") {
		t.Errorf("progress: %q", progress)
	}
	var body protocol.PauseRequest
	m := o.mutations()
	last := m[len(m)-1]
	if err := json.Unmarshal([]byte(last.body), &body); err != nil || body.TimeoutMs != 600_000 || body.Reason != "maintenance" || body.RequestedBy != "terraform:default" {
		t.Errorf("body %s (%v)", last.body, err)
	}
	if last.header.Get("X-Request-Id") == "" || last.header.Get("Idempotency-Key") == "" {
		t.Errorf("header %v", last.header)
	}

	progress, diags = c.invoke(resumeKind, attrs{"stream_prefix": "orders"})
	c.ok(diags)
	if len(progress) != 1 || !strings.Contains(progress[0], "is open") {
		t.Errorf("progress: %q", progress)
	}
	m = o.mutations()
	if last := m[len(m)-1]; !strings.Contains(last.body, `"reason":"terraform: resume publishing`) {
		t.Errorf("body %s", last.body)
	}

	for _, kind := range []string{pauseKind, resumeKind, rollbackKind} {
		config := attrs{"stream_prefix": "nope"}
		if kind == pauseKind {
			config["timeout"] = "1m"
		}
		_, diags := c.invoke(kind, config)
		oneError(t, diags, "The stream does not exist", "nope")
		config["reason"] = strings.Repeat("x", 1025)
		_, diags = c.invoke(kind, config)
		oneError(t, diags, "reason", "1024")
	}
	_, diags = c.invoke(pauseKind, attrs{"stream_prefix": "orders", "timeout": "25h"})
	oneError(t, diags, "timeout", "24h")
}

// What the coordinator will not allow is found out by the plan; what may pass is not.
func TestActionPlan(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	before := len(o.mutations())
	o.set(func() { o.intercept = bad(403, "application/json", `{"errorCode":"FORBIDDEN","message":"viewer"}`) })
	_, diags := c.invoke(resumeKind, attrs{"stream_prefix": "orders"})
	oneError(t, diags, "Permission denied", "redisstream_resume_publishing")
	if len(o.mutations()) != before {
		t.Error("it was invoked in spite of that")
	}
	o.set(func() { o.intercept = bad(502, "text/html", "<html>") })
	_, diags = c.invoke(resumeKind, attrs{"stream_prefix": "orders"})
	if w := warningsOf(diags); len(w) != 1 || !strings.Contains(w[0], "502") {
		t.Errorf("warnings: %q", w)
	}
}

func TestRollbackAction(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	progress, diags := c.invoke(rollbackKind, attrs{"stream_prefix": "orders"})
	c.ok(diags)
	if len(progress) != 1 || !strings.Contains(progress[0], "No resharding") || !strings.Contains(progress[0], "2 shards") {
		t.Errorf("progress: %q", progress)
	}
	if n := o.count("/rollback"); n != 0 {
		t.Errorf("%d requests to roll back", n)
	}

	begin := func(count int) {
		o.set(func() {
			o.block = true
			o.nextID++
			r := &protocol.Resharding{ReshardingID: "rs-x", StreamPrefix: "orders", Phase: protocol.PhaseDraining, FromShardCount: 2, ToShardCount: count, WaitingFor: []string{"shard orders:0"}}
			o.records["rs-x"] = r
			o.streams["orders"].Status.ActiveReshardingID = "rs-x"
		})
	}
	begin(4)
	done := make(chan struct{})
	go func() {
		defer close(done)
		eventually(t, "the rollback is waited for", func() bool { return o.count("/reshardings/rs-x") > 0 && o.count("/rollback") == 1 })
		o.finish(t, "orders", protocol.PhaseRolledBack, "an operator asked for it")
	}()
	progress, diags = c.invoke(rollbackKind, attrs{"stream_prefix": "orders", "reason": "too slow"})
	<-done
	c.ok(diags)
	if all := strings.Join(progress, "\n"); !strings.Contains(all, "ROLLING_BACK") || !strings.Contains(all, "ended as ROLLED_BACK") || !strings.Contains(all, "keeps its 2 shards") {
		t.Errorf("progress: %q", progress)
	}

	begin(4)
	begun := time.Now()
	_, diags = c.invoke(rollbackKind, attrs{"stream_prefix": "orders", "resharding_id": "rs-x", "timeout": "1s"})
	oneError(t, diags, "Timed out", "rs-x", "(timeout)", "goes on")
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	o.set(func() { o.records["rs-x"].Phase = protocol.PhaseCompleted })
	_, diags = c.invoke(rollbackKind, attrs{"stream_prefix": "orders", "resharding_id": "rs-x"})
	oneError(t, diags, "has completed", "shard_count of 2")
}
