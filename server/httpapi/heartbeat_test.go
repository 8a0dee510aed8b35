package httpapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const fullBeat = `{"protocolVersion":1,"requestId":"q1","memberId":"m1","memberName":null,"memberEpoch":5,"metadataVersion":6,
 "runtimeConsumerCapacity":{"runtimeMaxConcurrency":4,"availableConcurrency":0},
 "ownedShards":[{"shardIndex":3},{"shardIndex":3}],
 "revokingShards":[{"shard":{"shardIndex":1},"state":"REVOKED","ackedAt":null}],
 "shardProgress":[{"shard":{"shardIndex":3},"streamKey":"orders:3","lastDeliveredId":null,"lastAckedId":"1-0","pendingCount":2,"updatedAt":null}],
 "ownershipSeen":[{"shard":{"shardIndex":3},"epoch":9}],"incarnation":"i1","maxWaitMs":1000,"fromTheFuture":{"x":1}}`

func TestHeartbeatIsPassedOnWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.do("POST", Base+"/streams/orders/groups/billing/members/m%3A1/heartbeat", fullBeat)
	if got.Code != 200 {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	acked := "1-0"
	want := &protocol.HeartbeatRequest{ProtocolVersion: 1, RequestID: "q1", MemberID: "m1", MemberEpoch: 5, MetadataVersion: 6,
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 4},
		OwnedShards:             protocol.Shards([]int{3, 3}),
		RevokingShards:          []protocol.RevokingShard{{Shard: protocol.Shard{ShardIndex: 1}, State: protocol.RevokingRevoked}},
		ShardProgress:           []protocol.ShardProgress{{Shard: protocol.Shard{ShardIndex: 3}, StreamKey: "orders:3", LastAckedID: &acked, PendingCount: 2}},
		Incarnation:             "i1", MaxWaitMs: 1000,
		OwnershipSeen: []protocol.OwnershipSeen{{Shard: protocol.Shard{ShardIndex: 3}, Epoch: 9}}}
	if !reflect.DeepEqual(b.engine.beats[0], want) {
		t.Errorf("got  %+v\nwant %+v", b.engine.beats[0], want)
	}
	if b.engine.members[0] != "m:1" {
		t.Errorf("the engine was told the path member %q", b.engine.members[0])
	}
}

// Form alone decides between 400 and the engine; what the engine should refuse passes.
func TestHeartbeatForm(t *testing.T) {
	t.Parallel()
	edit := func(change func(m map[string]any)) string {
		var m map[string]any
		if err := json.Unmarshal([]byte(fullBeat), &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		return mustJSON(t, m)
	}
	without := func(field string) string { return edit(func(m map[string]any) { delete(m, field) }) }
	with := func(field string, value any) string { return edit(func(m map[string]any) { m[field] = value }) }
	type object = map[string]any
	for _, c := range []struct{ name, body, field string }{
		{"nothing", "", "body"},
		{"no JSON", "{", "body"},
		{"a list", "[]", "body"},
		{"null", "null", "body"},
		{"no protocolVersion", without("protocolVersion"), "protocolVersion"},
		{"null protocolVersion", with("protocolVersion", nil), "protocolVersion"},
		{"protocolVersion 0", with("protocolVersion", 0), "protocolVersion"},
		{"protocolVersion text", with("protocolVersion", "1"), "protocolVersion"},
		{"protocolVersion 9", with("protocolVersion", 9), ""},
		{"no requestId", without("requestId"), "requestId"},
		{"blank requestId", with("requestId", " "), "requestId"},
		{"long requestId", with("requestId", strings.Repeat("x", 300)), "requestId"},
		{"no memberId", without("memberId"), "memberId"},
		{"blank memberId", with("memberId", ""), "memberId"},
		{"other memberId", with("memberId", "m2"), ""},
		{"no memberEpoch", without("memberEpoch"), "memberEpoch"},
		{"memberEpoch -7", with("memberEpoch", -7), ""},
		{"no metadataVersion", without("metadataVersion"), "metadataVersion"},
		{"no capacity", without("runtimeConsumerCapacity"), "runtimeConsumerCapacity.runtimeMaxConcurrency"},
		{"capacity 0", with("runtimeConsumerCapacity", object{"runtimeMaxConcurrency": 0, "availableConcurrency": 0}), "runtimeConsumerCapacity.runtimeMaxConcurrency"},
		{"no available", with("runtimeConsumerCapacity", object{"runtimeMaxConcurrency": 1}), "runtimeConsumerCapacity.availableConcurrency"},
		{"available -1", with("runtimeConsumerCapacity", object{"runtimeMaxConcurrency": 1, "availableConcurrency": -1}), "runtimeConsumerCapacity.availableConcurrency"},
		{"lists absent", edit(func(m object) {
			for _, k := range []string{"ownedShards", "revokingShards", "shardProgress", "ownershipSeen"} {
				delete(m, k)
			}
		}), ""},
		{"lists null", edit(func(m object) { m["ownedShards"], m["revokingShards"], m["shardProgress"] = nil, nil, nil }), ""},
		{"a shard without index", with("ownedShards", []object{{"shardIndex": 1}, {}}), "ownedShards[1].shardIndex"},
		{"a bare index", with("ownedShards", []int{1}), "ownedShards"},
		{"a negative index", with("ownedShards", []object{{"shardIndex": -4}}), ""},
		{"revoking without shard", with("revokingShards", []object{{"state": "REVOKED"}}), "revokingShards[0].shard.shardIndex"},
		{"revoking in no state", with("revokingShards", []object{{"shard": object{"shardIndex": 1}}}), "revokingShards[0].state"},
		{"revoking in an unknown state", with("revokingShards", []object{{"shard": object{"shardIndex": 1}, "state": "GONE"}}), "revokingShards[0].state"},
		{"progress without key", with("shardProgress", []object{{"shard": object{"shardIndex": 1}}}), "shardProgress[0].streamKey"},
		{"seen without epoch", with("ownershipSeen", []object{{"shard": object{"shardIndex": 1}}}), "ownershipSeen[0].shard and epoch"},
		{"maxWaitMs -1", with("maxWaitMs", -1), "maxWaitMs"},
		{"too many shards", with("ownedShards", make([]object, 16385)), "ownedShards"},
	} {
		_, err := decodeHeartbeat([]byte(c.body))
		field := ""
		if err != nil {
			var refused *protocol.Error
			if !asError(err, &refused) || refused.Code != protocol.CodeInvalidRequest || len(refused.Details) == 0 {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			field = refused.Details[0].Field
		}
		if field != c.field {
			t.Errorf("%s: refused for %q, want %q (%v)", c.name, field, c.field, err)
		}
	}
}

func FuzzDecodeHeartbeat(f *testing.F) {
	f.Add([]byte(fullBeat))
	f.Add([]byte(`{"protocolVersion":1,"ownedShards":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		req, err := decodeHeartbeat(data)
		if err != nil {
			var refused *protocol.Error
			if !asError(err, &refused) || refused.Code != protocol.CodeInvalidRequest || len(refused.Message) > 2048 {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		// What was accepted is accepted again, and means the same.
		raw, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeHeartbeat(raw)
		if err != nil || !reflect.DeepEqual(req, again) {
			t.Fatalf("%s: %v\n%+v\n%+v", raw, err, req, again)
		}
	})
}

func FuzzDecodePutStream(f *testing.F) {
	f.Add([]byte(`{"shardCount":4,"resharding":{"strategy":"ONLINE","ignoreGroups":["a"]},"reason":"x"}`))
	f.Add([]byte(`{"shardCount":1e308}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var body protocol.PutStreamRequest
		err := decodeJSON(data, &body, strict)
		if err == nil {
			err = check(&body)
		}
		var refused *protocol.Error
		if err != nil && (!asError(err, &refused) || refused.Code != protocol.CodeInvalidRequest) {
			t.Fatalf("refused with %v", err)
		}
	})
}
