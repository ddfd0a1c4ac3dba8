package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
)

// change is an operation on a pool, and what was done before it.
type change struct {
	name    string
	prepare func(context.Context, *snapshot.Pool) error // may be nil
	do      func(context.Context, *snapshot.Pool) error
}

// changes are operations on a pool that holds a, b and c~.
var changes = []change{
	{name: "save", do: func(ctx context.Context, p *snapshot.Pool) error {
		_, err := newTalk("s1").speak("new", 3, 60<<10).save(ctx, p, snapshot.SaveRequest{Name: "d"})
		return err
	}},
	{name: "overwrite", do: overwrite},
	{name: "autosave", do: func(ctx context.Context, p *snapshot.Pool) error {
		_, err := newTalk("s2").speak("new", 1, 0).save(ctx, p, snapshot.SaveRequest{Name: "c~", Rolling: true})
		return err
	}},
	{name: "copy", do: func(ctx context.Context, p *snapshot.Pool) error {
		_, err := p.Copy(ctx, "a", "d", snapshot.CopyOptions{})
		return err
	}},
	{name: "copy over", do: func(ctx context.Context, p *snapshot.Pool) error {
		_, err := p.Copy(ctx, "a", "b", snapshot.CopyOptions{Overwrite: true})
		return err
	}},
	{name: "rename", do: rename},
	{name: "rename over", do: renameOver},
	{name: "delete", do: remove},
	{name: "prune", do: prune},
	{name: "undo overwrite", prepare: overwrite, do: undoLast},
	{name: "undo rename", prepare: rename, do: undoLast},
	{name: "undo rename over", prepare: renameOver, do: undoLast},
	{name: "undo delete", prepare: remove, do: undoLast},
	{name: "undo prune", prepare: prune, do: undoLast},
	{name: "redo overwrite", prepare: both(overwrite, undoLast), do: redoLast},
	{name: "redo rename over", prepare: both(renameOver, undoLast), do: redoLast},
	{name: "redo delete", prepare: both(remove, undoLast), do: redoLast},
	{name: "restore deleted", prepare: remove, do: func(ctx context.Context, p *snapshot.Pool) error {
		_, err := p.RestoreTrash(ctx, "a", "")
		return err
	}},
	{name: "restore overwritten", prepare: overwrite, do: func(ctx context.Context, p *snapshot.Pool) error {
		_, err := p.RestoreTrash(ctx, "a", "d")
		return err
	}},
}

func overwrite(ctx context.Context, p *snapshot.Pool) error {
	_, err := newTalk("s1").speak("new", 3, 60<<10).save(ctx, p, snapshot.SaveRequest{Name: "a", Overwrite: true})
	return err
}

func rename(ctx context.Context, p *snapshot.Pool) error {
	_, _, err := p.Rename(ctx, "a", "d", snapshot.RenameOptions{})
	return err
}

func renameOver(ctx context.Context, p *snapshot.Pool) error {
	_, _, err := p.Rename(ctx, "a", "b", snapshot.RenameOptions{Overwrite: true})
	return err
}

func remove(ctx context.Context, p *snapshot.Pool) error {
	_, _, err := p.Delete(ctx, []snapshot.Name{"a", "b"}, snapshot.OpInfo{})
	return err
}

func prune(ctx context.Context, p *snapshot.Pool) error {
	_, err := p.Prune(ctx, snapshot.Policy{Max: 2}, snapshot.PruneOptions{})
	return err
}

func undoLast(ctx context.Context, p *snapshot.Pool) error {
	op, err := p.Undoable(ctx, "")
	if err == nil && op == nil {
		err = errors.New("nothing to undo")
	}
	if err == nil {
		_, err = p.UndoNames(ctx, op)
	}
	return err
}

func redoLast(ctx context.Context, p *snapshot.Pool) error {
	op, err := p.Redoable(ctx, "")
	if err == nil && op == nil {
		err = errors.New("nothing to redo")
	}
	if err == nil {
		_, err = p.RedoNames(ctx, op)
	}
	return err
}

func both(a, b func(context.Context, *snapshot.Pool) error) func(context.Context, *snapshot.Pool) error {
	return func(ctx context.Context, p *snapshot.Pool) error { return errors.Join(a(ctx, p), b(ctx, p)) }
}

// state is what the names hold, and what the trash shows.
func state(t *testing.T, p *snapshot.Pool) (names, trash string) {
	t.Helper()
	list, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	marks := map[snapshot.Name]string{}
	for _, e := range list {
		mark, _, _ := strings.Cut(content(t, p, e.Name), " ")
		marks[e.Name] = strings.TrimSpace(mark)
	}
	for _, n := range slices.Sorted(maps.Keys(marks)) {
		names += fmt.Sprintf("%s=%s ", n, marks[n])
	}
	return names, trashed(t, p)
}

// TestFaults fails the k-th operation on the disk for every k: once, as a full
// disk does, and for good from there, as a kill does. The names then hold the
// old state or the new one, and nothing is left behind after the next start.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := faults{template: filepath.Join(t.TempDir(), "pool"), do: c.do}
			f.prepare(t, c)
			for _, dead := range []bool{false, true} {
				k := 0
				for f.at(t, k, dead) {
					k++
				}
				if k == 0 {
					t.Error("nothing was done to the disk")
				}
			}
		})
	}
}

// faults is an operation to be tried with a fault.
type faults struct {
	template            string // the pool before it
	do                  func(context.Context, *snapshot.Pool) error
	before, trashBefore string
	done, trashDone     string // what it makes when nothing fails
}

// prepare makes the pool, and finds out what becomes of it without a fault.
func (f *faults) prepare(t *testing.T, c change) {
	t.Helper()
	p := openPool(t, f.template, snapshot.Options{FS: durabletest.Unsynced})
	put(t, p, "c~", "C") // the first to be pruned
	put(t, p, "a", "A")
	put(t, p, "b", "B")
	if c.prepare != nil {
		if err := c.prepare(t.Context(), p); err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	f.before, f.trashBefore = state(t, p)
	good := openPool(t, f.copy(t), snapshot.Options{FS: durabletest.Unsynced})
	if err := c.do(t.Context(), good); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	f.done, f.trashDone = state(t, good)
}

func (f *faults) copy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pool")
	if err := os.CopyFS(dir, os.DirFS(f.template)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// at makes the k-th operation fail and reports whether there was one.
func (f *faults) at(t *testing.T, k int, dead bool) bool {
	t.Helper()
	ctx, dir := t.Context(), f.copy(t)
	faulty := &durabletest.Faulty{}
	p := openPool(t, dir, snapshot.Options{FS: func(dir string) (durable.FS, error) { return faulty.Wrap(durabletest.Unsynced(dir)) }})
	faulty.FailAt(k, syscall.ENOSPC, dead)
	err := f.do(ctx, p)
	fired := faulty.Fired()
	where := fmt.Sprintf("operation %d failing (%v, dead %v)", k, faulty.Ops()[min(k, len(faulty.Ops())-1)], dead)
	faulty.Reset()
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%s: %v; want the cause in the chain", where, err)
	}
	now, _ := state(t, p)

	next := openPool(t, dir, snapshot.Options{FS: durabletest.Unsynced, Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	if _, err := next.Recover(ctx, nil); err != nil {
		t.Errorf("%s: Recover: %v", where, err)
	}
	if r, err := next.Sweep(ctx); err != nil || r.Skipped != "" {
		t.Errorf("%s: Sweep: %+v, %v", where, r, err)
	}
	if left := leftovers(t, dir); len(left) != 0 {
		t.Errorf("%s: left behind %v", where, left)
	}
	after, trash := state(t, next)
	switch {
	case after != f.before && after != f.done:
		t.Errorf("%s: the names hold %q; want %q or %q", where, after, f.before, f.done)
	case err == nil && (now != f.done || after != f.done):
		t.Errorf("%s: it reported success, and the names hold %q, then %q; want %q", where, now, after, f.done)
	case err != nil && !dead && now != after:
		t.Errorf("%s: after the error the names hold %q, and after the next start %q", where, now, after)
	}
	if want := map[string]string{f.before: f.trashBefore, f.done: f.trashDone}[after]; f.before != f.done && trash != want {
		t.Errorf("%s: with %q the trash shows %q, want %q", where, after, trash, want)
	}
	return fired
}

// TestNoNameIsEverWithoutItsDocument looks at the folder after every rename of
// operations that replace something: a name that is there before and after is
// there all the time.
func TestNoNameIsEverWithoutItsDocument(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		if !slices.Contains([]string{"overwrite", "autosave", "copy over", "rename over", "undo overwrite", "undo rename over"}, c.name) {
			continue
		}
		var watch *snapshot.Pool
		check := func() {
			if _, err := watch.Read(t.Context(), "b"); err != nil {
				t.Errorf("%s: on the way: %v", c.name, err)
			}
		}
		dir := t.TempDir()
		watch = openPool(t, dir, snapshot.Options{})
		for _, n := range []snapshot.Name{"c~", "a", "b"} {
			put(t, watch, n, string(n))
		}
		p := openPool(t, dir, snapshot.Options{FS: func(dir string) (durable.FS, error) {
			inner, err := durable.OpenDir(dir)
			return watched{inner, check}, err
		}})
		if c.prepare != nil {
			if err := c.prepare(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.do(t.Context(), p); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

type watched struct {
	durable.FS
	check func()
}

func (w watched) Rename(oldName, newName string) error {
	defer w.check()
	return w.FS.Rename(oldName, newName)
}

func (w watched) Remove(name string) error {
	defer w.check()
	return w.FS.Remove(name)
}

// TestCostOnDisk counts what operations ask of the disk.
func TestCostOnDisk(t *testing.T) {
	t.Parallel()
	faulty := &durabletest.Faulty{}
	p := openPool(t, t.TempDir(), snapshot.Options{FS: faulty.Open})
	ctx := t.Context()
	c := newTalk("s1").speak("x", 1, 0)
	c.mustSave(t, p, snapshot.SaveRequest{Name: "auto~", Rolling: true})
	put(t, p, "a", "A")
	put(t, p, "b", "B") // both folders of trash and records are there after
	put(t, p, "b", "B2")
	if _, _, err := p.Delete(ctx, []snapshot.Name{"b"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what                   string
		do                     func() error
		syncs, renames, folder int
	}{
		{"a turn saved into the rolling slot", func() error {
			_, err := c.speak("x", 1, 8<<10).save(ctx, p, snapshot.SaveRequest{Name: "auto~", Rolling: true})
			return err
		}, 1, 1, 1},
		{"a turn saved under a new name", func() error {
			_, err := c.speak("x", 1, 8<<10).save(ctx, p, snapshot.SaveRequest{Name: "n"})
			return err
		}, 1, 1, 1},
		// Record and second name in the trash, document; the record is closed by its name.
		{"an overwrite", func() error {
			_, err := c.save(ctx, p, snapshot.SaveRequest{Name: "a", Overwrite: true})
			return err
		}, 2, 3, 2},
		{"a copy", func() error {
			_, err := p.Copy(ctx, "a", "c", snapshot.CopyOptions{})
			return err
		}, 1, 1, 1},
		{"a rename", func() error {
			_, _, err := p.Rename(ctx, "c", "d", snapshot.RenameOptions{})
			return err
		}, 1, 3, 2},
		{"a delete of two", func() error {
			_, _, err := p.Delete(ctx, []snapshot.Name{"d", "n"}, snapshot.OpInfo{})
			return err
		}, 1, 4, 3},
		{"a prune that finds nothing", func() error {
			_, err := p.Prune(ctx, snapshot.Policy{Max: 50}, snapshot.PruneOptions{Automatic: true, NoRecord: true})
			return err
		}, 0, 0, 0},
	} {
		faulty.Reset()
		if err := tt.do(); err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		if s, r, f := faulty.Count("sync"), faulty.Count("rename"), faulty.Count("syncdir"); s != tt.syncs || r != tt.renames || f != tt.folder {
			t.Errorf("%s: %d syncs, %d renames, %d syncs of folders; want %d, %d, %d\n%v", tt.what, s, r, f, tt.syncs, tt.renames, tt.folder, faulty.Ops())
		}
	}
}

// refusing fails the first renames to a name, as a scanner that holds the file
// open makes them fail.
type refusing struct {
	durable.FS
	target string
	times  *int
}

func (r refusing) Rename(oldName, newName string) error {
	if newName == r.target && *r.times > 0 {
		*r.times--
		return syscall.EBUSY
	}
	return r.FS.Rename(oldName, newName)
}

func TestRenameThatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	times := 0
	p := openPool(t, dir, snapshot.Options{FS: func(dir string) (durable.FS, error) {
		inner, err := durable.OpenDir(dir)
		return refusing{inner, "alpha.sess.json", &times}, err
	}})
	put(t, p, "alpha", "old")
	times = 2
	put(t, p, "alpha", "new")
	if got := first(t, p, "alpha"); got != "new" {
		t.Errorf("alpha holds %q", got)
	}
	times = 1 << 30
	_, err := newTalk("s1").save(t.Context(), p, snapshot.SaveRequest{Name: "alpha", Overwrite: true})
	if !errors.Is(err, syscall.EBUSY) {
		t.Errorf("save: %v, want the cause", err)
	}
	if got := first(t, p, "alpha"); got != "new" || trashed(t, p) != "alpha" || len(leftovers(t, dir)) != 0 {
		t.Errorf("alpha holds %q, trash %q, left %v", got, trashed(t, p), leftovers(t, dir))
	}
}

// TestUndoAndRecoverFault dies at every operation on the disk of an undo or redo,
// and has the next start fail somewhere: the start after that brings the names and
// the trash to the old state or the new one.
func TestUndoAndRecoverFault(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, c := range changes {
		if !strings.HasPrefix(c.name, "undo") && !strings.HasPrefix(c.name, "redo") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			f := faults{template: filepath.Join(t.TempDir(), "pool"), do: c.do}
			f.prepare(t, c)
			for k, more := 0, true; more; k++ {
				var disk durabletest.Faulty
				p := openPool(t, f.copy(t), snapshot.Options{FS: func(dir string) (durable.FS, error) { return disk.Wrap(durabletest.Unsynced(dir)) }})
				disk.FailAt(k, nil, true)
				err := c.do(t.Context(), p)
				more = disk.Fired()
				// The intention is written anew from the third operation on.
				j := rnd.IntN(10)
				disk.FailAt(j, nil, false)
				_, _ = p.Recover(t.Context(), nil)
				disk.Reset()
				if _, err := p.Recover(t.Context(), nil); err != nil {
					t.Errorf("Recover: %v", err)
				}
				now, trash := state(t, p)
				isBefore := now == f.before && trash == f.trashBefore
				isDone := now == f.done && trash == f.trashDone
				if !isDone && (err == nil || !isBefore) {
					t.Errorf("dying at %d (%v), and the start failing at %d: the names hold %q and the trash %q; want %q and %q, or the old state",
						k, err, j, now, trash, f.done, f.trashDone)
				}
			}
		})
	}
}
