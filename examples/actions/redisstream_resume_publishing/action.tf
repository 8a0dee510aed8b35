# Terraform 1.14 and later. By hand: terraform apply -invoke=action.redisstream_resume_publishing.maintenance
action "redisstream_resume_publishing" "maintenance" {
  config {
    stream_prefix = "orders"
  }
}
