package session_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/session"
)

// S3-22, S3-23: a deleted session is in the trash as a whole, and comes back as it
// was.
func TestDeleteAndRestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "one", "two")
	other := session.Ref{Project: "default", ID: "other"}
	create(t, s, other, "mine")
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	log := must(k.BeginTurn(t.Context(), session.TurnHeader{Turn: "t1", Input: "hi"}))(t)
	ok(t, log.End(t.Context(), nil))
	ok(t, k.Unlock())
	before := fileOf(t, dir, ref)

	ok(t, s.Delete(t.Context(), ref))
	if _, err := s.Read(t.Context(), ref); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Read of a deleted session = %v", err)
	}
	if left := must(filepath.Glob(filepath.Join(dir, "default", "s1*")))(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if got := contents(t, s, other); len(got) != 1 {
		t.Errorf("the other session has %v", got)
	}
	trashed := must(s.Trashed(t.Context()))(t)
	if len(trashed) != 1 || trashed[0].Ref != ref || trashed[0].Title != "a title" || trashed[0].Messages != 2 ||
		trashed[0].Why != session.WhyDeleted || trashed[0].DeletedAt != noon().UnixMilli() {
		t.Errorf("Trashed = %+v", trashed)
	}
	if err := s.Delete(t.Context(), ref); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Delete again = %v", err)
	}

	ok(t, s.Restore(t.Context(), ref))
	if got := fileOf(t, dir, ref); got != before {
		t.Errorf("restored as\n%s\nwas\n%s", got, before)
	}
	if got := must(s.Turns(t.Context(), ref))(t); len(got) != 1 {
		t.Errorf("turns after the restore: %v", got)
	}
	if got := must(s.Trashed(t.Context()))(t); len(got) > 0 {
		t.Errorf("still in the trash: %+v", got)
	}
	if err := s.Restore(t.Context(), ref); !errors.Is(err, session.ErrExists) {
		t.Errorf("Restore over a session = %v", err)
	}
	if err := s.Restore(t.Context(), session.Ref{Project: "default", ID: "never"}); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Restore of nothing = %v", err)
	}
}

// S3-21: a late save never brings back a deleted session, whether it names a
// revision or not, nor when the trash has been emptied since.
func TestLateSaveBringsNothingBack(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one")
	late := shown(t, s, ref)
	late["title"] = "late"
	ok(t, s.Delete(t.Context(), ref))
	for _, o := range []object{late, newObject("s1", chatMessage("m1", "user", "one"))} {
		if _, err := s.SaveSession(t.Context(), o.raw(t), nil); !errors.Is(err, session.ErrDeleted) {
			t.Errorf("a late save = %v", err)
		}
	}
	if n := must(s.EmptyTrash(t.Context(), noon().Add(time.Millisecond)))(t); n != 1 {
		t.Errorf("EmptyTrash removed %d", n)
	}
	if _, err := s.SaveSession(t.Context(), late.raw(t), nil); !errors.Is(err, session.ErrDeleted) {
		t.Errorf("a save that is even later = %v", err)
	}
	if list := must(s.List(t.Context()))(t); len(list) > 0 {
		t.Errorf("there is %v again", list)
	}
}

// S3-24, S3-25: all sessions of one project go, also those that cannot be read, and
// none of another.
func TestDeleteProject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "one")
	create(t, s, session.Ref{Project: "default", ID: "s2"}, "two")
	put(t, dir, session.Ref{Project: "default", ID: "bad"}, "{")
	create(t, s, session.Ref{Project: "elsewhere", ID: "s1"}, "three")

	k := must(s.Lock(t.Context(), session.Ref{Project: "default", ID: "s2"}, "turn", false))(t)
	if n, err := s.DeleteProject(t.Context(), "default"); !errors.Is(err, durable.ErrLocked) || n != 0 {
		t.Errorf("DeleteProject beside a turn = %d, %v", n, err)
	}
	ok(t, k.Unlock())
	if got := len(must(s.List(t.Context()))(t)); got != 4 {
		t.Errorf("after a refusal there are %d sessions", got)
	}
	if n := must(s.DeleteProject(t.Context(), "default"))(t); n != 3 {
		t.Errorf("DeleteProject took %d", n)
	}
	left := []string{}
	for _, i := range must(s.List(t.Context()))(t) {
		left = append(left, i.Ref.String())
	}
	if diff := cmp.Diff([]string{"elsewhere/s1"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if n := must(s.DeleteProject(t.Context(), "never"))(t); n != 0 {
		t.Errorf("DeleteProject of nothing took %d", n)
	}
	ok(t, s.Restore(t.Context(), session.Ref{Project: "default", ID: "bad"}))
	if got := fileOf(t, dir, session.Ref{Project: "default", ID: "bad"}); got != "{" {
		t.Errorf("the damaged file came back as %q", got)
	}
}

// What is in the trash keeps its chunks, and what a crash left half done is ended.
func TestSweepAndTheTrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	s := must(session.Open(dir, session.Options{Now: later}))(t)
	defer func() { ok(t, s.Close()) }()
	rnd := rand.New(rand.NewPCG(1, 2))
	want := []string{prose(rnd, 150<<10), prose(rnd, 150<<10), "end"}
	create(t, s, ref, want...)
	ok(t, s.Activate(t.Context(), ref))
	ok(t, s.Delete(t.Context(), ref))
	entry := filepath.Dir(must(filepath.Glob(filepath.Join(dir, ".trash", "*", "session.json")))(t)[0])
	ok(t, os.Rename(filepath.Join(entry, "logs"), filepath.Join(dir, "default", "s1")))
	void := filepath.Join(dir, ".trash", "0123.1")
	ok(t, os.Mkdir(void, 0o700))
	ok(t, os.WriteFile(filepath.Join(void, "trashed.json"), []byte(`{"projectId":"default","id":"s9"}`), 0o600))

	ok(t, s.Sweep(t.Context()))
	if _, err := os.Stat(filepath.Join(entry, "logs", "session_meta.json")); err != nil {
		t.Errorf("the logs did not follow their session: %v", err)
	}
	if _, err := os.Stat(void); !os.IsNotExist(err) {
		t.Errorf("the record of nothing is still there: %v", err)
	}
	ok(t, s.Restore(t.Context(), ref))
	if diff := cmp.Diff(want, contents(t, s, ref)); diff != "" {
		t.Errorf("a sweep took chunks of the trash")
	}
	ok(t, s.Delete(t.Context(), ref))
	must(s.EmptyTrash(t.Context(), later().Add(time.Hour)))(t)
	ok(t, s.Sweep(t.Context()))
	if left := must(filepath.Glob(filepath.Join(dir, ".chunks", "*.zst")))(t); len(left) > 0 {
		t.Errorf("%d chunks of nobody are left", len(left))
	}
}

// vanishing is a disk where somebody takes a folder away before it is looked into for
// the nth time.
type vanishing struct {
	durable.FS
	folder string
	n      *int
}

func (v vanishing) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == v.folder {
		if *v.n--; *v.n == 0 {
			if err := v.Rename(name, name+"-gone"); err != nil {
				return nil, err
			}
		}
	}
	return v.FS.ReadDir(name)
}

// A session that is deleted while a sweep looks for what is left behind is no error.
func TestSweepOfWhatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		dir, left := t.TempDir(), n
		s := must(session.Open(dir, session.Options{FS: func(dir string) (durable.FS, error) {
			disk, err := durabletest.Unsynced(dir)
			return vanishing{disk, "default/s1", &left}, err
		}}))(t)
		create(t, s, ref, "one")
		ok(t, s.Activate(t.Context(), ref))
		ok(t, os.WriteFile(filepath.Join(dir, "default", "s1", ".x.json.00.tmp"), nil, 0o600))
		if err := s.Sweep(t.Context()); err != nil {
			t.Errorf("the folder went before it was looked into for time %d: %v", n, err)
		}
		ok(t, s.Close())
		if left > 0 { // not as often as that
			break
		}
	}
}

// Logs are never lost between the trash and a session that had the same id since,
// and a session whose record is damaged can still be brought back.
func TestTrashLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	turn := func(input string) {
		t.Helper()
		k := must(s.Lock(t.Context(), ref, "turn", false))(t)
		log := must(k.BeginTurn(t.Context(), session.TurnHeader{Turn: input, Input: input}))(t)
		ok(t, log.End(t.Context(), nil))
		ok(t, k.Unlock())
	}
	create(t, s, ref, "one")
	turn("first")
	ok(t, s.Delete(t.Context(), ref))
	entry := filepath.Dir(must(filepath.Glob(filepath.Join(dir, ".trash", "*", "session.json")))(t)[0])
	ok(t, os.WriteFile(filepath.Join(entry, "trashed.json"), []byte("{"), 0o600))
	trashed := must(s.Trashed(t.Context()))(t)
	if len(trashed) != 1 || trashed[0].Ref != ref || trashed[0].Title != "a title" || trashed[0].DeletedAt != noon().UnixMilli() {
		t.Errorf("Trashed = %+v", trashed)
	}
	turn("stray")
	ok(t, s.Restore(t.Context(), ref))
	ok(t, s.Sweep(t.Context()))
	left := must(filepath.Glob(filepath.Join(dir, ".trash", "*", "logs", "turn-001.jsonl")))(t)
	if got := must(s.Turns(t.Context(), ref))(t); len(got) != 1 || len(left) != 1 {
		t.Errorf("of two logs with one name there are %v and %v", got, left)
	}
	if got := must(s.Trashed(t.Context()))(t); len(got) > 0 {
		t.Errorf("the session is still in the trash: %+v", got)
	}
}
