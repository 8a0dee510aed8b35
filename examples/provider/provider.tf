terraform {
  required_providers {
    redisstream = {
      source  = "redisstream/redisstream"
      version = "~> 1.0" # once there is a release; until then see "Installation"
    }
  }
}

# Credentials come from the environment: REDISSTREAM_USERNAME and REDISSTREAM_PASSWORD, or
# REDISSTREAM_TOKEN.
provider "redisstream" {
  endpoint = "https://coordinator.example.com"
}
