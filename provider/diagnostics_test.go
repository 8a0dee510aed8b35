package provider

import (
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Whatever the coordinator refuses, Terraform's user is told what to do about it.
func TestEveryRefusalHasAdvice(t *testing.T) {
	for _, code := range protocol.Codes() {
		if a := adviceFor[code]; a.summary == "" || a.todo == "" {
			t.Errorf("no advice for %s", code)
		}
	}
}
