data "redisstream_routing" "orders" {
  stream_prefix = "orders"
}

# Rules of a Redis user that may do nothing but append to the shards.
output "acl_of_producers" {
  value = join(" ", concat(["on", "-@all", "+xadd", "+evalsha"], [for s in data.redisstream_routing.orders.shards : "~${s.key}"]))
}
