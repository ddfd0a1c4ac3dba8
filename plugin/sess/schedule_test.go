package sess

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Jobs do not wait for each other, none runs twice at once, and a panic ends one
// run only.
func TestSchedulerKeepsJobsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newScheduler(slog.New(slog.NewTextHandler(&log, nil)))
		var slow, quick, broken, running, most atomic.Int32
		s.add("slow", time.Second, func() {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			slow.Add(1)
			<-time.After(2900 * time.Millisecond)
		})
		s.add("quick", time.Second, func() { quick.Add(1) })
		s.add("broken", time.Second, func() {
			broken.Add(1)
			panic("boom")
		})
		s.start()
		if s.next("quick").IsZero() || !s.next("nosuch").IsZero() {
			t.Errorf("next runs: quick %v, nosuch %v", s.next("quick"), s.next("nosuch"))
		}
		<-time.After(10500 * time.Millisecond) // in the bubble's time
		if err := s.stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		if slow.Load() != 4 || most.Load() != 1 {
			t.Errorf("the slow job ran %d times, %d at once; want 4 and 1", slow.Load(), most.Load())
		}
		if n := quick.Load(); n != 10 {
			t.Errorf("the quick job ran %d times, want 10", n)
		}
		if n := broken.Load(); n != 10 {
			t.Errorf("the job that panics ran %d times, want 10", n)
		}
		// What did not run, or went wrong, is told at levels that are kept.
		if n := strings.Count(log.String(), `level=WARN msg="schedule: skip"`); n != 6 {
			t.Errorf("%d skipped runs are logged, want 6:\n%s", n, &log)
		}
		if n := strings.Count(log.String(), "err=boom"); n != 10 || !strings.Contains(log.String(), `level=ERROR msg="schedule: panic"`) {
			t.Errorf("%d panics are logged, want 10:\n%s", n, &log)
		}
	})
}
