package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// runbookDir holds the pages whose commands these tests run, exactly as they stand there.
const runbookDir = "../../docs/runbooks"

// coordPrefix is the coordinator's default, which the pages name.
const coordPrefix = "redis-stream:coord"

// maxID is the highest id that an entry can have.
const maxID = "18446744073709551615-18446744073709551615"

// lab is a stream that a runbook is tried on.
type lab struct {
	t       *testing.T
	env     map[string]string // what the page leaves to its reader
	stream  string
	coord   *coordinator
	api     *client.Client
	rdb     redis.UniversalClient
	pair    *redistest.Pair    // of a case that needs one
	cluster *redistest.Cluster // of a case that needs one
	away    *redistest.Server  // node that was stopped

	stubborn func() // ends the member that does not let go
}

// runbook is one section of a page and a state in which it is needed.
type runbook struct {
	name   string // page, or page#section
	needs  string // "", "pair", "cluster": the kind of Redis
	stuck  func(*lab)
	shows  []string   // regular expressions that the output of the commands under "# shows" matches
	solve  func(*lab) // what the page has the reader do apart from commands, after "# shows"; may be nil
	only   string     // blocks under "# solves" that begin so; "" for all
	solved func(*lab)
}

func (c runbook) String() string { return strings.TrimSpace(c.name + " " + c.only) }

// TestRunbooks brings a stream into each state that docs/runbooks has a page for, runs the
// commands that show it and those that solve it, and sees the state end.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "jq", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the runbooks' commands need %s: install it, as their readers do", tool)
		}
	}
	pages := readRunbooks(t)
	try := func(t *testing.T, c runbook, cluster *redistest.Cluster) {
		section, ok := pages[c.name]
		if !ok {
			t.Fatalf("docs/runbooks has no section %q; it has %v", c.name, sections(pages))
		}
		c.try(t, pages["README#once"].once, section, cluster)
	}
	for _, c := range runbooks() {
		if c.needs != "cluster" {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				try(t, c, nil)
			})
		}
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
		for _, node := range cluster.Nodes { // replicas leave it to the reader of the page
			if err := node.Client(t).ConfigSet(t.Context(), "cluster-replica-no-failover", "yes").Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range runbooks() {
			if c.needs == "cluster" { // one after the other: they stop nodes
				t.Run(c.String(), func(t *testing.T) { try(t, c, cluster) })
			}
		}
	})
}

// TestRunbooksAreTried: no command that solves something stands in a page without a case that runs it.
func TestRunbooksAreTried(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for _, c := range runbooks() {
		tried[c.name] = true
	}
	pages := readRunbooks(t)
	for name, s := range pages {
		if len(s.solves) > 0 && !tried[name] {
			t.Errorf("nothing runs the commands of section %q", name)
		}
	}
	index, err := os.ReadFile(filepath.Join(runbookDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range pages {
		page, _, _ := strings.Cut(name, "#")
		if page != "README" && !bytes.Contains(index, []byte("("+page+".md")) {
			t.Errorf("the index does not name page %s.md", page)
		}
	}
}

// section is the commands of one section of a page, in order.
type section struct {
	once          string // README: the definitions that all commands share
	shows, solves []string
}

// readRunbooks returns the sections by "page" (what stands before the first heading of level 2) or
// "page#slug-of-the-heading".
func readRunbooks(t *testing.T) map[string]section {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(runbookDir, "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no runbooks in %s: %v", runbookDir, err)
	}
	all := map[string]section{}
	fence := regexp.MustCompile("(?s)```sh\n(.*?)```")
	slug := regexp.MustCompile(`[^a-z0-9]+`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimSuffix(filepath.Base(file), ".md")
		for i, part := range regexp.MustCompile(`(?m)^## `).Split(string(text), -1) {
			name := page
			if i > 0 {
				title, _, _ := strings.Cut(part, "\n")
				name += "#" + strings.Trim(slug.ReplaceAllString(strings.ToLower(title), "-"), "-")
			}
			var s section
			for _, block := range fence.FindAllStringSubmatch(part, -1) {
				switch first, _, _ := strings.Cut(block[1], "\n"); {
				case strings.HasPrefix(first, "# shows"):
					s.shows = append(s.shows, block[1])
				case strings.HasPrefix(first, "# solves"):
					s.solves = append(s.solves, block[1])
				case first == "# once":
					all["README#once"] = section{once: block[1]}
				case first == "# yours":
				default:
					t.Errorf("%s: a block begins with %q, which says neither # shows nor # solves", name, first)
				}
			}
			if len(s.shows)+len(s.solves) > 0 {
				all[name] = s
			}
		}
	}
	return all
}

func sections(pages map[string]section) []string {
	var names []string
	for name := range pages {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c runbook) try(t *testing.T, once string, s section, cluster *redistest.Cluster) {
	l := &lab{t: t, stream: redistest.Prefix(t), cluster: cluster}
	var redisURL, cli string
	switch c.needs {
	case "":
		server := redistest.Start(t)
		cli, redisURL, l.rdb = server.URL(), server.URL(), server.Client(t)
	case "pair":
		l.pair = redistest.StartPair(t)
		cli, redisURL, l.rdb = l.pair.URL(), l.pair.URL(), l.pair.Client(t)
	case "cluster":
		// The coordinator's index and the stream's record on one node leave one that has neither, nor shard 0.
		for cluster.Master(t, "{"+l.stream+"}") != cluster.Master(t, coordPrefix+":streams") {
			l.stream = redistest.Prefix(t)
		}
		cli, redisURL, l.rdb = cluster.Master(t, "{"+l.stream+"}").URL(), "redis+cluster://"+strings.Join(cluster.Addrs(), ","), cluster.Client(t)
	}
	l.coord = startCoordinator(t, redisURL, coordPrefix, "")
	l.api = connect(t, l.coord.url())
	l.env = map[string]string{
		"REDISSTREAM_ENDPOINT": l.coord.url(), "REDIS": cli, "STREAM": l.stream, "GROUP": "billing", "SHARD": "0", "COUNT": "4",
		"REDISSTREAM_USERNAME": username, "REDISSTREAM_PASSWORD": password,
	}
	c.stuck(l)
	// A reader who looks a moment too early looks again.
	for deadline := time.Now().Add(30 * time.Second); len(s.shows) > 0; {
		var shown strings.Builder
		for _, block := range s.shows {
			shown.WriteString(l.sh(once, block))
		}
		missing := slices.DeleteFunc(slices.Clone(c.shows), func(want string) bool { return regexp.MustCompile(want).MatchString(shown.String()) })
		if len(missing) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("the page's commands do not show %q; they show:\n%s", missing, shown.String())
			break
		}
	}
	if c.solve != nil {
		c.solve(l)
	}
	ran := false
	for _, block := range s.solves {
		if strings.HasPrefix(block, "# solves"+c.only) {
			out := l.sh(once, block)
			ran = true
			if regexp.MustCompile(`(?m)"errorCode":|^(ERR|WRONGTYPE|OOM|NOGROUP|NOREPLICAS) `).MatchString(out) {
				t.Errorf("a command of the page was refused:\n%s\n%s", block, out)
			}
		}
	}
	if c.only != "" && !ran {
		t.Errorf("the page has no block # solves%s", c.only)
	}
	c.solved(l)
}

// sh runs one block as its reader would.
func (l *lab) sh(once, block string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", once+"\n"+block)
	cmd.Dir = l.t.TempDir()
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = os.Environ()
	for name, value := range l.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("%v\n%s\n%s", err, block, out)
	}
	return string(out)
}

// until waits for a condition and says what was last seen.
func (l *lab) until(what string, holds func() (seen string, ok bool)) {
	l.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		seen, ok := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: not so within 90 s; last seen: %s", what, seen)
		}
		_ = pause(l.t.Context(), 50*time.Millisecond)
	}
}

// make declares the stream and its group.
func (l *lab) make(shards int64) {
	l.t.Helper()
	declare(l.t, l.api, l.stream, shards, protocol.ReshardingPolicy{})
	putGroup(l.t, l.api, l.stream, "billing", protocol.GroupSpec{})
}

// ask asks for another shard count and does not wait.
func (l *lab) ask(shards int64, policy protocol.ReshardingPolicy) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	if _, err := l.api.PutStream(ctx, l.stream, protocol.PutStreamRequest{ShardCount: &shards, Resharding: policy, RequestedBy: "e2e"}, client.Call{}); err != nil {
		l.t.Logf("asking for %d shards: %v", shards, err) // a coordinator with a fault may die of it
	}
}

// last is the newest resharding.
func (l *lab) last() (protocol.Resharding, error) {
	list, err := l.api.Reshardings(l.t.Context(), l.stream)
	if err != nil || len(list.Reshardings) == 0 {
		return protocol.Resharding{}, fmt.Errorf("reshardings of %s: %d, %w", l.stream, len(list.Reshardings), err)
	}
	return list.Reshardings[0], nil
}

// waits is until the newest resharding is in a phase and says a text as what it waits for, or
// as what it ended of.
func (l *lab) waits(phase protocol.Phase, text string) {
	l.t.Helper()
	l.until(fmt.Sprintf("%s with %q", phase, text), func() (string, bool) {
		r, err := l.last()
		if err != nil {
			return err.Error(), false
		}
		said := strings.Join(append(r.WaitingFor, r.Error), "; ")
		return fmt.Sprintf("%s %s", r.Phase, said), r.Phase == phase && strings.Contains(said, text)
	})
}

// at is until the stream is at rest with that many shards, open and converged.
func (l *lab) at(shards int) {
	l.t.Helper()
	l.until(fmt.Sprintf("%d shards, open", shards), func() (string, bool) {
		s, err := l.api.Stream(l.t.Context(), l.stream)
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%+v", s.Status), s.Status.ShardCount == shards && s.Status.PublishState == protocol.PublishOpen && s.Status.ActiveReshardingID == ""
	})
}

// says is until the Converged condition has the text, or has it no more.
func (l *lab) says(text string, does bool) {
	l.t.Helper()
	l.until(fmt.Sprintf("the stream says %q: %t", text, does), func() (string, bool) {
		s, err := l.api.Stream(l.t.Context(), l.stream)
		if err != nil {
			return err.Error(), false
		}
		return s.Status.Conditions[0].Message, strings.Contains(s.Status.Conditions[0].Message, text) == does
	})
}

func (l *lab) key(shard int) string { return protocol.ShardKey(l.stream, shard) }

// must checks a Redis command.
func (l *lab) must(cmd redis.Cmder) {
	l.t.Helper()
	if err := cmd.Err(); err != nil {
		l.t.Fatalf("%v: %v", cmd.Args(), err)
	}
}

func (l *lab) add(shard int, id string) {
	l.t.Helper()
	l.must(l.rdb.XAdd(l.t.Context(), &redis.XAddArgs{Stream: l.key(shard), ID: id, Values: []string{"body", "x"}}))
}

// read reads everything that is new on a shard, and acknowledges it if asked to.
func (l *lab) read(shard int, ack bool) {
	l.t.Helper()
	ctx := l.t.Context()
	got, err := l.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "billing", Consumer: "by-hand", Streams: []string{l.key(shard), ">"}, Block: -1}).Result()
	if err != nil {
		l.t.Fatalf("read of shard %d: %v", shard, err)
	}
	for _, m := range got[0].Messages {
		if ack {
			l.must(l.rdb.XAck(ctx, l.key(shard), "billing", m.ID))
		}
	}
}

// restart starts the coordinator again, with or without a fault.
func (l *lab) restart(fault string) {
	l.t.Helper()
	l.coord.kill()
	l.coord.conf.Env = []string{"RSC_KEY_PREFIX=" + coordPrefix, "RSC_FAULT=" + fault}
	l.coord.start()
}

// dieAt asks for another shard count of a coordinator that dies at the fault, has something done
// meanwhile, and starts one without a fault.
func (l *lab) dieAt(fault string, shards int64, policy protocol.ReshardingPolicy, meanwhile func()) {
	l.t.Helper()
	l.restart(fault)
	l.ask(shards, policy)
	l.coord.awaitDeath(30 * time.Second)
	meanwhile()
	l.coord.conf.Env = []string{"RSC_KEY_PREFIX=" + coordPrefix}
	l.coord.start()
}

// spare is a master that has neither the stream's record nor shard 0, but one of the shards from
// index from on, and that shard.
func (l *lab) spare(from, to int) (*redistest.Server, int) {
	l.t.Helper()
	record, zero := l.cluster.Master(l.t, "{"+l.stream+"}"), l.cluster.Master(l.t, l.key(0))
	for i := from; i < to; i++ {
		if m := l.cluster.Master(l.t, l.key(i)); m != record && m != zero {
			return m, i
		}
	}
	l.t.Fatalf("every shard of %s from %d to %d is on the node of its record or of shard 0", l.stream, from, to)
	return nil, 0
}

// stop freezes the spare master; its replica is the page's REPLICA.
func (l *lab) stop(from, to int) {
	l.t.Helper()
	node, shard := l.spare(from, to)
	l.env["REPLICA"], l.env["SHARD"] = l.cluster.ReplicaOf(l.t, node).URL(), fmt.Sprint(shard)
	l.away = node
	node.Pause(l.t)
	l.t.Cleanup(func() { l.back() })
}

// back lets the stopped node go on, and waits until it follows the one that took over.
func (l *lab) back() {
	if l.away == nil {
		return
	}
	node := l.away
	l.away = nil
	node.Continue(l.t)
	c := node.Client(l.t)
	deadline := time.Now().Add(60 * time.Second)
	for {
		info, err := c.Info(context.Background(), "replication").Result()
		if err == nil && strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up") {
			return
		}
		if time.Now().After(deadline) {
			l.t.Errorf("node %s does not come back as a replica: %v\n%s", node.Addr, err, info)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// claim is a member that never lets go of the shards that it has once been given, until stop.
func (l *lab) claim(shards int) (stop func()) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan struct{})
	have := make(chan struct{})
	go func() {
		defer close(ended)
		beat := protocol.HeartbeatRequest{
			ProtocolVersion: protocol.HeartbeatVersion, MemberID: "stubborn", Incarnation: strings.Repeat("1", 32),
			RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
			OwnedShards:             []protocol.Shard{}, RevokingShards: []protocol.RevokingShard{}, ShardProgress: []protocol.ShardProgress{},
		}
		for n := 0; ctx.Err() == nil; n++ {
			beat.RequestID = fmt.Sprint("beat-", n)
			resp, _, err := l.api.Heartbeat(ctx, l.stream, "billing", beat)
			if err == nil && resp.Status != protocol.StatusRetry {
				beat.MemberEpoch, beat.MetadataVersion = resp.MemberEpoch, resp.MetadataVersion
				if len(resp.Assignment.AssignedShards) > len(beat.OwnedShards) {
					beat.OwnedShards = resp.Assignment.AssignedShards
				}
				if len(beat.OwnedShards) == shards && have != nil {
					close(have)
					have = nil
				}
			}
			_ = pause(ctx, 200*time.Millisecond)
		}
	}()
	first := have
	select {
	case <-first:
	case <-time.After(60 * time.Second):
		l.t.Fatalf("the member has not got its %d shards in 60 s", shards)
	}
	return func() { cancel(); <-ended }
}

// consume runs a consumer until the test ends.
func (l *lab) consume() {
	l.t.Helper()
	c, err := consumer.New(consumer.Config{
		Client: l.api, Redis: l.rdb, StreamPrefix: l.stream, Group: "billing", MemberID: "worker", Logger: slog.New(slog.DiscardHandler),
		Handler: func(context.Context, consumer.Delivery) error { return nil },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx) }()
	l.t.Cleanup(func() { cancel(); <-ended })
}
