data "redisstream_coordinator" "this" {
  lifecycle {
    postcondition {
      condition     = self.healthy && contains(self.roles, "ADMIN")
      error_message = "The coordinator is ${self.status}, and ${self.username} has the roles ${join(", ", self.roles)}."
    }
  }
}
