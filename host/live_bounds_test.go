package host

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"sess/plugin"
	"sess/store/session"
)

// openBare opens a host without plugins, with sessions n0, n1 and so on.
func openBare(t *testing.T, sessions int) *Host {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(t.Context(), Options{Home: t.TempDir(), Exe: exe})
	if err != nil {
		t.Fatal(err)
	}
	for i := range sessions {
		if err := h.sessions.Create(t.Context(), h.sessions.New(bareRef(i), "", "")); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func bareRef(i int) session.Ref { return session.Ref{Project: DefaultProject, ID: fmt.Sprint("n", i)} }

// As many conversations are open as may be: the one that was idle for longest makes
// room, and where all are used the next one is refused, in words.
func TestConversationsBounded(t *testing.T) {
	t.Parallel()
	h := openBare(t, maxConversations+2)
	defer func() {
		if err := h.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	var open []*conversation
	for i := range maxConversations {
		v, err := h.live.get(t.Context(), bareRef(i))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, v)
	}
	if _, err := h.live.get(t.Context(), bareRef(maxConversations)); plugin.AsError(err).Code != plugin.Unavailable {
		t.Errorf("one too many: %v, want unavailable", err)
	}
	for at, i := range []int{3, 5} {
		open[i].release()
		open[i].idle = time.Unix(int64(at), 0)
	}
	v, err := h.live.get(t.Context(), bareRef(maxConversations))
	if err != nil {
		t.Fatalf("with room: %v", err)
	}
	if h.live.open[bareRef(3)] != nil || h.live.open[bareRef(5)] == nil {
		t.Error("another one than the one that was idle for longest made room")
	}
	if again, err := h.live.get(t.Context(), bareRef(5)); err != nil || again != open[5] {
		t.Errorf("one that is open is opened anew (%v)", err)
	}
	v.release()
}

// A conversation that nobody uses is closed after a while, and not before.
func TestIdleConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := openBare(t, 1)
		defer func() {
			if err := h.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		v, err := h.live.get(t.Context(), bareRef(0))
		if err != nil {
			t.Fatal(err)
		}
		reader := v.watch("")
		isOpen := func() bool {
			h.live.mu.Lock()
			defer h.live.mu.Unlock()
			return h.live.open[bareRef(0)] != nil
		}
		time.Sleep(2 * idleConversation)
		if !isOpen() {
			t.Fatal("a conversation that is followed was closed")
		}
		reader.Close()
		time.Sleep(idleConversation / 2)
		if !isOpen() {
			t.Error("a conversation was closed too early")
		}
		again, err := h.live.get(t.Context(), bareRef(0))
		if err != nil || again != v {
			t.Errorf("meanwhile it is not the same (%v)", err)
		}
		time.Sleep(2 * idleConversation)
		again.release()
		if !isOpen() {
			t.Error("a conversation that was used again was closed")
		}
		time.Sleep(idleConversation + time.Second)
		synctest.Wait()
		if isOpen() {
			t.Error("an idle conversation is still open")
		}
	})
}

// Who follows a session that expires hears that it has gone.
func TestExpiredWhileFollowed(t *testing.T) {
	t.Parallel()
	h := openBare(t, 2)
	defer func() {
		if err := h.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	s, err := h.Watch(t.Context(), plugin.SessionRef{Project: DefaultProject, ID: "n1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h.expired(session.Moved{Ref: bareRef(0)})
	h.expired(session.Moved{Ref: bareRef(1)})
	if e, err := s.Next(t.Context()); err != nil || e.Kind != chatDeleted || string(e.Data) != `{"id":"n1","projectId":"default"}` {
		t.Errorf("it hears %s %s, %v", e.Kind, e.Data, err)
	}
}
