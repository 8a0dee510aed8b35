package toolchain

import "fmt"

// ProviderSource is what required_providers names.
const ProviderSource = "redisstream/redisstream"

// DevOverrides is a Terraform CLI configuration in which the provider of that source is the program
// in dir: no terraform init, no version and no lock file are needed for it.
func DevOverrides(source, dir string) string {
	return fmt.Sprintf("provider_installation {\n  dev_overrides {\n    %q = %q\n  }\n  direct {}\n}\n", source, dir)
}
