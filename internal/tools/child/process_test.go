package child

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

// A frozen process does nothing any more once Freeze has returned, however busy the machine is.
func TestFreezeWaitsForTheStop(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere it is believed")
	}
	p, err := Start(t.Context(), t.TempDir(), "busy", nil, "sh", "-c", "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	for range 200 {
		if err := p.Freeze(); err != nil {
			t.Fatal(err)
		}
		if !p.frozen() {
			t.Fatal("it still runs")
		}
		if err := p.Thaw(); err != nil {
			t.Fatal(err)
		}
		thawed := errors.New("not yet")
		if err := p.WaitFor(t.Context(), 10*time.Second, func(context.Context) error {
			if p.frozen() {
				return thawed
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
