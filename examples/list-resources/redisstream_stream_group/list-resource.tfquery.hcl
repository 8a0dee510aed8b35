# Terraform 1.14 and later: terraform query, or terraform query -generate-config-out=groups.tf
list "redisstream_stream_group" "of_orders" {
  provider         = redisstream
  include_resource = true

  config {
    stream_prefix = "orders"
  }
}
