package server

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
)

// lateStream has one event, after a time.
type lateStream struct{ after <-chan time.Time }

func (s lateStream) Next(ctx context.Context) (ChatEvent, error) {
	select {
	case <-s.after:
		return ChatEvent{ID: "x-1", Kind: "notice", Data: []byte(`{"text":"at last"}`)}, nil
	case <-ctx.Done():
		return ChatEvent{}, ctx.Err()
	}
}

func (lateStream) Close() {}

// While nothing happens a stream says that it lives, so that nobody on the way takes
// it for dead; and it ends with its client.
func TestStreamSaysThatItLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := httptest.NewRecorder()
		out := newEventWriter(echo.New().NewContext(httptest.NewRequest("GET", "/", nil), answer))
		e, err := out.next(t.Context(), lateStream{time.After(2*pingTime + time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if err := out.write(e); err != nil {
			t.Fatal(err)
		}
		const want = ": \n\n: \n\nid: x-1\nevent: notice\ndata: {\"text\":\"at last\"}\n\n"
		if got := answer.Body.String(); got != want || answer.Header().Get("Content-Type") != mimeEvents || !answer.Flushed {
			t.Errorf("sent was %q, want %q", got, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), pingTime/2)
		defer cancel()
		if _, err := out.next(ctx, lateStream{nil}); err == nil || ctx.Err() == nil {
			t.Errorf("after its client has gone: %v", err)
		}
	})
}
