package session

import (
	"testing"
	"time"
)

// HoldQueue is a call about a session that ends when the returned function is
// called.
func (s *Store) HoldQueue(ref Ref) (leave func()) { return s.queue.enter(ref) }

// Queued counts the calls of clients that have not ended.
func (s *Store) Queued() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	n := 0
	for _, p := range s.queue.projects {
		n += p.waiting
	}
	return n
}

// WaitQueued waits until so many calls of clients have not ended.
func WaitQueued(t *testing.T, s *Store, n int) {
	t.Helper()
	for start := time.Now(); s.Queued() != n; {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d calls are queued, want %d", s.Queued(), n)
		}
		<-time.After(time.Millisecond)
	}
}
