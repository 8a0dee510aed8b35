output "shards" {
  description = "The Redis keys of each stream, for access rules and dashboards."
  value       = { for prefix, s in data.redisstream_stream.all : prefix => s.shards[*].key }
}

output "keys_that_a_doubling_moves" {
  description = "Share of all customers whose shard changes when the orders get twice as many shards."
  value       = provider::redisstream::moved_fraction(var.orders_shards, 2 * var.orders_shards)
}
