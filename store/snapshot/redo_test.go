package snapshot_test

import (
	"path/filepath"
	"testing"

	"sess/store/durable/durabletest"
	"sess/store/snapshot"
)

// What was taken back can be done again after a sweep as well, although nothing
// of it is in the trash then.
func TestRedoAfterASweep(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*snapshot.Pool) error{
		"delete": func(p *snapshot.Pool) error {
			_, _, err := p.Delete(t.Context(), []snapshot.Name{"a"}, snapshot.OpInfo{})
			return err
		},
		"rename": func(p *snapshot.Pool) error {
			_, _, err := p.Rename(t.Context(), "a", "c", snapshot.RenameOptions{})
			return err
		},
		"rename over": func(p *snapshot.Pool) error {
			_, _, err := p.Rename(t.Context(), "a", "b", snapshot.RenameOptions{Overwrite: true})
			return err
		},
		"overwrite": func(p *snapshot.Pool) error {
			_, err := newTalk("s1").speak("new", 1, 0).save(t.Context(), p, snapshot.SaveRequest{Name: "a", Overwrite: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openPool(t, filepath.Join(t.TempDir(), "pool"), snapshot.Options{FS: durabletest.Unsynced, Now: newClock().Now})
			put(t, p, "a", "A")
			put(t, p, "b", "B")
			if err := do(p); err != nil {
				t.Fatal(err)
			}
			after, first1 := listed(t, p), first(t, p, "b")
			undo(t, p)
			if _, err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			op, err := p.Redoable(t.Context(), "")
			if err != nil || op == nil {
				t.Fatalf("Redoable after a sweep: %v, %v", op, err)
			}
			if _, err := p.RedoNames(t.Context(), op); err != nil {
				t.Fatal(err)
			}
			if got := listed(t, p); got != after || first(t, p, "b") != first1 {
				t.Errorf("after redo: %q, want %q", got, after)
			}
		})
	}
}

// A run that follows a change leaves the pool alone when somebody has changed it
// since: what it would spare for that change's sake is no longer what is new.
func TestPruneAfterAChangeThatIsOld(t *testing.T) {
	t.Parallel()
	p := openPool(t, filepath.Join(t.TempDir(), "pool"), snapshot.Options{FS: durabletest.Unsynced, Now: newClock().Now})
	a := put(t, p, "a", "A")
	put(t, p, "b", "B")
	c := put(t, p, "c", "C")
	policy := snapshot.Policy{Max: 2, OnCap: "evict", Exempt: []string{a.Meta.ID}}
	if _, err := p.Prune(t.Context(), policy, snapshot.PruneOptions{Automatic: true, Newest: []string{a.Meta.ID}}); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, p); got != "c b a" {
		t.Errorf("after a run that came late: %q", got)
	}
	policy.Exempt = []string{c.Meta.ID}
	if _, err := p.Prune(t.Context(), policy, snapshot.PruneOptions{Automatic: true, Newest: []string{c.Meta.ID}}); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, p); got != "c b" {
		t.Errorf("after a run in time: %q", got)
	}
}
