package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/transcript"
)

func stage(t testing.TB, s *session.Store, r session.Ref, doc *transcript.Document) *session.Stage {
	t.Helper()
	st := must(s.Stage(t.Context(), session.StageRequest{Ref: r, Doc: doc, Normalise: true}))(t)
	t.Cleanup(func() { ok(t, st.Discard()) })
	return st
}

func TestRestoreInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	saved := create(t, s, ref, "one", "two").Doc.Clone()

	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	l := must(k.Read(t.Context()))(t)
	ok(t, l.Append(transcript.ListMessages, message("m3", "user", "three")))
	ok(t, l.Set("title", "changed"))
	l.Notifications = json.RawMessage(`["seen"]`)
	l.Status, l.Error = session.StatusError, "model failed"
	must(k.Write(t.Context(), l, 1))(t)
	ok(t, k.Unlock())

	st := stage(t, s, ref, saved)
	if st.Revision != 2 || !st.Differs || len(st.Missing) != 0 {
		t.Fatalf("Stage: revision %d, differs %v, missing %d", st.Revision, st.Differs, len(st.Missing))
	}
	if rev := must(st.Commit(t.Context(), 2, "op1", "snapshot v1 was loaded"))(t); rev != 3 {
		t.Errorf("Commit = %d, want 3", rev)
	}
	live := must(open(t, dir).Read(t.Context(), ref))(t)
	if live.Doc.Digest() != saved.Digest() || live.Doc.Meta.Title != "a title" {
		t.Errorf("after Commit the session is not the saved one: %s", fileOf(t, dir, ref))
	}
	if live.Status != session.StatusIdle || live.Error != "" || string(live.Notifications) != `["seen"]` || live.Note != "snapshot v1 was loaded" || live.NoteRevision != 3 {
		t.Errorf("status %q, error %q, notifications %s, note %q at %d", live.Status, live.Error, live.Notifications, live.Note, live.NoteRevision)
	}
	if st := stage(t, s, ref, saved); st.Differs {
		t.Error("a second restore of the same state differs")
	}
	if got := contents(t, s, ref); !cmp.Equal(got, []string{"one", "two"}) {
		t.Errorf("messages = %q", got)
	}
}

func TestCommitRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	saved := create(t, s, ref, "one").Doc.Clone()
	append1(t, s, ref, "two")

	st := stage(t, s, ref, saved)
	before := fileOf(t, dir, ref)
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	_, err := st.Commit(t.Context(), 2, "op", "")
	if held, is := errors.AsType[*durable.LockedError](err); !is || held.Holder.Operation != "turn" {
		t.Errorf("Commit during a turn = %v, want the holder", err)
	}
	ok(t, k.Unlock())
	if _, err := st.Commit(t.Context(), 1, "op", ""); !errors.Is(err, session.ErrConflict) {
		t.Errorf("Commit of a stale revision = %v", err)
	}
	if got := fileOf(t, dir, ref); got != before {
		t.Errorf("a refused Commit changed the file:\n%s", got)
	}
	must(st.Commit(t.Context(), 2, "op", ""))(t)
	if _, err := st.Commit(t.Context(), 3, "op2", ""); err == nil {
		t.Error("a stage was committed twice")
	}
	again := stage(t, s, ref, saved)
	if rev := must(again.Commit(t.Context(), 2, "op", ""))(t); rev != 3 {
		t.Errorf("Commit of an op that landed = %d, want 3 and no change", rev)
	}
}

func TestVoidOperationNeverLands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	saved := create(t, s, ref, "one").Doc.Clone()
	append1(t, s, ref, "two")
	st := stage(t, s, ref, saved)
	if state := must(s.OpState(t.Context(), ref, "op"))(t); state != session.OpVoid {
		t.Fatalf("OpState before Commit = %s", state)
	}
	if rev := must(s.Read(t.Context(), ref))(t).Revision; rev != 2 {
		t.Errorf("OpState changed the revision to %d", rev)
	}
	if _, err := st.Commit(t.Context(), 2, "op", ""); !errors.Is(err, session.ErrVoid) {
		t.Errorf("Commit of a void op = %v", err)
	}
	must(st.Commit(t.Context(), 2, "op2", ""))(t)
	for op, want := range map[string]string{"op": session.OpVoid, "op2": session.OpLanded} {
		if got := must(s.OpState(t.Context(), ref, op))(t); got != want {
			t.Errorf("OpState(%s) = %s, want %s", op, got, want)
		}
	}
	// What was voided outlasts a turn's writes.
	append1(t, s, ref, "three")
	if got := must(s.OpState(t.Context(), ref, "op"))(t); got != session.OpVoid {
		t.Errorf("OpState after a turn = %s", got)
	}
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	for op, want := range map[string]string{"op": session.OpVoid, "op2": session.OpLanded, "op3": session.OpUnknown} {
		if got := must(s.OpState(t.Context(), ref, op))(t); got != want {
			t.Errorf("OpState(%s) during a turn = %s, want %s", op, got, want)
		}
	}
	ok(t, k.Unlock())
}

// What is told to have landed is durable, also where the sync of its own writer
// had failed.
func TestLandedOperationLasts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saved := create(t, open(t, dir), ref, "one").Doc.Clone()
	append1(t, open(t, dir), ref, "two")
	faulty := &durabletest.Faulty{}
	s := must(session.Open(dir, session.Options{Now: noon, FS: faulty.Open}))(t)
	defer func() { ok(t, s.Close()) }()
	// syncs is where among what was done the session's folder was synced.
	syncs := func() int {
		t.Helper()
		k := slices.IndexFunc(faulty.Ops(), func(op durabletest.Op) bool { return op.String() == "syncdir "+ref.Project })
		if k < 0 {
			t.Fatalf("the folder was not synced: %v", faulty.Ops())
		}
		return k
	}
	var op string
	var err error
	for k := 0; !errors.Is(err, session.ErrUndecided); k++ {
		op = fmt.Sprint("op", k)
		append1(t, s, ref, op)
		st := stage(t, s, ref, saved)
		faulty.FailAt(k, nil, false)
		if _, err = st.Commit(t.Context(), st.Revision, op, ""); !faulty.Fired() {
			t.Fatalf("no operation of a commit makes it ErrUndecided: %v", faulty.Ops())
		}
		faulty.Reset()
	}
	faulty.Reset()
	if state := must(s.OpState(t.Context(), ref, op))(t); state != session.OpLanded {
		t.Fatalf("OpState = %s", state)
	}
	faulty.FailAt(syncs(), nil, false)
	if state, err := s.OpState(t.Context(), ref, op); state != session.OpUnknown || !errors.Is(err, durabletest.ErrInjected) {
		t.Errorf("OpState where the folder cannot be synced = %s, %v", state, err)
	}
}

func TestOnlyRecentOperationsAreRemembered(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one")
	for i := range 70 {
		must(s.OpState(t.Context(), ref, fmt.Sprint("op", i)))(t)
	}
	ops := must(s.Read(t.Context(), ref))(t).Ops
	if len(ops) != 64 || ops[0].ID != "op6" || ops[63].ID != "op69" || !ops[63].Void {
		t.Errorf("%d operations from %+v to %+v", len(ops), ops[0], ops[len(ops)-1])
	}
}

func TestCommitMakesAMissingOrDamagedSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	saved := create(t, s, session.Ref{Project: "default", ID: "s0"}, "one").Doc.Clone()

	st := stage(t, s, ref, saved)
	if st.Revision != 0 || !st.Differs {
		t.Errorf("Stage for a missing session: %d, %v", st.Revision, st.Differs)
	}
	if rev := must(st.Commit(t.Context(), 0, "op", ""))(t); rev != 1 {
		t.Errorf("Commit = %d", rev)
	}
	bad := session.Ref{Project: "default", ID: "bad"}
	put(t, dir, bad, `{"id":"bad","mess`)
	st = stage(t, s, bad, saved)
	must(st.Commit(t.Context(), 0, "op-bad", ""))(t)
	aside := must(filepath.Glob(filepath.Join(dir, "default", "bad.json.invalid-*")))(t)
	if len(aside) != 1 || len(contents(t, s, bad)) != 1 {
		t.Errorf("set aside: %v; messages %q", aside, contents(t, s, bad))
	}
	// One that appears after the stage was made is not replaced.
	late := session.Ref{Project: "default", ID: "late"}
	st = stage(t, s, late, saved)
	put(t, dir, late, `{"id":"late","messages":[]}`)
	if _, err := st.Commit(t.Context(), 0, "op-late", ""); !errors.Is(err, session.ErrConflict) {
		t.Errorf("Commit over a session that appeared = %v", err)
	}
	gone := session.Ref{Project: "default", ID: "gone"}
	if state := must(s.OpState(t.Context(), gone, "op-gone"))(t); state != session.OpVoid {
		t.Errorf("OpState of a missing session = %s", state)
	}
	if _, err := stage(t, s, gone, saved).Commit(t.Context(), 0, "op-gone", ""); !errors.Is(err, session.ErrVoid) {
		t.Errorf("Commit of an op that was void before its session existed = %v", err)
	}
	newer := session.Ref{Project: "default", ID: "newer"}
	put(t, dir, newer, `{"id":"newer","sess":{"format":"sess/2"}}`)
	if _, err := s.Stage(t.Context(), session.StageRequest{Ref: newer, Doc: saved}); !errors.Is(err, session.ErrNewer) {
		t.Errorf("Stage over a newer format = %v", err)
	}
}

// send hands over what a stage misses, from another store, until nothing does.
func send(t testing.TB, from *session.Store, st *session.Stage) int {
	t.Helper()
	n := 0
	for missing := st.Missing; len(missing) > 0; missing = st.StillMissing() {
		for _, id := range missing {
			ok(t, st.Write(id, must(from.Frame(id))(t)))
			n++
		}
	}
	return n
}

func TestStageAcrossStores(t *testing.T) {
	t.Parallel()
	from, dir := open(t, t.TempDir()), t.TempDir()
	to := open(t, dir)
	rnd := rand.New(rand.NewPCG(5, 6))
	l := from.New(ref, "long", "/w")
	for i := range 320 { // enough for parts of the index
		ok(t, l.Append(transcript.ListMessages, message(fmt.Sprint("m", i), "user", prose(rnd, 70<<10))))
	}
	ok(t, from.Create(t.Context(), l))
	if len(l.Doc.List(transcript.ListMessages).Index) == 0 {
		t.Fatal("the list is too short for an index")
	}
	st := stage(t, to, ref, &l.Doc)
	if _, err := st.Commit(t.Context(), 0, "op", ""); !isMissing(err) {
		t.Errorf("Commit without its chunks = %v", err)
	}
	first := st.Missing[0]
	if err := st.Write(first, []byte("nonsense")); err == nil {
		t.Error("a chunk of other bytes was accepted")
	}
	if err := st.Write(transcript.Sum([]byte("x")), nil); err == nil {
		t.Error("a chunk nobody asked for was accepted")
	}
	if n := send(t, from, st); n <= len(st.Missing) {
		t.Errorf("%d chunks were sent, %d of them known at once: the index told of none", n, len(st.Missing))
	}
	must(st.Commit(t.Context(), 0, "op", ""))(t)
	back := must(open(t, dir).Read(t.Context(), ref))(t)
	if back.Doc.Digest() != l.Doc.Digest() || back.Doc.Meta.Bytes != l.Doc.Meta.Bytes {
		t.Errorf("digest or bytes differ: %d, want %d", back.Doc.Meta.Bytes, l.Doc.Meta.Bytes)
	}
	if diff := cmp.Diff(records(t, l, transcript.ListMessages), records(t, back, transcript.ListMessages)); diff != "" {
		t.Errorf("messages differ:\n%.300s", diff)
	}
	if st := stage(t, to, ref, &l.Doc); st.Differs || len(st.Missing) > 0 {
		t.Errorf("staged again: differs %v, %d missing", st.Differs, len(st.Missing))
	}
}

// A restore mends a chunk of the live store that was damaged meanwhile.
func TestRestoreReplacesDamagedChunks(t *testing.T) {
	t.Parallel()
	from, dir := open(t, t.TempDir()), t.TempDir()
	to := open(t, dir)
	rnd := rand.New(rand.NewPCG(11, 12))
	long := []string{prose(rnd, 150<<10), prose(rnd, 150<<10), "end"}
	saved := create(t, from, ref, long...).Doc.Clone()
	create(t, to, ref, long...)
	for _, path := range must(filepath.Glob(filepath.Join(dir, ".chunks", "*.zst")))(t) {
		data := must(os.ReadFile(path))(t)
		data[len(data)/2] ^= 1
		ok(t, os.WriteFile(path, data, 0o600))
	}
	st := stage(t, to, ref, saved)
	if len(st.Missing) == 0 || !st.Differs {
		t.Fatalf("Stage over damaged chunks: %d missing, differs %v", len(st.Missing), st.Differs)
	}
	send(t, from, st)
	must(st.Commit(t.Context(), 1, "op", ""))(t)
	if got := contents(t, to, ref); !cmp.Equal(got, long) {
		t.Error("the damage is still there")
	}
}

func isMissing(err error) bool {
	_, is := errors.AsType[*session.MissingError](err)
	return is
}

func TestRestoredStateIsNormalised(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one")
	doc := &transcript.Document{Header: json.RawMessage(`{"title":"T","id":"evil","status":"running","providerState":{"continuation":"abc"}}`)}
	ok(t, doc.List(transcript.ListMessages).Append([]transcript.Record{[]byte(`{"id":"m1","role":"agent","content":"half","status":"streaming"}`)}, nil))
	ok(t, doc.List(transcript.ListHistory).Append([]transcript.Record{[]byte(`{"role":"assistant","content":"","toolCalls":[{"id":"t1","name":"x","arguments":{}}]}`)}, nil))
	digest := doc.Digest()
	st := must(s.Stage(t.Context(), session.StageRequest{Ref: ref, Doc: doc, Normalise: true, Fresh: true}))(t)
	must(st.Commit(t.Context(), 1, "op", ""))(t)
	if len(st.Notices) != 2 {
		t.Errorf("notices = %q, want one of the message and one of the call", st.Notices)
	}
	l := must(s.Read(t.Context(), ref))(t)
	if got := records(t, l, transcript.ListMessages)[0]; !strings.Contains(got, `"status":"error"`) {
		t.Errorf("message = %s", got)
	}
	if got := records(t, l, transcript.ListHistory); len(got) != 2 || !strings.Contains(got[1], "interrupted") {
		t.Errorf("history = %q", got)
	}
	if l.Ref != ref || l.Status != session.StatusIdle || strings.Contains(string(l.Doc.Header), "continuation") || strings.Contains(string(l.Doc.Header), "evil") {
		t.Errorf("header = %s", l.Doc.Header)
	}
	if doc.Digest() != digest {
		t.Error("Stage changed the document it was given")
	}
	if st := stage(t, s, ref, transcript.DropContinuation(doc)); st.Differs {
		t.Error("loading it once more differs")
	}
}

func TestNewSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "one")
	ok(t, s.Activate(t.Context(), ref))

	made := must(s.NewSession(t.Context(), session.Ref{Project: "default"}, "", "/w", "op1"))(t)
	l := must(s.Read(t.Context(), made))(t)
	if l.Doc.Meta.Title != session.DefaultTitle || l.Revision != 1 || session.ParseID(made.ID) != nil {
		t.Errorf("NewSession made %s: %q, revision %d", made, l.Doc.Meta.Title, l.Revision)
	}
	if m := must(s.Manifest(t.Context()))(t); m.LastSessionID != made.ID || m.LastProjectID != "default" {
		t.Errorf("manifest = %+v", m)
	}
	if again := must(s.NewSession(t.Context(), made, "", "/w", "op1"))(t); again != made {
		t.Errorf("the same op made %s", again)
	}
	if _, err := s.NewSession(t.Context(), made, "", "/w", "op2"); !errors.Is(err, session.ErrExists) {
		t.Errorf("NewSession with a taken id = %v", err)
	}
	if got := must(s.OpState(t.Context(), made, "op1"))(t); got != session.OpLanded {
		t.Errorf("OpState = %s", got)
	}
	// The manifest turns away; that the session was active is still known, also
	// where a crash came before its own file said so.
	ok(t, os.Remove(filepath.Join(dir, "default", made.ID, "session_meta.json")))
	ok(t, s.SaveManifest(t.Context(), session.Manifest{}))
	if got := must(s.OpState(t.Context(), made, "op1"))(t); got != session.OpLanded {
		t.Errorf("OpState after the manifest turned away = %s", got)
	}

	st := must(s.Stage(t.Context(), session.StageRequest{Ref: session.Ref{Project: "default"}, Doc: must(s.Read(t.Context(), ref))(t).Doc.Clone(), Normalise: true, Fresh: true}))(t)
	branch := must(st.CommitNew(t.Context(), session.Ref{Project: "default", ID: "branch"}, "B", "op3"))(t)
	if got := contents(t, s, branch); !cmp.Equal(got, []string{"one"}) || must(s.Read(t.Context(), branch))(t).Doc.Meta.Title != "B" {
		t.Errorf("CommitNew: messages %q", got)
	}

	given := session.Ref{Project: "default", ID: "given-up"}
	if got := must(s.OpState(t.Context(), given, "op4"))(t); got != session.OpVoid {
		t.Errorf("OpState of a new session that was not made = %s", got)
	}
	if _, err := s.NewSession(t.Context(), given, "", "", "op4"); !errors.Is(err, session.ErrVoid) {
		t.Errorf("NewSession of a void op = %v", err)
	}
}

func TestVoidMarksAreForgottenInTheEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := must(session.Open(t.TempDir(), session.Options{Now: func() time.Time { return now }}))(t)
	defer func() { ok(t, s.Close()) }()
	must(s.OpState(t.Context(), ref, "op"))(t)
	for _, c := range []struct {
		days int
		void bool
	}{{29, true}, {2, false}} {
		now = now.AddDate(0, 0, c.days)
		ok(t, s.Sweep(t.Context()))
		if _, err := s.NewSession(t.Context(), ref, "", "", "op"); errors.Is(err, session.ErrVoid) != c.void {
			t.Errorf("NewSession %d days later = %v, void %v expected", c.days, err, c.void)
		}
	}
}

func TestUnfinishedNewSessionGoesToTheTrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	put(t, dir, ref, `{"id":"s1","title":"never active","sess":{"format":"sess/1","revision":1,"ops":[{"id":"op","new":true}]}}`)
	if got := must(s.OpState(t.Context(), ref, "op"))(t); got != session.OpVoid {
		t.Errorf("OpState = %s", got)
	}
	if there := must(s.Exists(ref))(t); there {
		t.Error("the session is still there")
	}
	if trash := must(os.ReadDir(filepath.Join(dir, ".trash")))(t); len(trash) != 1 {
		t.Errorf("trash has %d files", len(trash))
	}
	if _, err := s.NewSession(t.Context(), ref, "", "", "op"); !errors.Is(err, session.ErrVoid) {
		t.Errorf("NewSession afterwards = %v", err)
	}
}
