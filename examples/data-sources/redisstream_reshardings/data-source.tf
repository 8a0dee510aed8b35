data "redisstream_reshardings" "orders" {
  stream_prefix = "orders"
}

output "longest_pause_ms" {
  value = max(0, data.redisstream_reshardings.orders.reshardings[*].paused_ms...)
}
