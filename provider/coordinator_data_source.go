package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func newCoordinatorDataSource() datasource.DataSource {
	return &coordinatorDataSource{dataSource{name: "coordinator"}}
}

type coordinatorDataSource struct{ dataSource }

// coordinatorView is a redisstream_coordinator.
type coordinatorView struct {
	CoordinatorID       string      `tfsdk:"coordinator_id"`
	Version             *string     `tfsdk:"version"`
	Status              string      `tfsdk:"status"`
	Healthy             bool        `tfsdk:"healthy"`
	Redis               string      `tfsdk:"redis"`
	CoordinationVersion int         `tfsdk:"coordination_version"`
	Supported           versionView `tfsdk:"supported_coordination_versions"`
	Compatible          bool        `tfsdk:"compatible"`
	Username            string      `tfsdk:"username"`
	Roles               []string    `tfsdk:"roles"`
}

type versionView struct {
	Min int `tfsdk:"min"`
	Max int `tfsdk:"max"`
}

func (d *coordinatorDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The coordinator behind the endpoint: its version, whether clients of this release can work with it, its health, and as whom it knows the provider. " +
			"With several replicas, it is the one that answers.",
		Attributes: map[string]schema.Attribute{
			"coordinator_id":       textOut("Name of the replica that answered."),
			"version":              textOut("Release of the coordinator; null for one that does not tell."),
			"status":               textOut("`UP`, or `DEGRADED` while the coordinator cannot do its work."),
			"healthy":              flagOut("Whether the status is `UP`."),
			"redis":                textOut("`UP`, or `DOWN` while the coordinator cannot reach Redis."),
			"coordination_version": numberOut("Version of the heartbeat protocol that the coordinator prefers."),
			"supported_coordination_versions": schema.SingleNestedAttribute{
				Computed: true, MarkdownDescription: "Versions of the heartbeat protocol that the coordinator speaks, both ends included.",
				Attributes: map[string]schema.Attribute{"min": numberOut("Oldest version."), "max": numberOut("Newest version.")},
			},
			"compatible": flagOut("Whether `supported_coordination_versions` includes the version that the Go SDK of this release speaks."),
			"username":   textOut("User as whom the provider is authenticated."),
			"roles":      textsOut("Roles of `username`, sorted: `READ`, `WRITE`, `ADMIN`, `MONITOR`, `MEMBER`."),
		},
	}
}

func (d *coordinatorDataSource) Read(ctx context.Context, _ datasource.ReadRequest, resp *datasource.ReadResponse) {
	lookUp(ctx, &d.dataSource, resp, reading("the coordinator's status"), func(ctx context.Context) (coordinatorView, error) {
		var v coordinatorView
		health, err := d.conn.client.Health(ctx)
		if err != nil {
			return v, err
		}
		versions, err := d.conn.client.Compatibility(ctx)
		if err != nil {
			return v, err
		}
		session, err := d.conn.client.Session(ctx)
		if err != nil {
			return v, err
		}
		return coordinatorView{
			CoordinatorID: health.CoordinatorID, Version: shownText(health.Version), Status: health.Status, Healthy: health.Status == "UP", Redis: health.Redis,
			CoordinationVersion: versions.Current, Supported: versionView{Min: versions.Supported.Min, Max: versions.Supported.Max},
			Compatible: versions.Supported.Min <= protocol.HeartbeatVersion && protocol.HeartbeatVersion <= versions.Supported.Max,
			Username:   session.Username, Roles: sortedTexts(session.Roles),
		}, nil
	})
}
