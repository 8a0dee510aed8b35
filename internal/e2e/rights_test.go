package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

// ordersStream is the stream that the rights in the documentation are for.
const ordersStream = "orders"

// documentedRights are the ACL SETUSER commands of docs/operating.md by user, as words.
func documentedRights(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	users := map[string][]string{}
	for _, block := range regexp.MustCompile("(?s)```redis\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			words := strings.Fields(line)
			if len(words) < 4 || words[0] != "ACL" || words[1] != "SETUSER" {
				t.Fatalf("docs/operating.md: no ACL SETUSER command: %q", line)
			}
			users[words[2]] = words
		}
	}
	for _, name := range []string{"coordinator", "consumer", "producer", "foreign"} {
		if users[name] == nil {
			t.Fatalf("docs/operating.md has no rights for a user %q", name)
		}
	}
	return users
}

// guarded is a Redis on which nobody may do anything but the users of the documentation, and one
// that the tests look with.
type guarded struct {
	t     *testing.T
	addr  string
	admin *redis.Client
	words map[string][]string
}

func startGuarded(t *testing.T, replicated bool) *guarded {
	t.Helper()
	var s *redistest.Server
	if replicated {
		s, _ = redistest.StartReplicated(t)
	} else {
		s = redistest.Start(t)
	}
	g := &guarded{t: t, addr: s.Addr, words: documentedRights(t)}
	first := s.Client(t)
	g.run(first, "ACL", "SETUSER", "root", "on", ">root", "~*", "&*", "+@all")
	for _, words := range g.words {
		g.run(first, words...)
	}
	g.admin = g.as("root")
	g.run(g.admin, "ACL", "SETUSER", "default", "off")
	return g
}

func (g *guarded) run(c *redis.Client, words ...string) {
	g.t.Helper()
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = w
	}
	if err := c.Do(g.t.Context(), args...).Err(); err != nil {
		g.t.Fatalf("%v: %v", words, err)
	}
}

// change gives or takes rights.
func (g *guarded) change(user string, rights ...string) {
	g.t.Helper()
	g.run(g.admin, append([]string{"ACL", "SETUSER", user}, rights...)...)
}

func (g *guarded) secret(user string) string {
	for _, word := range g.words[user] {
		if secret, ok := strings.CutPrefix(word, ">"); ok {
			return secret
		}
	}
	return user
}

func (g *guarded) as(user string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: g.addr, Username: user, Password: g.secret(user), MaxRetries: -1})
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// serve starts a coordinator with its documented user; logs are its warnings.
func (g *guarded) serve() (*server.Server, *observer.ObservedLogs, error) {
	g.t.Helper()
	core, logs := observer.New(zapcore.WarnLevel)
	s, err := server.New(server.Config{
		Listen: "127.0.0.1:0", RedisURL: fmt.Sprintf("redis://coordinator:%s@%s/0", g.secret("coordinator"), g.addr),
		AdminUsername: username, AdminPassword: password, TokenSecret: "a secret of the tests, 32 bytes or more",
		Logger: zap.New(core), StartTimeout: 3 * time.Second,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := s.Start(g.t.Context()); err != nil {
		return nil, logs, err
	}
	g.t.Cleanup(func() { g.stop(s) })
	return s, logs, nil
}

func (g *guarded) stop(s *server.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		g.t.Errorf("stop of the coordinator: %v", err)
	}
}

func (g *guarded) mustServe() *server.Server {
	g.t.Helper()
	s, logs, err := g.serve()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, entry := range logs.FilterMessage("redis configuration").All() {
		g.t.Errorf("the documented rights are warned about: %v", entry.ContextMap())
	}
	return s
}

// refusals are the entries of ACL LOG.
func (g *guarded) refusals() []string {
	g.t.Helper()
	list, err := g.admin.ACLLog(g.t.Context(), 100).Result()
	if err != nil {
		g.t.Fatal(err)
	}
	var texts []string
	for _, e := range list {
		texts = append(texts, fmt.Sprintf("%s: %s %s (%s), %d times", e.Username, e.Reason, e.Object, e.Context, e.Count))
	}
	return texts
}

func (g *guarded) lab(s *server.Server) *lab {
	return &lab{t: g.t, stream: ordersStream, rdb: g.admin, api: connect(g.t, s.URL())}
}

// TestRedisRights: with the rights that docs/operating.md gives, and no other, everything works,
// and nothing is refused; what they do not give is refused.
func TestRedisRights(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, true)
	s := g.mustServe()
	l := g.lab(s)
	declare(t, l.api, ordersStream, 2, protocol.ReshardingPolicy{})
	putGroup(t, l.api, ordersStream, "g", protocol.GroupSpec{MemberLeaseMs: 2500, HeartbeatIntervalMs: 500})
	tr := startTraffic(t, g.as("producer"), ordersStream, "g", trafficConfig{producers: 2, consumers: 2, keys: 20, perSecond: 100, consumersRedis: g.as("consumer")},
		func() *client.Client { return connect(t, s.URL()) })
	for _, to := range []int64{4, 1} {
		from := tr.book.Count().Handled
		tr.until("traffic", 60*time.Second, func(t ledger.Tally) bool { return t.Handled > from+20 })
		done := declare(t, l.api, ordersStream, to, protocol.ReshardingPolicy{Retire: protocol.RetireArchive})
		if done.Certificate == nil || done.Certificate.Barrier != "XSETID" || done.Certificate.ConfirmedReplicas != 1 {
			t.Errorf("certificate of the change to %d: %+v", to, done.Certificate)
		}
		if _, err := l.api.RecheckResharding(t.Context(), ordersStream, done.ReshardingID); err != nil {
			t.Errorf("re-check: %v", err)
		}
	}
	tr.finish()
	g.look(l)
	g.retain(l)
	g.overdue(l, s)

	if err := g.as("foreign").XAdd(t.Context(), &redis.XAddArgs{Stream: l.key(0), Values: []string{"a", "b"}}).Err(); err != nil {
		t.Errorf("a producer that is not the SDK's: %v", err)
	}
	s = g.mustServe()
	l.api = connect(t, s.URL())
	l.at(1)
	for _, group := range []string{"g", "late"} {
		if group == "g" { // the record is the coordinator's, and the other group is nobody's
			if err := l.api.DeleteGroup(t.Context(), ordersStream, group, protocol.DeleteGroupRequest{Force: true, RequestedBy: "e2e", Reason: "over"}, client.Call{}); err != nil {
				t.Errorf("deletion of group %s: %v", group, err)
			}
			continue
		}
		l.must(g.admin.XGroupDestroy(t.Context(), l.key(0), group))
	}
	if err := l.api.DeleteStream(t.Context(), ordersStream, protocol.DeleteStreamRequest{Force: true, Confirm: ordersStream, RequestedBy: "e2e", Reason: "over"}, client.Call{}); err != nil {
		t.Errorf("deletion of the stream: %v", err)
	}
	if refused := g.refusals(); len(refused) > 0 {
		t.Errorf("refused with the documented rights:\n%s", strings.Join(refused, "\n"))
	}
}

// look uses what only reads, and the operator's pause.
func (g *guarded) look(l *lab) {
	ctx, count := g.t.Context(), int64(3)
	_, pauseErr := l.api.PausePublishing(ctx, ordersStream, protocol.PauseRequest{TimeoutMs: 60_000, RequestedBy: "e2e", Reason: "try"}, client.Call{})
	_, resumeErr := l.api.ResumePublishing(ctx, ordersStream, protocol.ResumeRequest{RequestedBy: "e2e", Reason: "try"}, client.Call{})
	_, previewErr := l.api.PreviewStream(ctx, ordersStream, protocol.PutStreamRequest{ShardCount: &count}, client.Call{})
	_, retentionErr := l.api.Retention(ctx, ordersStream)
	_, auditErr := l.api.AuditEvents(ctx, client.AuditQuery{})
	_, streamsErr := l.api.Streams(ctx)
	_, groupsErr := l.api.Groups(ctx)
	if err := errors.Join(pauseErr, resumeErr, previewErr, retentionErr, auditErr, streamsErr, groupsErr); err != nil {
		g.t.Error(err)
	}
}

// retain has the coordinator trim what was acknowledged.
func (g *guarded) retain(l *lab) {
	one := int64(1)
	if _, err := l.api.PutStream(g.t.Context(), ordersStream, protocol.PutStreamRequest{ShardCount: &one, Retention: protocol.Retention{Policy: protocol.RetentionAcked}}, client.Call{}); err != nil {
		g.t.Fatal(err)
	}
	l.until("what was acknowledged is trimmed", func() (string, bool) {
		n, err := l.rdb.XLen(g.t.Context(), l.key(0)).Result()
		return fmt.Sprint(n, " entries, ", err), err == nil && n < 2
	})
}

// overdue has the only coordinator stop in a pause: first consumers end it when its time has
// passed, then, in another one, a producer. Also, a group is made while the shard is sealed.
func (g *guarded) overdue(l *lab, s *server.Server) {
	ctx := g.t.Context()
	// A consumer looks every 15 s, as long as it may take itself for the owner.
	putGroup(g.t, l.api, ordersStream, "g", protocol.GroupSpec{MemberLeaseMs: 60_000, HeartbeatIntervalMs: 3000})
	l.must(g.admin.XGroupCreate(ctx, l.key(0), "abandoned", "0"))
	quiet := slog.New(slog.DiscardHandler)
	sealed := func() (string, bool) {
		info, err := g.admin.XInfoStream(ctx, l.key(0)).Result()
		if err != nil {
			return err.Error(), false
		}
		return info.LastGeneratedID, info.LastGeneratedID == maxID
	}
	for _, who := range []string{"consumer", "producer"} {
		if s == nil {
			s = g.mustServe()
			l.api = connect(g.t, s.URL())
			l.at(1)
		}
		one, err := producer.New(producer.Config{Client: l.api, Redis: g.as("producer"), StreamPrefix: ordersStream, ProducerID: who, Logger: quiet})
		if err != nil {
			g.t.Fatal(err)
		}
		one.Start()
		if _, err := one.Append(ctx, "key", producer.Fields{"key", "1", "number", "1"}); err != nil { // what the group never reads
			g.t.Fatalf("append: %v", err)
		}
		reading, stopReading := context.WithCancel(ctx)
		ended := make(chan error, 1)
		if who == "consumer" {
			c, err := consumer.New(consumer.Config{
				Client: l.api, Redis: g.as("consumer"), StreamPrefix: ordersStream, Group: "g", MemberID: "idle", Logger: quiet,
				Handler: func(context.Context, consumer.Delivery) error { return nil },
			})
			if err != nil {
				g.t.Fatal(err)
			}
			go func() { ended <- c.Run(reading) }()
			l.until("the consumer has read the entry", func() (string, bool) {
				groups, err := g.admin.XInfoGroups(ctx, l.key(0)).Result()
				return fmt.Sprint(groups, err), err == nil && slices.ContainsFunc(groups, func(i redis.XInfoGroup) bool {
					return i.Name == "g" && i.LastDeliveredID != "0-0" && i.Pending == 0 && i.Lag == 0
				})
			})
		} else {
			close(ended)
		}
		l.ask(2, protocol.ReshardingPolicy{PauseTimeoutMs: 4000})
		l.waits(protocol.PhaseDraining, "group abandoned has")
		if who == "consumer" {
			l.must(g.admin.XGroupCreate(ctx, l.key(0), "late", "$")) // deaf, were it not set back with the shard
		}
		g.stop(s)
		s = nil
		if who == "producer" {
			within, cancel := context.WithTimeout(ctx, 60*time.Second)
			if _, err := one.Append(within, "key", producer.Fields{"key", "1", "number", "2"}); err != nil {
				g.t.Errorf("append after the pause, without a coordinator: %v", err)
			}
			cancel()
		} else {
			l.until("the consumer ends the pause", func() (string, bool) {
				last, is := sealed()
				return last, !is
			})
		}
		stopReading()
		<-ended
		within, cancel := context.WithTimeout(ctx, 30*time.Second)
		if err := one.Close(within); err != nil {
			g.t.Errorf("close: %v", err)
		}
		cancel()
	}
	l.must(g.admin.XGroupDestroy(ctx, l.key(0), "abandoned"))
}

// TestRedisRightsAreFew: no user has a right that nothing of its kind of client uses, and what each
// must not do is refused.
func TestRedisRightsAreFew(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, false)
	ctx := t.Context()
	l := g.lab(g.mustServe())
	declare(t, l.api, ordersStream, 2, protocol.ReshardingPolicy{})
	putGroup(t, l.api, ordersStream, "g", protocol.GroupSpec{})
	control, record := "{"+l.key(0)+"}:control", coordPrefix+":{"+ordersStream+"}:stream"
	for _, c := range []struct{ user, command string }{
		{"producer", "DEL " + l.key(0)}, {"producer", "UNLINK " + l.key(0)}, {"producer", "RENAME " + l.key(0) + " x"},
		{"producer", "XTRIM " + l.key(0) + " MAXLEN 0"}, {"producer", "XGROUP DESTROY " + l.key(0) + " g"}, {"producer", "XACK " + l.key(0) + " g 0-1"},
		{"producer", "DEL " + control}, {"producer", "HGETALL " + record}, {"producer", "HSET " + record + " rev 1"}, {"producer", "FLUSHALL"},
		{"producer", "PUBLISH " + coordPrefix + ":{" + ordersStream + "}:commits x"},
		{"consumer", "HSET " + record + " rev 1"}, {"consumer", "DEL " + record}, {"consumer", "HGETALL " + record},
		{"consumer", "DEL " + l.key(0)}, {"consumer", "XADD " + l.key(0) + " * a b"}, {"consumer", "XGROUP DESTROY " + l.key(0) + " g"}, {"consumer", "XTRIM " + l.key(0) + " MAXLEN 0"},
		{"consumer", "ACL SETUSER consumer +@all"}, {"coordinator", "ACL SETUSER coordinator +@all"}, {"coordinator", "GET other:key"}, {"coordinator", "CONFIG SET maxmemory 1"}, {"coordinator", "FLUSHALL"},
		{"foreign", "HSET " + control + " epoch 9"}, {"foreign", "HGETALL " + control}, {"foreign", "DEL " + l.key(0)}, {"foreign", "XREADGROUP GROUP g c STREAMS " + l.key(0) + " >"},
	} {
		var args []any
		for word := range strings.FieldsSeq(c.command) {
			args = append(args, word)
		}
		if err := g.as(c.user).Do(ctx, args...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%s may run %s: %v", c.user, c.command, err)
		}
	}
	for _, user := range []string{"producer", "consumer"} { // not by a script either
		err := g.as(user).Eval(ctx, "return redis.call('DEL', KEYS[1])", []string{l.key(0)}).Err()
		if err == nil || !strings.Contains(err.Error(), "user executing the script") && !strings.Contains(err.Error(), "ACL failure") {
			t.Errorf("a script of the %s deletes a shard: %v", user, err)
		}
	}
	if n, err := g.admin.Exists(ctx, l.key(0), control, record).Result(); n != 3 || err != nil {
		t.Errorf("%d of shard, control hash and record are left: %v", n, err)
	}

	inLua := func(used map[string]bool, lua string) {
		for _, m := range regexp.MustCompile(`call\('(\w+)'(?:, '(\w+)')?`).FindAllStringSubmatch(lua, -1) {
			used[strings.ToLower(m[1])] = true
			used[strings.ToLower(m[1]+"|"+m[2])] = true
		}
	}
	uses := func(direct string, scripts ...shardscript.Name) map[string]bool {
		used := map[string]bool{"eval": true, "evalsha": true}
		for name := range strings.FieldsSeq(direct) {
			used[name] = true
		}
		for _, name := range scripts {
			inLua(used, shardscript.Source(name))
		}
		return used
	}
	ofCoordinator := uses("publish", shardscript.Names()...) // PUBLISH or SPUBLISH is an argument
	for _, point := range faultpoint.Points {
		ofCoordinator[strings.ToLower(strings.ReplaceAll(point.Name, " ", "|"))] = true
	}
	files, err := filepath.Glob("../../server/redisstore/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts of the coordinator: %v", err)
	}
	for _, file := range files {
		lua, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		inLua(ofCoordinator, string(lua))
	}
	for user, used := range map[string]map[string]bool{
		"producer": uses("xadd hgetall info wait", shardscript.Append, shardscript.Resolve, shardscript.Bring),
		"consumer": uses("hgetall info wait xread xreadgroup client|id client|unblock", shardscript.Takeover, shardscript.CheckAck, shardscript.DeleteConsumer, shardscript.MkGroup, shardscript.Append, shardscript.Resolve, shardscript.Bring),
		"foreign":  uses("xadd"), "coordinator": ofCoordinator,
	} {
		for _, word := range g.words[user] {
			if right, ok := strings.CutPrefix(word, "+"); ok && !used[right] {
				t.Errorf("docs/operating.md gives the %s %s, which it does not use", user, right)
			}
		}
	}
}

// TestRedisRightMissing: what is missing is named, with its key, at the start or at first use, and
// holds up nothing once it is there.
func TestRedisRightMissing(t *testing.T) {
	t.Parallel()
	t.Run("at the start", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			rights []string
			says   string
		}{
			{[]string{"-info"}, "INFO|'info' command"},
			{[]string{"-evalsha", "-eval"}, "evalsha"},
			{[]string{"-hset"}, `may not run .*HSET on redis-stream:coord:\{\*\}:stream`},
			{[]string{"resetkeys", "~redis-stream:coord:*"}, `may not run GET on \{redis-stream:coord:audit\}-head`},
			{[]string{"resetchannels"}, `may not run .*SUBSCRIBE on redis-stream:coord:\{\*\}:commits`},
		} {
			t.Run(strings.Join(c.rights, " "), func(t *testing.T) {
				t.Parallel()
				g := startGuarded(t, false)
				g.change("coordinator", c.rights...)
				if _, _, err := g.serve(); err == nil || !regexp.MustCompile(c.says).MatchString(err.Error()) {
					t.Errorf("the start without %v: %v", c.rights, err)
				}
			})
		}
	})
	waits := func(t *testing.T, replicated bool, phase protocol.Phase, takes, gives, warns, says string) {
		t.Parallel()
		g := startGuarded(t, replicated)
		g.change("coordinator", takes)
		s, logs, err := g.serve()
		if err != nil {
			t.Fatal(err)
		}
		var warned []string
		for _, entry := range logs.FilterMessage("redis configuration").All() {
			warned = append(warned, fmt.Sprint(entry.ContextMap()["warning"]))
		}
		if !strings.Contains(strings.Join(warned, "\n"), warns) {
			t.Errorf("at the start it warns %q, not %q", warned, warns)
		}
		l := g.lab(s)
		l.ask(2, protocol.ReshardingPolicy{})
		l.waits(phase, says)
		g.change("coordinator", gives)
		l.at(2)
	}
	t.Run("XGROUP", func(t *testing.T) {
		waits(t, false, protocol.PhaseProvisioning, "-xgroup|create", "+xgroup|create", "may not run XGROUP CREATE", "may not run XGROUP CREATE on orders:0")
	})
	t.Run("WAIT", func(t *testing.T) {
		waits(t, true, protocol.PhaseProvisioning, "-wait", "+wait", "may not run WAIT", "PROVISION of shard 0: no replica has confirmed it yet (WAIT was refused: NOPERM")
	})
	t.Run("a key", func(t *testing.T) {
		t.Parallel()
		g := startGuarded(t, false)
		g.change("coordinator", "resetkeys", "~redis-stream:coord:*", "~{redis-stream:coord:audit}-head", "~orders:*")
		l := g.lab(g.mustServe())
		l.ask(2, protocol.ReshardingPolicy{})
		l.waits(protocol.PhaseProvisioning, "HGETALL on {orders:0}:control")
		g.change("coordinator", "~{orders:*}:control", "~{orders:*}:archived:*")
		l.at(2)
	})
}

// TestRedisRightLostMidway: a right that goes while the groups drain holds the change up, with the
// reason; it goes on when the right is back, and is rolled back at its deadline if it is not.
func TestRedisRightLostMidway(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, pauseTimeout int64) (*guarded, *lab) {
		g := startGuarded(t, false)
		l := g.lab(g.mustServe())
		l.make(2)
		for range 3 {
			l.add(0, "*")
		}
		l.ask(3, protocol.ReshardingPolicy{PauseTimeoutMs: pauseTimeout})
		l.waits(protocol.PhaseDraining, "shard 0: group billing has 3 undelivered")
		return g, l
	}
	unread := func(t *testing.T, l *lab, want int) {
		t.Helper()
		got, err := l.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "billing", Consumer: "by-hand", Streams: []string{l.key(0), ">"}, Block: -1}).Result()
		if err != nil || len(got) != 1 || len(got[0].Messages) != want {
			t.Errorf("%d entries are to be left: %v, %v", want, got, err)
		}
	}
	t.Run("it comes back", func(t *testing.T) {
		t.Parallel()
		g, l := begin(t, 80_000)
		g.change("coordinator", "-xinfo|groups")
		l.waits(protocol.PhaseDraining, "the redis user may not run XINFO GROUPS on orders:0")
		g.change("coordinator", "+xinfo|groups")
		l.waits(protocol.PhaseDraining, "shard 0: group billing has 3 undelivered")
		l.read(0, true)
		l.at(3)
		if r, err := l.last(); err != nil || r.Phase != protocol.PhaseCompleted || r.Certificate == nil {
			t.Errorf("ended as %+v: %v", r, err)
		}
	})
	t.Run("it does not", func(t *testing.T) {
		t.Parallel()
		g, l := begin(t, 10_000)
		one, err := l.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "billing", Consumer: "by-hand", Streams: []string{l.key(0), ">"}, Count: 1, Block: -1}).Result()
		if err != nil {
			t.Fatal(err)
		}
		l.must(l.rdb.XAck(t.Context(), l.key(0), "billing", one[0].Messages[0].ID))
		g.change("coordinator", "-xrange") // of the evidence, not of what a rollback does
		l.waits(protocol.PhaseDraining, "the redis user may not run XRANGE on orders:0")
		l.waits(protocol.PhaseRolledBack, "pause timeout of 10s passed in DRAINING: shard 0: blocked: evidence unknown (no answer: the redis user may not run XRANGE")
		l.at(2)
		l.add(1, "*")
		unread(t, l, 2)
	})
	t.Run("nor what a rollback needs", func(t *testing.T) {
		t.Parallel()
		g, l := begin(t, 4000)
		g.change("coordinator", "-xinfo")
		l.waits(protocol.PhaseRollingBack, "no answer to RELEASE: the redis user may not run XINFO STREAM on orders:0")
		g.change("coordinator", "+xinfo|groups", "+xinfo|stream")
		l.waits(protocol.PhaseRolledBack, "")
		l.at(2)
		l.add(1, "*")
		unread(t, l, 3)
	})
}

// TestRedisRightsOnACluster: with what the documentation adds for a cluster, everything works there.
func TestRedisRightsOnACluster(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| (`command`[^|]*(?:\\\\\\|[^|]*)*)\\| needed on a cluster \\|$").FindSubmatch(page)
	if row == nil {
		t.Fatal("docs/operating.md has no row of what is needed on a cluster")
	}
	ofAll, ofCoordinator, _ := strings.Cut(string(row[1]), " of all three; ")
	ofCoordinator, _, _ = strings.Cut(ofCoordinator, " in place of ")
	more := func(text string) (rights []string) {
		for _, m := range regexp.MustCompile("`([a-z\\\\|]+)`").FindAllStringSubmatch(text, -1) {
			rights = append(rights, "+"+strings.ReplaceAll(m[1], `\`, ""))
		}
		return rights
	}
	cluster := redistest.SharedCluster(t)
	prefix, keyPrefix := redistest.Prefix(t), redistest.KeyPrefix(t)
	words := documentedRights(t)
	names := map[string]string{}
	for user, list := range words {
		names[user] = user + "-" + prefix
		line := strings.NewReplacer("redis-stream:coord", keyPrefix, "orders", prefix).Replace(strings.Join(list[3:], " "))
		rights := append(strings.Fields(line), more(ofAll)...)
		if user == "coordinator" {
			rights = append(rights, more(ofCoordinator)...)
			rights = append(rights, "-subscribe", "-unsubscribe", "-publish")
		}
		args := []any{"ACL", "SETUSER", names[user]}
		for _, right := range rights {
			args = append(args, right)
		}
		for _, node := range cluster.Nodes {
			if err := node.Client(t).Do(t.Context(), args...).Err(); err != nil {
				t.Fatalf("%v: %v", args, err)
			}
		}
	}
	secret := func(user string) string {
		i := slices.IndexFunc(words[user], func(word string) bool { return strings.HasPrefix(word, ">") })
		return words[user][i][1:]
	}
	as := func(user string) redis.UniversalClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: names[user], Password: secret(user), MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	s := startServer(t, fmt.Sprintf("redis+cluster://%s:%s@%s", names["coordinator"], secret("coordinator"), strings.Join(cluster.Addrs(), ",")), keyPrefix)
	api := connect(t, s.URL())
	declare(t, api, prefix, 2, protocol.ReshardingPolicy{})
	putGroup(t, api, prefix, "g", protocol.GroupSpec{MemberLeaseMs: 2500, HeartbeatIntervalMs: 500})
	tr := startTraffic(t, as("producer"), prefix, "g", trafficConfig{producers: 1, consumers: 2, keys: 20, perSecond: 60, consumersRedis: as("consumer")},
		func() *client.Client { return connect(t, s.URL()) })
	for _, to := range []int64{4, 1} {
		from := tr.book.Count().Handled
		tr.until("traffic", 60*time.Second, func(t ledger.Tally) bool { return t.Handled > from+20 })
		declare(t, api, prefix, to, protocol.ReshardingPolicy{})
	}
	tr.finish()
	if err := api.DeleteGroup(t.Context(), prefix, "g", protocol.DeleteGroupRequest{Force: true, RequestedBy: "e2e", Reason: "over"}, client.Call{}); err != nil {
		t.Errorf("deletion of the group: %v", err)
	}
	if err := api.DeleteStream(t.Context(), prefix, protocol.DeleteStreamRequest{Force: true, Confirm: prefix, RequestedBy: "e2e", Reason: "over"}, client.Call{}); err != nil {
		t.Errorf("deletion of the stream: %v", err)
	}
	for _, node := range cluster.Nodes {
		list, err := node.Client(t).ACLLog(t.Context(), 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if strings.HasSuffix(e.Username, prefix) {
				t.Errorf("refused with the documented rights: %s: %s %s (%s)", e.Username, e.Reason, e.Object, e.Context)
			}
		}
	}
}
