// Command setup makes sure that a Redis server and a Terraform CLI are on the machine and
// prints where they are. It installs what is missing and changes nothing else.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	redis, err := toolchain.RedisServer(ctx, os.Stderr)
	if err != nil {
		return err
	}
	terraform, err := toolchain.Terraform(ctx, "build", os.Stderr)
	if err != nil {
		return err
	}
	fmt.Printf("redis      %s\nterraform  %s\n", redis, terraform)
	return nil
}
