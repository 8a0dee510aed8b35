import {
  to = redisstream_shard_count.orders
  identity = {
    stream_prefix = "orders"
  }
}
