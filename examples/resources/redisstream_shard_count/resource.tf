# A stream of eight shards. Change shard_count to reshard it, up or down.
resource "redisstream_shard_count" "orders" {
  stream_prefix = "orders"
  shard_count   = 8
  reason        = "ticket OPS-1234"
}

# Publishing may pause for 30 seconds at most; removed shards are kept under another key.
resource "redisstream_shard_count" "payments" {
  stream_prefix = "payments"
  shard_count   = 16

  strategy      = "quiesce"
  drain_scope   = "all"
  retire        = "archive"
  pause_timeout = "30s"
  drain_timeout = "2h"
  on_timeout    = "rollback"

  timeouts = {
    update = "3h"
  }
}

# Order within a key does not matter here, so publishing never pauses.
resource "redisstream_shard_count" "clicks" {
  stream_prefix = "clicks"
  shard_count   = 64
  strategy      = "online"

  deletion_protection = false
}
