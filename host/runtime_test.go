package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sess/plugin"
	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

// A plugin may give a stage up while the host still takes the chunks that it
// was sending: a call that is cut short does that.
func TestUnstageWhileChunksCome(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	h, err := Open(t.Context(), Options{Home: home, Exe: exe})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	r := newRuntime(h, &plugin.Manifest{ID: "probe", Permissions: []plugin.Permission{plugin.PermSessionWrite}})
	defer r.close()

	var doc transcript.Document
	var chunks []plugin.Chunk
	var records []transcript.Record
	for i := range 40 {
		records = append(records, transcript.Record(fmt.Sprintf(`{"id":"%d","text":"%s"}`, i, strings.Repeat("x", transcript.MinChunk))))
	}
	err = doc.List(transcript.ListMessages).Append(records, func(s transcript.Sealed) error {
		chunks = append(chunks, plugin.Chunk{ID: s.ID, Frame: chunk.Encode(s)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		st, err := r.Stage(t.Context(), plugin.StageRequest{Session: plugin.SessionRef{ID: "s1"}, Document: doc})
		if err != nil {
			t.Fatal(err)
		}
		half := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			_, err := r.WriteChunks(t.Context(), st.ID, func(yield func(plugin.Chunk, error) bool) {
				for i, c := range chunks {
					if i == len(chunks)/2 {
						close(half)
					}
					if !yield(c, nil) {
						return
					}
				}
			})
			if _, coded := errors.AsType[*plugin.Error](err); err != nil && !coded {
				t.Errorf("WriteChunks: %v", err)
			}
		})
		both.Go(func() {
			<-half
			if err := r.Unstage(t.Context(), st.ID); err != nil {
				t.Errorf("Unstage: %v", err)
			}
		})
		both.Wait()
	}
	sessions, err := durable.OpenExisting(filepath.Join(home, "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close()
	unlock, free, err := chunk.Open(sessions, chunk.Options{}).TryExclusive()
	if err != nil || !free {
		t.Fatalf("the chunks are still kept from being swept (%v)", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}
