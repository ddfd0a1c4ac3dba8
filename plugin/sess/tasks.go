package sess

import (
	"context"
	"sync"
)

// tasks is work that somebody waits for.
type tasks struct {
	mu     sync.Mutex // guards closed, and wg against a late Add
	closed bool
	wg     sync.WaitGroup
}

// enter begins a task, which leave ends, unless the tasks are closed; it reports
// whether it did.
func (t *tasks) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.wg.Add(1)
	}
	return !t.closed
}

func (t *tasks) leave() { t.wg.Done() }

// run starts f as a task of its own; it reports whether it did.
func (t *tasks) run(f func()) bool {
	if !t.enter() {
		return false
	}
	go func() {
		defer t.leave()
		f()
	}()
	return true
}

func (t *tasks) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// wait returns when all tasks are done, or with the end of ctx.
func (t *tasks) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
