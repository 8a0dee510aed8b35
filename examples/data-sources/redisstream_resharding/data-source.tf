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

# The evidence compared with Redis as it is now. It looks at every shard, with every plan.
data "redisstream_resharding" "proof" {
  stream_prefix = "orders"
  recheck       = true
}

output "still_holds" {
  value = try(data.redisstream_resharding.proof.recheck_result.holds, "nothing was drained")
}
