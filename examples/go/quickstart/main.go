// Command quickstart appends ten orders and bills them, on the stream "orders" with the consumer
// group "billing" of a coordinator that "redis-stream-coordinator dev" runs. Both must exist: by
// Terraform, as the README has them, or by the API.
//
//	export REDISSTREAM_ENDPOINT=… REDISSTREAM_USERNAME=… REDISSTREAM_PASSWORD=… REDIS_URL=… # as dev prints them
//	put() { curl -u "$REDISSTREAM_USERNAME:$REDISSTREAM_PASSWORD" -H 'Content-Type: application/json' -X PUT "$REDISSTREAM_ENDPOINT/coord/v1/streams/$1" -d "$2"; }
//	put orders '{"shardCount": 4}'
//	put orders/groups/billing '{}'
//	go run ./examples/go/quickstart
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	coordinator, err := client.New(client.Config{
		Endpoints: []string{os.Getenv("REDISSTREAM_ENDPOINT")},
		Username:  os.Getenv("REDISSTREAM_USERNAME"), Password: os.Getenv("REDISSTREAM_PASSWORD"),
	})
	if err != nil {
		return err
	}
	address, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	rdb := redis.NewClient(address)
	defer rdb.Close()

	orders, err := producer.New(producer.Config{Client: coordinator, Redis: rdb, StreamPrefix: "orders"})
	if err != nil {
		return err
	}
	orders.Start()
	for n := range 10 {
		// Entries of one key are handled in the order in which they were appended.
		if _, err := orders.Append(ctx, fmt.Sprintf("customer-%d", n%3), producer.Fields{"order", fmt.Sprint(n)}); err != nil {
			return err
		}
	}
	if err := orders.Close(ctx); err != nil {
		return err
	}

	billing, err := consumer.New(consumer.Config{
		Client: coordinator, Redis: rdb, StreamPrefix: "orders", Group: "billing",
		Handler: func(_ context.Context, d consumer.Delivery) error {
			fmt.Printf("bill order %s (%s of %s)\n", d.Text("order"), d.ID, d.Stream)
			return nil // an error has it handled again, before anything newer of its shard
		},
	})
	if err != nil {
		return err
	}
	return billing.Run(ctx) // until Ctrl-C: then it drains, gives its shards back and leaves
}
