resource "redisstream_shard_count" "orders" {
  stream_prefix = "orders"
  shard_count   = 8
}

# Reads everything that the stream holds.
resource "redisstream_stream_group" "billing" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "billing"
}

# Reads what is appended from now on; takes over from a dead member within ten seconds.
resource "redisstream_stream_group" "dashboard" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "dashboard"
  start_position = "latest"

  member_lease       = "10s"
  heartbeat_interval = "2s"
  rebalance_timeout  = "30s"
}
