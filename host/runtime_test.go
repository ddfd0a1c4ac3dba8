package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sess/plugin"
	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/transcript"
)

// openFaulty opens a host whose disk fails when it is told to, and the runtime
// of a plugin that may do everything with sessions.
func openFaulty(t *testing.T) (*runtime, *durabletest.Faulty) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	disk := new(durabletest.Faulty)
	h, err := Open(t.Context(), Options{Home: t.TempDir(), Exe: exe, FS: disk.Open})
	if err != nil {
		t.Fatal(err)
	}
	r := newRuntime(h, &plugin.Manifest{ID: "probe", Permissions: []plugin.Permission{
		plugin.PermSessionRead, plugin.PermSessionWrite, plugin.PermSessionNew,
	}})
	t.Cleanup(func() {
		disk.Reset()
		r.close()
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r, disk
}

// refused reports whether an error says in so many words that nothing happened:
// a plugin then takes its backup back without asking what became of its op.
func refused(err error) bool {
	e := plugin.AsError(err)
	return e != nil && e.Code != plugin.Internal && e.Code != plugin.Unavailable
}

// Whatever step meets a full disk, a plugin that is told that the disk is full
// can rely on the session being as it was.
func TestFullDiskInACommit(t *testing.T) {
	t.Parallel()
	r, disk := openFaulty(t)
	ref := plugin.SessionRef{Project: "default", ID: "s1"}
	if _, err := r.NewSession(t.Context(), plugin.NewSessionRequest{Project: ref.Project, ID: ref.ID, Op: "op-new"}); err != nil {
		t.Fatal(err)
	}
	r.host.background.Wait() // for the sweep of the first change
	for k, fired := 0, true; fired; k++ {
		var doc transcript.Document
		record := transcript.Record(fmt.Sprintf(`{"id":"m%d","role":"user","content":"x","status":"complete"}`, k))
		if err := doc.List(transcript.ListMessages).Append([]transcript.Record{record}, nil); err != nil {
			t.Fatal(err)
		}
		st, err := r.Stage(t.Context(), plugin.StageRequest{Session: ref, Document: doc})
		if err != nil {
			t.Fatal(err)
		}
		op := fmt.Sprintf("op-%d", k)
		disk.FailAt(k, syscall.ENOSPC, false)
		_, err = r.Commit(t.Context(), plugin.CommitRequest{Stage: st.ID, Revision: st.Revision, Op: op})
		fired = disk.Fired()
		disk.Reset()
		state, stateErr := r.OpState(t.Context(), ref, op)
		if stateErr != nil {
			t.Fatal(stateErr)
		}
		switch {
		case refused(err) && state == plugin.OpLanded:
			t.Errorf("fault at %d: Commit: %v, but it landed", k, err)
		case err == nil && state != plugin.OpLanded:
			t.Errorf("fault at %d: Commit succeeded, but the op is %s", k, state)
		}
	}
}

func TestFullDiskInANewSession(t *testing.T) {
	t.Parallel()
	r, disk := openFaulty(t)
	if _, err := r.NewSession(t.Context(), plugin.NewSessionRequest{ID: "first"}); err != nil {
		t.Fatal(err)
	}
	r.host.background.Wait() // for the sweep of the first change
	for k, fired := 0, true; fired; k++ {
		ref := plugin.SessionRef{Project: "default", ID: fmt.Sprintf("s%d", k)}
		disk.FailAt(k, syscall.ENOSPC, false)
		_, err := r.NewSession(t.Context(), plugin.NewSessionRequest{Project: ref.Project, ID: ref.ID, Op: "op-" + ref.ID})
		fired = disk.Fired()
		disk.Reset()
		there, existsErr := r.host.sessions.Exists(refIn(ref))
		if existsErr != nil {
			t.Fatal(existsErr)
		}
		if refused(err) && there {
			t.Errorf("fault at %d: NewSession: %v, but the session is there", k, err)
		}
		if err == nil && !there {
			t.Errorf("fault at %d: NewSession succeeded without a session", k)
		}
	}
}

// A plugin may give a stage up while the host still takes the chunks that it
// was sending: a call that is cut short does that.
func TestUnstageWhileChunksCome(t *testing.T) {
	t.Parallel()
	r, _ := openFaulty(t)
	var doc transcript.Document
	var chunks []plugin.Chunk
	var records []transcript.Record
	for i := range 40 {
		records = append(records, transcript.Record(fmt.Sprintf(`{"id":"%d","text":"%s"}`, i, strings.Repeat("x", transcript.MinChunk))))
	}
	err := doc.List(transcript.ListMessages).Append(records, func(s transcript.Sealed) error {
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
	sessions, err := durable.OpenExisting(r.host.sessions.Dir())
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
