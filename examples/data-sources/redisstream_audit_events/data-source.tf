# Who changed the stream in January, and why.
data "redisstream_audit_events" "orders" {
  stream_prefix = "orders"
  action        = "PUT_STREAM"
  outcome       = "SUCCESS"
  from          = "2026-01-01T00:00:00Z"
  to            = "2026-02-01T00:00:00Z"
  limit         = 1000
}

output "changes" {
  value = [for e in data.redisstream_audit_events.orders.events : "${e.timestamp} ${e.principal} (${e.requested_by}): ${e.summary}, ${e.reason}"]
}
