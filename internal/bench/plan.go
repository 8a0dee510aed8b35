package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	fwprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/provider"
)

// providerProgram is the name under which Terraform looks for the provider, and under which this
// program is the bare one.
const providerProgram = "terraform-provider-redisstream"

// The configuration that is planned: streams with three consumer groups each.
const (
	streamsPlanned = 200
	groupsPlanned  = 3 * streamsPlanned
	planConfig     = `
terraform {
  required_providers {
    redisstream = { source = "redisstream/redisstream" }
  }
}
resource "redisstream_shard_count" "s" {
  count         = %d
  stream_prefix = "planned-${count.index}"
  shard_count   = 1
}
resource "redisstream_stream_group" "g" {
  count          = %d
  stream_prefix  = redisstream_shard_count.s[floor(count.index / 3)].stream_prefix
  consumer_group = "g${count.index %% 3}"
}
`
)

// manyStreams measures a plan that finds nothing to do, beside the same number of bare reads of
// the API and the plan that Terraform makes of the same state with a provider that does nothing.
func (b *bench) manyStreams(ctx context.Context) ([]result, error) {
	terraform, err := toolchain.Terraform(ctx, "build", os.Stderr)
	if err != nil {
		return nil, err
	}
	ours, bare := filepath.Join(b.dir, "provider"), filepath.Join(b.dir, "bare-provider")
	if _, err := child.Run(ctx, ".", nil, "go", "build", "-trimpath", "-o", filepath.Join(ours, providerProgram), "./cmd/"+providerProgram); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Mkdir(bare, 0o700), os.Symlink(self, filepath.Join(bare, providerProgram))); err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "terraform")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), fmt.Appendf(nil, planConfig, streamsPlanned, groupsPlanned), 0o600); err != nil {
		return nil, err
	}
	run := func(programs string, args ...string) (time.Duration, error) {
		cli := programs + ".rc"
		if err := os.WriteFile(cli, []byte(toolchain.DevOverrides(toolchain.ProviderSource, programs)), 0o600); err != nil {
			return 0, err
		}
		env := []string{
			"TF_CLI_CONFIG_FILE=" + cli, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_LOG=",
			"REDISSTREAM_ENDPOINT=http://" + b.coordinatorAddr, "REDISSTREAM_USERNAME=" + username, "REDISSTREAM_PASSWORD=" + password,
		}
		begin := time.Now()
		_, err := child.Run(ctx, dir, env, terraform, append(args, "-input=false", "-no-color")...)
		return time.Since(begin), err
	}
	if _, err := run(ours, "apply", "-auto-approve"); err != nil {
		return nil, err
	}
	plan := func(programs string) (float64, error) {
		took, err := run(programs, "plan", "-detailed-exitcode")
		return took.Seconds(), err
	}
	took, least, err := interleave(b.rounds,
		func() (float64, error) { return plan(ours) },
		func() (float64, error) {
			reads, err := b.readPlanned(ctx)
			if err != nil {
				return 0, err
			}
			own, err := plan(bare)
			return own + reads.Seconds(), err
		})
	if err != nil {
		return nil, err
	}
	return []result{atMostTimes(fmt.Sprintf("terraform plan of %d streams and %d groups, beside the reads and a provider that does nothing", streamsPlanned, groupsPlanned), took, least, "s", 1.5)}, nil
}

// readPlanned reads each stream and each group once, ten at a time as Terraform does.
func (b *bench) readPlanned(ctx context.Context) (time.Duration, error) {
	const walkers = 10
	errs := make([]error, walkers)
	var reading sync.WaitGroup
	begin := time.Now()
	for w := range walkers {
		reading.Go(func() {
			for i := w; i < streamsPlanned+groupsPlanned && errs[w] == nil; i += walkers {
				if i < streamsPlanned {
					_, errs[w] = b.client.Stream(ctx, fmt.Sprintf("planned-%d", i))
					continue
				}
				group := i - streamsPlanned
				_, errs[w] = b.client.Group(ctx, fmt.Sprintf("planned-%d", group/3), fmt.Sprintf("g%d", group%3))
			}
		})
	}
	reading.Wait()
	return time.Since(begin), errors.Join(errs...)
}

// serveBareProvider is the bare twin of the provider: the same plugin framework and the same
// schemas, and resources that neither ask nor decide anything. It runs until Terraform ends it.
func serveBareProvider(ctx context.Context) error {
	for _, name := range []string{"TF_LOG_SDK", "TF_LOG_SDK_PROTO", "TF_LOG_SDK_FRAMEWORK", "TF_LOG_PROVIDER"} {
		if err := os.Setenv(name, "OFF"); err != nil {
			return err
		}
	}
	debug.SetGCPercent(400) // as the provider's own
	return providerserver.Serve(ctx, func() fwprovider.Provider { return bareProvider{provider.New("bench")()} },
		providerserver.ServeOpts{Address: provider.Address, ProtocolVersion: 6})
}

type bareProvider struct{ fwprovider.Provider }

func (bareProvider) Configure(context.Context, fwprovider.ConfigureRequest, *fwprovider.ConfigureResponse) {
}

func (p bareProvider) Resources(ctx context.Context) []func() resource.Resource {
	var bare []func() resource.Resource
	for _, newResource := range p.Provider.Resources(ctx) {
		bare = append(bare, func() resource.Resource { return bareResource{newResource()} })
	}
	return bare
}

// bareResource has the schema of a resource and keeps what is in the state.
type bareResource struct{ schema resource.Resource }

func (r bareResource) Metadata(ctx context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	r.schema.Metadata(ctx, req, resp)
}

func (r bareResource) Schema(ctx context.Context, req resource.SchemaRequest, resp *resource.SchemaResponse) {
	r.schema.Schema(ctx, req, resp)
}

func (bareResource) Create(context.Context, resource.CreateRequest, *resource.CreateResponse) {}
func (bareResource) Read(context.Context, resource.ReadRequest, *resource.ReadResponse)       {}
func (bareResource) Update(context.Context, resource.UpdateRequest, *resource.UpdateResponse) {}
func (bareResource) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}
