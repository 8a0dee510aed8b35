package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const (
	passChunk      = 500 // steps of one pipeline
	passPipelines  = 4   // of one node at once: while it runs one the next is made, or waits for replicas
	confirmTimeout = 500 * time.Millisecond
	// A slot that moves or a cluster that settles is given this many tries; then the step is unknown.
	passAttempts = 6
	passBackoff  = 15 * time.Millisecond
	// What a user may not do is looked up for so many steps of a pipeline: texts list no more.
	mostExplained = 20
)

// shardScripts are the coordinator's scripts with their digests.
var shardScripts = func() map[shardscript.Name]*redis.Script {
	all := map[shardscript.Name]*redis.Script{}
	for _, name := range shardscript.Names() {
		all[name] = redis.NewScript(shardscript.Source(name))
	}
	return all
}()

// pass is one run of RunPass.
type pass struct {
	s        *Store
	prefix   string
	revision int64
	// checked is when the aggregate's revision was last proven current, on the local clock: the
	// effect lease counts from then, on the clock of each node.
	checked time.Duration
	// origin is the clock of the stream's node, in whose time the steps' own limits are.
	origin clock
	awaits bool // the replicas have to confirm the stage that runs

	mu     sync.Mutex // guards all below
	result stream.PassResult
	lost   bool // a node did not answer: perhaps its slots have moved
}

// RunPass runs the stages of p on the shards of prefix. revision is the stream aggregate's,
// checkedAt the time (of the stream's node) at which that revision was last proven current:
// scripts carry notAfter = checkedAt + EffectLease in the time of each shard's node. It never
// fails as a whole: a step that got no answer has Code ""; a stage that was not begun has no
// replies.
func (s *Store) RunPass(ctx context.Context, prefix string, revision int64, checkedAt protocol.Instant, p stream.Pass) stream.PassResult {
	run := &pass{s: s, prefix: prefix, revision: revision, result: stream.PassResult{Pass: p, Confirmed: -1}}
	if err := run.start(ctx, checkedAt); err != nil {
		if len(p.Stages) > 0 {
			run.unanswered(p.Stages[0], err)
		}
		run.result.Unconfirmed = p.Confirm || p.ConfirmFirst
		return run.result
	}
	for i, steps := range p.Stages {
		run.awaits = p.Confirm || p.ConfirmFirst && i == 0
		if !run.stage(ctx, steps) || run.result.Unconfirmed {
			break
		}
	}
	if c, ok := s.cluster(); ok && run.lost {
		c.ReloadState(ctx) // for the next pass
	}
	return run.result
}

// start fixes the instants that the pass counts from.
func (r *pass) start(ctx context.Context, checkedAt protocol.Instant) error {
	origin, ok := r.s.clocks.get(r.s.clocks.origin, r.prefix)
	if !ok {
		if _, err := r.s.SampleTime(ctx, r.prefix); err != nil {
			return err
		}
		origin, _ = r.s.clocks.get(r.s.clocks.origin, r.prefix)
	}
	r.origin = origin
	local := r.s.clocks.local()
	r.result.StartedAt = origin.now(local)
	// Never later than now: the caller cannot have checked in the future.
	r.checked = min(r.localOf(checkedAt), local)
	return nil
}

// localOf converts an instant of the stream's node.
func (r *pass) localOf(at protocol.Instant) time.Duration {
	return time.Duration((float64(at) - r.origin.offset) * float64(time.Millisecond))
}

// unanswered records steps that were not run, or got no answer.
func (r *pass) unanswered(steps []stream.Step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var answer redis.Error
	r.lost = r.lost || len(steps) > 0 && !errors.As(err, &answer)
	for _, st := range steps {
		r.result.Replies = append(r.result.Replies, stream.Reply{Step: st, Err: err.Error()})
	}
}

// stage runs steps, and says whether all were done.
func (r *pass) stage(ctx context.Context, steps []stream.Step) bool {
	first := len(r.result.Replies)
	open := steps
	for attempt := range passAttempts {
		if attempt > 0 {
			if !r.settleDown(ctx, attempt) {
				break
			}
		}
		if open = r.try(ctx, open); len(open) == 0 {
			break
		}
	}
	r.unanswered(open, fmt.Errorf("the cluster did not settle"))
	done := true
	for _, reply := range r.result.Replies[first:] {
		done = done && (reply.Code == shardscript.OK || reply.Code == shardscript.Decided)
	}
	return done
}

// settleDown waits a little and asks the cluster where the slots are now.
func (r *pass) settleDown(ctx context.Context, attempt int) bool {
	t := time.NewTimer(time.Duration(attempt) * passBackoff)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	}
	if c, ok := r.s.cluster(); ok {
		c.ReloadState(ctx)
	}
	return true
}

// try sends every step to the node of its shard and returns those that are to be tried again.
func (r *pass) try(ctx context.Context, steps []stream.Step) (again []stream.Step) {
	nodes, by := map[string]*redis.Client{}, map[string][]stream.Step{}
	for _, st := range steps {
		node, err := r.s.nodeOf(ctx, protocol.ShardKey(r.prefix, st.Index))
		if err != nil {
			again = append(again, st)
			continue
		}
		addr := node.Options().Addr
		nodes[addr] = node
		by[addr] = append(by[addr], st)
	}
	var wg sync.WaitGroup
	for addr, list := range by {
		wg.Go(func() {
			left := r.onNode(ctx, nodes[addr], list)
			r.mu.Lock()
			again = append(again, left...)
			r.mu.Unlock()
		})
	}
	wg.Wait()
	return again
}

// onNode runs steps on one node, in pipelines.
func (r *pass) onNode(ctx context.Context, node *redis.Client, steps []stream.Step) (again []stream.Step) {
	addr := node.Options().Addr
	known, ok := r.s.clocks.get(r.s.clocks.node, addr)
	if !ok {
		var err error
		if known, err = r.s.sampleNode(ctx, node); err != nil {
			r.unanswered(steps, err)
			r.unconfirmed()
			return nil
		}
	}
	replicas := 0
	if r.awaits {
		var err error
		if replicas, err = r.replicas(ctx, node); err != nil {
			r.unanswered(steps, err)
			r.unconfirmed()
			return nil
		}
	}
	chunks := slices.Collect(slices.Chunk(steps, passChunk))
	left := make([][]stream.Step, len(chunks))
	room := make(chan struct{}, passPipelines)
	var wg sync.WaitGroup
	for i, chunk := range chunks {
		room <- struct{}{}
		wg.Go(func() {
			left[i] = r.pipeline(ctx, node, known, replicas, chunk)
			<-room
		})
	}
	wg.Wait()
	return slices.Concat(left...)
}

// replicas is how many of them have to confirm, 0 for none.
func (r *pass) replicas(ctx context.Context, node *redis.Client) (int, error) {
	if r.s.cfg.WaitReplicas > 0 {
		return r.s.cfg.WaitReplicas, nil
	}
	info, err := node.Info(ctx, "replication").Result()
	if err != nil {
		return 0, fmt.Errorf("replicas of node %s: %w", node.Options().Addr, err)
	}
	return min(1, onlineReplicas(info)), nil
}

func (r *pass) unconfirmed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Unconfirmed = r.result.Unconfirmed || r.awaits
}

// pipeline sends steps in one pipeline, and behind them, on the same connection, the wait for
// the replicas: on another connection it would confirm nothing (1.8).
func (r *pass) pipeline(ctx context.Context, node *redis.Client, known clock, replicas int, steps []stream.Step) (again []stream.Step) {
	unloaded := r.send(ctx, node, known, replicas, steps, &again)
	if len(unloaded) == 0 {
		return again
	}
	if err := load(ctx, node, unloaded); err != nil {
		r.unanswered(unloaded, err)
		r.unconfirmed()
		return again
	}
	left := r.send(ctx, node, known, replicas, unloaded, &again)
	return append(again, left...)
}

// load makes the scripts of steps known to a node.
func load(ctx context.Context, node *redis.Client, steps []stream.Step) error {
	done := map[shardscript.Name]bool{}
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, st := range steps {
			if !done[st.Script] {
				done[st.Script] = true
				p.ScriptLoad(ctx, shardscript.Source(st.Script))
			}
		}
		return nil
	})
	return err
}

// send is one pipeline. It returns the steps whose script the node does not know.
func (r *pass) send(ctx context.Context, node *redis.Client, known clock, replicas int, steps []stream.Step, again *[]stream.Step) (unloaded []stream.Step) {
	p := node.Pipeline()
	cmds := make([]*redis.Cmd, len(steps))
	for i, st := range steps {
		cmds[i] = shardScripts[st.Script].EvalSha(ctx, p, r.keys(st), r.arguments(st, known).Args()...)
	}
	var wait *redis.Cmd
	if replicas > 0 {
		wait = p.Do(ctx, "WAIT", replicas, confirmTimeout.Milliseconds())
	}
	sent := r.s.clocks.local()
	_, _ = p.Exec(ctx) // every command carries its own error
	var sample protocol.Instant
	explained := 0
	for i, cmd := range cmds {
		st := steps[i]
		v, err := cmd.Result()
		switch {
		case err == nil:
			if at := r.take(st, v); sample == 0 {
				sample = at
			}
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unloaded = append(unloaded, st)
		case redis.HasErrorPrefix(err, "ASK"):
			r.asking(ctx, st, known, again)
		case transient(err):
			*again = append(*again, st)
		default:
			if lacksRight(err) && explained < mostExplained {
				explained++
				err = r.s.explainShard(ctx, err, r.prefix, st.Index)
			}
			r.unanswered([]stream.Step{st}, err)
		}
	}
	if sample != 0 && wait == nil { // behind a wait the round trip says little
		r.s.clocks.observeNode(node.Options().Addr, sample, sent)
	}
	if r.awaits && len(unloaded) < len(steps) {
		r.confirm(wait, replicas)
	}
	return unloaded
}

// transient says whether a cluster refuses the script for now. It was not run.
func transient(err error) bool {
	for _, prefix := range []string{"MOVED", "TRYAGAIN", "CLUSTERDOWN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// asking runs a step whose slot is on its way to another node, with the client's own redirection.
// The wait for replicas went to another connection, so that nothing is confirmed.
func (r *pass) asking(ctx context.Context, st stream.Step, known clock, again *[]stream.Step) {
	r.unconfirmed()
	v, err := r.s.cfg.Client.Eval(ctx, shardscript.Source(st.Script), r.keys(st), r.arguments(st, known).Args()...).Result()
	switch {
	case err == nil:
		r.take(st, v)
	case transient(err):
		*again = append(*again, st)
	default:
		r.unanswered([]stream.Step{st}, err)
	}
}

// confirm takes the answer of WAIT.
func (r *pass) confirm(wait *redis.Cmd, replicas int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	if wait != nil {
		var err error
		if n, err = wait.Int(); err != nil || n < replicas {
			r.result.Unconfirmed = true
		}
		if lacksRight(err) {
			r.result.NotConfirmed = err.Error()
		}
	}
	switch {
	case wait == nil && r.result.Confirmed < 0: // still: none connected, none required
	case r.result.Confirmed < 0:
		r.result.Confirmed = n
	default:
		r.result.Confirmed = min(r.result.Confirmed, n)
	}
}

func (r *pass) keys(st stream.Step) []string {
	return []string{protocol.ShardKey(r.prefix, st.Index), protocol.ControlKey(r.prefix, st.Index)}
}

// arguments are those of the script; notAfter is in the time of the node. Half a round trip is
// what the node's clock may be off: the lease must rather end early.
func (r *pass) arguments(st stream.Step, known clock) shardscript.Arguments {
	limit := r.checked + EffectLease
	if st.NotAfter != 0 {
		limit = min(limit, r.localOf(st.NotAfter))
	}
	var owner *shardscript.Owner
	if st.Outbid != 0 {
		owner = &shardscript.Owner{Epoch: st.Outbid}
	}
	return shardscript.Arguments{
		Revision: r.revision, ID: st.ID, NotAfter: int64(known.now(limit - known.rtt/2)),
		Epoch: st.Epoch, Count: st.Count, ToEpoch: st.ToEpoch, ToCount: st.ToCount, Index: st.Index,
		Until: int64(st.Until), Hold: int64(st.Hold), High: st.High, Groups: st.Groups, Ignored: st.Ignored,
		Quiesced: st.Quiesced, Drained: st.Drained, Archive: st.Archive, Start: st.Start, Most: st.Most, LastID: st.LastID,
		Owner: owner, Policy: string(st.Retention.Policy), MaxAge: st.Retention.MaxAgeMs, MaxLen: st.Retention.MaxLen,
	}
}

// take records a reply and returns the time in it.
func (r *pass) take(st stream.Step, v any) protocol.Instant {
	answer, err := shardscript.ParseReply(v)
	if err != nil {
		r.unanswered([]stream.Step{st}, fmt.Errorf("%s of shard %d: %w", strings.ToLower(string(st.Script)), st.Index, err))
		return 0
	}
	if answer.Code == shardscript.Damaged { // as if there were no answer: nothing is known of the shard
		r.mu.Lock()
		defer r.mu.Unlock()
		r.result.Replies = append(r.result.Replies, stream.Reply{Step: st, Err: stream.ControlDamaged(protocol.ControlKey(r.prefix, st.Index), answer.Error)})
		return 0
	}
	reply := stream.Reply{
		Step: st, Code: answer.Code, At: protocol.Instant(answer.At), Err: answer.Error,
		Control: controlOf(answer), Evidence: evidenceOf(st, answer),
		Removed: answer.Removed, Unacked: answer.Unacked, More: answer.More,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Replies = append(r.result.Replies, reply)
	if answer.Barrier != "" && r.result.Barrier != stream.BarrierLease {
		r.result.Barrier = answer.Barrier
	}
	return reply.At
}

func controlOf(a shardscript.Reply) stream.Control {
	c := a.Control
	return stream.Control{
		Present: c.Present, Epoch: c.Epoch, Count: c.Count, HasEpoch: c.HasLayout, Rev: c.Rev, By: c.By, Gate: c.Gate,
		Until: protocol.Instant(c.Until), Hold: protocol.Instant(c.Hold), Aborted: c.Aborted, Retired: c.Retired, Purged: c.Purged, High: c.High,
		StreamExists: a.Exists, Sealed: a.Sealed, Length: a.Length, EntriesAdded: a.Added,
	}
}

func evidenceOf(st stream.Step, a shardscript.Reply) *protocol.ShardEvidence {
	if a.Verdict == "" {
		return nil
	}
	ev := &protocol.ShardEvidence{
		ShardIndex: st.Index, Sealed: a.Sealed, LastID: a.LastID, EntriesAdded: a.Added,
		Verdict: string(a.Verdict), Groups: make([]protocol.GroupEvidence, len(a.Groups)),
	}
	for i, g := range a.Groups {
		ev.Groups[i] = protocol.GroupEvidence{
			Group: g.Group, Pending: g.Pending, LastDeliveredID: g.LastDeliveredID, EntryAfter: g.EntryAfter,
			Undelivered: g.Undelivered, UndeliveredMore: g.UndeliveredMore, Lag: g.Lag, PossibleLoss: g.PossibleLoss,
			Trimmed: g.Trimmed, Gone: g.Gone, Ignored: g.Ignored,
		}
	}
	return ev
}
