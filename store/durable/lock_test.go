package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sess/store/durable"
)

// A lock that should be free soon is not waited for without end.
func TestLockBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fsys := open(t)
		held, err := durable.LockBriefly(t.Context(), fsys, ".lock", durable.Exclusive, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = durable.LockBriefly(t.Context(), fsys, ".lock", durable.Shared, time.Minute)
		if waited := time.Since(start); !errors.Is(err, durable.ErrLocked) || waited < time.Minute || waited > 2*time.Minute {
			t.Errorf("a lock that stays held: %v after %v, want ErrLocked after a minute", err, waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := durable.LockBriefly(ctx, fsys, ".lock", durable.Shared, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the context ends: %v, want its error", err)
		}
		release := time.AfterFunc(30*time.Second, func() {
			if err := held(); err != nil {
				t.Error(err)
			}
		})
		defer release.Stop()
		unlock, err := durable.LockBriefly(t.Context(), fsys, ".lock", durable.Shared, time.Minute)
		if err != nil {
			t.Fatalf("a lock that gets free: %v", err)
		}
		if err := unlock(); err != nil {
			t.Error(err)
		}
	})
}
