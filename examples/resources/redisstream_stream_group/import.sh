# The id is <stream_prefix>/<consumer_group>.
terraform import redisstream_stream_group.billing orders/billing
