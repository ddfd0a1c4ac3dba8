package durable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// TestHoldersStayFew takes a lock again and again: the file that says who has it
// is bounded, and tells the last one, also after one that was torn.
func TestHoldersStayFew(t *testing.T) {
	t.Parallel()
	fsys, err := durable.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	for i := range 200 {
		operation := fmt.Sprintf("step %d", i)
		unlock, err := durable.LockAs(t.Context(), fsys, "lock", operation, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := durable.ReadHolder(fsys, "lock"); got.Operation != operation || got.PID != os.Getpid() {
			t.Fatalf("ReadHolder: %+v, want %s", got, operation)
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
		info, err := fsys.Stat("lock.holder")
		if err != nil || info.Size() > 4500 {
			t.Fatalf("lock.holder: %v, %v; want at most 4,500 bytes", info.Size(), err)
		}
		torn, err := fsys.Append("lock.holder")
		if err != nil {
			t.Fatal(err)
		}
		_, err = torn.Write([]byte("\n{\"pid\":7,"))
		if err := errors.Join(err, torn.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
