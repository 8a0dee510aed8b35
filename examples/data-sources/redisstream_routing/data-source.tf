data "redisstream_routing" "orders" {
  stream_prefix = "orders"
}

# Where each shard is on a Redis Cluster.
output "slots_of_orders" {
  value = { for s in data.redisstream_routing.orders.shards : s.key => s.slot }
}
