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
	other := session.Ref{Project: "default", ID: "other"}

	// prepare makes the old state: s1 with one message is the open session.
	prepare := func(t *testing.T) string {
		dir := t.TempDir()
		s := open(t, dir)
		create(t, s, ref, "one")
		ok(t, s.Activate(t.Context(), ref))
		put(t, dir, session.Ref{Project: "default", ID: "bad"}, "{")
		return dir
	}
	// state tells the two states apart by what a reader sees.
	state := func(t *testing.T, s *session.Store) string {
		var b strings.Builder
		for _, r := range []session.Ref{ref, other} {
			l, err := s.Read(t.Context(), r)
			if errors.Is(err, session.ErrNotFound) {
				continue
			}
			ok(t, err)
			all := records(t, l, transcript.ListMessages)
			fmt.Fprintf(&b, "%s: revision %d, %d messages, last %.60s; ", r.ID, l.Revision, len(all), all[max(0, len(all)-1):])
		}
		m := must(s.Manifest(t.Context()))(t)
		fmt.Fprintf(&b, "open %s, selected %q", m.LastSessionID, must(s.Selected(ref))(t))
		return b.String()
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s *session.Store) error
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
					if err == nil && fired && dead {
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
