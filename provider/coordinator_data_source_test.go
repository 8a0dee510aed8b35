package provider

import (
	"strconv"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// What a configuration decides by: the coordinator's health, and whether this release can work with it.
func TestCoordinatorHealthAndCompatibility(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	const ours = protocol.HeartbeatVersion
	up := protocol.Health{Status: "UP", CoordinatorID: "c-1", Redis: "UP", Loop: "UP"}
	down := protocol.Health{Status: "DEGRADED", CoordinatorID: "c-1", Redis: "DOWN", Loop: "UP"}
	for name, tt := range map[string]struct {
		health              protocol.Health
		lowest, highest     int
		healthy, compatible bool
	}{
		"all is well":             {up, ours, ours, true, true},
		"Redis is away":           {down, ours, ours, false, true},
		"ours is the oldest":      {up, ours, ours + 2, true, true},
		"ours is the newest":      {up, ours - 1, ours, true, true},
		"ours is within":          {up, ours - 1, ours + 1, true, true},
		"all are newer":           {up, ours + 1, ours + 2, true, false},
		"all are older":           {up, ours - 1, ours - 1, true, false},
		"degraded, all are newer": {down, ours + 1, ours + 1, false, false},
	} {
		o.mu.Lock()
		current := max(tt.highest, 1) // the client believes no answer without a version
		o.health, o.versions = tt.health, protocol.Compatibility{Current: current, Supported: protocol.VersionRange{Min: tt.lowest, Max: tt.highest}}
		o.mu.Unlock()
		i := c.data("redisstream_coordinator", attrs{})
		for attribute, want := range map[string]string{
			"healthy": strconv.FormatBool(tt.healthy), "compatible": strconv.FormatBool(tt.compatible), "status": tt.health.Status, "redis": tt.health.Redis,
			"coordination_version": strconv.Itoa(current), "supported_coordination_versions.min": strconv.Itoa(tt.lowest), "supported_coordination_versions.max": strconv.Itoa(tt.highest),
		} {
			if got := i.field(t, attribute); got != want {
				t.Errorf("%s: %s is %s, want %s", name, attribute, got, want)
			}
		}
	}
}
