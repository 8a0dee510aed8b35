package provider

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Whoever comes second to a name waits until the first has done with it, however long that takes,
// and nobody waits for another name.
func TestClaimsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c claims
		first, leave, err := c.enter(t.Context(), "stream")
		if err != nil {
			t.Fatal(err)
		}
		if _, other, err := c.enter(t.Context(), "another stream"); err != nil {
			t.Fatal(err)
		} else {
			other()
		}
		entered := make(chan *claim, 1)
		go func() {
			second, leave, err := c.enter(t.Context(), "stream")
			if err != nil {
				t.Error(err)
				return
			}
			defer leave()
			entered <- second
		}()
		given, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, _, err := c.enter(given, "stream")
			ended <- err
		}()
		synctest.Wait() // both are as far as they come
		if len(entered) != 0 || len(ended) != 0 {
			t.Fatal("a second one has entered")
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that gave up: %v", err)
		}
		first.made = true
		leave()
		if second := <-entered; second != first || !second.made {
			t.Error("the second one does not see what the first has done")
		}
	})
}
