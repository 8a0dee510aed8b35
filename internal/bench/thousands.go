package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// mostMemory is what the coordinator may take at its peak while one stream has 2,000 shards.
const mostMemory = 96 << 20

// thousands measures quiesced reshardings 1,000 → 2,000 → 1 of a stream that two consumers read, from
// the request to COMPLETED (each shard has its owner), and the most memory that the coordinator
// ever took, with a Redis and a coordinator of their own: what other benchmarks left in memory
// does not count.
func (b *bench) thousands(ctx context.Context) ([]result, error) {
	const prefix = "thousands"
	var grow, shrink []time.Duration
	var peak float64
	for range b.rounds {
		err := b.apart(ctx, func(own *bench) error {
			idle, known := residentPeak(own.coordinator.PID())
			if err := own.makeStream(ctx, prefix, 1000, group); err != nil {
				return err
			}
			for n := range 2 {
				one, err := own.idleConsumer(ctx, prefix, fmt.Sprintf("reader-%d", n))
				if err != nil {
					return err
				}
				defer func() { _ = one.stop() }() // what was measured stands
				if n == 1 {
					if err := one.owns(ctx, 500); err != nil {
						return err
					}
				}
			}
			for _, step := range []struct {
				shards int
				took   *[]time.Duration
			}{{2000, &grow}, {1, &shrink}} {
				begin := time.Now()
				if err := own.reshard(ctx, prefix, step.shards, protocol.StrategyQuiesce); err != nil {
					return err
				}
				*step.took = append(*step.took, time.Since(begin))
				r, err := own.last(ctx, prefix)
				if err != nil {
					return err
				}
				now, _ := residentPeak(own.coordinator.PID())
				fmt.Fprintf(os.Stderr, "  to %d shards: %s, paused %d ms, %s; at most %.0f MiB so far, %.0f at the start\n",
					step.shards, time.Since(begin).Round(time.Millisecond), r.PausedMs, phaseTimes(r), now/(1<<20), idle/(1<<20))
				if known {
					peak = max(peak, now)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	out := []result{
		within("1,000 → 2,000 shards, whole resharding", median(grow), time.Second, 0),
		within("2,000 → 1 shards, whole resharding", median(shrink), 2*time.Second, 0),
	}
	if peak > 0 {
		out = append(out, atMost("… peak memory of the coordinator", peak/(1<<20), mostMemory/(1<<20), "MiB"))
	}
	return out, nil
}

// apart runs f with a Redis and a coordinator that nothing else uses.
func (b *bench) apart(ctx context.Context, f func(own *bench) error) error {
	redisPath, err := toolchain.RedisServer(ctx, os.Stderr)
	if err != nil {
		return err
	}
	own := &bench{program: b.program, span: b.span, rounds: b.rounds}
	defer own.close()
	if own.dir, err = os.MkdirTemp("", "redisstream-bench-"); err != nil {
		return err
	}
	if own.redisServer, err = child.StartRedis(ctx, redisPath, own.dir); err != nil {
		return err
	}
	own.redis = own.redisServer.Client()
	if own.coordinatorAddr, _, err = child.FreeAddress(ctx); err != nil {
		return err
	}
	if own.coordinator, err = child.StartCoordinator(ctx, own.coordinatorSettings(own.coordinatorAddr)); err != nil {
		return err
	}
	if own.client, err = newClient(own.coordinatorAddr); err != nil {
		return err
	}
	return f(own)
}

// phaseTimes says how long each phase lasted.
func phaseTimes(r protocol.Resharding) string {
	var b bytes.Buffer
	for i, span := range r.Phases {
		if span.Phase.Terminal() || span.EndedAt == nil {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", span.Phase, span.EndedAt.Sub(span.StartedAt).Milliseconds())
	}
	return b.String()
}

// residentPeak is the most memory, in bytes, that a process ever had resident; not known where
// the system has no /proc.
func residentPeak(pid int) (float64, bool) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, []byte("VmHWM:"))
		if !ok {
			continue
		}
		kib, err := strconv.ParseFloat(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 64)
		return kib * 1024, err == nil
	}
	return 0, false
}
