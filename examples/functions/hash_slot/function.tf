# How the shards of a stream spread over the slots of a Redis Cluster.
output "slots" {
  value = { for key in provider::redisstream::shard_keys("orders", 4) : key => provider::redisstream::hash_slot(key) }
}
