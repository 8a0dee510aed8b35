# Who changed the stream in January, and why. What is not known of an event is null, and a template takes no null.
data "redisstream_audit_events" "orders" {
  stream_prefix = "orders"
  action        = "PUT_STREAM"
  outcome       = "SUCCESS"
  from          = "2026-01-01T00:00:00Z"
  to            = "2026-02-01T00:00:00Z"
  limit         = 1000
}

output "changes" {
  value = [for e in data.redisstream_audit_events.orders.events : join(" ", [
    e.timestamp,
    coalesce(e.principal, "nobody"), "for", coalesce(e.requested_by, "nobody"),
    coalesce(e.summary, "no numbers"), coalesce(e.reason, "no reason"),
  ])]
}
