#!/usr/bin/env bash
# Makes docs/index.md and docs/resources from the provider's schema, templates/ and examples/.
#
#   internal/tools/generate-docs.sh           write them
#   internal/tools/generate-docs.sh -check    write them, and fail if git sees a difference
#
# Needs terraform on the PATH. The provider is handed to Terraform by dev_overrides, so no
# registry is asked. It is done under the namespace "hashicorp" because tfplugindocs looks the
# schema up there, whatever the provider's own address is.
set -euo pipefail

cd "$(dirname "$0")/../.."
tfplugindocs=github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs@v0.25.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

go build -o "$work/terraform-provider-redisstream" ./cmd/terraform-provider-redisstream
cat >"$work/terraformrc" <<RC
provider_installation {
  dev_overrides { "hashicorp/redisstream" = "$work" }
  direct {}
}
RC
cat >"$work/main.tf" <<'TF'
terraform {
  required_providers {
    redisstream = { source = "hashicorp/redisstream" }
  }
}
TF
TF_CLI_CONFIG_FILE="$work/terraformrc" terraform -chdir="$work" providers schema -json >"$work/schema.json"

terraform fmt -recursive examples >/dev/null
for command in generate validate; do
  go run "$tfplugindocs" "$command" \
    --provider-name redisstream --providers-schema "$work/schema.json"
done

if [ "${1:-}" = -check ]; then
  git diff --exit-code -- docs/index.md docs/resources examples/provider examples/resources
  untracked=$(git ls-files --others --exclude-standard -- docs/index.md docs/resources)
  [ -z "$untracked" ] || { echo "not in git: $untracked" >&2; exit 1; }
fi
