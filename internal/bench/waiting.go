package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// waiting measures the resident memory of a coordinator of its own while n members wait on it,
// each with a held heartbeat on a connection of its own. Linux only: elsewhere it gives nothing.
func (b *bench) waiting(ctx context.Context, n int) ([]result, error) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		fmt.Fprintln(os.Stderr, "  skipped: needs /proc")
		return nil, nil
	}
	addr, _, err := child.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	settings := b.coordinatorSettings(addr)
	settings.Env = append(settings.Env, "RSC_KEY_PREFIX=waiting")
	p, err := child.StartCoordinator(ctx, settings)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	idle, err := residentMiB(p.PID())
	if err != nil {
		return nil, err
	}
	own, err := newClient(addr)
	if err != nil {
		return nil, err
	}
	w := *b
	w.coordinatorAddr, w.client = addr, own
	const prefix, group = "waiting", "workers"
	if err := w.makeStream(ctx, prefix, 1000, group); err != nil {
		return nil, err
	}
	// On a busy machine the joins of so many take longer than the usual lease and rebalance timeout.
	if _, err := own.PutGroup(ctx, prefix, group, protocol.PutGroupRequest{
		GroupSpec: protocol.GroupSpec{MemberLeaseMs: 120_000, HeartbeatIntervalMs: 3000, RebalanceTimeoutMs: 600_000}, RequestedBy: "bench",
	}, noCall); err != nil {
		return nil, err
	}
	members, err := w.settle(ctx, prefix, group, n)
	if err != nil {
		return nil, err
	}
	for i := range members {
		members[i].MaxWaitMs = 3000
	}
	requests := w.heartbeatRequests(addr, prefix, group, members)

	// Every member has two held calls, one after the other; the memory is read in between, when
	// all connections are open and nearly all calls held.
	highest := 0.0
	waiting, waitCtx := errgroup.WithContext(ctx)
	for _, req := range requests {
		waiting.Go(func() error {
			conn, err := (&net.Dialer{}).DialContext(waitCtx, "tcp", addr)
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				return err
			}
			in := bufio.NewReaderSize(conn, 1<<10)
			for range 2 {
				if _, err := conn.Write(req); err != nil {
					return err
				}
				if _, err := answer(in, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	done := make(chan error, 1)
	go func() { done <- waiting.Wait() }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return nil, err
			}
			return []result{{
				Name: fmt.Sprintf("memory with %d members waiting", n), Value: highest, Unit: "MiB", Reference: &idle, Ratio: new(highest / idle),
				Target: "≤ 1,024 MiB", Met: highest <= 1024,
			}}, nil
		case <-tick.C:
			now, err := residentMiB(p.PID())
			if err != nil {
				return nil, err
			}
			highest = max(highest, now)
		}
	}
}

// residentMiB is the resident memory of a process.
func residentMiB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d shows no VmRSS", pid)
}
