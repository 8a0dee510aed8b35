data "redisstream_stream" "orders" {
  stream_prefix = "orders"
}

# Fails no plan, but warns with every run for as long as something is on its way.
check "orders_converged" {
  assert {
    condition     = data.redisstream_stream.orders.converged
    error_message = "Stream orders is not what was asked for: ${join("; ", [for c in data.redisstream_stream.orders.conditions : c.message if !c.status])}"
  }
}
