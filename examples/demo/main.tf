# What `make demo` applies, once for each shard count, while producers and consumers run.
# The provider reads REDISSTREAM_ENDPOINT, REDISSTREAM_USERNAME and REDISSTREAM_PASSWORD.

terraform {
  required_providers {
    redisstream = {
      source = "redisstream/redisstream"
    }
  }
}

variable "shard_count" {
  type = number
}

variable "strategy" {
  type    = string
  default = "quiesce"
}

variable "reason" {
  type    = string
  default = "demo"
}

resource "redisstream_shard_count" "orders" {
  stream_prefix = "orders"
  shard_count   = var.shard_count
  strategy      = var.strategy
  pause_timeout = "20s"
  reason        = var.reason
}

resource "redisstream_stream_group" "billing" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "billing"
}

output "resharding" {
  value = redisstream_shard_count.orders.last_resharding
}
