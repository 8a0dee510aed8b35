package server_test

import (
	"os"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
