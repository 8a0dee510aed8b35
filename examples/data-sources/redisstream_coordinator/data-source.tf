data "redisstream_coordinator" "this" {
  lifecycle {
    postcondition {
      condition     = self.healthy && length(setintersection(self.roles, ["WRITE", "ADMIN"])) > 0
      error_message = "The coordinator is ${self.status}, and ${self.username} has the roles ${join(", ", self.roles)}."
    }
  }
}
