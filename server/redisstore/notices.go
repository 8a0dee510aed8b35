package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
)

// Notice tells that a commit was made to a stream, by this replica or another.
type Notice struct {
	Prefix string
	Nonce  string
}

const (
	noticeQueue  = 1024
	pulse        = 5 * time.Second // silence after which a subscription is pinged; twice: it is given up
	firstRenewal = 50 * time.Millisecond
	lastRenewal  = 2 * time.Second
)

// notices keeps one subscription connection for each node that has a channel of a watched
// stream. One goroutine, run, owns the subscriptions; each of these has one that reads.
type notices struct {
	s      *Store
	out    chan Notice
	ctx    context.Context // ends with close; the lifetime is that of the Store
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // the watched set has changed

	mu      sync.Mutex // guards watched, started and closed
	watched map[string]bool
	started bool
	closed  bool
}

func newNotices(s *Store) *notices {
	n := &notices{s: s, out: make(chan Notice, noticeQueue), wake: make(chan struct{}, 1), watched: map[string]bool{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Notices delivers a Notice for every commit of a watched stream. The channel is closed by
// Close. A subscription that was made, or lost and renewed, is answered with a Notice with an
// empty Nonce for each of its streams: anything may have happened before.
func (s *Store) Notices() <-chan Notice { return s.notices.out }

// Watch and Unwatch choose the streams that Notices tells about.
func (s *Store) Watch(prefix string) { s.notices.watch(prefix, true) }

// Unwatch undoes Watch.
func (s *Store) Unwatch(prefix string) {
	s.notices.watch(prefix, false)
	s.clocks.forget(prefix)
	s.heads.forget(prefix)
	s.names.forget(prefix)
}

func (n *notices) watch(prefix string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if on {
		n.watched[prefix] = true
	} else {
		delete(n.watched, prefix)
	}
	if !n.started {
		n.started = true
		n.wg.Go(n.run)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// close ends everything and waits; then the channel is closed.
func (n *notices) close() {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	n.wg.Wait()
	close(n.out)
}

// subscription is one connection to one node.
type subscription struct {
	ps       *redis.PubSub
	channels map[string]bool // owned by run
	stop     chan struct{}   // closed by run: the reader is to end
	ended    chan struct{}   // closed by the reader: the connection is of no more use
}

// run brings the subscriptions in line with the watched set, and renews those that end.
func (n *notices) run() {
	subs := map[string]*subscription{} // by node address
	defer func() {
		for _, sub := range subs {
			sub.close()
		}
	}()
	lost := make(chan *subscription)
	delay := time.Duration(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.wake:
		case sub := <-lost:
			sub.close()
			for addr, s := range subs {
				if s == sub {
					delete(subs, addr)
				}
			}
			if c, ok := n.s.cluster(); ok {
				c.ReloadState(n.ctx)
			}
		case <-timer.C:
		}
		if err := n.align(subs, lost); err != nil && n.ctx.Err() == nil {
			delay = min(max(2*delay, firstRenewal), lastRenewal)
			n.s.log.Debug("subscribe to commits", zap.Error(err), zap.Duration("again", delay))
			if c, ok := n.s.cluster(); ok {
				c.ReloadState(n.ctx)
			}
			timer.Reset(delay)
		} else {
			delay = 0
		}
	}
}

// close gives the connection up and waits for the reader.
func (sub *subscription) close() {
	select {
	case <-sub.stop:
	default:
		close(sub.stop)
	}
	_ = sub.ps.Close() // it is given up either way
	<-sub.ended
}

// align subscribes to what is watched and not subscribed, and the other way round.
func (n *notices) align(subs map[string]*subscription, lost chan<- *subscription) error {
	missing := map[string]bool{} // channels
	n.mu.Lock()
	for prefix := range n.watched {
		missing[n.s.keys.channel(prefix)] = true
	}
	n.mu.Unlock()

	_, cluster := n.s.cluster()
	for addr, sub := range subs {
		for channel := range sub.channels {
			if missing[channel] {
				delete(missing, channel)
				continue
			}
			delete(sub.channels, channel)
			faultpoint.Hit("UNSUBSCRIBE")
			var err error
			if cluster {
				err = sub.ps.SUnsubscribe(n.ctx, channel)
			} else {
				err = sub.ps.Unsubscribe(n.ctx, channel)
			}
			if err != nil {
				sub.close()
				delete(subs, addr)
				return err
			}
		}
	}
	for channel := range missing {
		if err := n.subscribe(subs, channel, lost); err != nil {
			return fmt.Errorf("channel %q: %w", channel, err)
		}
	}
	return nil
}

// subscribe adds one channel. On a cluster it is one command for each: several in one command
// would have to be of one slot.
func (n *notices) subscribe(subs map[string]*subscription, channel string, lost chan<- *subscription) error {
	node, err := n.s.nodeOf(n.ctx, channel)
	if err != nil {
		return err
	}
	addr := node.Options().Addr
	sub, known := subs[addr]
	if !known {
		sub = &subscription{ps: node.Subscribe(n.ctx), channels: map[string]bool{}, stop: make(chan struct{}), ended: make(chan struct{})}
	}
	faultpoint.Hit("SUBSCRIBE")
	if _, ok := n.s.cluster(); ok {
		err = sub.ps.SSubscribe(n.ctx, channel)
	} else {
		err = sub.ps.Subscribe(n.ctx, channel)
	}
	if !known {
		subs[addr] = sub
		n.wg.Go(func() { n.read(sub, lost) })
	}
	if err != nil { // the library may have half of it: begin anew
		sub.close()
		delete(subs, addr)
		return err
	}
	sub.channels[channel] = true
	return nil
}

// read delivers what arrives until the connection is lost or closed.
func (n *notices) read(sub *subscription, lost chan<- *subscription) {
	err := n.receive(sub)
	close(sub.ended)
	select {
	case <-sub.stop: // closed on purpose
	case <-n.ctx.Done():
	default:
		n.s.log.Debug("subscription to commits is lost", zap.Error(err))
		select {
		case lost <- sub:
		case <-sub.stop:
		case <-n.ctx.Done():
		}
	}
}

func (n *notices) receive(sub *subscription) error {
	silent := 0
	for {
		msg, err := sub.ps.ReceiveTimeout(n.ctx, pulse)
		var timeout net.Error
		switch {
		case err == nil:
			silent = 0
		case errors.As(err, &timeout) && timeout.Timeout() && silent == 0:
			silent++
			faultpoint.Hit("PING")
			err = sub.ps.Ping(n.ctx)
			if err != nil {
				return err
			}
			continue
		default:
			return err
		}
		switch m := msg.(type) {
		case *redis.Message:
			n.deliver(sub, m.Channel, m.Payload)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				n.deliver(sub, m.Channel, "")
			case "sunsubscribe":
				if n.wants(m.Channel) {
					return errors.New("the slot has moved to another node")
				}
			}
		}
	}
}

// deliver hands a notice to the reader of Notices.
func (n *notices) deliver(sub *subscription, channel, nonce string) {
	prefix, ok := n.s.keys.ofChannel(channel)
	if !ok {
		return
	}
	select {
	case n.out <- Notice{Prefix: prefix, Nonce: nonce}:
	case <-sub.stop:
	case <-n.ctx.Done():
	}
}

func (n *notices) wants(channel string) bool {
	prefix, ok := n.s.keys.ofChannel(channel)
	n.mu.Lock()
	defer n.mu.Unlock()
	return ok && n.watched[prefix]
}
