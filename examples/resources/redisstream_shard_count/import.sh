# The id is the stream prefix.
terraform import redisstream_shard_count.orders orders
