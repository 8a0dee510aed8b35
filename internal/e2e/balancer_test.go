package e2e_test

import (
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/balancer"
)

// startBalancer spreads requests over the replicas, one after the other, as a balancer without
// affinity does. It ends with the test.
func startBalancer(t *testing.T, replicas []*coordinator) string {
	t.Helper()
	var urls []string
	for _, r := range replicas {
		urls = append(urls, r.url())
	}
	b, err := balancer.Start(t.Context(), urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close of the balancer: %v", err)
		}
	})
	return b.URL
}
