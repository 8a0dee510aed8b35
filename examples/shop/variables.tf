variable "namespace" {
  description = "Begins the name of every stream, so that several of these can share a Redis."
  type        = string
  default     = "shop"
}

variable "orders_shards" {
  description = "Shard count of the orders: their throughput divided by what one consumer handles, times two."
  type        = number
  default     = 8
}

variable "clicks_shards" {
  description = "Shard count of the clicks."
  type        = number
  default     = 16
}

variable "deletion_protection" {
  description = "Whether streams and groups cannot be destroyed."
  type        = bool
  default     = true
}

variable "reason" {
  description = "Why, for the coordinator's audit log: a ticket, the link of a merge request."
  type        = string
  default     = ""
}

variable "run" {
  description = "Number of the pipeline run: begins the id of every request, so that the audit log tells which run it was."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^[A-Za-z0-9._:-]{0,63}$", var.run))
    error_message = "At most 63 of the characters A-Z, a-z, 0-9 and . _ : -"
  }
}
