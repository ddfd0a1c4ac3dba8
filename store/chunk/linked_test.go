package chunk_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

// link adds chunks whose second names lie in .trash, and reports whether they
// got some.
func link(t *testing.T, s *chunk.Store, chunks ...transcript.Sealed) bool {
	t.Helper()
	b := s.NewBatch()
	defer b.Discard()
	for _, c := range chunks {
		if err := b.Seal(c); err != nil {
			t.Fatalf("Seal(%s): %v", c.ID, err)
		}
	}
	linked, err := b.CommitLinked(t.Context(), ".trash")
	if err != nil {
		t.Fatalf("CommitLinked: %v", err)
	}
	return linked
}

func secondNames(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".trash", "*.zst"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestIndexChunkHasNoSecondName holds that an index chunk is only ever there
// together with its parts: by a second name, which may outlast a sweep when the
// power goes, it would come back without them.
func TestIndexChunkHasNoSecondName(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	part := records("part")
	top := index(part)
	put(t, s, part, top)
	if link(t, s, records("new"), top) || len(secondNames(t, dir)) > 0 {
		t.Errorf("second names were given beside an index chunk: %v", secondNames(t, dir))
	}
	if !link(t, s, records("newer")) || len(secondNames(t, dir)) != 1 {
		t.Errorf("a chunk of records has the second names %v, want one", secondNames(t, dir))
	}
	if err := os.WriteFile(filepath.Join(dir, ".trash", string(top.ID)+".x.zst"), chunk.Encode(top), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []transcript.Sealed{part, top} {
		if err := os.Remove(path(dir, c.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Relink(".trash"); err != nil {
		t.Fatal(err)
	}
	if has, err := s.Has(top.ID); has || err != nil {
		t.Errorf("an index chunk came back without its part (%v)", err)
	}
}

// meanwhile does something right after the folder of the chunks was synced.
type meanwhile struct {
	durable.FS
	do func()
}

func (m *meanwhile) Link(oldName, newName string) error {
	return m.FS.(durable.Linker).Link(oldName, newName)
}

func (m *meanwhile) SyncDir(name string) error {
	err := m.FS.SyncDir(name)
	if do := m.do; do != nil && name == ".chunks" {
		m.do = nil
		do()
	}
	return err
}

// TestSecondNameOfAnotherStays has a chunk come and go and come again while a
// store that linked it first makes its folder durable: the chunk that came later
// has nothing but its second name then.
func TestSecondNameOfAnotherStays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		sync func(*chunk.Store) error
	}{
		{"a sync", (*chunk.Store).Sync},
		{"a start", func(s *chunk.Store) error { return s.Relink(".trash") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			inner, err := durable.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			fs := &meanwhile{FS: inner}
			s, other := chunk.Open(fs, chunk.Options{}), chunk.Open(inner, chunk.Options{})
			c := records("x")
			link(t, s, c)
			fs.do = func() {
				if err := other.Relink(".trash"); err != nil {
					t.Error(err)
				}
				if err := os.Remove(path(dir, c.ID)); err != nil { // swept
					t.Error(err)
				}
				link(t, other, c)
			}
			if err := tt.sync(s); err != nil {
				t.Fatal(err)
			}
			if names := secondNames(t, dir); len(names) != 1 {
				t.Errorf("the chunk has the second names %v, want that of who added it last", names)
			}
		})
	}
}

// TestRelinkOnAFullDisk brings chunks back where nothing can be written: one that
// is missing, and one that is damaged.
func TestRelinkOnAFullDisk(t *testing.T) {
	t.Parallel()
	s, dir, disk := open(t)
	missing, broken := records("missing"), records("broken")
	if !link(t, s, missing, broken) {
		t.Fatal("the chunks got no second names")
	}
	if err := os.Remove(path(dir, missing.ID)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path(dir, broken.ID)), os.WriteFile(path(dir, broken.ID), make([]byte, 100), 0o600)); err != nil {
		t.Fatal(err)
	}
	disk.Reset()
	if err := s.Relink(".trash"); err != nil {
		t.Fatal(err)
	}
	if n := disk.Written(); n > 0 {
		t.Errorf("%d bytes were written, want none", n)
	}
	for _, c := range []transcript.Sealed{missing, broken} {
		if got, err := s.Plain(c.ID); !bytes.Equal(got, c.Plain) || err != nil {
			t.Errorf("Plain gave %d bytes, %v", len(got), err)
		}
	}
	if names := secondNames(t, dir); len(names) > 0 {
		t.Errorf("second names %v, want none", names)
	}
}
