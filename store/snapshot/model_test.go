package snapshot_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// model drives a pool at random and knows what must be true of it.
type model struct {
	*testing.T
	rng    *rand.Rand
	pool   *snapshot.Pool
	clock  *clock
	faulty durabletest.Faulty
	dir    string
	said   int             // marks given away
	saved  map[string]bool // marks of what was saved
	trace  []string
}

var modelNames = []snapshot.Name{"a", "b", "c", "d", "auto~"}

// name is any name, and more often than not one that is there.
func (m *model) name() snapshot.Name {
	if there := slices.Sorted(maps.Keys(m.files())); len(there) > 0 && m.rng.IntN(2) == 0 {
		return snapshot.Name(there[m.rng.IntN(len(there))])
	}
	return modelNames[m.rng.IntN(len(modelNames))]
}

// open opens the pool as a process that starts.
func (m *model) open() {
	m.Helper()
	pool, err := snapshot.Open(m.dir, snapshot.Options{
		Now: m.clock.Now, FS: m.faulty.Open, TrashKeep: 7 * 24 * time.Hour,
	})
	if err != nil {
		m.Fatal(err)
	}
	m.pool = pool
}

// files are the pool's names and what their files hold.
func (m *model) files() map[string]string {
	m.Helper()
	list, err := m.pool.List(m.Context())
	if err != nil {
		m.fail("List: %v", err)
	}
	files := map[string]string{}
	for _, e := range list {
		if e.State != snapshot.StateOK {
			m.fail("%s is %s: %s", e.Name, e.State, e.Problem)
		}
		files[string(e.Name)] = string(readFile(m, e.File))
	}
	return files
}

func (m *model) fail(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(m.trace, "\n"))
}

// same ends the test unless the names hold what they held.
func (m *model) same(when string, want map[string]string) {
	m.Helper()
	if diff := gocmp.Diff(want, m.files()); diff != "" {
		m.fail("%s (-want +got):\n%s", when, diff)
	}
}

// check holds what must be true at every moment: every snapshot loads, and
// everything that was ever saved is there or in the trash, for people to find.
func (m *model) check() {
	m.Helper()
	found := map[string]bool{}
	note := func(name string) {
		for mark := range strings.FieldsSeq(content(m, m.pool, snapshot.Name(name))) {
			found[mark] = true
		}
	}
	for name := range m.files() {
		note(name)
	}
	trash, err := m.pool.ListTrash(m.Context())
	if err != nil {
		m.fail("ListTrash: %v", err)
	}
	for _, e := range trash {
		doc, err := transcript.Decode(readFile(m, e.File))
		if err != nil {
			m.fail("%s in the trash: %v", e.File, err)
		}
		for mark := range strings.FieldsSeq(text(m, m.pool, &snapshot.Snapshot{Name: e.Name, Doc: doc})) {
			found[mark] = true
		}
	}
	for mark := range m.saved {
		if !found[mark] {
			m.fail("%s is lost", mark)
		}
	}
}

// step is one operation; done says what it did, "" that there was nothing to do.
type step func(ctx context.Context, m *model) (done string, err error)

// The operations on names that undo takes back.
var recorded = []step{
	func(ctx context.Context, m *model) (string, error) {
		name := m.name()
		m.said++
		mark := fmt.Sprintf("mark%d", m.said)
		_, err := newTalk("s1").speak(mark, 1, 0).save(ctx, m.pool, snapshot.SaveRequest{Name: name, Overwrite: true})
		if err == nil {
			m.saved[mark] = true
		}
		return fmt.Sprintf("save %s over it: %s", name, mark), err
	},
	func(ctx context.Context, m *model) (string, error) {
		from, to := m.name(), m.name()
		_, err := m.pool.Copy(ctx, from, to, snapshot.CopyOptions{Overwrite: m.rng.IntN(2) == 0})
		return fmt.Sprintf("copy %s %s", from, to), err
	},
	func(ctx context.Context, m *model) (string, error) {
		from, to := m.name(), m.name()
		_, _, err := m.pool.Rename(ctx, from, to, snapshot.RenameOptions{Overwrite: m.rng.IntN(2) == 0})
		return fmt.Sprintf("rename %s %s", from, to), err
	},
	func(ctx context.Context, m *model) (string, error) {
		names := make([]snapshot.Name, 1+m.rng.IntN(2))
		for i := range names {
			names[i] = m.name()
		}
		_, _, err := m.pool.Delete(ctx, names, snapshot.OpInfo{})
		return fmt.Sprintf("delete %v", names), err
	},
	func(ctx context.Context, m *model) (string, error) {
		_, err := m.pool.Prune(ctx, snapshot.Policy{Max: 1 + m.rng.IntN(2), OnCap: snapshot.OnCapEvict}, snapshot.PruneOptions{})
		return "prune", err
	},
}

// What undo does not take back.
var others = []step{
	func(ctx context.Context, m *model) (string, error) {
		m.said++
		mark := fmt.Sprintf("mark%d", m.said)
		talk := newTalk("s1").speak("auto", 1, 0)
		for range m.rng.IntN(3) { // sometimes it goes on from the one before
			talk.speak("auto", 1, 0)
		}
		talk.speak(mark, 1, 0)
		_, err := talk.save(ctx, m.pool, snapshot.SaveRequest{Name: "auto~", Rolling: true})
		if err == nil {
			m.saved[mark] = true
		}
		return "autosave " + mark, err
	},
	func(ctx context.Context, m *model) (string, error) {
		name := m.name()
		_, err := m.pool.SetMeta(ctx, name, func(meta *transcript.Meta) error {
			meta.Note, meta.Pinned = fmt.Sprint("note ", m.said), !meta.Pinned
			return nil
		}, true)
		return fmt.Sprintf("tag %s", name), err
	},
	func(ctx context.Context, m *model) (string, error) {
		trash, err := m.pool.ListTrash(ctx)
		if err != nil || len(trash) == 0 {
			return "", err
		}
		e, as := trash[m.rng.IntN(len(trash))], m.name()
		_, err = m.pool.RestoreTrash(ctx, cmp.Or(string(e.Name), e.Meta.ID), as)
		return fmt.Sprintf("restore %s as %s", e.Name, as), err
	},
	func(ctx context.Context, m *model) (string, error) {
		m.clock.Add(2 * time.Hour) // chunks that nobody needs are old enough to go
		_, err := m.pool.Sweep(ctx)
		return "sweep", err
	},
	func(ctx context.Context, m *model) (string, error) {
		_, _, err := m.pool.EmptyTrash(ctx, 7*24*time.Hour, false)
		return "empty the trash of what is old", err
	},
}

// refused reports whether an error is one that the operation may end in, given
// what the names hold.
func refused(err error) bool {
	if errors.Is(err, snapshot.ErrGone) || errors.Is(err, snapshot.ErrStale) {
		return true
	}
	_, exists := errors.AsType[*snapshot.ExistsError](err)
	_, missing := errors.AsType[*snapshot.NotFoundError](err)
	return exists || missing
}

// do does one operation, and reports whether it succeeded. One that is refused
// changes no name.
func (m *model) do(s step) bool {
	m.Helper()
	before := m.files()
	done, err := s(m.Context(), m)
	if done == "" && err == nil {
		return false
	}
	m.trace = append(m.trace, fmt.Sprintf("%s: %v", done, err))
	switch {
	case err == nil:
	case refused(err):
		m.same("refused: "+done, before)
	default:
		m.fail("%s: %v", done, err)
	}
	m.check()
	return err == nil
}

// cut does one operation on a disk that fails somewhere in it, once or from then
// on, and goes on as a process that starts anew. It reports whether the disk
// failed.
func (m *model) cut(s step) bool {
	m.Helper()
	before := m.files()
	k, dead := m.rng.IntN(12), m.rng.IntN(2) == 0
	m.faulty.FailAt(k, syscall.ENOSPC, dead)
	done, err := s(m.Context(), m)
	fired := m.faulty.Fired()
	m.faulty.Reset()
	m.trace = append(m.trace, fmt.Sprintf("%s, failing at %d (for good %v, reached %v): %v", done, k, dead, fired, err))
	if err := m.pool.Close(); err != nil {
		m.fail("Close: %v", err)
	}
	m.open()
	if all, err := m.pool.Recover(m.Context(), nil); err != nil {
		m.fail("Recover: %+v, %v", all, err)
	}
	if err != nil && !fired {
		m.same("refused: "+done, before)
	}
	m.check()
	return fired
}

func undoStep(ctx context.Context, m *model) (string, error) {
	op, err := m.pool.Undoable(ctx, "")
	if err != nil || op == nil {
		return "", err
	}
	_, err = m.pool.UndoNames(ctx, op)
	return fmt.Sprintf("undo %s %s", op.Kind, op.ID), err
}

func redoStep(ctx context.Context, m *model) (string, error) {
	op, err := m.pool.Redoable(ctx, "")
	if err != nil || op == nil {
		return "", err
	}
	_, err = m.pool.RedoNames(ctx, op)
	return fmt.Sprintf("redo %s %s", op.Kind, op.ID), err
}

// backAndForth undoes and redoes what was done last, some steps deep. Each step
// back leads to the state from which redo came, byte for byte.
func (m *model) backAndForth() {
	m.Helper()
	states := []map[string]string{m.files()}
	for range 1 + m.rng.IntN(3) {
		if !m.do(undoStep) {
			break
		}
		states = append(states, m.files())
	}
	for i := len(states) - 2; i >= 0; i-- {
		if !m.do(redoStep) {
			m.fail("redo %d of what was undone just now", i)
		}
		m.same("undo, then redo", states[i])
	}
	for _, state := range states[1:] {
		if !m.do(undoStep) {
			m.fail("undo of what was redone just now")
		}
		m.same("undo, redo, then undo", state)
	}
}

// Random operations lose nothing that was ever saved, undo takes each of them
// back and redo does it again, whatever the disk does in between. The seed of a
// run that failed is given with SNAPSHOT_TEST_SEED.
func TestNothingIsLostAtRandom(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SNAPSHOT_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	runs, steps := 12, 60
	if testing.Short() {
		runs = 3
	}
	t.Logf("SNAPSHOT_TEST_SEED=%d", seed)
	var undone, cut atomic.Int64
	t.Cleanup(func() {
		if undone.Load() == 0 || cut.Load() == 0 {
			t.Errorf("%d operations undone at once, %d cut off: nothing was tried", undone.Load(), cut.Load())
		}
	})
	for run := range uint64(runs) {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			m := &model{
				T: t, rng: rand.New(rand.NewPCG(seed, run)), clock: newClock(),
				dir: filepath.Join(t.TempDir(), "sessions"), saved: map[string]bool{},
			}
			m.open()
			defer func() {
				if err := m.pool.Close(); err != nil {
					t.Error(err)
				}
			}()
			for range steps {
				every := slices.Concat(recorded, others, []step{undoStep, redoStep})
				switch m.rng.IntN(4) {
				case 0:
					m.do(others[m.rng.IntN(len(others))])
				case 1:
					if m.cut(every[m.rng.IntN(len(every))]) {
						cut.Add(1)
					}
				case 2:
					m.backAndForth()
				default:
					before := m.files()
					op, err := m.pool.Undoable(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					if !m.do(recorded[m.rng.IntN(len(recorded))]) {
						continue
					}
					after := m.files()
					now, err := m.pool.Undoable(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					if now == nil || op != nil && now.ID == op.ID {
						continue // it took no name away
					}
					if m.rng.IntN(2) == 0 {
						continue // it stays
					}
					if !m.do(undoStep) {
						m.fail("undo of what was done just now")
					}
					m.same("undo of what was done just now", before)
					undone.Add(1)
					if m.rng.IntN(2) == 0 {
						if !m.do(redoStep) {
							m.fail("redo of what was undone just now")
						}
						m.same("redo of what was undone just now", after)
					}
				}
			}
			if len(m.saved) == 0 {
				t.Error("nothing was saved")
			}
			m.clock.Add(time.Hour)
			if _, err := m.pool.Sweep(t.Context()); err != nil {
				t.Errorf("Sweep: %v", err)
			}
			if left := leftovers(t, m.dir); len(left) > 0 {
				t.Errorf("temp files after a sweep: %v", left)
			}
			m.trace = append(m.trace, fmt.Sprint("in the end: ", slices.Sorted(maps.Keys(m.files()))))
			m.check()
		})
	}
}
