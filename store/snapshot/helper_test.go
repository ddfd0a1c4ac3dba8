package snapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sess/store/chunk"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// clock moves on by a millisecond each time somebody looks.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2031, 3, 1, 10, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openPool(t testing.TB, dir string, o snapshot.Options) *snapshot.Pool {
	t.Helper()
	p, err := snapshot.Open(dir, o)
	if err != nil {
		t.Fatalf("Open(%s): %v", dir, err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

func newPool(t testing.TB) (*snapshot.Pool, *clock) {
	t.Helper()
	c := newClock()
	return openPool(t, filepath.Join(t.TempDir(), "sessions"), snapshot.Options{Now: c.Now}), c
}

// message is a record of about size bytes that marks itself.
func message(i int, mark string, size int) transcript.Record {
	pad := ""
	if size > 0 {
		unit := fmt.Sprintf(" %s %d,", mark, i*7919)
		pad = strings.Repeat(unit, size/len(unit)+1)[:size]
	}
	data, err := json.Marshal(map[string]any{"id": fmt.Sprintf("m%d", i), "role": "user", "content": mark + pad})
	if err != nil {
		panic(err)
	}
	return data
}

// talk is a conversation and the chunks it is sealed in.
type talk struct {
	doc    *transcript.Document
	sealed map[transcript.ID]transcript.Sealed
}

func newTalk(session string) *talk {
	return &talk{
		doc: &transcript.Document{
			Meta:   transcript.Meta{SessionID: session, Title: "A talk", Model: "offline/echo", Trigger: transcript.TriggerManual},
			Header: json.RawMessage(`{"title":"A talk"}`),
		},
		sealed: map[transcript.ID]transcript.Sealed{},
	}
}

// speak adds messages of the given size.
func (c *talk) speak(mark string, n, size int) *talk {
	l := c.doc.List(transcript.ListMessages)
	var add []transcript.Record
	for range n {
		r := message(l.Records+len(add), mark, size)
		c.doc.Meta.Messages++
		c.doc.Meta.Bytes += int64(len(r)) + 1
		add = append(add, r)
	}
	err := l.Append(add, func(s transcript.Sealed) error {
		s.Plain = bytes.Clone(s.Plain)
		c.sealed[s.ID] = s
		return nil
	})
	if err != nil {
		panic(err) // the records are whole lines
	}
	return c
}

// save puts the conversation into the pool as another process would: it asks for
// what is missing and sends that.
func (c *talk) save(ctx context.Context, p *snapshot.Pool, r snapshot.SaveRequest) (e snapshot.Entry, err error) {
	w, err := p.Begin(ctx)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	w.Follow(r.Name, c.doc.Meta.SessionID)
	ask := c.doc.InlineIDs()
	for len(ask) > 0 {
		missing, err := w.Missing(ask)
		if err != nil {
			return e, err
		}
		ask = nil
		for _, id := range missing {
			if err := w.Add(id, chunk.Encode(c.sealed[id])); err != nil {
				return e, err
			}
			ask = append(ask, w.Children(id)...)
		}
	}
	r.Doc = c.doc
	return w.Save(ctx, r)
}

func (c *talk) mustSave(t testing.TB, p *snapshot.Pool, r snapshot.SaveRequest) snapshot.Entry {
	t.Helper()
	e, err := c.save(t.Context(), p, r)
	if err != nil {
		t.Fatalf("Save(%s%s): %v", r.Name, r.AutoPrefix, err)
	}
	return e
}

// put saves one short message under a name, over what is there.
func put(t testing.TB, p *snapshot.Pool, name snapshot.Name, mark string) snapshot.Entry {
	t.Helper()
	return newTalk("s1").speak(mark, 1, 0).mustSave(t, p, snapshot.SaveRequest{Name: name, Overwrite: true})
}

// content returns all messages of a snapshot, in one text.
func content(t testing.TB, p *snapshot.Pool, name snapshot.Name) string {
	t.Helper()
	s, err := p.Read(t.Context(), name)
	if err != nil {
		t.Fatalf("Read(%s): %v", name, err)
	}
	if err := p.Check(t.Context(), s, nil); err != nil {
		t.Fatalf("Check(%s): %v", name, err)
	}
	return text(t, p, s)
}

func text(t testing.TB, p *snapshot.Pool, s *snapshot.Snapshot) string {
	t.Helper()
	l := s.Doc.List(transcript.ListMessages)
	var b strings.Builder
	for r, err := range l.All(p.Plain, 0, l.Records) {
		if err != nil {
			t.Fatalf("record of %s: %v", s.Name, err)
		}
		var m struct{ Content string }
		if err := json.Unmarshal(r, &m); err != nil {
			t.Fatal(err)
		}
		b.WriteString(m.Content)
		b.WriteByte('\n')
	}
	return b.String()
}

// first is the mark of the snapshots that put makes.
func first(t testing.TB, p *snapshot.Pool, name snapshot.Name) string {
	t.Helper()
	return strings.TrimSpace(content(t, p, name))
}

func listed(t testing.TB, p *snapshot.Pool) string {
	t.Helper()
	list, err := p.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	var names []string
	for _, e := range list {
		n := string(e.Name)
		if e.State != snapshot.StateOK {
			n += ":" + string(e.State)
		}
		names = append(names, n)
	}
	return strings.Join(names, " ")
}

func trashed(t testing.TB, p *snapshot.Pool) string {
	t.Helper()
	list, err := p.ListTrash(t.Context())
	if err != nil {
		t.Fatalf("ListTrash: %v", err)
	}
	var names []string
	for _, e := range list {
		names = append(names, string(e.Name))
	}
	return strings.Join(names, " ")
}

func readFile(t testing.TB, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t testing.TB, data string, parts ...string) string {
	t.Helper()
	name := filepath.Join(parts...)
	if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// leftovers returns the temp files below a folder.
func leftovers(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".tmp") {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantAs[E error](t testing.TB, what string, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("%s: error %v, want a %T", what, err, e)
	}
	return e
}

// undo takes back the newest operation.
func undo(t testing.TB, p *snapshot.Pool) snapshot.UndoResult {
	t.Helper()
	op, err := p.Undoable(t.Context(), "")
	if err != nil || op == nil {
		t.Fatalf("Undoable: %v, %v; want an operation", op, err)
	}
	r, err := p.UndoNames(t.Context(), op)
	if err != nil {
		t.Fatalf("UndoNames(%s): %v", op.Kind, err)
	}
	return r
}

func redo(t testing.TB, p *snapshot.Pool) snapshot.UndoResult {
	t.Helper()
	op, err := p.Redoable(t.Context(), "")
	if err != nil || op == nil {
		t.Fatalf("Redoable: %v, %v; want an operation", op, err)
	}
	r, err := p.RedoNames(t.Context(), op)
	if err != nil {
		t.Fatalf("RedoNames(%s): %v", op.Kind, err)
	}
	return r
}

func equalBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s changed:\n got %.200q\nwant %.200q", what, got, want)
	}
}

// transcriptRaw is the value of a key that this version does not know.
type transcriptRaw = json.RawMessage
