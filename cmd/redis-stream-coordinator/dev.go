package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redisstream/terraform-provider-redisstream/server"
)

func devCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a coordinator with a private Redis, for trying things out",
		Long: `Run a coordinator on this machine with a Redis of its own, and print what
clients need. The Redis is a redis-server or valkey-server from the PATH, on a
free loopback port; it keeps nothing and ends with the command. Nothing of it is
meant for production.`,
		Example: `  redis-stream-coordinator dev
  redis-stream-coordinator dev --redis-url redis://127.0.0.1:6379/0 --listen 127.0.0.1:9090`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := loadSettings(cmd.Flags())
			if err != nil {
				return err
			}
			return dev(cmd.Context(), set, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	addCommonFlags(fs)
	fs.String("listen", server.DefaultListen, "loopback host:port of the HTTP API")
	fs.String("redis-url", "", "use this Redis rather than a private one")
	fs.String("log-level", "info", "debug, info, warn or error")
	fs.String("log-format", "console", "json or console")
	return cmd
}

func dev(ctx context.Context, set settings, out io.Writer) (err error) {
	logger, err := newLogger(set.LogLevel, set.LogFormat)
	if err != nil {
		return err
	}
	defer func() { _ = logger.Sync() }() // standard error cannot always be synced
	quietRedis(logger)

	if err := loopbackOnly(set.Listen); err != nil {
		return err
	}
	if set.AdminPassword == "" {
		set.AdminPassword = rand.Text()
	}
	if set.RedisURL == "" {
		private, err := startPrivateRedis(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, private.stop()) }()
		set.RedisURL = private.url
	}
	cfg, err := set.config(logger)
	if err != nil {
		return err
	}
	cfg.StartUnready = false
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	err = run(ctx, srv, set, func() error { return announce(out, srv.URL(), set) })
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is taken by another program; choose another address with --listen, such as 127.0.0.1:0 for any free port: %w", set.Listen, err)
	}
	return err
}

// loopbackOnly keeps a throw-away password from being served to a network.
func loopbackOnly(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("listen: %q is not host:port", listen)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("listen: %q is not a loopback address; dev serves this machine alone, use serve for others", listen)
	}
	return nil
}

// announce prints what a first user pastes.
func announce(out io.Writer, url string, set settings) error {
	text := fmt.Sprintf(`
Redis Stream Coordinator is ready.

  coordinator  %[1]s
  redis        %[4]s

Terraform:

  terraform {
    required_providers {
      redisstream = { source = "redisstream/redisstream" }
    }
  }

  provider "redisstream" {
    endpoint = "%[1]s"
    username = %[2]s
    password = %[3]s
  }

Environment, for the provider and for your programs:

  export REDISSTREAM_ENDPOINT='%[1]s'
  export REDISSTREAM_USERNAME=%[5]s
  export REDISSTREAM_PASSWORD=%[6]s
  export REDIS_URL='%[4]s'

A stream must exist before anything is appended to it, and a consumer group before
anybody reads for it. Both by the API, for examples/go/quickstart; Terraform makes the
same with redisstream_shard_count and redisstream_stream_group:

  curl -u %[7]s -X PUT %[1]s/coord/v1/streams/orders \
       -H 'Content-Type: application/json' -d '{"shardCount": 4}'
  curl -u %[7]s -X PUT %[1]s/coord/v1/streams/orders/groups/billing \
       -H 'Content-Type: application/json' -d '{}'

The API is described at %[1]s/openapi.yaml. Ctrl-C ends everything.

`, url, hcl(set.AdminUsername), hcl(set.AdminPassword), set.RedisURL,
		shell(set.AdminUsername), shell(set.AdminPassword), shell(set.AdminUsername+":"+set.AdminPassword))
	_, err := io.WriteString(out, text)
	return err
}

// hcl quotes a text for Terraform, shell for a POSIX shell.
func hcl(text string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(text))
}

func shell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
