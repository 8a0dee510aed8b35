package provider

import (
	"maps"
	"net/url"
	"strconv"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
)

// Each filter, alone and with all the others, is asked of the coordinator under its own name.
func TestAuditFilters(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	filters := map[string]struct{ given, parameter, asked string }{
		"stream_prefix":  {"orders", "streamPrefix", "orders"},
		"consumer_group": {"billing", "consumerGroup", "billing"},
		"principal":      {"alice & bob", "principal", "alice & bob"},
		"action":         {"PUT_STREAM", "action", "PUT_STREAM"},
		"outcome":        {"FORBIDDEN", "outcome", "FORBIDDEN"},
		"request_id":     {"run-7:1", "requestId", "run-7:1"},
		"resharding_id":  {"rs-1", "reshardingId", "rs-1"},
		"fingerprint":    {digest, "fingerprint", digest},
		"from":           {"2026-01-31T13:00:00+01:00", "from", "2026-01-31T12:00:00Z"},
		"to":             {"2026-01-31T12:00:00.25Z", "to", "2026-01-31T12:00:00.25Z"},
	}
	asks := func(config attrs, want map[string]string) {
		t.Helper()
		c.data("redisstream_audit_events", config)
		last := lastOf(o.requests)
		query, err := url.ParseQuery(last.query)
		if err != nil || last.path != "/coord/v1/audit/events" {
			t.Fatalf("%s?%s: %v", last.path, last.query, err)
		}
		want["limit"] = strconv.Itoa(defaultAuditLimit + 1)
		got := map[string]string{}
		for name, values := range query {
			got[name] = values[0]
		}
		if !maps.Equal(got, want) {
			t.Errorf("%v: asked for %v, want %v", config, got, want)
		}
	}
	asks(attrs{}, map[string]string{})
	all, allAsked := attrs{}, map[string]string{}
	for name, f := range filters {
		asks(attrs{name: f.given}, map[string]string{f.parameter: f.asked})
		all[name], allAsked[f.parameter] = f.given, f.asked
	}
	asks(all, allAsked)

	var resp datasource.SchemaResponse
	newAuditEventsDataSource().Schema(t.Context(), datasource.SchemaRequest{}, &resp)
	for name, attribute := range resp.Schema.Attributes {
		if _, known := filters[name]; attribute.IsOptional() && !known && name != "limit" {
			t.Errorf("filter %s has no case here", name)
		}
	}
}
