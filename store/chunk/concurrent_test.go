package chunk_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/transcript"
)

// hookedFS calls what a test does in between, once each.
type hookedFS struct {
	durable.FS
	open, stat, syncDir func(name string)
	inside              atomic.Bool
}

func (h *hookedFS) call(hook func(string), name string) {
	if hook != nil && h.inside.CompareAndSwap(false, true) {
		hook(name)
	}
}

func (h *hookedFS) Open(name string) (durable.File, error) {
	if strings.HasSuffix(name, ".zst") {
		h.call(h.open, name)
	}
	return h.FS.Open(name)
}

func (h *hookedFS) Stat(name string) (fs.FileInfo, error) {
	if strings.HasSuffix(name, ".zst") {
		h.call(h.stat, name)
	}
	return h.FS.Stat(name)
}

func (h *hookedFS) SyncDir(name string) error {
	h.call(h.syncDir, name)
	return h.FS.SyncDir(name)
}

// TestTwoReadersFindThePacks: one reader finds out which packs there are while
// another one is past looking into those that were known. Neither takes a chunk
// for missing.
func TestTwoReadersFindThePacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chunks := many(4, "a")
	put(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
	for name, read := range map[string]func(*chunk.Store, transcript.ID) error{
		"read": func(s *chunk.Store, id transcript.ID) error { return s.Check(id) },
		"ask": func(s *chunk.Store, id transcript.ID) error {
			has, err := s.Has(id)
			if err == nil && !has {
				err = chunk.ErrMissing
			}
			return err
		},
	} {
		hooked := &hookedFS{}
		s := openWith(t, dir, packed, func(dir string) (fsys durable.FS, err error) {
			hooked.FS, err = durabletest.Unsynced(dir)
			return hooked, err
		})
		meanwhile := func(string) { whole(t, s, chunks[1]) }
		hooked.open, hooked.stat = meanwhile, meanwhile
		if err := read(s, chunks[0].ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !hooked.inside.Load() {
			t.Errorf("%s: nobody else read meanwhile", name)
		}
	}
}

// TestTwoSyncs: who is told that all is durable waits for no other's sync to come
// to its end, so its own has to have come to one.
func TestTwoSyncs(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	synced := 0
	hooked := &hookedFS{}
	s := openWith(t, t.TempDir(), packed, func(dir string) (fsys durable.FS, err error) {
		inner, err := durabletest.Unsynced(dir)
		hooked.FS = countedSyncs{inner, func(name string) {
			mu.Lock()
			defer mu.Unlock()
			if name == ".chunks/packs" {
				synced++
			}
		}}
		return hooked, err
	})
	put(t, s, many(2, "a")...) // makes the folders
	mu.Lock()
	synced = 0
	mu.Unlock()
	hooked.syncDir = func(name string) {
		if name != ".chunks/packs" {
			t.Errorf("the first folder synced is %s", name)
		}
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if synced == 0 {
			t.Error("a sync ended before that of the packs had, which another one had begun")
		}
	}
	put(t, s, many(2, "b")...)
	if !hooked.inside.Load() {
		t.Error("nothing was synced")
	}
}

// countedSyncs tells of each folder that was synced.
type countedSyncs struct {
	durable.FS
	done func(name string)
}

func (c countedSyncs) SyncDir(name string) error {
	err := c.FS.SyncDir(name)
	c.done(name)
	return err
}

// TestPackMadeAnew: a pack of which nothing could be read is written once more, by
// the same name, and serves who knew it as it was.
func TestPackMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chunks := many(3, "a")
	put(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
	file := packFiles(t, dir)[0]
	if err := os.WriteFile(file, make([]byte, 200), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openWith(t, dir, packed, durabletest.Unsynced)
	if has, err := s.Has(chunks[0].ID); has || err != nil {
		t.Fatalf("a chunk of a pack of zeros is there: %v, %v", has, err)
	}
	put(t, s, chunks...)
	if files := packFiles(t, dir); len(files) != 1 || files[0] != file {
		t.Errorf("packs: %v, want %s again", files, file)
	}
	whole(t, s, chunks...)
}

// TestDiskFailsInAPack: what the disk cannot read is an error of the disk, not a
// damaged chunk, also where it read a part of it.
func TestDiskFailsInAPack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chunks := many(2, "a")
	put(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
	s := openWith(t, dir, packed, func(dir string) (durable.FS, error) {
		inner, err := durabletest.Unsynced(dir)
		return shortReads{inner}, err
	})
	if err := s.Check(chunks[0].ID); !errors.Is(err, durabletest.ErrInjected) {
		t.Errorf("got %v, want the disk's error", err)
	}
}

// shortReads reads a chunk in a pack by half and then fails.
type shortReads struct{ durable.FS }

func (s shortReads) Open(name string) (durable.File, error) {
	f, err := s.FS.Open(name)
	return shortFile{f}, err
}

type shortFile struct{ durable.File }

func (f shortFile) ReadAt(p []byte, offset int64) (int, error) {
	if offset > 0 { // the places, which are at the end
		return f.File.ReadAt(p, offset)
	}
	n, err := f.File.ReadAt(p[:len(p)/2], offset)
	return n, errors.Join(durabletest.ErrInjected, err)
}
