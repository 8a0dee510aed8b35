# Terraform 1.14 and later: terraform query, or terraform query -generate-config-out=streams.tf
list "redisstream_shard_count" "of_the_shop" {
  provider = redisstream

  config {
    starts_with = "shop."
  }
}
