package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// While a pause lasts, what is read of it grows, though nothing of the stream changes.
func TestPauseIsCountedWhileItLasts(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, gate, _ := w.start("a")
		w.create(e, 2)
		stopped := gate.at(protocol.PhaseDraining) // no pass, so no commit, from here on
		id := w.scale(e, 3, quiesce)
		await(t, "DRAINING", stopped)
		defer gate.release()
		for name, read := range map[string]func() (protocol.Resharding, error){
			"one": func() (protocol.Resharding, error) { return e.Resharding(context.Background(), w.prefix, id, "", 0) },
			"list": func() (protocol.Resharding, error) {
				all, err := e.Reshardings(context.Background(), w.prefix)
				return all[0], err
			},
		} {
			first, err := read()
			if err != nil || first.PauseDeadline == nil {
				t.Fatalf("%s: %+v, %v", name, first, err)
			}
			w.eventually(name+" grows", 10*time.Second, func() (bool, string) {
				r, err := read()
				return err == nil && r.PausedMs > first.PausedMs, fmt.Sprint(r.PausedMs, err)
			})
		}
	})
}
