// Command consumer reads the stream "orders" as a member of the group "billing" and prints what
// it gets, until it is interrupted: then it finishes what it has begun and gives its shards
// back.
//
//	go run ./examples/go/consumer -coordinator http://127.0.0.1:8080 -redis redis://127.0.0.1:6379/0
//
// Credentials are read from REDISSTREAM_USERNAME and REDISSTREAM_PASSWORD.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
)

func main() {
	if err := run(); err != nil {
		slog.Error("consumer ended", "error", err)
		os.Exit(1)
	}
}

func run() error {
	coordinator := flag.String("coordinator", "http://127.0.0.1:8080", "`URL` of the coordinator")
	address := flag.String("redis", "redis://127.0.0.1:6379/0", "`URL` of Redis")
	stream := flag.String("stream", "orders", "stream `prefix`")
	group := flag.String("group", "billing", "consumer `group`")
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

	c, err := consumer.New(consumer.Config{
		Client: api, Redis: rdb, StreamPrefix: *stream, Group: *group,
		Handler: func(ctx context.Context, d consumer.Delivery) error {
			// Handling is at-least-once: whatever is done here may be done again. The ownership
			// epoch lets the system that it is written to refuse an owner of the past.
			fmt.Printf("shard %d  %s  delivery %d  %v\n", d.Shard, d.ID, d.Deliveries, d.Values)
			return nil
		},
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
