# ["orders:0", "orders:1", "orders:2", "orders:3"]
output "keys" {
  value = provider::redisstream::shard_keys("orders", 4)
}
