package protocol

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
)

// HashName names the routing hash in routing answers: MurmurHash3 x86 32-bit over the bytes
// of the key, seed 0, reduced without modulo bias (ShardIndex). A client that does not know
// the name in a routing answer must not append.
const HashName = "murmur3-32-rejection-v1"

// Murmur3 is MurmurHash3_x86_32 (Austin Appleby, public domain), blocks read little-endian.
func Murmur3(data []byte, seed uint32) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	h := seed
	n := len(data)
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * c1
		k = bits.RotateLeft32(k, 15) * c2
		h = bits.RotateLeft32(h^k, 13)*5 + 0xe6546b64
	}
	var k uint32
	for _, d := range slices.Backward(data) {
		k = k<<8 | uint32(d)
	}
	if len(data) > 0 {
		k *= c1
		k = bits.RotateLeft32(k, 15) * c2
		h ^= k
	}
	h ^= uint32(n)
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// ShardIndex routes a partition key: the shard of key among shardCount shards. Hashes in the
// top band that would bias the modulo are rejected and drawn again with another seed: attempt
// n ≥ 1 uses Murmur3 of the four little-endian bytes of n as its seed.
//
// shardCount 0 has no shard: ok is false.
func ShardIndex(key []byte, shardCount int) (index int, ok bool) {
	if shardCount <= 0 {
		return 0, false
	}
	n := uint64(shardCount)
	limit := (uint64(1) << 32) - (uint64(1)<<32)%n
	seed := uint32(0)
	for attempt := uint32(1); ; attempt++ {
		if h := uint64(Murmur3(key, seed)); h < limit {
			return int(h % n), true
		}
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], attempt)
		seed = Murmur3(b[:], 0)
	}
}

// RedisSlot is the Redis Cluster hash slot of a key, 0..16383: CRC16 (XMODEM) of the hash tag
// when the key has a non-empty one, else of the whole key.
func RedisSlot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if end := strings.IndexByte(key[open+1:], '}'); end > 0 {
			key = key[open+1 : open+1+end]
		}
	}
	var crc uint16
	for i := 0; i < len(key); i++ {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
