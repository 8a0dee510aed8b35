package provider

import (
	"os"
	"testing"
	"time"
)

func TestWorkspace(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		file map[string]string
		want string
	}{
		{"nothing", nil, nil, "default"},
		{"TF_WORKSPACE", map[string]string{"TF_WORKSPACE": "prod"}, map[string]string{".terraform/environment": "dev"}, "prod"},
		{"HCP Terraform", map[string]string{"TFC_WORKSPACE_NAME": "orders-prod"}, nil, "orders-prod"},
		{"selected", nil, map[string]string{".terraform/environment": "dev\n"}, "dev"},
		{"another data directory", map[string]string{"TF_DATA_DIR": "/d"}, map[string]string{"/d/environment": "dev"}, "dev"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := workspace(func(name string) string { return tt.env[name] }, func(name string) ([]byte, error) {
				if text, ok := tt.file[name]; ok {
					return []byte(text), nil
				}
				return nil, os.ErrNotExist
			})
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 100 * time.Millisecond: "100ms", 1500 * time.Millisecond: "1.5s", 10 * time.Second: "10s", time.Minute: "1m",
		90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 10 * time.Minute: "10m",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
		if back, err := time.ParseDuration(want); err != nil || back != d {
			t.Errorf("%q does not parse back: %v, %v", want, back, err)
		}
	}
}

func TestConfigureRefuses(t *testing.T) {
	c, _ := setup(t)
	oneError(t, c.configure(attrs{}), "endpoint", "missing", envEndpoint)
	oneError(t, c.configure(attrs{"endpoint": "http://c", "username": "u"}), "password", "missing")
}
