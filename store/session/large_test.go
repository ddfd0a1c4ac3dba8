package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sess/store/chunk"
	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/transcript"
)

// largeFile is a session as another program writes it, too large to be held, with
// so many messages.
func largeFile(id string) (content string, messages int) {
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":%q,"projectId":"default","title":"Large","messages":[`, id)
	for ; b.Len() < 5<<20; messages++ {
		if messages > 0 {
			b.WriteByte(',')
		}
		b.Write(message(fmt.Sprintf("m%d", messages), "user", strings.Repeat(fmt.Sprintf("%d words ", messages), 800)))
	}
	b.WriteString(`],"activities":[],"updatedAt":5,"own":{"kept":true}}`)
	return b.String(), messages
}

// agedChunks makes all chunks as old as those that a sweep removes.
func agedChunks(t *testing.T, dir string) (n int) {
	t.Helper()
	old := time.Now().Add(-48 * time.Hour)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".zst") && !strings.HasSuffix(path, ".pack") {
			return err
		}
		n++
		return os.Chtimes(path, old, old)
	})
	ok(t, err)
	return n
}

// Where nothing can be stored, as on a full disk, a large file is read all the same:
// whoever only looks needs no chunks. Whatever fails, it is not taken for a session
// that is not there.
func TestLargeFileWhereNothingCanBeStored(t *testing.T) {
	t.Parallel()
	content, messages := largeFile("s1")
	for k := range 40 {
		dir := t.TempDir()
		var disk durabletest.Faulty
		s, err := session.Open(dir, session.Options{FS: disk.Open, Chunks: chunk.Options{Writers: 1}})
		ok(t, err)
		put(t, dir, ref, content)
		cause := []error{syscall.ENOSPC, syscall.EACCES, fs.ErrNotExist}[k%3]
		disk.FailAt(k, cause, k%2 == 0)
		l, err := s.Read(t.Context(), ref)
		if err != nil || l.Doc.Meta.Messages != messages {
			t.Errorf("operation %d gives %v: Read: %v", k, cause, err)
		}
		fired := disk.Fired()
		disk.FailAt(k, cause, k%2 == 0)
		k1, err := s.Lock(t.Context(), ref, "test", false)
		if err == nil {
			if _, err = k1.Read(t.Context()); errors.Is(err, session.ErrNotFound) {
				t.Errorf("operation %d gives %v: who wants to go on is told %v", k, cause, err)
			}
			_ = k1.Unlock()
		}
		disk.Reset()
		ok(t, s.Close())
		if !fired && k > 0 {
			break
		}
	}
}

// A session that another program wrote into one large file is read, listed and
// gone on with like any other. What reading it has sealed stays until the file
// refers to it, and goes if nobody writes it.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := session.Open(dir, session.Options{Now: func() time.Time { return time.Now().Add(24 * time.Hour) }})
	ok(t, err)
	t.Cleanup(func() { _ = s.Close() })
	content, messages := largeFile("s1")
	put(t, dir, ref, content)

	infos := must(s.List(t.Context()))(t)
	if len(infos) != 1 || infos[0].Messages != messages || infos[0].Title != "Large" || infos[0].UpdatedAt != 5 || infos[0].Bytes < 5<<20-1<<10 {
		t.Fatalf("List: %+v, want %d messages", infos, messages)
	}
	if n := agedChunks(t, dir); n != 0 {
		t.Errorf("listing made %d chunks", n)
	}
	must(s.Read(t.Context(), ref))(t)
	if agedChunks(t, dir) == 0 {
		t.Fatal("reading sealed nothing")
	}
	if fileOf(t, dir, ref) != content {
		t.Fatal("reading changed the file")
	}
	ok(t, s.Sweep(t.Context()))
	if n := agedChunks(t, dir); n != 0 {
		t.Errorf("%d chunks that nothing refers to are left by a sweep", n)
	}

	k := must(s.Lock(t.Context(), ref, "test", false))(t)
	defer k.Unlock()
	l := must(k.Read(t.Context()))(t)
	agedChunks(t, dir)
	ok(t, s.Sweep(t.Context()))
	ok(t, l.Append(transcript.ListMessages, message("last", "user", "the last one")))
	must(k.Write(t.Context(), l, 0))(t)
	agedChunks(t, dir)
	ok(t, s.Sweep(t.Context()))
	ok(t, k.Unlock())
	if n := len(fileOf(t, dir, ref)); n > 1<<20 {
		t.Errorf("the file has %d bytes after a write", n)
	}
	view := string(must(s.View(t.Context(), ref))(t))
	if got := strings.Count(view, `"id":"m`); got != messages || !strings.Contains(view, "the last one") {
		t.Errorf("%d of %d messages are shown after a write", got, messages)
	}
	if own := string(must(s.Read(t.Context(), ref))(t).Get("own")); own != `{"kept":true}` {
		t.Errorf("an unknown key is %s", own)
	}
}

// What another program writes into a large file while it is gone on with is not
// overwritten, even where neither size nor time of the file tell.
func TestLargeFileConflict(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	content, _ := largeFile("s1")
	put(t, dir, ref, content)
	k := must(s.Lock(t.Context(), ref, "test", false))(t)
	defer k.Unlock()
	l := must(k.Read(t.Context()))(t)
	changed := strings.Replace(content, "7 words", "8 words", 1)
	put(t, dir, ref, changed)
	ok(t, l.Append(transcript.ListMessages, message("last", "user", "mine")))
	if _, err := k.Write(t.Context(), l, 0); !errors.Is(err, session.ErrConflict) {
		t.Errorf("Write over another program's change: %v, want a conflict", err)
	}
	if fileOf(t, dir, ref) != changed {
		t.Error("the other program's change is gone")
	}
}

// A large file that is no session is damaged like a small one, and can be set
// aside; the chunks of its readable part are of no use.
func TestLargeFileDamaged(t *testing.T) {
	t.Parallel()
	content, _ := largeFile("s1")
	for name, bad := range map[string]string{
		"cut off":        content[:len(content)-200],
		"another id":     strings.Replace(content, `"id":"s1"`, `"id":"s2"`, 1),
		"a bad record":   strings.Replace(content, `"own":`, `"activities":[{"$raw":"Cg=="}],"own":`, 1),
		"more behind it": content + "}",
		"a newer format": strings.Replace(content, `"own":`, `"sess":{"format":"sess/2"},"own":`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			put(t, dir, ref, bad)
			want := session.ErrDamaged
			if name == "a newer format" {
				want = session.ErrNewer
			}
			if _, err := s.Read(t.Context(), ref); !errors.Is(err, want) {
				t.Errorf("Read: %v, want %v", err, want)
			}
			if infos := must(s.List(t.Context()))(t); len(infos) != 1 || infos[0].Problem == "" {
				t.Errorf("List: %+v, want its problem", infos)
			}
			if n := agedChunks(t, dir); n != 0 {
				t.Errorf("%d chunks were made of it", n)
			}
			aside := must(s.SetAside(t.Context(), ref))(t)
			if (aside == "") != (want == session.ErrNewer) {
				t.Errorf("set aside to %q", aside)
			}
			if aside == "" {
				aside = filepath.Join(dir, ref.Project, ref.ID+".json")
			}
			if data := must(os.ReadFile(aside))(t); !bytes.Equal(data, []byte(bad)) {
				t.Error("its content is another")
			}
		})
	}
}

// What is added in large amounts does not wait in memory for the write, and is
// swept away where none comes.
func TestStow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := session.Open(dir, session.Options{Now: func() time.Time { return time.Now().Add(24 * time.Hour) }})
	ok(t, err)
	t.Cleanup(func() { _ = s.Close() })
	create(t, s, ref, "hi")
	before := fileOf(t, dir, ref)
	stow := func(k *session.Locked) *session.Live {
		l := must(k.Read(t.Context()))(t)
		for i := range 600 {
			ok(t, l.Append(transcript.ListHistory, message(fmt.Sprintf("h%d", i), "user", strings.Repeat(fmt.Sprint(i, " "), 2000))))
			ok(t, k.Stow(t.Context(), l))
		}
		return l
	}
	k := must(s.Lock(t.Context(), ref, "test", false))(t)
	stow(k)
	if agedChunks(t, dir) == 0 || fileOf(t, dir, ref) != before {
		t.Fatal("nothing was stowed, or the session was changed")
	}
	ok(t, k.Unlock())
	ok(t, s.Sweep(t.Context()))
	if n := agedChunks(t, dir); n != 0 {
		t.Errorf("%d chunks of what was not written are left by a sweep", n)
	}

	k = must(s.Lock(t.Context(), ref, "test", false))(t)
	defer k.Unlock()
	l := stow(k)
	agedChunks(t, dir)
	ok(t, s.Sweep(t.Context()))
	must(k.Write(t.Context(), l, l.Revision))(t)
	ok(t, k.Unlock())
	l = must(s.Read(t.Context(), ref))(t)
	n := 0
	for _, err := range l.Doc.List(transcript.ListHistory).All(l.Load, 0, l.Doc.List(transcript.ListHistory).Records) {
		ok(t, err)
		n++
	}
	if n != 601 {
		t.Errorf("%d items are stored, want 601", n)
	}
}
