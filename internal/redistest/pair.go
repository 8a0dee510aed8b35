package redistest

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Pair is a primary and its replica behind one stable address, which a failover leads to the
// replica. The replica follows through a link of its own, so that it can be made to miss the
// last writes.
type Pair struct {
	*Proxy  // the stable address
	Primary *Server
	Replica *Server

	link *Proxy // between replica and primary
}

// StartPair runs a pair that is in sync when it returns; args are added to both command lines.
func StartPair(tb testing.TB, args ...string) *Pair {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	p := &Pair{Primary: Start(tb, args...)}
	p.link = StartProxy(tb, p.Primary.Addr)
	p.Replica = Start(tb, append(slices.Clip(args), "--replicaof", replicaOf(tb, p.link.Addr))...)
	if err := p.Replica.waitInSync(p.Primary, startTimeout); err != nil {
		tb.Fatalf("replica %s of %s: %v", p.Replica.Addr, p.Primary.Addr, err)
	}
	p.Proxy = StartProxy(tb, p.Primary.Addr)
	return p
}

// Client opens a client of the stable address that never repeats a command by itself. It is
// closed with the test.
func (p *Pair) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1, DisableIdentity: true})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Detach has the replica receive everything that the primary has done so far, and nothing of
// what follows: the primary goes on without a replica, and a failover loses what it does. It may
// be called by a watcher of the stable address.
func (p *Pair) Detach() error {
	err := p.Replica.waitInSync(p.Primary, startTimeout)
	p.link.Cut()
	return err
}

// Freeze leaves the replica connected, but it receives and confirms nothing more. What the
// primary does after Detach or Freeze is lost by Promote.
func (p *Pair) Freeze() { p.link.Stall() }

// Thaw undoes Freeze and Detach: the replica follows again.
func (p *Pair) Thaw(tb testing.TB) {
	tb.Helper()
	p.link.Point(p.Primary.Addr)
	if err := p.Replica.waitInSync(p.Primary, 2*startTimeout); err != nil {
		tb.Fatalf("replica %s of %s: %v", p.Replica.Addr, p.Primary.Addr, err)
	}
}

// Promote kills the primary with SIGKILL and makes the replica the primary. The stable address
// refuses connections until Reconnect, so that a test can look at what has survived.
func (p *Pair) Promote(tb testing.TB) {
	tb.Helper()
	p.Cut()
	p.link.Cut()
	p.Primary.Kill()
	c := p.Replica.client()
	defer func() { _ = c.Close() }()
	if err := poll(startTimeout, func(ctx context.Context) error { return c.ReplicaOf(ctx, "NO", "ONE").Err() }); err != nil {
		tb.Fatalf("promote %s: %v", p.Replica.Addr, err)
	}
}

// Reconnect leads the stable address to the promoted replica.
func (p *Pair) Reconnect() { p.Point(p.Replica.Addr) }

// Rejoin starts the killed primary again, empty, as the replica of the promoted one, with both
// names swapped, and waits until it is in sync.
func (p *Pair) Rejoin(tb testing.TB) {
	tb.Helper()
	p.Primary.Restart(tb)
	p.Primary, p.Replica = p.Replica, p.Primary
	p.link.Point(p.Primary.Addr)
	c := p.Replica.client()
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	host, port := hostPort(tb, p.link.Addr)
	if err := c.ReplicaOf(ctx, host, port).Err(); err != nil {
		tb.Fatalf("make %s a replica: %v", p.Replica.Addr, err)
	}
	if err := p.Replica.waitInSync(p.Primary, 2*startTimeout); err != nil {
		tb.Fatalf("replica %s of %s: %v", p.Replica.Addr, p.Primary.Addr, err)
	}
}
