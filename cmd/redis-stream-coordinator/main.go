// Command redis-stream-coordinator runs the coordinator: "serve" as one replica of a service,
// "dev" with a Redis of its own on this machine. Flags and environment end here; everything
// else is package server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redisstream/terraform-provider-redisstream/server"
)

// version is set by the release build.
var version = "dev"

func main() {
	if err := rootCommand().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "redis-stream-coordinator:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "redis-stream-coordinator",
		Short:         "Coordinates sharded Redis Streams: layout, consumer groups, resharding",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), devCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "redis-stream-coordinator %s %s %s/%s%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit())
			return err
		},
	}
}

// commit is the revision that the binary was built from, where the build knows it.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return " " + s.Value
		}
	}
	return ""
}

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one replica of the coordinator",
		Long: `Run one replica of the coordinator.

Every setting is a flag, a key of the file given with --config (YAML, the name
of the flag), and an environment variable (RSC_ and the name in upper case with
underscores: --redis-url is RSC_REDIS_URL). A flag wins over the environment,
which wins over the file. Replicas share nothing but Redis; start as many as you
like behind a load balancer that asks /readyz.`,
		Example: `  RSC_ADMIN_PASSWORD=… redis-stream-coordinator serve --listen :8080 --redis-url redis://redis:6379/0
  redis-stream-coordinator serve --config /etc/redis-stream-coordinator.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := loadSettings(cmd.Flags())
			if err != nil {
				return err
			}
			logger, err := newLogger(set.LogLevel, set.LogFormat)
			if err != nil {
				return err
			}
			defer func() { _ = logger.Sync() }() // standard error cannot always be synced
			quietRedis(logger)
			cfg, err := set.config(logger)
			if err != nil {
				return err
			}
			srv, err := server.New(cfg)
			if err != nil {
				return err
			}
			return run(cmd.Context(), srv, set, nil)
		},
	}
	addServeFlags(cmd.Flags())
	return cmd
}

// run serves until SIGINT or SIGTERM, then stops in order; a second signal cuts that short.
// ready is called once the server is ready.
func run(ctx context.Context, srv *server.Server, set settings, ready func() error) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	starting, cancelStart := context.WithCancel(ctx)
	defer cancelStart()
	started := make(chan error, 1)
	go func() { started <- srv.Start(starting) }()
	select {
	case err := <-started:
		if err != nil {
			return err
		}
	case <-signals:
		cancelStart()
		err := <-started
		return errors.Join(ignoreCanceled(err), srv.Stop(ctx))
	}

	var failed error
	if ready != nil {
		failed = ready()
	}
	if failed == nil {
		select {
		case <-signals:
		case <-ctx.Done():
		case <-srv.Done():
			failed = srv.Err()
		}
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), set.ShutdownDelay+set.StopTimeout)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Stop(stopping) }()
	select {
	case err := <-stopped:
		return errors.Join(failed, err)
	case <-signals:
		cancel()
		return errors.Join(failed, <-stopped)
	}
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
