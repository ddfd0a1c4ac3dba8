package chunk_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/transcript"
)

// openWith is open with options.
func openWith(t testing.TB, dir string, o chunk.Options, opened durable.OpenFunc) *chunk.Store {
	t.Helper()
	fsys, err := opened(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() })
	return chunk.Open(fsys, o)
}

// packed puts all chunks that may be in one into packs, in their order.
var packed = chunk.Options{Loose: -1, Writers: 1}

func many(n int, mark string) []transcript.Sealed {
	var list []transcript.Sealed
	for i := range n {
		list = append(list, records(fmt.Sprint(mark, i)))
	}
	return list
}

// packFiles are the packs below dir.
func packFiles(t testing.TB, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, ".chunks", "packs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// whole fails unless all chunks can be read, and are what they were.
func whole(t testing.TB, s *chunk.Store, chunks ...transcript.Sealed) {
	t.Helper()
	for _, c := range chunks {
		if got, err := s.Plain(c.ID); !bytes.Equal(got, c.Plain) || err != nil {
			t.Errorf("chunk %.8s: %d bytes, %v", c.ID, len(got), err)
		}
	}
}

func grow(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	for _, name := range packFiles(t, dir) {
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPack seals many chunks at once: the first ones get files of their own, the
// others share one, and nobody who reads them can tell.
func TestPack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var disk durabletest.Counter
	s := openWith(t, dir, chunk.Options{Loose: 4}, disk.Open)
	other := openWith(t, dir, chunk.Options{}, durable.OpenDir) // another process
	if missing, err := other.Missing([]transcript.ID{records("x").ID}); len(missing) != 1 || err != nil {
		t.Fatal(missing, err)
	}
	chunks := many(100, "a")
	idx := index(chunks[:50]...)
	all := append(slices.Clone(chunks), idx)
	disk.Take()
	put(t, s, all...)
	if n := disk.Take(); n.Created != 6 || n.Renamed != 6 || n.Synced > 14 {
		t.Errorf("100 chunks and an index chunk: %v", n)
	}
	files := packFiles(t, dir)
	if len(files) != 1 {
		t.Fatalf("packs: %v", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
		t.Errorf("the pack's mode is %v, %v", info.Mode(), err)
	}
	for what, s := range map[string]*chunk.Store{"who made it": s, "who was there": other, "who comes later": openWith(t, dir, chunk.Options{}, durable.OpenDir)} {
		if missing, err := s.Missing(idsOf(all...)); len(missing) != 0 || err != nil {
			t.Errorf("%s: Missing = %d, %v", what, len(missing), err)
		}
		if diff := cmp.Diff(idsOf(all...), ids(t, s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		whole(t, s, all...)
		frame, err := s.Frame(chunks[99].ID)
		if _, plain, decodeErr := chunk.Decode(chunks[99].ID, frame); !bytes.Equal(plain, chunks[99].Plain) || errors.Join(err, decodeErr) != nil {
			t.Errorf("%s: Frame: %v, %v", what, err, decodeErr)
		}
	}
	// As of every chunk's file, other programs can make sense of it.
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var plain bytes.Buffer
	if _, err := d.WriteTo(&plain); err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks[50:] {
		if !bytes.Contains(plain.Bytes(), c.Plain) {
			t.Errorf("unpacked by zstd, chunk %.8s is not in it", c.ID)
		}
	}
	disk.Take()
	put(t, s, all...)
	if n := disk.Take(); n.Created != 0 || n.Written != 0 {
		t.Errorf("the same once more: %v", n)
	}
}

// TestPackWithADamagedByte turns over a bit of each byte of a pack in turn: no
// chunk is ever another one, and at most one is lost, which is replaced by the
// next that seals it.
func TestPackWithADamagedByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chunks := many(6, "a")
	put(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
	file := packFiles(t, dir)[0]
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := range good {
		damage(t, file, at)
		s := openWith(t, dir, packed, durabletest.Unsynced)
		var lost []transcript.Sealed
		for _, c := range chunks {
			plain, err := s.Plain(c.ID)
			switch {
			case errors.Is(err, transcript.ErrDamaged), errors.Is(err, transcript.ErrNewer), errors.Is(err, chunk.ErrMissing):
				lost = append(lost, c)
			case err != nil || !bytes.Equal(plain, c.Plain):
				t.Fatalf("byte %d: chunk %.8s has %d bytes, %v", at, c.ID, len(plain), err)
			}
		}
		newer := at == len(good)-1 // the digit of the version
		if len(lost) > 1 && !newer {
			t.Fatalf("byte %d: %d chunks are lost", at, len(lost))
		}
		if at%37 == 0 && len(lost) == 1 {
			if missing, err := s.Missing([]transcript.ID{lost[0].ID}); err != nil {
				t.Errorf("byte %d: Missing = %v, %v", at, missing, err)
			}
			put(t, s, lost[0])
			whole(t, s, chunks...)
			whole(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
			for _, name := range packFiles(t, dir) {
				if name != file {
					if err := os.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPackCutShort cuts a pack off at many places: what lies before the cut can be
// read, and what lies behind it is told to be missing.
func TestPackCutShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chunks := many(6, "a")
	put(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
	file := packFiles(t, dir)[0]
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known := openWith(t, dir, packed, durabletest.Unsynced)
	whole(t, known, chunks...)
	for size := len(good) - 1; size >= 0; size -= 7 {
		if err := os.WriteFile(file, good[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		ends := 0
		for i, c := range chunks { // they lie in this order
			ends += len(chunk.Encode(c))
			plain, err := openWith(t, dir, packed, durabletest.Unsynced).Plain(c.ID)
			if ends <= size && (err != nil || !bytes.Equal(plain, c.Plain)) {
				t.Errorf("%d bytes are left: chunk %d is not read: %v", size, i, err)
			}
			if ends > size && !errors.Is(err, chunk.ErrMissing) && !errors.Is(err, transcript.ErrDamaged) {
				t.Errorf("%d bytes are left: chunk %d: %v", size, i, err)
			}
			if _, err := known.Plain(c.ID); ends > size && err == nil {
				t.Errorf("%d bytes are left: who knew the pack reads chunk %d", size, i)
			}
		}
		if missing, err := known.Missing(idsOf(chunks...)); size < len(good)/2 && (err != nil || len(missing) == 0) {
			t.Errorf("%d bytes are left: missing %d, %v", size, len(missing), err)
		}
	}
}

// TestPackOfANewerVersion is left alone.
func TestPackOfANewerVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chunks := many(3, "a")
	put(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
	file := packFiles(t, dir)[0]
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] = '2'
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openWith(t, dir, packed, durabletest.Unsynced)
	if missing, err := s.Missing(idsOf(chunks...)); len(missing) != 3 || err != nil {
		t.Errorf("Missing = %d, %v", len(missing), err)
	}
	if r, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(), MinAge: -1}); r.Removed != 0 || err != nil {
		t.Errorf("Sweep = %+v, %v", r, err)
	}
	if now, err := os.ReadFile(file); !bytes.Equal(now, data) || err != nil {
		t.Errorf("the pack changed: %v", err)
	}
}

// TestSweepLeavesAPackWithDamagedPlaces: what was found in its frames need not be
// all, so nothing of it goes.
func TestSweepLeavesAPackWithDamagedPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chunks := many(8, "a")
	put(t, openWith(t, dir, packed, durabletest.Unsynced), chunks...)
	file := packFiles(t, dir)[0]
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	frames := 0
	for _, c := range chunks[:7] {
		frames += len(chunk.Encode(c))
	}
	damage(t, file, frames)       // the head of the last one's frame, behind which nothing is found
	damage(t, file, len(data)-20) // and of the places
	s := openWith(t, dir, packed, durabletest.Unsynced)
	if r, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(chunks[0]), MinAge: -1}); r.Removed != 0 || err != nil {
		t.Errorf("Sweep = %+v, %v", r, err)
	}
	whole(t, s, chunks[:7]...)
}

// TestSweepOfPacks: a pack stays while it is young, or half of it is in use; it is
// written anew where less is, and goes when nothing is.
func TestSweepOfPacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openWith(t, dir, packed, durabletest.Unsynced)
	other := openWith(t, dir, packed, durabletest.Unsynced)
	chunks := many(10, "a")
	put(t, s, chunks...)
	whole(t, other, chunks...)
	first := packFiles(t, dir)
	sweep := func(want chunk.SweepReport, live ...transcript.Sealed) {
		t.Helper()
		got, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(live...)})
		if want.RemovedBytes = got.RemovedBytes; got != want || err != nil || (got.RemovedBytes > 0) != (got.Removed > 0) {
			t.Errorf("%d in use: %+v, %v, want %+v", len(live), got, err, want)
		}
		whole(t, s, live...)
		whole(t, other, live...)
		whole(t, openWith(t, dir, packed, durabletest.Unsynced), live...)
	}
	sweep(chunk.SweepReport{Kept: 10}, chunks[0])
	grow(t, dir, 2*time.Hour)
	sweep(chunk.SweepReport{Kept: 6}, chunks[:6]...)
	if diff := cmp.Diff(first, packFiles(t, dir)); diff != "" {
		t.Errorf("packs (-want +got):\n%s", diff)
	}
	temp := filepath.Join(dir, ".chunks", "packs", ".pack.0.tmp")
	if err := os.WriteFile(temp, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	grow(t, dir, 2*time.Hour)
	then := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(temp, then, then); err != nil {
		t.Fatal(err)
	}
	sweep(chunk.SweepReport{Kept: 2, Removed: 8, Temps: 1}, chunks[3], chunks[7])
	second := packFiles(t, dir)
	if len(second) != 1 || second[0] == first[0] {
		t.Errorf("packs: %v", second)
	}
	if diff := cmp.Diff(idsOf(chunks[3], chunks[7]), ids(t, s)); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	if _, err := other.Plain(chunks[0].ID); !errors.Is(err, chunk.ErrMissing) {
		t.Errorf("who knew the old pack: %v", err)
	}
	grow(t, dir, 2*time.Hour)
	sweep(chunk.SweepReport{Removed: 2})
	if files := packFiles(t, dir); len(files) != 0 {
		t.Errorf("packs: %v", files)
	}
}

// TestSweepOfPacksFailsAtEveryOperation: what is in use is there whatever fails,
// and after a power cut at any time; the next sweep comes to the same end.
func TestSweepOfPacksFailsAtEveryOperation(t *testing.T) {
	t.Parallel()
	chunks := many(8, "a")
	live := chunks[2:4]
	for k := 0; ; k++ {
		top := t.TempDir()
		power, err := durabletest.NewPower(top)
		if err != nil {
			t.Fatal(err)
		}
		disk := &durabletest.Faulty{}
		dir := filepath.Join(top, "store")
		s := openWith(t, dir, packed, func(dir string) (durable.FS, error) { return disk.Wrap(power.Open(dir)) })
		put(t, s, chunks...)
		disk.FailAt(k, nil, true)
		_, err = s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(live...), MinAge: -1})
		fired := disk.Fired()
		disk.Reset()
		if fired && err == nil {
			t.Errorf("operation %d failed, but Sweep says nothing", k)
		}
		whole(t, s, live...)
		for seed := range uint64(8) {
			after := filepath.Join(t.TempDir(), "after")
			if err := power.Cut(after, rand.New(rand.NewPCG(seed, uint64(k)))); err != nil {
				t.Fatal(err)
			}
			s := openWith(t, filepath.Join(after, "store"), packed, durabletest.Unsynced)
			whole(t, s, live...)
			if _, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(live...), MinAge: -1}); err != nil {
				t.Errorf("operation %d, cut %d: the next sweep: %v", k, seed, err)
			}
			if diff := cmp.Diff(idsOf(live...), ids(t, s)); diff != "" || len(packFiles(t, filepath.Join(after, "store"))) != 1 {
				t.Errorf("operation %d, cut %d: packs %v, chunks (-want +got):\n%s", k, seed, packFiles(t, filepath.Join(after, "store")), diff)
			}
		}
		if !fired {
			break
		}
	}
}

// TestPackFailsAtEveryOperation kills the disk at each operation of a commit with
// a pack: what is visible is whole, also after a power cut, and an index chunk
// never comes without its parts.
func TestPackFailsAtEveryOperation(t *testing.T) {
	t.Parallel()
	chunks := many(5, "a")
	idx := index(chunks...)
	all := append(slices.Clone(chunks), idx)
	for _, dead := range []bool{false, true} {
		for k := 0; ; k++ {
			top := t.TempDir()
			power, err := durabletest.NewPower(top)
			if err != nil {
				t.Fatal(err)
			}
			disk := &durabletest.Faulty{}
			dir := filepath.Join(top, "store")
			s := openWith(t, dir, chunk.Options{Loose: 2, Writers: 1}, func(dir string) (durable.FS, error) { return disk.Wrap(power.Open(dir)) })
			disk.FailAt(k, nil, dead)
			batch := s.NewBatch()
			for _, c := range all {
				if err == nil {
					err = batch.Seal(c)
				}
			}
			if err == nil {
				err = batch.Commit(t.Context())
			}
			batch.Discard()
			fired := disk.Fired()
			disk.Reset()
			if fired && !errors.Is(err, durabletest.ErrInjected) {
				t.Errorf("dead %v, operation %d: error %v, want the injected one", dead, k, err)
			}
			if left, globErr := filepath.Glob(filepath.Join(dir, ".chunks", "packs", ".*.tmp")); !dead && len(left)+temps(t, dir) != 0 {
				t.Errorf("operation %d: temp files were left: %v, %v", k, left, globErr)
			}
			stores := []*chunk.Store{s}
			for seed := range uint64(6) {
				after := filepath.Join(t.TempDir(), "after")
				if err := power.Cut(after, rand.New(rand.NewPCG(seed, uint64(k)))); err != nil {
					t.Fatal(err)
				}
				stores = append(stores, openWith(t, filepath.Join(after, "store"), packed, durabletest.Unsynced))
			}
			for i, s := range stores {
				there := ids(t, s)
				if err == nil && len(there) != len(all) {
					t.Errorf("dead %v, operation %d, cut %d: %d chunks are there after a Commit of %d", dead, k, i, len(there), len(all))
				}
				for _, c := range all {
					if slices.Contains(there, c.ID) && (i == 0 || err == nil || c.ID == idx.ID) {
						whole(t, s, c)
					}
				}
				if slices.Contains(there, idx.ID) {
					whole(t, s, all...)
				}
				put(t, s, all...)
				whole(t, s, all...)
			}
			if !fired {
				if err != nil {
					t.Errorf("nothing failed, but Commit = %v", err)
				}
				break
			}
		}
	}
}

// FuzzPack reads packs that anything may have written.
func FuzzPack(f *testing.F) {
	dir := f.TempDir()
	chunks := many(3, "a")
	s := openWith(f, dir, packed, durabletest.Unsynced)
	b := s.NewBatch()
	for _, c := range chunks {
		if err := b.Seal(c); err != nil {
			f.Fatal(err)
		}
	}
	if err := b.Commit(f.Context()); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(packFiles(f, dir)[0])
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range [][]byte{good, good[:len(good)-1], good[:len(good)/2], good[len(good)/2:], nil, []byte("SESSPAK1")} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		s := openWith(t, dir, packed, durabletest.Unsynced)
		file := filepath.Join(dir, ".chunks", "packs", string(chunks[0].ID)+".pack")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		for id, err := range s.IDs() {
			if err != nil {
				t.Fatal(err)
			}
			if plain, err := s.Plain(id); err == nil && transcript.Sum(plain) != id {
				t.Errorf("chunk %s is another one", id)
			}
		}
	})
}
