package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
)

// endpoints is how a worker reaches what it works with. It comes on standard input, as all of a
// worker's settings do: others can read arguments.
type endpoints struct {
	Coordinator, Username, Password string
	Redis                           string // host:port
	Prefix                          string
}

func (e endpoints) client() (*client.Client, error) {
	return client.New(client.Config{Endpoints: []string{e.Coordinator}, Username: e.Username, Password: e.Password})
}

// producerSettings are a producing worker's. Next[i] is the number of the next entry of Keys[i].
type producerSettings struct {
	endpoints
	ProducerID string
	Keys, Next []int
	Rate       int // entries a second
}

// settingsFrom reads the settings, and gives a context that ends when standard input does: that is
// how a worker is asked to stop, and it hears of the end of its starter by it as well.
func settingsFrom(in io.Reader, out any) (context.Context, error) {
	d := json.NewDecoder(in)
	if err := d.Decode(out); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, in) // its end is all that counts
	}()
	return ctx, nil
}

// produce appends to its keys in turns until standard input ends, then waits until every append has
// ended.
func produce() error {
	var s producerSettings
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
	p, err := producer.New(producer.Config{
		Client: coordinator, Redis: rdb, StreamPrefix: s.Prefix, ProducerID: s.ProducerID, MaxQueue: 4000, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	r := &reporter{out: os.Stdout}
	p.Start()
	const step = 100 * time.Millisecond // in bursts: something is nearly always under way
	tick := time.NewTicker(step)
	defer tick.Stop()
	perStep := float64(s.Rate) * step.Seconds()
	owed := 0.0
	for i := 0; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		for owed += perStep; owed >= 1 && ctx.Err() == nil; owed-- {
			key, number := s.Keys[i], s.Next[i]
			s.Next[i]++
			i = (i + 1) % len(s.Keys)
			r.report(lineAttempt, key, number, now())
			err := p.AppendAsync(context.Background(), strconv.Itoa(key), producer.Fields{"key", strconv.Itoa(key), "number", strconv.Itoa(number)},
				func(res producer.Result, err error) {
					if err != nil {
						r.report(lineFailed, key, number, now(), err.Error())
						return
					}
					r.report(lineLanded, key, number, res.Shard, res.ID)
				})
			if err != nil {
				r.report(lineFailed, key, number, now(), err.Error())
			}
		}
	}
	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return p.Close(closing)
}
