package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// masters of a cluster; each has one replica.
const masters = 3

const clusterTimeout = 60 * time.Second

// Cluster is six nodes: Nodes[0..2] begin as masters, Nodes[3+i] as the replica of Nodes[i].
type Cluster struct {
	Nodes []*Server
}

// StartCluster runs a cluster of this test's own; args are added to every node. A failed master
// is replaced after about three seconds.
func StartCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	c, err := launchCluster(tb.TempDir, args)
	if err != nil {
		tb.Fatalf("start a private redis cluster: %v", err)
	}
	tb.Cleanup(c.kill)
	return c
}

func launchCluster(dir func() string, args []string) (*Cluster, error) {
	c := &Cluster{Nodes: make([]*Server, 2*masters)}
	ports := make([]int, len(c.Nodes)) // of the cluster bus
	var g errgroup.Group
	for i := range c.Nodes {
		d := dir() // not in the goroutine: it may fail the test
		g.Go(func() error {
			var last error
			for range 3 { // the bus port may be taken in the meantime
				var err error
				if ports[i], err = freePort(); err != nil {
					return err
				}
				c.Nodes[i], last = launch(d, append([]string{
					"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
					"--cluster-port", strconv.Itoa(ports[i]), "--cluster-node-timeout", "2500",
					"--cluster-replica-validity-factor", "0", "--cluster-migration-barrier", "999",
					"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
				}, args...))
				if last == nil {
					return nil
				}
			}
			return last
		})
	}
	err := g.Wait()
	if err == nil {
		err = c.join(ports)
	}
	if err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// join makes one cluster of the nodes and waits until every one of them can serve.
func (c *Cluster) join(busPorts []int) error {
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	clients := make([]*redis.Client, len(c.Nodes))
	ids := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		clients[i] = n.client()
		defer func() { _ = clients[i].Close() }()
	}
	host, port, err := net.SplitHostPort(c.Nodes[0].Addr)
	if err != nil {
		return err
	}
	const slots = 16384
	for i, cl := range clients {
		if ids[i], err = cl.Do(ctx, "CLUSTER", "MYID").Text(); err != nil {
			return fmt.Errorf("id of %s: %w", c.Nodes[i].Addr, err)
		}
		// Different epochs from the start: nodes that meet with equal ones have to settle it first.
		if err = cl.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("config epoch of %s: %w", c.Nodes[i].Addr, err)
		}
		if i < masters {
			if err = cl.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
				return fmt.Errorf("slots of %s: %w", c.Nodes[i].Addr, err)
			}
		}
		if i > 0 {
			if err = cl.Do(ctx, "CLUSTER", "MEET", host, port, busPorts[0]).Err(); err != nil {
				return fmt.Errorf("join %s: %w", c.Nodes[i].Addr, err)
			}
		}
	}
	for i := masters; i < len(clients); i++ {
		if err := poll(clusterTimeout, func(ctx context.Context) error {
			return clients[i].ClusterReplicate(ctx, ids[i-masters]).Err() // unknown until gossip has spread
		}); err != nil {
			return fmt.Errorf("make %s a replica: %w", c.Nodes[i].Addr, err)
		}
	}
	for i, cl := range clients {
		if err := poll(clusterTimeout, func(ctx context.Context) error { return c.ready(ctx, cl) }); err != nil {
			return fmt.Errorf("node %s: %w", c.Nodes[i].Addr, err)
		}
		if i >= masters {
			if err := c.Nodes[i].waitInSync(c.Nodes[i-masters], clusterTimeout); err != nil {
				return fmt.Errorf("replica %s: %w", c.Nodes[i].Addr, err)
			}
		}
	}
	return nil
}

// ready says whether a node sees the whole cluster: all slots served, three masters, three replicas.
func (c *Cluster) ready(ctx context.Context, cl *redis.Client) error {
	info, err := cl.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return errors.New("cluster_state is not ok")
	}
	nodes, err := cl.ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	if n := strings.Count(nodes, "slave "); n != masters {
		return fmt.Errorf("sees %d replicas", n)
	}
	return nil
}

// Addrs lists the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// Client opens a cluster client that never repeats a command by itself. It is closed with the test.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	cl := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), MaxRetries: -1, MaxRedirects: 8, DisableIdentity: true})
	tb.Cleanup(func() { _ = cl.Close() })
	return cl
}

// Master is the node that serves the slot of key now, as the first node that runs sees it.
func (c *Cluster) Master(tb testing.TB, key string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	cl := c.Client(tb)
	m, err := cl.MasterForKey(ctx, key)
	if err != nil {
		tb.Fatalf("master of key %q: %v", key, err)
	}
	for _, n := range c.Nodes {
		if n.Addr == m.Options().Addr {
			return n
		}
	}
	tb.Fatalf("master of key %q is %s, which is no node of this cluster", key, m.Options().Addr)
	return nil
}

// ReplicaOf is the node that follows master.
func (c *Cluster) ReplicaOf(tb testing.TB, master *Server) *Server {
	tb.Helper()
	host, port := hostPort(tb, master.Addr)
	for _, n := range c.Nodes {
		cl := n.client()
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		info, err := cl.Info(ctx, "replication").Result()
		cancel()
		_ = cl.Close()
		if err == nil && strings.Contains(info, "master_host:"+host+"\r\n") && strings.Contains(info, "master_port:"+port+"\r\n") {
			return n
		}
	}
	tb.Fatalf("%s has no replica", master.Addr)
	return nil
}

// Detach has replica receive everything that master has done so far, and nothing of what
// follows, without either of them failing: master goes on as one without a replica.
func (c *Cluster) Detach(tb testing.TB, master, replica *Server) {
	tb.Helper()
	if err := replica.waitInSync(master, startTimeout); err != nil {
		tb.Fatalf("replica %s of %s: %v", replica.Addr, master.Addr, err)
	}
	cl := replica.client()
	defer func() { _ = cl.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// The master asks for no password, so one that gives it is sent away.
	if err := cl.ConfigSet(ctx, "masterauth", "refused").Err(); err != nil {
		tb.Fatalf("detach %s: %v", replica.Addr, err)
	}
	if err := cl.Do(ctx, "CLIENT", "KILL", "TYPE", "master").Err(); err != nil {
		tb.Fatalf("detach %s: %v", replica.Addr, err)
	}
	m := master.client()
	defer func() { _ = m.Close() }()
	if err := poll(startTimeout, func(ctx context.Context) error {
		info, err := m.Info(ctx, "replication").Result()
		if err == nil && strings.Contains(info, "state=online") {
			err = errors.New("it is still followed")
		}
		return err
	}); err != nil {
		tb.Fatalf("detach %s: %v", replica.Addr, err)
	}
}

// FailOver kills master with SIGKILL and has replica take its slots over at once; it returns when
// all nodes that run agree. What replica has not received is lost.
func (c *Cluster) FailOver(tb testing.TB, master, replica *Server) {
	tb.Helper()
	master.Kill()
	cl := replica.client()
	defer func() { _ = cl.Close() }()
	if err := poll(clusterTimeout, func(ctx context.Context) error {
		if err := cl.Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err(); err != nil && !strings.Contains(err.Error(), "to a replica") {
			return err
		}
		return nil
	}); err != nil {
		tb.Fatalf("fail over to %s: %v", replica.Addr, err)
	}
	_, port := hostPort(tb, replica.Addr)
	for _, n := range c.Nodes {
		if n == master {
			continue
		}
		node := n.client()
		err := poll(clusterTimeout, func(ctx context.Context) error {
			info, err := node.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			nodes, err := node.ClusterNodes(ctx).Result()
			switch {
			case err != nil:
				return err
			case !strings.Contains(info, "cluster_state:ok"):
				return errors.New("cluster_state is not ok")
			}
			for line := range strings.Lines(nodes) {
				if strings.Contains(line, ":"+port+"@") && strings.Contains(line, "master") {
					return nil
				}
			}
			return errors.New("it does not see the new master")
		})
		_ = node.Close()
		if err != nil {
			tb.Fatalf("node %s after the failover to %s: %v", n.Addr, replica.Addr, err)
		}
	}
}

// Rejoin starts a killed node again; it becomes the replica of the node that took its slots.
func (c *Cluster) Rejoin(tb testing.TB, old, master *Server) {
	tb.Helper()
	cl := master.client()
	defer func() { _ = cl.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := cl.ConfigSet(ctx, "masterauth", "").Err(); err != nil {
		tb.Fatalf("password of %s: %v", master.Addr, err)
	}
	old.Restart(tb)
	if err := old.waitInSync(master, clusterTimeout); err != nil {
		tb.Fatalf("%s does not follow %s: %v", old.Addr, master.Addr, err)
	}
}

func (c *Cluster) kill() {
	for _, n := range c.Nodes {
		if n != nil {
			n.Kill()
		}
	}
}
