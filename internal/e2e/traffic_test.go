package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
)

// traffic is SDK producers and consumers on one stream and group, with the oracle that knows
// what each of them did.
type traffic struct {
	t      *testing.T
	book   *ledger.Ledger
	prefix string
	rdb    redis.UniversalClient

	stopProducing func()
	stopConsuming func()
	failures      sync.Map // text → true
}

// trafficConfig says how much there is.
type trafficConfig struct {
	producers, consumers, keys int
	perSecond                  int           // of all producers
	concurrency                int           // logical members of each consumer
	handling                   time.Duration // of one entry: with it there is always something to drain

	consumersRedis redis.UniversalClient // where consumers have a Redis user of their own
}

// startTraffic runs until stop; what the calls to the coordinator meet meanwhile is none of its
// concern: the clients go on by themselves.
func startTraffic(t *testing.T, rdb redis.UniversalClient, prefix, group string, c trafficConfig, newClient func() *client.Client) *traffic {
	t.Helper()
	tr := &traffic{t: t, book: ledger.New(c.keys), prefix: prefix, rdb: rdb}
	quiet := slog.New(slog.DiscardHandler)

	producing, stopProducing := context.WithCancel(t.Context())
	var pacing sync.WaitGroup
	var producers []*producer.Producer
	for p := range c.producers {
		one, err := producer.New(producer.Config{Client: newClient(), Redis: rdb, StreamPrefix: prefix, ProducerID: fmt.Sprint("p", p), Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		one.Start()
		producers = append(producers, one)
		pacing.Go(func() {
			every := time.NewTicker(time.Second * time.Duration(c.producers) / time.Duration(c.perSecond))
			defer every.Stop()
			for key := p; ; key = (key + c.producers) % c.keys { // keys ≡ p: each has one producer
				select {
				case <-producing.Done():
					return
				case <-every.C:
				}
				number := tr.book.Publish(key)
				err := one.AppendAsync(producing, strconv.Itoa(key), producer.Fields{"key", strconv.Itoa(key), "number", strconv.Itoa(number)}, func(_ producer.Result, err error) {
					if err == nil {
						tr.book.Landed(key, number)
					} else {
						tr.failures.Store("append: "+err.Error(), true)
					}
				})
				if err != nil && producing.Err() == nil {
					tr.failures.Store("queue: "+err.Error(), true)
				}
			}
		})
	}
	tr.stopProducing = sync.OnceFunc(func() {
		stopProducing()
		pacing.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		for _, p := range producers {
			if err := p.Close(ctx); err != nil {
				t.Errorf("close of a producer: %v", err)
			}
		}
	})

	reading := rdb
	if c.consumersRedis != nil {
		reading = c.consumersRedis
	}
	consuming, stopConsuming := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var readers sync.Map // shard → *atomic.Int32: handlers that are at work on it, of all consumers
	for i := range c.consumers {
		one, err := consumer.New(consumer.Config{
			Client: newClient(), Redis: reading, StreamPrefix: prefix, Group: group, MemberID: fmt.Sprint("c", i), Concurrency: max(c.concurrency, 1), Logger: quiet,
			Hooks: consumer.Hooks{AckRefused: func(shard, entries int) {
				tr.failures.Store(fmt.Sprintf("shard %d: acknowledgement of %d entries was refused: two owners", shard, entries), true)
			}},
			Handler: func(ctx context.Context, d consumer.Delivery) error {
				if c.handling > 0 {
					work := time.NewTimer(c.handling)
					defer work.Stop()
					select {
					case <-work.C:
					case <-ctx.Done(): // the ownership has ended: it is the next owner's
						return ctx.Err()
					}
				}
				at, _ := readers.LoadOrStore(d.Shard, new(atomic.Int32))
				working := at.(*atomic.Int32)
				if working.Add(1) > 1 {
					tr.failures.Store(fmt.Sprintf("shard %d: two members handle entries at once", d.Shard), true)
				}
				defer working.Add(-1)
				key, err1 := strconv.Atoi(d.Text("key"))
				number, err2 := strconv.Atoi(d.Text("number"))
				if err1 != nil || err2 != nil || !tr.book.Handle(key, number) {
					tr.failures.Store(fmt.Sprintf("entry %s of %s was never published: %v", d.ID, d.Stream, d.Values), true)
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := one.Run(consuming); err != nil {
				tr.failures.Store("consumer ended: "+err.Error(), true)
			}
		})
	}
	tr.stopConsuming = sync.OnceFunc(func() { stopConsuming(); running.Wait() })
	t.Cleanup(func() { tr.stopProducing(); tr.stopConsuming() })
	return tr
}

// until waits until the oracle says ok.
func (tr *traffic) until(what string, within time.Duration, ok func(ledger.Tally) bool) {
	tr.t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		tally := tr.book.Count()
		if ok(tally) {
			return
		}
		if time.Now().After(deadline) {
			tr.t.Fatalf("%s did not happen within %s: %+v", what, within, tally)
		}
		<-tick.C
	}
}

// finish stops the producers, waits until everything that landed was handled, stops the
// consumers and returns the count. Nothing may be lost, and no order be violated but online.
func (tr *traffic) finish() ledger.Tally {
	tr.t.Helper()
	tr.stopProducing()
	tr.until("handling of everything that landed", 60*time.Second, func(t ledger.Tally) bool { return t.Lost == 0 })
	tr.stopConsuming()
	tally := tr.book.Count()
	if tally.Lost > 0 || tally.Strict > 0 {
		tr.t.Errorf("lost %d, order violations %d: %+v", tally.Lost, tally.Strict, tally.Examples)
	}
	tr.failures.Range(func(text, _ any) bool {
		tr.t.Errorf("%v", text)
		return true
	})
	tr.t.Logf("published %d, handled %d, duplicates %d, lost %d, order violations %d (online: %d)", tally.Published, tally.Handled, tally.Duplicates, tally.Lost, tally.Strict, tally.Online)
	return tally
}
