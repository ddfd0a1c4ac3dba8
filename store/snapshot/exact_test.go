package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
)

// foldFS is a disk that ignores the case of names, as those of macOS and Windows
// do: whatever spelling is asked for leads to the file that is there.
type foldFS struct{ durable.FS }

func foldDisk(dir string) (durable.FS, error) {
	inner, err := durable.OpenDir(dir)
	return &foldFS{inner}, err
}

// stored is the spelling that is there, or else the one asked for.
func (f *foldFS) stored(name string) string {
	dir, base := ".", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, base = name[:i], name[i+1:]
	}
	entries, err := f.FS.ReadDir(dir)
	if err != nil {
		return name
	}
	for _, e := range entries {
		if strings.EqualFold(e.Name(), base) {
			return strings.TrimSuffix(name, base) + e.Name()
		}
	}
	return name
}

func (f *foldFS) Open(name string) (durable.File, error)   { return f.FS.Open(f.stored(name)) }
func (f *foldFS) Create(name string) (durable.File, error) { return f.FS.Create(f.stored(name)) }
func (f *foldFS) Append(name string) (durable.File, error) { return f.FS.Append(f.stored(name)) }
func (f *foldFS) Stat(name string) (fs.FileInfo, error)    { return f.FS.Stat(f.stored(name)) }
func (f *foldFS) Remove(name string) error                 { return f.FS.Remove(f.stored(name)) }

func (f *foldFS) Rename(oldName, newName string) error {
	return f.FS.Rename(f.stored(oldName), f.stored(newName))
}

func (f *foldFS) Lock(ctx context.Context, name string, mode durable.LockMode, wait bool) (func() error, error) {
	return f.FS.Lock(ctx, f.stored(name), mode, wait)
}

// TestDiskThatIgnoresCase saves under two spellings of a name: on every disk the
// second one is taken, and the first one's snapshot stays as it is.
func TestDiskThatIgnoresCase(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]durable.OpenFunc{"ignores case": foldDisk, "tells names apart": durable.OpenDir} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openPool(t, t.TempDir(), snapshot.Options{FS: open})
			first := newTalk("s1").speak("x", 2, 100)
			first.mustSave(t, p, snapshot.SaveRequest{Name: "Plan"})
			for _, r := range []snapshot.SaveRequest{{Name: "plan"}, {Name: "plan", Overwrite: true}, {Name: "PLAN", Rolling: true}} {
				var exists *snapshot.ExistsError
				if _, err := newTalk("s2").speak("y", 3, 100).save(t.Context(), p, r); !errors.As(err, &exists) || exists.Name != "Plan" {
					t.Errorf("%+v: %v", r, err)
				}
			}
			first.speak("z", 1, 100).mustSave(t, p, snapshot.SaveRequest{Name: "Plan", Overwrite: true})
			list, err := p.List(t.Context())
			if err != nil || len(list) != 1 || list[0].Name != "Plan" || list[0].Meta.SessionID != "s1" {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}

// TestSaveIntoAFullPool: what an autosave asks of the disk does not depend on how
// many snapshots there are, not even their names are read.
func TestSaveIntoAFullPool(t *testing.T) {
	t.Parallel()
	var disk durabletest.Counter
	disk.Unsynced = true
	p := openPool(t, t.TempDir(), snapshot.Options{FS: disk.Open})
	c := newTalk("s1").speak("x", 2, 100)
	for i := range 20 {
		c.mustSave(t, p, snapshot.SaveRequest{Name: snapshot.Name(fmt.Sprintf("n%d", i))})
	}
	c.mustSave(t, p, snapshot.SaveRequest{Name: "auto~", Rolling: true})
	disk.Take()
	c.speak("y", 1, 100).mustSave(t, p, snapshot.SaveRequest{Name: "auto~", Rolling: true})
	if n := disk.Take(); n.Listed != 0 {
		t.Errorf("%v", n)
	}
}
