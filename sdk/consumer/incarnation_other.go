//go:build !unix

package consumer

import (
	"errors"
	"os"
)

func lock(*os.File) error { return errors.New("file locks are not supported on this system") }
