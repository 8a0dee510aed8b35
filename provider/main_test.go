package provider

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
)

// TestMain keeps the user's own Terraform settings out of the tests.
func TestMain(m *testing.M) { os.Exit(run(m)) }

// scratch is a directory for all tests of the binary.
var scratch string

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "provider-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	rc := filepath.Join(dir, "terraformrc")
	env := map[string]string{"TF_CLI_CONFIG_FILE": rc, "CHECKPOINT_DISABLE": "1"}
	for _, name := range append([]string{"TF_LOG", "TF_LOG_PROVIDER", "TF_WORKSPACE"}, environment...) {
		env[name] = ""
	}
	if os.Getenv("TF_ACC_TERRAFORM_PATH") == "" {
		if terraform, err := exec.LookPath("terraform"); err == nil {
			env["TF_ACC_TERRAFORM_PATH"] = terraform
		}
	}
	if err := os.WriteFile(rc, nil, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for name, value := range env {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return redistest.Main(m)
}
