package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
)

func readAll(t *testing.T, r *feedReader, n int) []string {
	t.Helper()
	var all []string
	for range n {
		e, err := r.Next(t.Context())
		if err != nil {
			t.Fatalf("Next after %v: %v", all, err)
		}
		all = append(all, e.Kind+" "+string(e.Data))
	}
	return all
}

// Each reader has all events from where it began, at its own speed; one that is
// too slow is told how many it missed, and holds nobody up.
func TestFeed(t *testing.T) {
	t.Parallel()
	f := newFeed()
	first := f.reader(f.end())
	const n = feedEvents + 10
	for i := range n {
		f.add("tick", json.RawMessage(fmt.Sprint(i)))
	}
	late := f.reader(f.end() - 1)
	if got := fmt.Sprint(readAll(t, late, 1)); got != fmt.Sprintf("[tick %d]", n-1) {
		t.Errorf("the last event is %s", got)
	}
	if got := fmt.Sprint(readAll(t, first, 2)); got != `[events_dropped {"dropped":10} tick 10]` {
		t.Errorf("a slow reader has %s", got)
	}
	e, err := first.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at, ok := f.parse(e.ID)
	if !ok || fmt.Sprint(readAll(t, f.reader(at+1), 1)) != "[tick 12]" {
		t.Errorf("after %s, event %d (%v), does not come tick 12", e.ID, at, ok)
	}
	for _, id := range []string{"", "1", f.life + "-0", f.life + "-x", fmt.Sprintf("%s-%d", f.life, f.end()), newFeed().life + "-3"} {
		if n, ok := f.parse(id); ok {
			t.Errorf("the id %q is event %d of this feed", id, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := late.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader whose context ended: %v", err)
	}
	f.close()
	f.add("tick", json.RawMessage("0"))
	if _, err := late.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want io.EOF", err)
	}
	gone := f.reader(1)
	gone.Close()
	gone.Close()
}

// What is kept is bounded by its size as well, and one event is kept always.
func TestFeedBytes(t *testing.T) {
	t.Parallel()
	f := newFeed()
	large := json.RawMessage(make([]byte, feedBytes))
	r := f.reader(f.end())
	f.add("small", json.RawMessage("{}"))
	f.add("large", large)
	if e, err := r.Next(t.Context()); err != nil || e.Kind != chatDropped {
		t.Errorf("Next = %s, %v, want %s", e.Kind, err, chatDropped)
	}
	if e, err := r.Next(t.Context()); err != nil || e.Kind != "large" {
		t.Errorf("Next = %s, %v, want the large one", e.Kind, err)
	}
}
