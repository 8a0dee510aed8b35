data "redisstream_stream_group" "billing" {
  stream_prefix  = "orders"
  consumer_group = "billing"
}

output "billing_members" {
  value = { for m in data.redisstream_stream_group.billing.members : m.member_id => m.current_shards }
}
