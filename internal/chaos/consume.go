package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
)

// consumerSettings are a consuming worker's.
type consumerSettings struct {
	endpoints
	Group, MemberID string
	IncarnationFile string // "": a successor has to wait for the end of the lease
	Concurrency     int
}

// ackInterval is how long handled entries wait for their acknowledgement.
const ackInterval = 200 * time.Millisecond

// consume handles entries until standard input ends.
func consume() error {
	var s consumerSettings
	ctx, err := settingsFrom(os.Stdin, &s)
	if err != nil {
		return err
	}
	coordinator, err := s.client()
	if err != nil {
		return err
	}
	defer coordinator.Close()
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis})
	defer rdb.Close()
	r := &reporter{out: os.Stdout}
	c, err := consumer.New(consumer.Config{
		Client: coordinator, Redis: rdb, StreamPrefix: s.Prefix, Group: s.Group, MemberID: s.MemberID, IncarnationFile: s.IncarnationFile,
		Concurrency: s.Concurrency, AckInterval: ackInterval, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Handler: func(_ context.Context, d consumer.Delivery) error {
			key, err1 := strconv.Atoi(d.Text("key"))
			number, err2 := strconv.Atoi(d.Text("number"))
			if err1 != nil || err2 != nil {
				key, number = -1, -1 // the journal says that nobody appended it
			}
			r.report(lineBegin, d.Shard, d.OwnershipEpoch, d.ID, key, number, now())
			// Most entries take no time; some take long enough to be met by a kill.
			if rand.IntN(20) == 0 {
				time.Sleep(rand.N(8 * time.Millisecond)) // the work of the handler, not a wait for something
			}
			r.report(lineEnd, d.Shard, d.ID, now())
			return nil
		},
		Hooks: consumer.Hooks{
			Revoked: func(shard int, epoch int64, cause error) {
				if cause != nil {
					r.report(lineCut, shard, epoch, now(), cause.Error())
				}
			},
			AckRefused: func(shard, _ int) { r.report(lineRefused, shard, int64(0), now()) },
			EntriesLost: func(shard int, ids []string) {
				r.report(lineLost, shard, now(), strconv.Itoa(len(ids))+" from "+ids[0])
			},
			GroupRecreated: func(shard int) { r.report(lineRecreated, shard, now()) },
		},
	})
	if err != nil {
		return err
	}
	if err := c.Run(ctx); err != nil {
		r.report(lineEnded, now(), err.Error())
		return err
	}
	return nil
}
