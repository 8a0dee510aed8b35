// Command producer appends orders to the stream "orders" until it is interrupted, each customer's
// in order. It goes on by itself through pauses and changes of the shard count.
//
//	go run ./examples/go/producer -coordinator http://127.0.0.1:8080 -redis redis://127.0.0.1:6379/0
//
// Credentials are read from REDISSTREAM_USERNAME and REDISSTREAM_PASSWORD.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
)

func main() {
	if err := run(); err != nil {
		slog.Error("producer ended", "error", err)
		os.Exit(1)
	}
}

func run() error {
	coordinator := flag.String("coordinator", "http://127.0.0.1:8080", "`URL` of the coordinator")
	address := flag.String("redis", "redis://127.0.0.1:6379/0", "`URL` of Redis")
	stream := flag.String("stream", "orders", "stream `prefix`")
	every := flag.Duration("every", 100*time.Millisecond, "`time` between two orders")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	api, err := client.New(client.Config{
		Endpoints: []string{*coordinator},
		Username:  os.Getenv("REDISSTREAM_USERNAME"), Password: os.Getenv("REDISSTREAM_PASSWORD"),
	})
	if err != nil {
		return err
	}
	defer api.Close()
	options, err := redis.ParseURL(*address)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()

	p, err := producer.New(producer.Config{
		Client: api, Redis: rdb, StreamPrefix: *stream,
		EventIDField: "event", // lets consumers recognize an order that was appended twice
	})
	if err != nil {
		return err
	}
	p.Start()
	ticker := time.NewTicker(*every)
	defer ticker.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		customer := "customer-" + strconv.Itoa(n%10)
		r, err := p.Append(ctx, customer, producer.Fields{"type", "order", "number", strconv.Itoa(n)})
		switch {
		case errors.Is(err, producer.ErrOutcomeUnknown):
			// It may be in the stream. Repeating it with the same event id is safe where
			// consumers ignore ids that they have seen.
			slog.Warn("outcome unknown", "event", r.EventID)
		case err != nil && ctx.Err() == nil:
			slog.Error("not appended", "error", err)
		case err == nil:
			fmt.Printf("%s  shard %d  %s\n", customer, r.Shard, r.ID)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	shutdown, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.Close(shutdown)
}
