// Command generate makes what is made from something else:
//
//   - docs/index.md, docs/resources, docs/data-sources and their like from the provider's schema,
//     templates/ and examples/, with tfplugindocs;
//   - docs/errors.md from the table of error codes.
//
// It contacts no registry: the provider is built here and handed to Terraform as an override.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// overridden is the address under which tfplugindocs looks a provider's schema up, whatever
// address the binary serves.
const overridden = "hashicorp/redisstream"

func main() {
	docs := flag.String("docs", "go run github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs@v0.25.0", "`command` that runs tfplugindocs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := errorCodes("docs/errors.md")
	if err == nil {
		err = providerDocs(ctx, strings.Fields(*docs))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func errorCodes(path string) error {
	var b strings.Builder
	b.WriteString("# Error codes\n\nMade by `make generate` from the table in `sdk/protocol/error.go`. Programs branch on `errorCode`;\n" +
		"*retriable* says whether the same request may succeed later without being changed.\n\n" +
		"| errorCode | HTTP | retriable |\n| --- | --- | --- |\n")
	codes := protocol.Codes()
	slices.SortFunc(codes, func(x, y protocol.Code) int {
		if d := x.HTTPStatus() - y.HTTPStatus(); d != 0 {
			return d
		}
		return strings.Compare(string(x), string(y))
	})
	for _, c := range codes {
		retriable := "no"
		if c.Retriable() {
			retriable = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %d %s | %s |\n", c, c.HTTPStatus(), protocol.StatusName(c.HTTPStatus()), retriable)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func providerDocs(ctx context.Context, docs []string) error {
	terraform, err := toolchain.Terraform(ctx, "build", os.Stderr)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "redisstream-docs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if _, err := run(ctx, ".", nil, "go", "build", "-o", filepath.Join(scratch, "terraform-provider-redisstream"), "./cmd/terraform-provider-redisstream"); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"terraformrc": toolchain.DevOverrides(overridden, scratch),
		"main.tf":     fmt.Sprintf("terraform {\n  required_providers {\n    redisstream = {\n      source = %q\n    }\n  }\n}\n", overridden),
	} {
		if err := os.WriteFile(filepath.Join(scratch, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	schema, err := run(ctx, scratch, []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(scratch, "terraformrc"), "CHECKPOINT_DISABLE=1"},
		terraform, "providers", "schema", "-json")
	if err != nil {
		return err
	}
	if schema, err = withNewer(ctx, schema); err != nil {
		return err
	}
	schemaFile := filepath.Join(scratch, "schema.json")
	if err := os.WriteFile(schemaFile, schema, 0o600); err != nil {
		return err
	}
	// tfplugindocs formats with the Terraform on PATH.
	env := []string{"PATH=" + filepath.Dir(terraform) + string(os.PathListSeparator) + os.Getenv("PATH")}
	for _, verb := range []string{"generate", "validate"} {
		args := append(slices.Clone(docs[1:]), verb, "--provider-name", "redisstream", "--providers-schema", schemaFile)
		if verb == "generate" {
			args = append(args, "--rendered-provider-name", "Redis Stream")
		}
		if _, err := run(ctx, ".", env, docs[0], args...); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program in dir and returns what it printed; its errors are in the error.
func run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, errs.String(), out.String())
	}
	return out.Bytes(), nil
}
