package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
	"sess/store/session"
	"sess/store/transcript"
)

func TestWriteRefusesWhatItWasNotBasedOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	stale := create(t, s, ref, "one")
	append1(t, s, ref, "two")

	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	_, err := k.Write(t.Context(), stale, stale.Revision)
	if c, is := errors.AsType[*session.ConflictError](err); !is || c.Have != 2 || c.Want != 1 {
		t.Errorf("Write of a stale copy = %v, want a conflict of 2 with 1", err)
	}
	if stale.Revision != 1 {
		t.Errorf("a refused Write set the revision to %d", stale.Revision)
	}

	l := must(k.Read(t.Context()))(t)
	put(t, dir, ref, strings.Replace(fileOf(t, dir, ref), `"two"`, `"changed"`, 1))
	if _, err := k.Write(t.Context(), l, l.Revision); !errors.Is(err, session.ErrConflict) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("Write over another program's change = %v", err)
	}

	l = must(k.Read(t.Context()))(t)
	ok(t, os.Remove(filepath.Join(dir, "default", "s1.json")))
	if _, err := k.Write(t.Context(), l, l.Revision); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Write of a removed session = %v", err)
	}
	if there := must(s.Exists(ref))(t); there {
		t.Error("a late write brought the session back")
	}
	ok(t, k.Unlock())
	ok(t, k.Unlock())
	if _, err := k.Write(t.Context(), l, l.Revision); err == nil {
		t.Error("Write after Unlock was accepted")
	}
}

func TestWriteOfAnotherSessionIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one")
	other := create(t, s, session.Ref{Project: "default", ID: "s2"}, "two")
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	if _, err := k.Write(t.Context(), other, 1); err == nil {
		t.Error("the lock of s1 let s2 be written")
	}
}

func TestCreateNeverReplaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "one")
	if err := s.Create(t.Context(), s.New(ref, "x", "")); !errors.Is(err, session.ErrExists) {
		t.Errorf("Create over a session = %v", err)
	}
	bad := session.Ref{Project: "default", ID: "bad"}
	put(t, dir, bad, "{")
	if err := s.Create(t.Context(), s.New(bad, "x", "")); !errors.Is(err, session.ErrExists) {
		t.Errorf("Create over a damaged file = %v", err)
	}
	if err := s.Create(t.Context(), s.New(session.Ref{Project: "default", ID: "a b"}, "x", "")); !isIDError(err) {
		t.Errorf("Create of a foreign id = %v", err)
	}
}

func TestCancelledWriteChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "one")
	before := fileOf(t, dir, ref)
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	l := must(k.Read(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Write(ctx, l, l.Revision); !errors.Is(err, context.Canceled) {
		t.Errorf("Write = %v, want context.Canceled", err)
	}
	if got := fileOf(t, dir, ref); got != before || len(temps(t, dir)) > 0 {
		t.Errorf("a cancelled Write left\n%s\n%v", got, temps(t, dir))
	}
}

func TestBusyNamesTheHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	create(t, a, ref, "one")
	if _, used, err := b.InUse(ref); used || err != nil {
		t.Errorf("InUse of a free session = %v, %v", used, err)
	}
	k := must(a.Lock(t.Context(), ref, "turn", false))(t)
	_, err := b.Lock(t.Context(), ref, "save", false)
	held, is := errors.AsType[*durable.LockedError](err)
	if !is || held.Holder.PID != os.Getpid() || held.Holder.Operation != "turn" || !strings.Contains(err.Error(), "session default/s1 is locked by process") {
		t.Errorf("Lock of a held session = %v", err)
	}
	holder, used, err := b.InUse(ref)
	if !used || holder.Operation != "turn" || err != nil {
		t.Errorf("InUse of a held session = %v, %v, %v", holder, used, err)
	}
	ok(t, k.Unlock())
	k = must(b.Lock(t.Context(), ref, "save", false))(t)
	ok(t, k.Unlock())
}

// A session of many turns stays a small file, each turn costs the same file
// operations, and everything comes back byte for byte.
func TestLongSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	rnd := rand.New(rand.NewPCG(1, 2))
	create(t, s, ref)
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	var messages, history []string
	size := 0
	l := must(k.Read(t.Context()))(t)
	for turn := 0; size < 5<<20; turn++ {
		m := message(fmt.Sprintf("m%d", turn), "agent", prose(rnd, 1<<10+rnd.IntN(60<<10)))
		if turn == 20 {
			m = message("giant", "agent", prose(rnd, 1200<<10))
		}
		h := transcript.Record(fmt.Sprintf(`{"role":"assistant","content":%q}`, prose(rnd, 4<<10)))
		ok(t, l.Append(transcript.ListMessages, m))
		ok(t, l.Append(transcript.ListHistory, h))
		must(k.Write(t.Context(), l, l.Revision))(t)
		messages, history = append(messages, string(m)), append(history, string(h))
		size += len(m) + len(h) + 2
		if turn%7 == 0 {
			l = must(k.Read(t.Context()))(t)
		}
	}
	ok(t, k.Unlock())
	back := must(open(t, dir).Read(t.Context(), ref))(t)
	if diff := cmp.Diff(messages, records(t, back, transcript.ListMessages)); diff != "" {
		t.Errorf("messages differ:\n%.500s", diff)
	}
	if diff := cmp.Diff(history, records(t, back, transcript.ListHistory)); diff != "" {
		t.Errorf("history differs:\n%.500s", diff)
	}
	if int(back.Doc.Meta.Bytes) != size || back.Doc.Meta.Messages != len(messages) {
		t.Errorf("Meta: %d bytes, %d messages; want %d, %d", back.Doc.Meta.Bytes, back.Doc.Meta.Messages, size, len(messages))
	}
	if n := len(fileOf(t, dir, ref)); n > 400<<10 {
		t.Errorf("the file of a session of %d bytes has %d", size, n)
	}
	if got := contents(t, s, ref); len(got) != len(messages) {
		t.Errorf("View shows %d messages, want %d", len(got), len(messages))
	}
}

func TestSpliceInTheMiddle(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	rnd := rand.New(rand.NewPCG(3, 4))
	l := s.New(ref, "t", "/w")
	var want []string
	for i := range 200 {
		r := message(fmt.Sprintf("m%d", i), "user", prose(rnd, 3000))
		want = append(want, string(r))
		ok(t, l.Append(transcript.ListMessages, r))
	}
	ok(t, s.Create(t.Context(), l))
	k := must(s.Lock(t.Context(), ref, "edit", false))(t)
	l = must(k.Read(t.Context()))(t)
	with := message("new", "user", "short")
	ok(t, l.Splice(transcript.ListMessages, 40, 60, with))
	must(k.Write(t.Context(), l, l.Revision))(t)
	ok(t, k.Unlock())
	want = append(append(append([]string{}, want[:40]...), string(with)), want[60:]...)
	back := must(s.Read(t.Context(), ref))(t)
	if diff := cmp.Diff(want, records(t, back, transcript.ListMessages)); diff != "" {
		t.Errorf("messages differ:\n%.500s", diff)
	}
	size := 0
	for _, r := range want {
		size += len(r) + 1
	}
	if int(back.Doc.Meta.Bytes) != size {
		t.Errorf("Meta.Bytes = %d, want %d", back.Doc.Meta.Bytes, size)
	}
}
