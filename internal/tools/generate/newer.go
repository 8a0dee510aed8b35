package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/redisstream/terraform-provider-redisstream/provider"
)

// withNewer adds to the output of "terraform providers schema -json" what only a newer Terraform
// would print: the provider is asked itself for its actions, list resources and resource
// identities.
func withNewer(ctx context.Context, printed []byte) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(printed, &all); err != nil {
		return nil, fmt.Errorf("schema as Terraform printed it: %w", err)
	}
	schemas, _ := all["provider_schemas"].(map[string]any)
	ours, ok := schemas["registry.terraform.io/"+overridden].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("no schema of %s in what Terraform printed", overridden)
	}
	server := providerserver.NewProtocol6(provider.New("docs")())()
	resp, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return nil, fmt.Errorf("schema of the provider: %w", err)
	}
	actions, lists := map[string]any{}, map[string]any{}
	for name, s := range resp.ActionSchemas {
		actions[name] = map[string]any{"block": block(s.Schema.Block)}
	}
	for name, s := range resp.ListResourceSchemas {
		lists[name] = map[string]any{"version": s.Version, "block": block(s.Block)}
	}
	identities := map[string]any{}
	named, err := server.GetResourceIdentitySchemas(ctx, &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		return nil, fmt.Errorf("identities of the provider's resources: %w", err)
	}
	for name, s := range named.IdentitySchemas {
		attributes := map[string]any{}
		for _, a := range s.IdentityAttributes {
			attributes[a.Name] = map[string]any{
				"type": a.Type, "description": a.Description, "required_for_import": a.RequiredForImport, "optional_for_import": a.OptionalForImport,
			}
		}
		identities[name] = map[string]any{"version": s.Version, "attributes": attributes}
	}
	ours["action_schemas"], ours["list_resource_schemas"], ours["resource_identity_schemas"] = actions, lists, identities
	return json.Marshal(all)
}

// block is a block as Terraform prints it; nested ones, which ours do not have, are left out.
func block(b *tfprotov6.SchemaBlock) map[string]any {
	attributes := map[string]any{}
	for _, a := range b.Attributes {
		attributes[a.Name] = map[string]any{
			"type": a.Type, "description": a.Description, "description_kind": kind(a.DescriptionKind),
			"required": a.Required, "optional": a.Optional, "computed": a.Computed, "sensitive": a.Sensitive,
		}
	}
	return map[string]any{"attributes": attributes, "description": b.Description, "description_kind": kind(b.DescriptionKind)}
}

func kind(k tfprotov6.StringKind) string {
	if k == tfprotov6.StringKindMarkdown {
		return "markdown"
	}
	return "plain"
}
