# Got when it is needed, renewed while the run lasts, revoked behind it; kept in no plan and no state.
ephemeral "redisstream_token" "deploy" {
  ttl = "10m"
}

# For instance, the same coordinator by a token in place of a password.
provider "redisstream" {
  alias    = "deploy"
  endpoint = "https://coordinator.example.com"
  token    = ephemeral.redisstream_token.deploy.token
}
