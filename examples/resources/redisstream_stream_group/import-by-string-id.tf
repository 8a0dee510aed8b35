import {
  to = redisstream_stream_group.billing
  id = "orders/billing"
}
