package session_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/transcript"
)

// A crash or a failing disk at any operation leaves the old state or the new
// one, whole, and nothing that a sweep does not remove.
func TestAnyOperationMayFail(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 8))
	long := []string{prose(rnd, 50<<10), prose(rnd, 90<<10), prose(rnd, 90<<10)}
	source := open(t, t.TempDir())
	saved := create(t, source, ref, append(long, "end")...).Doc.Clone()
	other, spare := session.Ref{Project: "default", ID: "other"}, session.Ref{Project: "more", ID: "spare"}

	// prepare makes the old state: s1 with one message is the open session, and
	// spare has had a turn.
	prepare := func(t *testing.T) string {
		dir := t.TempDir()
		s := open(t, dir)
		create(t, s, ref, "one")
		create(t, s, spare, "spare")
		k := must(s.Lock(t.Context(), spare, "turn", false))(t)
		log := must(k.BeginTurn(t.Context(), session.TurnHeader{Turn: "t1", Input: "hi", Time: noon()}))(t)
		ok(t, log.End(t.Context(), nil))
		ok(t, k.Unlock())
		ok(t, s.Activate(t.Context(), ref))
		put(t, dir, session.Ref{Project: "default", ID: "bad"}, "{")
		return dir
	}
	// state tells the two states apart by what a reader sees.
	state := func(t *testing.T, s *session.Store) string {
		var b strings.Builder
		for _, r := range []session.Ref{ref, other, spare} {
			l, err := s.Read(t.Context(), r)
			if errors.Is(err, session.ErrNotFound) {
				continue
			}
			ok(t, err)
			all := records(t, l, transcript.ListMessages)
			fmt.Fprintf(&b, "%s: %q, revision %d, %d messages, last %.60s, turns %v, pinned %v; ", r.ID, l.Doc.Meta.Title, l.Revision, len(all), all[max(0, len(all)-1):],
				must(s.Turns(t.Context(), r))(t), must(s.Meta(r))(t).Pinned)
		}
		for _, e := range must(s.Trashed(t.Context()))(t) {
			fmt.Fprintf(&b, "%s in the trash, %d messages, why: %s; ", e.Ref.ID, e.Messages, e.Why)
		}
		m := must(s.Manifest(t.Context()))(t)
		fmt.Fprintf(&b, "open %s, selected %q", m.LastSessionID, must(s.Selected(ref))(t))
		return b.String()
	}
	for _, c := range []struct {
		name string
		// prepare adds to the old state; it may be nil.
		prepare func(t *testing.T, s *session.Store)
		do      func(t *testing.T, s *session.Store) error
		// tidies says that it has happened before its last steps, which a sweep can
		// take as well.
		tidies bool
		// recover runs in the next process.
		recover func(t *testing.T, s *session.Store)
	}{
		{name: "turn", do: func(t *testing.T, s *session.Store) error {
			k := must(s.Lock(t.Context(), ref, "turn", false))(t)
			defer func() { ok(t, k.Unlock()) }()
			l := must(k.Read(t.Context()))(t)
			for i, c := range long {
				ok(t, l.Append(transcript.ListMessages, message(fmt.Sprint("x", i), "agent", c)))
			}
			_, err := k.Write(t.Context(), l, l.Revision)
			return err
		}},
		{name: "commit", do: func(t *testing.T, s *session.Store) (err error) {
			st, err := s.Stage(t.Context(), session.StageRequest{Ref: ref, Doc: saved, Normalise: true})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, st.Discard()) }()
			for _, id := range st.Missing {
				if err := st.Write(id, must(source.Frame(id))(t)); err != nil {
					return err
				}
			}
			_, err = st.Commit(t.Context(), 1, "op", "")
			return err
		}},
		{name: "new session", do: func(t *testing.T, s *session.Store) error {
			_, err := s.NewSession(t.Context(), other, "T", "/w", "op")
			return err
		}, recover: func(t *testing.T, s *session.Store) {
			got, active := must(s.OpState(t.Context(), other, "op"))(t), must(s.Manifest(t.Context()))(t).LastSessionID == other.ID
			if active != (got == session.OpLanded) {
				t.Errorf("active %v, but the operation is %s", active, got)
			}
		}},
		{name: "void", do: func(t *testing.T, s *session.Store) error {
			_, err := s.OpState(t.Context(), ref, "op")
			return err
		}},
		{name: "select", do: func(t *testing.T, s *session.Store) error {
			return s.Select(t.Context(), ref, "id")
		}},
		{name: "client's save", do: func(t *testing.T, s *session.Store) error {
			o := shown(t, s, ref)
			o["messages"] = append(o.list("messages"), chatMessage("y1", "agent", long[0]), chatMessage("y2", "user", long[1]), chatMessage("y3", "agent", long[2]))
			_, err := s.SaveSession(t.Context(), o.raw(t), nil)
			return err
		}},
		{name: "client's first save", tidies: true, do: func(t *testing.T, s *session.Store) error {
			_, err := s.SaveSession(t.Context(), newObject(other.ID, chatMessage("m1", "user", "hello")).raw(t), nil)
			return err
		}},
		{name: "rename", do: func(t *testing.T, s *session.Store) error { return s.Rename(t.Context(), spare, "Another") }},
		{name: "pin", do: func(t *testing.T, s *session.Store) error { return s.Pin(t.Context(), spare, true) }},
		{name: "delete", tidies: true, do: func(t *testing.T, s *session.Store) error { return s.Delete(t.Context(), spare) }},
		{name: "delete a project", tidies: true, do: func(t *testing.T, s *session.Store) error {
			_, err := s.DeleteProject(t.Context(), spare.Project)
			return err
		}},
		{name: "expire", tidies: true, do: func(t *testing.T, s *session.Store) error {
			_, err := s.Expire(t.Context(), session.Policy{Max: 1})
			return err
		}},
		{name: "restore", tidies: true, prepare: func(t *testing.T, s *session.Store) { ok(t, s.Delete(t.Context(), spare)) }, do: func(t *testing.T, s *session.Store) error {
			return s.Restore(t.Context(), spare)
		}},
		{name: "set aside", do: func(t *testing.T, s *session.Store) error {
			_, err := s.SetAside(t.Context(), session.Ref{Project: "default", ID: "bad"})
			return err
		}, recover: func(t *testing.T, s *session.Store) {
			left := must(filepath.Glob(filepath.Join(s.Dir(), "default", "bad.json*")))(t)
			if len(left) != 1 {
				t.Errorf("the damaged file is now %v", left)
			}
			ok(t, os.Remove(left[0]))
		}},
	} {
		for _, dead := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s dead=%v", c.name, dead), func(t *testing.T) {
				t.Parallel()
				prepare := func(t *testing.T) string {
					dir := prepare(t)
					if c.prepare != nil {
						c.prepare(t, open(t, dir))
					}
					return dir
				}
				dir := prepare(t)
				before := state(t, open(t, dir))
				clean := open(t, dir)
				ok(t, c.do(t, clean))
				after := state(t, clean)
				for k := 0; ; k++ {
					dir := prepare(t)
					faulty := &durabletest.Faulty{}
					s := must(session.Open(dir, session.Options{Now: noon, FS: faulty.Open}))(t)
					faulty.FailAt(k, nil, dead)
					err := c.do(t, s)
					fired := faulty.Fired()
					faulty.Reset()
					ok(t, s.Close())
					if err == nil && fired && dead && !c.tidies {
						t.Fatalf("operation %d failed, but the call succeeded: %v", k, faulty.Ops())
					}

					later := func() time.Time { return time.Now().Add(2 * time.Hour) }
					next := must(session.Open(dir, session.Options{Now: later}))(t)
					if c.recover != nil {
						c.recover(t, next)
					}
					if got := state(t, next); got != before && got != after || err == nil && got != after {
						t.Fatalf("operation %d failed (%v):\n got %s\n old %s\n new %s", k, err, got, before, after)
					}
					_ = os.Remove(filepath.Join(dir, "default", "bad.json"))
					ok(t, next.Sweep(t.Context()))
					if left := temps(t, dir); len(left) > 0 {
						t.Fatalf("operation %d failed: temp files left: %v", k, left)
					}
					if got := state(t, next); got != before && got != after {
						t.Fatalf("operation %d failed: the sweep made it %s", k, got)
					}
					append1(t, next, ref, "it goes on")
					ok(t, next.Close())
					if !fired {
						if k < 2 {
							t.Fatalf("only %d operations were seen", k)
						}
						return
					}
				}
			})
		}
	}
}

func TestSweepKeepsWhatIsReferredTo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	s := must(session.Open(dir, session.Options{Now: later}))(t)
	defer func() { ok(t, s.Close()) }()
	rnd := rand.New(rand.NewPCG(9, 10))
	content := []string{prose(rnd, 150<<10), prose(rnd, 150<<10), "end"}
	create(t, s, ref, content...)
	aside := session.Ref{Project: "default", ID: "aside"}
	create(t, s, aside, prose(rnd, 150<<10), prose(rnd, 150<<10), "end")
	chunks := func() int { return len(must(filepath.Glob(filepath.Join(dir, ".chunks", "*.zst")))(t)) }
	all := chunks()

	ok(t, s.Sweep(t.Context()))
	if got := chunks(); got != all {
		t.Errorf("a sweep left %d of %d chunks in use", got, all)
	}
	put(t, dir, aside, strings.TrimSuffix(fileOf(t, dir, aside), "}\n"))
	if err := s.Sweep(t.Context()); !errors.Is(err, session.ErrDamaged) || chunks() != all {
		t.Errorf("Sweep beside a damaged file = %v, %d of %d chunks left", err, chunks(), all)
	}
	path := must(s.SetAside(t.Context(), aside))(t)
	ok(t, s.Sweep(t.Context()))
	if got := chunks(); got != all {
		t.Errorf("a sweep beside a file set aside left %d of %d chunks", got, all)
	}
	ok(t, os.Remove(path))
	st := must(s.Stage(t.Context(), session.StageRequest{Ref: ref, Doc: must(s.Read(t.Context(), ref))(t).Doc.Clone()}))(t)
	ok(t, s.Sweep(t.Context()))
	if got := chunks(); got != all {
		t.Errorf("a sweep during a stage left %d of %d chunks", got, all)
	}
	ok(t, st.Discard())
	ok(t, s.Sweep(t.Context()))
	if got := chunks(); got >= all || got == 0 {
		t.Errorf("a sweep left %d of %d chunks", got, all)
	}
	if got := contents(t, s, ref); len(got) != 3 || got[0] != content[0] {
		t.Error("the sweep took a chunk that was in use")
	}
}

// A temp file is not swept while somebody may be writing it.
func TestSweepSparesWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "one")
	place := func(name string, at time.Time) string {
		path := filepath.Join(dir, "default", name)
		ok(t, os.MkdirAll(filepath.Dir(path), 0o700))
		ok(t, os.WriteFile(path, nil, 0o600))
		ok(t, os.Chtimes(path, at, at))
		return path
	}
	held := []string{place(".s1.json.0011223344556677.tmp", noon()), place("s1/.view.json.0011223344556677.tmp", noon())}
	place(".gone.json.0011223344556677.tmp", noon())
	young := place("odd.tmp", noon().Add(-time.Minute))
	place("older.tmp", noon().Add(-2*time.Hour))

	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	ok(t, s.Sweep(t.Context()))
	if diff := cmp.Diff([]string{held[0], young, held[1]}, temps(t, dir)); diff != "" {
		t.Errorf("left during a turn (-want +got):\n%s", diff)
	}
	ok(t, k.Unlock())
	ok(t, s.Sweep(t.Context()))
	if diff := cmp.Diff([]string{young}, temps(t, dir)); diff != "" {
		t.Errorf("left afterwards (-want +got):\n%s", diff)
	}
}

const holderEnv = "SESS_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		os.Exit(hold(dir))
	}
	os.Exit(m.Run())
}

// hold takes the session's lock, says so, and keeps it until its input ends.
func hold(dir string) int {
	s, err := session.Open(dir, session.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	k, err := s.Lock(context.Background(), ref, "turn", false)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := k.Unlock(); err != nil {
		return 1
	}
	return 0
}

func TestLockBetweenProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	saved := create(t, s, ref, "one").Doc.Clone()
	append1(t, s, ref, "two")
	before := fileOf(t, dir, ref)

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	stdin := must(cmd.StdinPipe())(t)
	stdout := must(cmd.StdoutPipe())(t)
	ok(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	_, err = s.Lock(t.Context(), ref, "turn", false)
	held, is := errors.AsType[*durable.LockedError](err)
	if !is || held.Holder.PID != cmd.Process.Pid || held.Holder.Operation != "turn" {
		t.Errorf("Lock = %v, want process %d as the holder", err, cmd.Process.Pid)
	}
	st := stage(t, s, ref, saved)
	if _, err := st.Commit(t.Context(), 2, "op", ""); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("Commit = %v", err)
	}
	if got := fileOf(t, dir, ref); got != before {
		t.Error("a refused call changed the file")
	}
	// Its death frees the session, with no one to clean up.
	ok(t, cmd.Process.Kill())
	_ = cmd.Wait()
	_ = stdin.Close()
	must(st.Commit(t.Context(), 2, "op", ""))(t)
}
