data "redisstream_stream_groups" "orders" {
  stream_prefix = "orders"
}

# Groups that nobody reads for: each of them would hold up a drain.
output "groups_without_members" {
  value = [for g in data.redisstream_stream_groups.orders.groups : g.consumer_group if g.state == "EMPTY"]
}
