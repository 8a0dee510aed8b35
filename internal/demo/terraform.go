package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
)

// terraform is a working directory with the configuration of examples/demo, and a CLI
// configuration of its own that points the provider's address at the binary built here.
type terraform struct {
	program string
	dir     string
	env     []string
}

func newTerraform(program, dir, providerDir, endpoint, username, password string) (*terraform, error) {
	t := &terraform{program: program, dir: dir}
	config, err := os.ReadFile(filepath.Join("examples", "demo", "main.tf"))
	if err != nil {
		return nil, fmt.Errorf("configuration of the demo: %w", err)
	}
	cli := filepath.Join(dir, "terraformrc")
	for path, text := range map[string]string{
		filepath.Join(dir, "main.tf"): string(config),
		cli:                           toolchain.DevOverrides(toolchain.ProviderSource, providerDir),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	t.env = []string{
		"TF_CLI_CONFIG_FILE=" + cli, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
		"REDISSTREAM_ENDPOINT=" + endpoint, "REDISSTREAM_USERNAME=" + username, "REDISSTREAM_PASSWORD=" + password,
	}
	return t, nil
}

// apply runs terraform apply; it returns when the stream has converged.
func (t *terraform) apply(ctx context.Context, shards int, strategy, reason string) ([]byte, error) {
	return child.Run(ctx, t.dir, t.env, t.program, "apply", "-auto-approve", "-input=false", "-no-color",
		"-var", "shard_count="+strconv.Itoa(shards), "-var", "strategy="+strategy, "-var", "reason="+reason)
}

// plan returns an error unless a plan finds nothing to change.
func (t *terraform) plan(ctx context.Context, shards int, strategy, reason string) error {
	_, err := child.Run(ctx, t.dir, t.env, t.program, "plan", "-detailed-exitcode", "-input=false", "-no-color",
		"-var", "shard_count="+strconv.Itoa(shards), "-var", "strategy="+strategy, "-var", "reason="+reason)
	return err
}
