import {
  to = redisstream_stream_group.billing
  identity = {
    stream_prefix  = "orders"
    consumer_group = "billing"
  }
}
