provider "redisstream" {
  endpoints = ["https://coordinator-a.example.com:8443", "https://coordinator-b.example.com:8443"]

  token_file              = "/run/secrets/redisstream-token"
  ca_certificate_file     = "/etc/ssl/example-authority.pem"
  client_certificate_file = "/run/secrets/terraform.pem"
  client_key_file         = "/run/secrets/terraform-key.pem"

  requested_by      = "team-orders"
  request_id_prefix = "run-4711:"
  retry_budget      = "2m"
}
