package protocol_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// TestRoutingVectors: every client in every language must send a key to the same shard.
func TestRoutingVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/routing-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		AttemptSeeds []struct{ Attempt, Seed uint32 }
		Vectors      []struct {
			Key        *string
			KeyHex     string
			Hash       uint32
			ShardCount int
			ShardIndex int
		}
		SlotVectors []struct {
			StreamKey string
			Slot      int
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) < 400 || len(file.SlotVectors) < 70 || len(file.AttemptSeeds) < 9 {
		t.Fatalf("vectors are missing: %d keys, %d slots, %d seeds", len(file.Vectors), len(file.SlotVectors), len(file.AttemptSeeds))
	}
	for _, v := range file.AttemptSeeds[1:] {
		b := []byte{byte(v.Attempt), byte(v.Attempt >> 8), byte(v.Attempt >> 16), byte(v.Attempt >> 24)}
		if got := protocol.Murmur3(b, 0); got != v.Seed {
			t.Errorf("seed of attempt %d: got %d, want %d", v.Attempt, got, v.Seed)
		}
	}
	for _, v := range file.Vectors {
		var key []byte
		if v.Key != nil {
			key = []byte(*v.Key)
		} else if key, err = hex.DecodeString(v.KeyHex); err != nil {
			t.Fatal(err)
		}
		if got := protocol.Murmur3(key, 0); got != v.Hash {
			t.Errorf("hash of %q: got %d, want %d", key, got, v.Hash)
		}
		if got, ok := protocol.ShardIndex(key, v.ShardCount); !ok || got != v.ShardIndex {
			t.Errorf("shard of %q among %d: got %d, want %d", key, v.ShardCount, got, v.ShardIndex)
		}
	}
	for _, v := range file.SlotVectors {
		if got := protocol.RedisSlot(v.StreamKey); got != v.Slot {
			t.Errorf("slot of %q: got %d, want %d", v.StreamKey, got, v.Slot)
		}
	}
}

func TestShardIndexOfAnEmptyLayout(t *testing.T) {
	if _, ok := protocol.ShardIndex([]byte("k"), 0); ok {
		t.Error("a layout of 0 shards has no shard for any key")
	}
}
