package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A retention says what belongs to it, or is refused in words that help.
func TestRetentionIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for retention, want := range map[string]string{
		`{"policy":"MAX_LEN"}`:                            "retention.maxLen: is missing; policy MAX_LEN needs how many entries each shard keeps, at least 1",
		`{"policy":"MAX_AGE"}`:                            "retention.maxAgeMs: is missing",
		`{"policy":"MAX_AGE","maxAgeMs":10}`:              "retention.maxAgeMs: is 10; it must be at least 1000",
		`{"policy":"MAX_AGE","maxAgeMs":5000,"maxLen":3}`: "retention.maxLen: has no effect on policy MAX_AGE: leave it out, or ask for policy MAX_LEN",
		`{"policy":"ACKED","maxAgeMs":5000}`:              "retention.maxAgeMs: has no effect on policy ACKED",
		`{"maxLen":3}`:                                    "retention.maxLen: has no effect on policy NONE",
		`{"policy":"none"}`:                               "retention.policy: must be one of NONE, ACKED, MAX_AGE, MAX_LEN",
		`{"policy":"MAX_LEN","maxLen":-1}`:                "retention.maxLen: is -1; it must be at least 1",
		`{"policy":"MAX_LEN","maxLength":3}`:              "maxLength: is not a field of this request",
	} {
		got := b.do("PUT", Base+"/streams/orders", `{"shardCount":4,"retention":`+retention+`}`)
		var refused protocol.Error
		got.json(&refused)
		if got.Code != http.StatusBadRequest || refused.Code != protocol.CodeInvalidRequest || !strings.Contains(refused.Message, want) {
			t.Errorf("%s: %d %+v, want %q", retention, got.Code, refused, want)
		}
	}
	b.do("PUT", Base+"/streams/orders", `{"shardCount":4,"retention":{"policy":"MAX_LEN","maxLen":9}}`)
	call := b.engine.last(t, "PutStream")
	if call.spec.Retention != (protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 9}) || call.mutation.Audit.Summary != "shardCount=4 retention=MAX_LEN retained=9" {
		t.Errorf("%+v, summary %q", call.spec, call.mutation.Audit.Summary)
	}
}

// A group that has not finished is refused with what is left, shard by shard.
func TestDeleteGroupNotEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.engine.err = protocol.NewError(protocol.CodeGroupNotEmpty, "not finished", protocol.Detail{Field: "shards[1]", Message: "2 pending, 0 undelivered"})
	got := b.do("DELETE", Base+"/streams/orders/groups/billing", `{"requestedBy":"ann","reason":"r"}`)
	var refused protocol.Error
	got.json(&refused)
	if got.Code != http.StatusConflict || refused.Code != protocol.CodeGroupNotEmpty || len(refused.Details) != 1 || refused.Details[0].Field != "shards[1]" {
		t.Errorf("%d %+v", got.Code, refused)
	}
}
