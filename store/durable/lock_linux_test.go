package durable_test

import (
	"errors"
	"testing"

	"sess/store/durable"
)

// TestLockFileThatIsRemoved has the holder of a lock remove its file before it
// lets go: who waits for it, or has just opened it, gets the lock of a new file.
func TestLockFileThatIsRemoved(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	for range 30 {
		unlock, err := fsys.Lock(t.Context(), "lock", durable.Exclusive, false)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			again, err := fsys.Lock(t.Context(), "lock", durable.Exclusive, true)
			if err == nil {
				err = errors.Join(fsys.Remove("lock"), again())
			}
			got <- err
		}()
		if err := errors.Join(fsys.Remove("lock"), unlock()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatalf("the lock of a file that was removed: %v", err)
		}
	}
}
