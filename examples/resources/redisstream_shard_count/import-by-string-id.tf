import {
  to = redisstream_shard_count.orders
  id = "orders"
}
