package e2e_test

import (
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// runbooks are the states that the pages are for.
func runbooks() []runbook {
	online := protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline}
	at := func(shards int) func(*lab) { return func(l *lab) { l.at(shards) } }
	// draining is a change 2 → 4 that waits for one entry of group billing on shard 0.
	draining := func(l *lab) {
		l.make(2)
		l.add(0, "*")
		l.ask(4, protocol.ReshardingPolicy{})
		l.waits(protocol.PhaseDraining, "shard 0: group billing has 1 undelivered")
	}
	// removed is a change 4 → 2 that waits for one entry of group billing on shard 3.
	removed := func(l *lab) {
		l.env["SHARD"] = "3"
		l.make(4)
		l.add(3, "*")
		l.ask(2, online)
		l.waits(protocol.PhaseDrainingRemoved, "shard 3: group billing has 1 undelivered")
	}
	foreign := func(l *lab) {
		l.env["SHARD"] = "3"
		l.make(2)
		l.add(3, "*")
		l.ask(4, protocol.ReshardingPolicy{})
		l.waits(protocol.PhaseRolledBack, "does not belong to the coordinator")
	}
	leftover := func(l *lab) {
		l.env["SHARD"] = "3"
		l.make(4)
		declare(l.t, l.api, l.stream, 2, protocol.ReshardingPolicy{})
		l.add(3, "*")
		l.ask(4, protocol.ReshardingPolicy{})
		l.waits(protocol.PhaseRolledBack, "still has 1 entry of an earlier layout")
	}
	kept := func(l *lab) {
		l.at(4)
		if n, err := l.rdb.XLen(l.t.Context(), "{"+l.key(3)+"}:kept").Result(); n != 1 {
			l.t.Errorf("the key that was moved away has %d entries: %v", n, err)
		}
	}
	exhausted := func(l *lab) {
		l.env["SHARD"] = "1"
		l.make(4)
		l.add(1, maxID)
		l.ask(5, protocol.ReshardingPolicy{PauseTimeoutMs: 1000})
		l.says("cannot be opened", true)
		l.at(4)
	}
	handled := func(l *lab) { l.read(1, true) }
	opened := func(l *lab) {
		l.at(4)
		l.until("shard 1 takes an entry", func() (string, bool) {
			err := l.rdb.XAdd(l.t.Context(), &redis.XAddArgs{Stream: l.key(1), NoMkStream: true, Values: []string{"a", "b"}}).Err()
			if err != nil {
				return err.Error(), false
			}
			return "", true
		})
	}
	control := func(l *lab, shard int) string { return protocol.ControlKey(l.stream, shard) }
	opened2 := func(l *lab) {
		l.at(2)
		l.add(1, "*")
		l.read(1, true)
		l.read(0, true)
	}
	record := func(l *lab) string { return coordPrefix + ":{" + l.stream + "}:stream" }
	full := func(l *lab) {
		l.make(2)
		l.env["MAXMEMORY"] = "1gb"
		for range 50 {
			l.add(0, "*")
		}
		l.read(0, true)
		l.must(l.rdb.ConfigSet(l.t.Context(), "maxmemory", "1mb"))
		if err := l.rdb.XAdd(l.t.Context(), &redis.XAddArgs{Stream: l.key(0), Values: []string{"a", "b"}}).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
			l.t.Fatalf("an append to a full Redis: %v", err)
		}
	}
	return []runbook{
		{name: "README", stuck: draining, solved: at(2)},
		{name: "README#what-is-wrong", stuck: draining, shows: []string{`PausedByResharding`, `1 undelivered`}, solved: func(*lab) {}},
		{name: "provisioning#a-stream-of-somebody-else-is-in-the-way", stuck: foreign, shows: []string{`:3 exists and does not belong`, `(?m)^1$`}, solved: kept},
		{name: "provisioning#entries-of-an-earlier-layout", stuck: leftover, shows: []string{`:3 still has 1 entry`, `body`, `reshard-`}, solved: kept},
		{name: "sealing#no-replica-confirms", needs: "pair", stuck: func(l *lab) {
			l.make(2)
			l.dieAt("SEAL#1", 4, protocol.ReshardingPolicy{}, l.pair.Freeze)
			l.waits(protocol.PhaseSealing, "no replica has confirmed it yet")
		}, shows: []string{`SEALING`, `no replica has confirmed`, `connected_slaves:1`, `lag=`}, solved: at(4)},
		{name: "activating#no-replica-confirms-the-decision", needs: "pair", stuck: func(l *lab) {
			draining(l)
			l.pair.Freeze()
			l.read(0, true)
			l.waits(protocol.PhaseActivating, "no replica has confirmed it yet")
		}, shows: []string{`ACTIVATING`, `/DECIDE`, `connected_slaves:1`}, solved: at(4)},
		{name: "draining", stuck: draining, shows: []string{`1 undelivered`, `pauseDeadline": "20`}, solved: func(*lab) {}},
		{name: "draining#a-group-without-members", only: ": the group is deleted", stuck: draining, shows: []string{`1 undelivered`}, solved: at(4)},
		{name: "draining#a-group-without-members", only: ": the group is not waited for", stuck: draining, solved: at(4)},
		{name: "draining#a-group-that-the-coordinator-does-not-manage", stuck: func(l *lab) {
			l.env["GROUP"] = "legacy"
			l.make(2)
			l.must(l.rdb.XGroupCreate(l.t.Context(), l.key(0), "legacy", "0"))
			l.add(0, "*")
			l.read(0, true)
			l.ask(4, protocol.ReshardingPolicy{})
			l.waits(protocol.PhaseDraining, "group legacy has 1 undelivered")
		}, shows: []string{`\["billing"\]`, `legacy`}, solved: at(4)},
		{name: "draining#pending-entries-that-nobody-acknowledges", stuck: func(l *lab) {
			l.make(2)
			l.add(0, "*")
			l.read(0, false)
			l.ask(4, protocol.ReshardingPolicy{})
			l.waits(protocol.PhaseDraining, "1 pending")
		}, shows: []string{`by-hand`}, solved: at(4)},
		{name: "draining#evidence-is-unknown", stuck: func(l *lab) {
			draining(l)
			l.must(l.rdb.XGroupDestroy(l.t.Context(), l.key(0), "billing"))
			l.waits(protocol.PhaseDraining, "consumer group billing is missing")
		}, shows: []string{`evidence unknown \(consumer group billing is missing\)`}, solved: func(l *lab) {
			l.waits(protocol.PhaseDraining, "1 undelivered")
			l.read(0, true)
			l.at(4)
		}},
		{name: "draining-removed", only: ": the group is deleted", stuck: removed, shows: []string{`DRAINING_REMOVED`, `1 undelivered`}, solved: at(2)},
		{name: "draining-removed", only: ": the group never gets", stuck: removed, solved: at(2)},
		{name: "converging#a-member-does-not-let-go", stuck: func(l *lab) {
			l.make(4)
			putGroup(l.t, l.api, l.stream, "billing", protocol.GroupSpec{RebalanceTimeoutMs: 3_600_000, MemberLeaseMs: 5000, HeartbeatIntervalMs: 1000})
			l.stubborn = l.claim(4)
			l.t.Cleanup(l.stubborn)
			l.ask(2, online)
			l.waits(protocol.PhaseConverging, "still held")
		}, shows: []string{`CONVERGING: group billing: shards 2 and 3 are still held`, `"revoking":\[2,3\]`}, solve: func(l *lab) { l.stubborn() }, solved: at(2)},
		{name: "publishing-paused", stuck: func(l *lab) {
			l.make(2)
			if _, err := l.api.PausePublishing(l.t.Context(), l.stream, protocol.PauseRequest{TimeoutMs: 3_600_000, RequestedBy: "ann", Reason: "an import"}, client.Call{}); err != nil {
				l.t.Fatal(err)
			}
			l.until("shard 0 is held", func() (string, bool) {
				n, err := l.rdb.HExists(l.t.Context(), "{"+l.key(0)+"}:control", "hold").Result()
				return "", err == nil && n
			})
		}, shows: []string{`PAUSED`, `paused by ann until .* \(an import\)`, `(?m)^\d{13}$`, `"requestedBy":"ann"`}, solved: at(2)},
		{name: "exhausted-shard", only: ": Redis 7.0", stuck: exhausted, shows: []string{`shard 1 cannot be opened`, maxID}, solve: handled, solved: opened},
		{name: "exhausted-shard", only: ": any version", stuck: exhausted, solve: handled, solved: opened},
		{name: "orphans", stuck: func(l *lab) {
			l.env["SHARD"] = "3"
			l.make(4)
			declare(l.t, l.api, l.stream, 2, protocol.ReshardingPolicy{})
			l.add(3, "*")
			l.says("not ours, never touched: "+l.key(3)+" (1 entry)", true)
		}, shows: []string{`:3 \(1 entry\)`, `body`}, solved: func(l *lab) { l.says("not ours", false) }},
		{name: "state-unreadable", stuck: func(l *lab) {
			l.make(4)
			l.add(2, "*")
			l.must(l.rdb.HSet(l.t.Context(), record(l), "aggregate", `{"broken`))
			l.restart("")
		}, shows: []string{`STATE_UNREADABLE`, `state_unreadable_total [1-9]`, `\{"broken`}, solved: func(l *lab) {
			l.at(4)
			l.read(2, true)
		}},
		{name: "damaged-control", stuck: func(l *lab) {
			l.env["SHARD"] = "1"
			draining(l)
			l.must(l.rdb.Del(l.t.Context(), control(l, 1)))
			l.must(l.rdb.Set(l.t.Context(), control(l, 1), "x", 0))
			r, err := l.last()
			if err != nil {
				l.t.Fatal(err)
			}
			if _, err := l.api.Rollback(l.t.Context(), l.stream, r.ReshardingID, protocol.RollbackRequest{RequestedBy: "e2e", Reason: "try"}, client.Call{}); err != nil {
				l.t.Fatal(err)
			}
			l.waits(protocol.PhaseRollingBack, "no answer to RELEASE: SHARD_CONTROL_DAMAGED")
		}, shows: []string{`ROLLING_BACK`, `SHARD_CONTROL_DAMAGED: \{.*:1\}:control is damaged \(it is a string\)`, `(?m)^string$`}, solved: opened2},
		{name: "damaged-control", stuck: func(l *lab) {
			l.make(2)
			l.add(0, "*")
			l.must(l.rdb.HSet(l.t.Context(), control(l, 0), "epoch", "one"))
			l.says("alert: SHARD_CONTROL_DAMAGED", true)
		}, shows: []string{`SHARD_CONTROL_DAMAGED: \{.*:0\}:control is damaged \(its field epoch is no number\)`, `(?m)^one$`}, solved: func(l *lab) {
			l.says("SHARD_CONTROL_DAMAGED", false)
			l.at(2)
			l.read(0, true)
		}},
		{name: "lost-writes", stuck: func(l *lab) {
			l.make(2)
			l.coord.kill()
			old, err := l.rdb.Dump(l.t.Context(), record(l)).Result()
			if err != nil {
				l.t.Fatal(err)
			}
			l.coord.start()
			declare(l.t, l.api, l.stream, 4, protocol.ReshardingPolicy{})
			l.coord.kill()
			l.must(l.rdb.RestoreReplace(l.t.Context(), record(l), 0, old))
			l.coord.start()
			l.says("Redis lost writes", true)
			l.at(4)
		}, shows: []string{`alert: Redis lost writes`, `lost_writes_total [1-9]`, `shard 3: 2 4`}, solved: func(*lab) {}},
		{name: "redis-full", only: ": more room", stuck: full, shows: []string{`maxmemory_human:1.00M`, `OOM`, `:0 50 entries`}, solved: func(l *lab) { l.add(0, "*") }},
		{name: "redis-full", only: ": the coordinator trims", stuck: full, solved: func(l *lab) {
			l.until("what was acknowledged is trimmed", func() (string, bool) {
				n, err := l.rdb.XLen(l.t.Context(), l.key(0)).Result()
				return fmt.Sprint(n, " entries, ", err), err == nil && n < 2
			})
		}},
		{name: "trimmed-unread", stuck: func(l *lab) {
			l.make(2)
			for range 50 {
				l.add(0, "*")
			}
			two := int64(2)
			if _, err := l.api.PutStream(l.t.Context(), l.stream, protocol.PutStreamRequest{
				ShardCount: &two, Retention: protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 10},
			}, client.Call{}); err != nil {
				l.t.Fatal(err)
			}
			l.until("shard 0 is trimmed", func() (string, bool) {
				n, err := l.rdb.XLen(l.t.Context(), l.key(0)).Result()
				return fmt.Sprint(n, " entries, ", err), err == nil && n == 10
			})
		}, shows: []string{`"MAX_LEN"`, `"trimmed": 40`, `unacknowledged_total\{policy="MAX_LEN"\} 40`}, solved: func(l *lab) {
			s, err := l.api.Stream(l.t.Context(), l.stream)
			if err != nil || s.Spec.Retention.Policy != protocol.RetentionAcked {
				l.t.Errorf("retention is %+v: %v", s.Spec.Retention, err)
			}
		}},
		{name: "audit-lost", stuck: func(l *lab) {
			l.make(2)
			l.must(l.rdb.ConfigSet(l.t.Context(), "min-replicas-to-write", "1"))
			bad := int64(-1)
			if _, err := l.api.PutStream(l.t.Context(), l.stream, protocol.PutStreamRequest{ShardCount: &bad}, client.Call{}); err == nil {
				l.t.Fatal("−1 shards were taken")
			}
		}, shows: []string{`audit_lost_total [1-9]`, `NOREPLICAS`}, solved: func(l *lab) {
			l.must(l.rdb.Set(l.t.Context(), "probe", "1", 0))
		}},
		{name: "unowned-shard", stuck: func(l *lab) {
			l.make(2)
			l.add(0, "*")
		}, shows: []string{`\[0,1\]`}, solved: func(l *lab) {
			l.consume()
			l.until("the entry is read", func() (string, bool) {
				groups, err := l.rdb.XInfoGroups(l.t.Context(), l.key(0)).Result()
				if err != nil {
					return err.Error(), false
				}
				return groups[0].LastDeliveredID, groups[0].LastDeliveredID != "0-0" && groups[0].Pending == 0
			})
		}},

		{name: "node-down", needs: "cluster", stuck: func(l *lab) {
			l.make(8)
			l.stop(1, 8)
			l.ask(12, protocol.ReshardingPolicy{})
			l.waits(protocol.PhaseProvisioning, "no answer to PREPARE")
		}, shows: []string{`no answer to PREPARE`, `fail`}, solved: at(12)},
		{name: "opening", needs: "cluster", stuck: func(l *lab) {
			l.make(8)
			l.dieAt("OPEN#1", 12, online, func() { l.stop(1, 8) })
			l.waits(protocol.PhaseOpening, "no answer to OPEN")
		}, shows: []string{`no answer to OPEN`, `shard 0: 2 12`}, solved: at(12)},
		{name: "retiring", needs: "cluster", stuck: func(l *lab) {
			l.make(12)
			l.dieAt("RETIRE#1", 2, online, func() { l.stop(2, 12) })
			l.waits(protocol.PhaseRetiring, "no answer to RETIRE")
		}, shows: []string{`no answer to RETIRE`}, solved: at(2)},
		{name: "rolling-back", needs: "cluster", stuck: func(l *lab) {
			l.make(8)
			l.add(0, "*")
			l.ask(12, protocol.ReshardingPolicy{})
			l.waits(protocol.PhaseDraining, "1 undelivered")
			l.stop(1, 8)
			r, err := l.last()
			if err != nil {
				l.t.Fatal(err)
			}
			if _, err := l.api.Rollback(l.t.Context(), l.stream, r.ReshardingID, protocol.RollbackRequest{RequestedBy: "e2e", Reason: "try"}, client.Call{}); err != nil {
				l.t.Fatal(err)
			}
			l.waits(protocol.PhaseRollingBack, "no answer to RELEASE")
		}, shows: []string{`no answer to RELEASE`, `rollback was asked for`}, solved: at(8)},
		{name: "sealing#redis-refuses-the-seal", needs: "cluster", stuck: func(l *lab) {
			l.make(8)
			l.dieAt("SEAL#1", 12, protocol.ReshardingPolicy{}, func() {
				node, shard := l.spare(1, 8)
				l.env["NODE"], l.env["SHARD"] = node.URL(), l.key(shard)
				l.must(node.Client(l.t).ConfigSet(l.t.Context(), "min-replicas-to-write", "9"))
			})
			l.waits(protocol.PhaseSealing, "NOREPLICAS")
		}, shows: []string{`NOREPLICAS`, `connected_slaves:1`}, solved: at(12)},
	}
}
