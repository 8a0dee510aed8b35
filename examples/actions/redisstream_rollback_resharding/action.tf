# Terraform 1.14 and later. By hand: terraform apply -invoke=action.redisstream_rollback_resharding.orders
action "redisstream_rollback_resharding" "orders" {
  config {
    stream_prefix = "orders"
    timeout       = "5m"
    reason        = "the drain takes too long"
  }
}
