# Terraform 1.14 and later. By hand: terraform apply -invoke=action.redisstream_pause_publishing.maintenance
action "redisstream_pause_publishing" "maintenance" {
  config {
    stream_prefix = "orders"
    timeout       = "15m"
    reason        = "maintenance of the database behind the consumers"
  }
}
