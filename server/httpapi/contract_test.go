package httpapi

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func urlUnescape(s string) (string, error) { return url.PathUnescape(s) }

// Everything that is served is described, and the other way round, with the same role and audit.
func TestOpenAPIDescribesTheTable(t *testing.T) {
	t.Parallel()
	doc, err := description()
	if err != nil {
		t.Fatal(err)
	}
	roles := map[need]string{public: "none", needRead: "READ", needWrite: "WRITE", needMember: "MEMBER", needRouting: "READ or MEMBER", needSession: "any"}
	served := map[string]bool{"GET /metrics": true}
	table := slices.Clone(operations)
	for _, rt := range routes {
		rt.pattern = Base + rt.pattern
		table = append(table, rt)
	}
	for _, rt := range table {
		served[rt.method+" "+rt.pattern] = true
		item := doc.Paths.Value(rt.pattern)
		if item == nil || item.GetOperation(rt.method) == nil {
			t.Errorf("%s %s is not described", rt.method, rt.pattern)
			continue
		}
		op := item.GetOperation(rt.method)
		if got := op.Extensions["x-role"]; got != roles[rt.need] {
			t.Errorf("%s %s: x-role is %v, the table needs %v", rt.method, rt.pattern, got, roles[rt.need])
		}
		dry := ""
		if preview := previewOf(&rt); preview != nil {
			dry = roles[preview.need]
		}
		if got, _ := op.Extensions["x-dry-run-role"].(string); got != dry {
			t.Errorf("%s %s: x-dry-run-role is %q, the table has %q", rt.method, rt.pattern, got, dry)
		}
		if got, _ := op.Extensions["x-audit"].(string); got != string(rt.action) {
			t.Errorf("%s %s: x-audit is %q, the table has %q", rt.method, rt.pattern, got, rt.action)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !served[method+" "+path] {
				t.Errorf("%s %s is described but not served", method, path)
			}
		}
	}
}

// The schemas have the fields of the structs, no more and no fewer, and require what is always sent.
func TestOpenAPISchemasMatchTheStructs(t *testing.T) {
	t.Parallel()
	doc, err := description()
	if err != nil {
		t.Fatal(err)
	}
	answers := []any{
		protocol.Stream{}, protocol.StreamStatus{}, protocol.StreamSpec{}, protocol.StreamShard{}, protocol.StreamList{}, protocol.Condition{},
		protocol.StreamCreateResponse{}, protocol.StreamScaleResponse{}, protocol.Migration{}, protocol.MigrationList{},
		protocol.Resharding{}, protocol.ReshardingList{}, protocol.PhaseSpan{}, protocol.DrainCertificate{}, protocol.ShardEvidence{}, protocol.GroupEvidence{},
		protocol.TimeWindow{}, protocol.CertificateCheck{}, protocol.ShardCheck{},
		protocol.Routing{}, protocol.RoutingShard{}, protocol.ProducerRouting{}, protocol.Group{}, protocol.GroupList{}, protocol.MemberView{}, protocol.MemberList{},
		protocol.Assignments{}, protocol.HeartbeatResponse{}, protocol.Assignment{}, protocol.AuditEvent{}, protocol.AuditList{}, protocol.LoginResponse{}, protocol.TokenSession{},
		protocol.Error{}, protocol.Detail{}, protocol.Shard{},
		protocol.Retention{}, protocol.RetentionReport{}, protocol.GroupLosses{}, protocol.ShardLosses{},
		protocol.Preview{}, protocol.PreviewPublishing{}, protocol.PreviewGroup{}, protocol.PreviewNote{}, protocol.RemovalPreview{}, protocol.ShardBacklog{},
	}
	requests := []any{
		protocol.PutStreamRequest{}, protocol.DeleteStreamRequest{}, protocol.PauseRequest{}, protocol.ResumeRequest{}, protocol.CreateRequest{},
		protocol.ScaleRequest{}, protocol.RollbackRequest{}, protocol.PutGroupRequest{}, protocol.DeleteGroupRequest{}, protocol.RemovalPreviewRequest{}, protocol.LoginRequest{}, protocol.RenewRequest{},
		protocol.HeartbeatRequest{}, protocol.Capacity{}, protocol.RevokingShard{}, protocol.OwnershipSeen{}, protocol.ShardProgress{},
		protocol.ReshardingPolicy{}, protocol.GroupSpec{},
	}
	own := map[string]any{"Session": protocol.Session{}, "Health": protocol.Health{}, "ReleaseVersion": protocol.ReleaseVersion{}, "TimingDefaults": protocol.TimingDefaults{},
		"CoordinationVersion": protocol.CoordinationVersion{}, "VersionRange": protocol.VersionRange{}, "Compatibility": protocol.Compatibility{},
		"Consumption": consumption{}, "ConsumptionRow": consumptionRow{}, "Probe": probe{}}
	for _, v := range answers {
		own[reflect.TypeOf(v).Name()] = v
	}
	checked := map[string]bool{}
	check := func(name string, v any, isAnswer bool) {
		schema := doc.Components.Schemas[name]
		if schema == nil {
			t.Errorf("no schema %s", name)
			return
		}
		checked[name] = true
		fields := jsonFields(reflect.TypeOf(v))
		for field, optional := range fields {
			if schema.Value.Properties[field] == nil {
				t.Errorf("schema %s lacks %s", name, field)
			}
			if isAnswer && slices.Contains(schema.Value.Required, field) == optional {
				t.Errorf("schema %s: %s is required: %v, but may be left out: %v", name, field, !optional, optional)
			}
		}
		for property := range schema.Value.Properties {
			if _, there := fields[property]; !there {
				t.Errorf("schema %s has %s, which is not sent", name, property)
			}
		}
	}
	for name, v := range own {
		check(name, v, true)
	}
	for _, v := range requests {
		check(reflect.TypeOf(v).Name(), v, false)
	}
	for name, schema := range doc.Components.Schemas {
		if len(schema.Value.Properties) > 0 && !checked[name] {
			t.Errorf("schema %s belongs to no struct", name)
		}
	}
	codes := doc.Components.Schemas["ErrorCode"].Value.Enum
	for _, code := range protocol.Codes() {
		if !slices.Contains(codes, any(string(code))) {
			t.Errorf("the enumeration of error codes lacks %s", code)
		}
	}
}

// jsonFields maps the JSON names of a struct to whether they may be left out.
func jsonFields(t reflect.Type) map[string]bool {
	fields := map[string]bool{}
	for f := range t.Fields() {
		if f.Anonymous {
			maps.Copy(fields, jsonFields(f.Type))
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = strings.Contains(options, "omitempty")
	}
	return fields
}
