package snapshot_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sess/store/durable/durabletest"
	"sess/store/snapshot"
)

// links are the second names of chunks in the trash.
func links(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".trash", "*.zst"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// overwriteSealing saves over a until a chunk was sealed by it, and returns what
// a holds.
func overwriteSealing(t *testing.T, p *snapshot.Pool, c *talk) string {
	t.Helper()
	for before := len(c.sealed); len(c.sealed) == before; {
		c.speak("x", 1, 8<<10).mustSave(t, p, snapshot.SaveRequest{Name: "a", Overwrite: true})
	}
	return content(t, p, "a")
}

// TestOverwriteAndPowerCut cuts the power after overwrites that sealed chunks:
// these are durable by their second name alone, and the state that was answered
// for comes back whole.
func TestOverwriteAndPowerCut(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "pool")
	power, err := durabletest.NewPower(top)
	if err != nil {
		t.Fatal(err)
	}
	now := newClock()
	p := openPool(t, dir, snapshot.Options{FS: power.Open, Now: now.Now})
	c := newTalk("s1").speak("x", 20, 8<<10)
	for range 2 {
		c.mustSave(t, p, snapshot.SaveRequest{Name: "a", Overwrite: true})
	}
	overwriteSealing(t, p, c)
	want := overwriteSealing(t, p, c)
	if n := len(links(t, dir)); n < 2 {
		t.Fatalf("%d chunks have a second name, want two or more", n)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	lost := 0
	for i := range 20 {
		left := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := power.Cut(left, rnd); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(left, "pool")
		for id := range c.sealed {
			if _, err := os.Stat(filepath.Join(dir, ".chunks", string(id)+".zst")); err != nil {
				lost++
			}
		}
		p := openPool(t, dir, snapshot.Options{FS: durabletest.Unsynced, Now: now.Now})
		if _, err := p.Recover(t.Context(), nil); err != nil {
			t.Fatalf("Recover after cut %d: %v", i, err)
		}
		if got := content(t, p, "a"); got != want {
			t.Errorf("after cut %d a holds %d bytes, want what was saved: %d", i, len(got), len(want))
		}
		if names := links(t, dir); len(names) > 0 {
			t.Errorf("after Recover %d chunks have a second name, want none", len(names))
		}
	}
	if lost == 0 {
		t.Error("no cut took a chunk's first name")
	}
}

// TestSecondNamesGo makes the store of chunks durable in each way there is: then
// no chunk needs its second name.
func TestSecondNamesGo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, p *snapshot.Pool, c *talk)
	}{
		{"a save that seals", func(t *testing.T, p *snapshot.Pool, c *talk) {
			for i, before := 0, len(c.sealed); len(c.sealed) == before; i++ {
				c.speak("x", 1, 8<<10).mustSave(t, p, snapshot.SaveRequest{Name: snapshot.Name(fmt.Sprintf("n%d", i))})
			}
		}},
		{"a sweep", func(t *testing.T, p *snapshot.Pool, _ *talk) {
			if r, err := p.Sweep(t.Context()); err != nil || r.Skipped != "" {
				t.Fatalf("Sweep: %+v, %v", r, err)
			}
		}},
		{"a start", func(t *testing.T, p *snapshot.Pool, _ *talk) {
			if _, err := p.Recover(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			unsynced := durabletest.Counter{Unsynced: true}
			p := openPool(t, filepath.Join(t.TempDir(), "pool"), snapshot.Options{FS: unsynced.Open, Now: newClock().Now})
			c := newTalk("s1").speak("x", 20, 8<<10)
			c.mustSave(t, p, snapshot.SaveRequest{Name: "a"})
			want := overwriteSealing(t, p, c)
			if len(links(t, p.Dir())) == 0 {
				t.Fatal("no chunk has a second name")
			}
			tt.do(t, p, c)
			if names := links(t, p.Dir()); len(names) > 0 {
				t.Errorf("%d chunks have a second name yet, want none", len(names))
			}
			if got := content(t, p, "a"); got != want {
				t.Errorf("a holds %d bytes, want %d", len(got), len(want))
			}
		})
	}
}

// TestOverwriteOfAnOlderHome undoes, redoes, settles and removes an overwrite
// whose record lies among all others, where earlier versions put it, open or
// closed.
func TestOverwriteOfAnOlderHome(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"", ".open"} {
		t.Run("record"+state, func(t *testing.T) {
			t.Parallel()
			p, _ := newPool(t)
			put(t, p, "a", "one")
			put(t, p, "a", "two")
			records := func(folder string) []string {
				t.Helper()
				found, err := filepath.Glob(filepath.Join(p.Dir(), folder, "????????-????-????-????-????????????*.json"))
				if err != nil {
					t.Fatal(err)
				}
				return slices.DeleteFunc(found, func(name string) bool { return strings.HasSuffix(name, ".sess.json") })
			}
			now := records(".trash")
			if len(now) != 1 {
				t.Fatalf("records %v, want one", now)
			}
			if err := os.MkdirAll(filepath.Join(p.Dir(), ".ops"), 0o700); err != nil {
				t.Fatal(err)
			}
			id := strings.TrimSuffix(filepath.Base(now[0]), ".json")
			if err := os.Rename(now[0], filepath.Join(p.Dir(), ".ops", id+state+".json")); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Recover(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			put(t, p, "b", "three") // a newer record beside it
			put(t, p, "b", "four")
			wantNames(t, p, "after the next overwrite", names{"a": "two", "b": "four"})
			for range 2 {
				undo(t, p)
				undo(t, p)
				wantNames(t, p, "after undo", names{"a": "one", "b": "three"})
				redo(t, p)
				redo(t, p)
				wantNames(t, p, "after redo", names{"a": "two", "b": "four"})
			}
			if in := records(".trash"); len(in) != 1 || len(records(".ops")) != 1 {
				t.Errorf("records %v and %v, want one each: none moves", in, records(".ops"))
			}
			if n, _, err := p.EmptyTrash(t.Context(), 0, false); err != nil || n != 2 {
				t.Errorf("EmptyTrash = %d, %v; want 2", n, err)
			}
			if left := append(records(".trash"), records(".ops")...); len(left) > 0 {
				t.Errorf("records of an empty trash: %v", left)
			}
		})
	}
}
