// Command terraform-provider-redisstream is the Terraform provider "redisstream". Terraform
// starts it; run by hand it only says so.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/redisstream/terraform-provider-redisstream/provider"
)

// version is set by the release build.
var version = "dev"

func main() {
	debugger := flag.Bool("debug", false, "wait for a debugger such as delve, and print TF_REATTACH_PROVIDERS")
	flag.Parse()
	if !*debugger { // a debugged one has its own environment, and its logs are wanted
		quiet()
		// Ctrl-C reaches the whole process group, and so does what a supervisor sends (timeout, systemd). It
		// is Terraform that tells a provider to stop, and waits for what it has made; an end before that
		// would lose it from the state. An orphan ends by itself.
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
	}
	// A large plan is seconds of short-lived garbage. With 800 resources, Go's own setting (100) took
	// 4.5 s of processor time and 138 MiB, this one 3.2 s and 276 MiB.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}

	tokens := new(provider.OpenTokens)
	served := make(chan error, 1)
	go func() { // ends with the process
		served <- providerserver.Serve(context.Background(), provider.NewWithTokens(version, tokens), providerserver.ServeOpts{
			Address:         provider.Address,
			Debug:           *debugger,
			ProtocolVersion: 6,
		})
	}()
	err := wait(served, *debugger)
	revoke(tokens)
	if err != nil {
		log.Fatal(err)
	}
}

// wait returns when Terraform has ended the serving, or is no more. One that was killed alone (by the
// system, for want of memory) tells nobody, and its providers would stay behind for good. Where
// the parent of an orphan is still told to be the dead one (Windows), they do.
func wait(served <-chan error, debugger bool) error {
	terraform, look := os.Getppid(), time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case err := <-served:
			return err
		case <-look.C:
			if !debugger && os.Getppid() != terraform {
				return nil
			}
		}
	}
}

// revoke ends the tokens of a run that was not closed.
func revoke(tokens *provider.OpenTokens) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if err := tokens.Revoke(ctx); err != nil {
		log.Print(err)
	}
}

// farewell is the time for what is left to do when Terraform has ended the process: it kills it
// after two seconds.
const farewell = 1500 * time.Millisecond

// quiet turns the logs of the plugin libraries off when nobody has asked for logs: otherwise each
// request is traced in full, and Terraform parses every line of it to throw it away, which is half
// of the time of a large plan.
func quiet() {
	for _, asked := range []string{"TF_LOG", "TF_LOG_PROVIDER", "TF_LOG_CORE", "TF_LOG_PROVIDER_REDISSTREAM"} {
		if os.Getenv(asked) != "" {
			return
		}
	}
	for _, name := range []string{"TF_LOG_SDK", "TF_LOG_SDK_PROTO", "TF_LOG_SDK_FRAMEWORK", "TF_LOG_PROVIDER"} {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, "OFF"); err != nil {
				log.Fatal(err)
			}
		}
	}
}
