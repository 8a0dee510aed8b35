# The one that is running, or else the one that ended last.
data "redisstream_resharding" "last" {
  stream_prefix = "orders"
}

output "what_holds_it_up" {
  value = data.redisstream_resharding.last.waiting_for
}

output "evidence" {
  value = data.redisstream_resharding.last.certificate
}
