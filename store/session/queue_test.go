package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/session"
)

// S3-07, S3-08, S3-19: saves that are not waited for run in the order in which they
// were made; each stores what its object was when it was made, and one that fails
// fails only its caller.
func TestSavesAreQueued(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "0")
	leave := s.HoldQueue(ref) // so that all are waiting
	const n = 20
	var all sync.WaitGroup
	errs := make([]error, n)
	buf := []byte(nil)
	for i := range n {
		o := newObject("s1", chatMessage(fmt.Sprintf("c%02d", i), "user", fmt.Sprint("said ", i)))
		o["title"] = "a title"
		if i == 7 {
			o["title"] = "a title that replaces the other one"
		}
		buf = append(buf[:0], o.raw(t)...)
		mine := json.RawMessage(buf)
		all.Go(func() { _, errs[i] = s.SaveSession(t.Context(), mine, nil) })
		session.WaitQueued(t, s, i+2)
		clear(mine) // the caller does with it what it likes
	}
	leave()
	all.Wait()
	want := []string{"0"}
	for i, err := range errs {
		switch {
		case i == 7 && !errors.Is(err, session.ErrConflict):
			t.Errorf("save %d = %v, want a conflict", i, err)
		case i == 7:
		case err != nil:
			t.Errorf("save %d = %v", i, err)
		default:
			want = append(want, fmt.Sprint("said ", i))
		}
	}
	if diff := cmp.Diff(want, contents(t, s, ref)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// Who deletes a project takes what was saved before, and what is saved later comes
// after: it brings nothing back.
func TestProjectIsABarrier(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one")
	leave := s.HoldQueue(ref)
	late := newObject("s1", chatMessage("c1", "user", "late"))
	late["title"] = "a title"
	var all sync.WaitGroup
	results := make([]error, 3)
	for i, call := range []func() error{
		func() error { _, err := s.SaveSession(t.Context(), late.raw(t), nil); return err },
		func() error { _, err := s.DeleteProject(t.Context(), "default"); return err },
		func() error { _, err := s.SaveSession(t.Context(), late.raw(t), nil); return err },
	} {
		all.Go(func() { results[i] = call() })
		session.WaitQueued(t, s, i+2)
	}
	leave()
	all.Wait()
	if results[0] != nil || results[1] != nil || !errors.Is(results[2], session.ErrDeleted) {
		t.Errorf("save, delete, save = %v", results)
	}
	ok(t, s.Restore(t.Context(), ref))
	if diff := cmp.Diff([]string{"one", "late"}, contents(t, s, ref)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// A save that was made is carried out, also if its caller has gone; Flush waits for
// it, as long as it may.
func TestSaveOfWhoHasGone(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one")
	leave := s.HoldQueue(ref)
	ctx, goAway := context.WithCancel(t.Context())
	o := newObject("s1", chatMessage("c1", "user", "two"))
	o["title"] = "a title"
	done := make(chan error, 1)
	go func() {
		_, err := s.SaveSession(ctx, o.raw(t), nil)
		done <- err
	}()
	session.WaitQueued(t, s, 2)
	goAway()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Flush while a save waits = %v", err)
	}
	leave()
	ok(t, s.Flush(t.Context()))
	if diff := cmp.Diff([]string{"one", "two"}, contents(t, s, ref)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	ok(t, <-done)
	if _, err := s.SaveSession(ctx, o.raw(t), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a save by who has gone before = %v", err)
	}
}
