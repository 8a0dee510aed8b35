# On which shard the entries of one customer are, while the stream has eight.
output "shard_of_customer" {
  value = provider::redisstream::shard_index("customer-4711", 8)
}
