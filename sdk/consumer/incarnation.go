package consumer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// errHeld: another process has the lock of an incarnation file.
var errHeld = errors.New("another live process holds it")

// incarnationFile keeps the incarnation of a member over restarts (rule M9). Its lock proves
// that whoever wrote it is dead.
type incarnationFile struct{ f *os.File }

// openIncarnation locks the file and reads what the predecessor left, "" if nothing.
func openIncarnation(path string) (*incarnationFile, string, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, "", fmt.Errorf("incarnation file: %w", err)
	}
	if err := lock(f); err != nil {
		return nil, "", fmt.Errorf("incarnation file %s: %w", path, errors.Join(err, f.Close()))
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return nil, "", fmt.Errorf("incarnation file: %w", errors.Join(err, f.Close()))
	}
	return &incarnationFile{f}, strings.TrimSpace(string(text)), nil
}

// store writes before the incarnation is used for the first time.
func (i *incarnationFile) store(incarnation string) error {
	if i == nil {
		return nil
	}
	if err := i.f.Truncate(0); err != nil {
		return fmt.Errorf("incarnation file: %w", err)
	}
	if _, err := i.f.WriteAt([]byte(incarnation+"\n"), 0); err != nil {
		return fmt.Errorf("incarnation file: %w", err)
	}
	if err := i.f.Sync(); err != nil {
		return fmt.Errorf("incarnation file: %w", err)
	}
	return nil
}

// close gives the lock up.
func (i *incarnationFile) close() error {
	if i == nil {
		return nil
	}
	return i.f.Close()
}
