# Two streams, three consumer groups, and a check that all of it has converged. The pipeline that
# plans and applies it is pipeline.yml.

terraform {
  required_version = ">= 1.8" # outputs.tf calls a function of the provider
  required_providers {
    redisstream = {
      source = "redisstream/redisstream"
      # Of a release: version = "~> 1.0". A pre-release must be named exactly.
    }
  }
}

# Address and credentials come from the environment: REDISSTREAM_ENDPOINT, REDISSTREAM_USERNAME
# and REDISSTREAM_PASSWORD, or REDISSTREAM_TOKEN.
provider "redisstream" {
  request_id_prefix = var.run == "" ? null : "${var.run}:"
}

# Orders: the order of each customer's entries matters, so a change of the shard count pauses
# publishing, for 30 seconds at most, and drains first.
resource "redisstream_shard_count" "orders" {
  stream_prefix = "${var.namespace}.orders"
  shard_count   = var.orders_shards
  strategy      = "quiesce"
  drain_scope   = "all"
  pause_timeout = "30s"
  reason        = var.reason

  deletion_protection = var.deletion_protection

  timeouts = {
    update = "30m"
  }
}

# Clicks: their order does not matter, publishing never pauses.
resource "redisstream_shard_count" "clicks" {
  stream_prefix = "${var.namespace}.clicks"
  shard_count   = var.clicks_shards
  strategy      = "online"
  reason        = var.reason

  deletion_protection = var.deletion_protection
}

resource "redisstream_stream_group" "billing" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "billing"
  reason         = var.reason

  deletion_protection = var.deletion_protection
}

resource "redisstream_stream_group" "shipping" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "shipping"
  reason         = var.reason

  # Its members take long to hand a shard over: a parcel is finished first.
  rebalance_timeout = "5m"

  deletion_protection = var.deletion_protection
}

resource "redisstream_stream_group" "dashboard" {
  stream_prefix  = redisstream_shard_count.clicks.stream_prefix
  consumer_group = "dashboard"
  start_position = "latest"
  reason         = var.reason

  # A dashboard that shows old numbers for ten seconds is no harm; a quick take-over is good.
  member_lease       = "5s"
  heartbeat_interval = "1s"

  deletion_protection = var.deletion_protection
}

# Read with every plan; while something above is to be changed, only during the apply, behind it:
# the checks below are then "known after apply".
data "redisstream_stream" "all" {
  for_each      = toset([redisstream_shard_count.orders.stream_prefix, redisstream_shard_count.clicks.stream_prefix])
  stream_prefix = each.value

  depends_on = [
    redisstream_stream_group.billing, redisstream_stream_group.shipping, redisstream_stream_group.dashboard,
  ]
}

data "redisstream_coordinator" "this" {}

check "converged" {
  assert {
    condition     = alltrue([for s in data.redisstream_stream.all : s.converged])
    error_message = "Not converged: ${join("; ", flatten([for s in data.redisstream_stream.all : [for c in s.conditions : "${s.stream_prefix}: ${c.message}" if c.type == "Converged" && !c.status]]))}"
  }
  assert {
    condition     = alltrue([for s in data.redisstream_stream.all : s.publish_state == "OPEN"])
    error_message = "Publishing is paused on: ${join(", ", [for s in data.redisstream_stream.all : s.stream_prefix if s.publish_state != "OPEN"])}"
  }
}

check "coordinator" {
  assert {
    condition     = data.redisstream_coordinator.this.healthy && data.redisstream_coordinator.this.compatible
    error_message = "The coordinator is ${data.redisstream_coordinator.this.status}; compatible: ${data.redisstream_coordinator.this.compatible}."
  }
}
