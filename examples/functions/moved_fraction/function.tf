# 0.5: doubling moves half of the keys. From 8 to 9 shards, it would be eight ninths.
output "moved" {
  value = provider::redisstream::moved_fraction(8, 16)
}
