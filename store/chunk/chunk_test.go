package chunk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/transcript"
)

// open opens a store in a new folder, on a disk that can be made to fail.
func open(t *testing.T) (*chunk.Store, string, *durabletest.Faulty) {
	t.Helper()
	dir, disk := t.TempDir(), &durabletest.Faulty{}
	fsys, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() })
	return chunk.Open(fsys, chunk.Options{}), dir, disk
}

func sealed(kind transcript.Kind, plain string) transcript.Sealed {
	return transcript.Sealed{ID: transcript.Sum([]byte(plain)), Kind: kind, Plain: []byte(plain)}
}

func records(text string) transcript.Sealed {
	return sealed(transcript.KindRecords, strings.Repeat(text+"\n", 500))
}

// index makes an index chunk that names the given ones.
func index(chunks ...transcript.Sealed) transcript.Sealed {
	var plain strings.Builder
	for _, c := range chunks {
		fmt.Fprintf(&plain, `{"id":"%s","records":500,"bytes":%d}`+"\n", c.ID, len(c.Plain))
	}
	return sealed(transcript.KindIndex, plain.String())
}

func put(t *testing.T, s *chunk.Store, chunks ...transcript.Sealed) {
	t.Helper()
	b := s.NewBatch()
	defer b.Discard()
	for _, c := range chunks {
		if err := b.Seal(c); err != nil {
			t.Fatalf("Seal(%s): %v", c.ID, err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func path(dir string, id transcript.ID) string {
	return filepath.Join(dir, ".chunks", string(id)+".zst")
}

// ids lists what is in the store.
func ids(t *testing.T, s *chunk.Store) []transcript.ID {
	t.Helper()
	var list []transcript.ID
	for id, err := range s.IDs() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, id)
	}
	return list
}

func idsOf(chunks ...transcript.Sealed) []transcript.ID {
	var list []transcript.ID
	for _, c := range chunks {
		list = append(list, c.ID)
	}
	slices.Sort(list)
	return list
}

func temps(t *testing.T, dir string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, ".chunks", "*.tmp"))
	hidden, err2 := filepath.Glob(filepath.Join(dir, ".chunks", ".*.tmp"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return len(slices.Compact(append(list, hidden...)))
}

func damage(t *testing.T, name string, at int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFrameRoundTrip(t *testing.T) {
	t.Parallel()
	noise := make([]byte, transcript.MaxPlain)
	state := uint32(1)
	for i := range noise {
		state = state*1664525 + 1013904223
		noise[i] = byte(state >> 24)
	}
	for _, plain := range [][]byte{nil, []byte("\n"), []byte(strings.Repeat("abc\n", 20000)), noise[:transcript.PieceBytes], noise} {
		s := transcript.Sealed{ID: transcript.Sum(plain), Kind: transcript.KindPiece, Plain: plain}
		frame := chunk.Encode(s)
		if kind, err := chunk.Check(frame); kind != s.Kind || err != nil {
			t.Errorf("%d bytes: Check = %v, %v", len(plain), kind, err)
		}
		kind, got, err := chunk.Decode(s.ID, frame)
		if kind != s.Kind || !bytes.Equal(got, plain) || err != nil {
			t.Errorf("%d bytes: Decode gave %v, %d bytes, %v", len(plain), kind, len(got), err)
		}
		// Any zstd reader passes over the first frame.
		r, err := zstd.NewReader(bytes.NewReader(frame))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); !bytes.Equal(got, plain) || err != nil {
			t.Errorf("%d bytes: a zstd reader gave %d bytes, %v", len(plain), len(got), err)
		}
		r.Close()
	}
}

func TestEveryDamagedByteIsFound(t *testing.T) {
	t.Parallel()
	s := records("some words of a conversation")
	frame := chunk.Encode(s)
	for i := range frame {
		bad := bytes.Clone(frame)
		bad[i] ^= 4
		if _, err := chunk.Check(bad); err == nil {
			t.Errorf("Check accepts a frame whose byte %d is damaged", i)
		}
	}
	for n := range frame {
		if _, _, err := chunk.Decode(s.ID, frame[:n]); !errors.Is(err, transcript.ErrDamaged) {
			t.Errorf("Decode of the first %d bytes = %v, want ErrDamaged", n, err)
		}
	}
	if _, _, err := chunk.Decode(records("other").ID, frame); !errors.Is(err, transcript.ErrDamaged) {
		t.Errorf("Decode under another id = %v, want ErrDamaged", err)
	}
}

func TestNewerFrameIsNotDamage(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	c := records("a")
	put(t, s, c)
	damage(t, path(dir, c.ID), 12) // the version
	if _, err := s.Plain(c.ID); !errors.Is(err, transcript.ErrNewer) || errors.Is(err, transcript.ErrDamaged) {
		t.Errorf("Plain = %v, want ErrNewer", err)
	}
	before, _ := os.ReadFile(path(dir, c.ID))
	put(t, s, c)
	if after, _ := os.ReadFile(path(dir, c.ID)); !bytes.Equal(before, after) {
		t.Error("a chunk of a newer version was replaced")
	}
}

// resum gives a frame the checksum that fits its bytes, as the package comment
// describes it.
func resum(frame []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum(frame[8:22], table), table, frame[26:])
	binary.LittleEndian.PutUint32(frame[22:], sum)
	return frame
}

// bomb is a small frame with a good checksum that claims to be large.
func bomb(claim uint64, content []byte) []byte {
	frame := chunk.Encode(sealed(transcript.KindRecords, "x\n"))[:26]
	frame = append(bytes.Clone(frame), content...)
	binary.LittleEndian.PutUint64(frame[14:], claim)
	return resum(frame)
}

// Not parallel: it measures memory.
func TestBombs(t *testing.T) {
	zeros := func(n int) []byte {
		e, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return e.EncodeAll(make([]byte, n), nil)
	}
	var unsized bytes.Buffer // a stream does not declare its size
	w, err := zstd.NewWriter(&unsized)
	if err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// A frame header that declares 4 GB: no checksum, single segment, 8-byte size.
	huge := binary.LittleEndian.AppendUint64([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, 4<<30)
	for name, frame := range map[string][]byte{
		"the header claims 4 GB":            bomb(4<<30, huge),
		"only the content claims 4 GB":      bomb(2, huge),
		"the content is larger than said":   bomb(2, zeros(64<<20)),
		"the content does not say its size": bomb(2, unsized.Bytes()),
		"two contents":                      bomb(2, append(zeros(2), zeros(2)...)),
		"the limit is passed by one":        bomb(transcript.MaxPlain+1, zeros(transcript.MaxPlain+1)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := chunk.Decode(records("x").ID, frame)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, transcript.ErrDamaged) {
			t.Errorf("%s: Decode = %v, want ErrDamaged", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
			t.Errorf("%s: Decode took %d bytes of memory", name, used)
		}
	}
}

func TestBatchIsInvisibleBeforeCommit(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	a, b := records("a"), records("b")
	batch := s.NewBatch()
	for _, c := range []transcript.Sealed{a, b, a} {
		if err := batch.Seal(c); err != nil {
			t.Fatal(err)
		}
	}
	if got := ids(t, s); len(got) != 0 {
		t.Errorf("before Commit the store has %v", got)
	}
	if missing, err := s.Missing([]transcript.ID{b.ID, a.ID, b.ID}); !cmp.Equal(missing, []transcript.ID{b.ID, a.ID}) || err != nil {
		t.Errorf("Missing = %v, %v; want both, each once", missing, err)
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	batch.Discard() // does nothing now
	if diff := cmp.Diff(idsOf(a, b), ids(t, s)); diff != "" {
		t.Errorf("after Commit (-want +got):\n%s", diff)
	}
	if missing, err := s.Missing([]transcript.ID{a.ID, b.ID}); len(missing) != 0 || err != nil {
		t.Errorf("Missing = %v, %v; want none", missing, err)
	}
	if got, err := s.Plain(a.ID); !bytes.Equal(got, a.Plain) || err != nil {
		t.Errorf("Plain gave %d bytes, %v", len(got), err)
	}
	if err := batch.Seal(a); err == nil {
		t.Error("Seal after Commit was accepted")
	}
	if err := batch.Commit(t.Context()); err == nil {
		t.Error("a second Commit was accepted")
	}
	if info, err := os.Stat(path(dir, a.ID)); err != nil || info.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
}

func TestDiscardLeavesNothing(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	batch := s.NewBatch()
	for i := range 30 {
		if err := batch.Seal(records(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	batch.Discard()
	if n := temps(t, dir); n != 0 || len(ids(t, s)) != 0 {
		t.Errorf("after Discard %d temp files and %d chunks are there", n, len(ids(t, s)))
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	batch = s.NewBatch()
	if err := batch.Seal(records("x")); err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit = %v, want context.Canceled", err)
	}
	if n := temps(t, dir); n != 0 || len(ids(t, s)) != 0 {
		t.Errorf("after a cancelled Commit %d temp files and %d chunks are there", n, len(ids(t, s)))
	}
}

func TestCommitOperations(t *testing.T) {
	t.Parallel()
	s, _, disk := open(t)
	put(t, s, records("first"))
	for _, n := range []int{1, 20} {
		var chunks []transcript.Sealed
		for i := range n {
			chunks = append(chunks, records(fmt.Sprint(n, i)))
		}
		disk.Reset()
		put(t, s, chunks...)
		for kind, want := range map[string]int{"create": n, "write": n, "sync": n, "rename": n, "syncdir": 1} {
			if got := disk.Count(kind); got != want {
				t.Errorf("%d chunks: %d operations %s, want %d", n, got, kind, want)
			}
		}
		disk.Reset()
		put(t, s, chunks...)
		if ops := disk.Ops(); len(ops) != 1 || ops[0].Kind != "syncdir" {
			t.Errorf("%d chunks that are there already: %v, want the folder synced and no more", n, ops)
		}
	}
}

func TestDamagedChunkIsReplaced(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	c := records("a")
	put(t, s, c)
	for name, spoil := range map[string]func(){
		"a flipped byte": func() { damage(t, path(dir, c.ID), 40) },
		"cut to nothing": func() { os.Truncate(path(dir, c.ID), 0) },
		"grown":          func() { os.Truncate(path(dir, c.ID), 8<<20) },
	} {
		spoil()
		for what, read := range map[string]func(transcript.ID) ([]byte, error){"Plain": s.Plain, "Frame": s.Frame} {
			_, err := read(c.ID)
			e, ok := errors.AsType[*chunk.DamagedError](err)
			if !ok || e.ID != c.ID || e.Path != path(dir, c.ID) || e.Reason == "" {
				t.Errorf("%s: %s = %v, want a DamagedError that names the file", name, what, err)
			}
		}
		put(t, s, c)
		if got, err := s.Plain(c.ID); !bytes.Equal(got, c.Plain) || err != nil {
			t.Errorf("%s: after storing it again: %d bytes, %v", name, len(got), err)
		}
	}
	if err := os.Truncate(path(dir, c.ID), 0); err != nil {
		t.Fatal(err)
	}
	if missing, err := s.Missing([]transcript.ID{c.ID}); len(missing) != 1 || err != nil {
		t.Errorf("Missing does not ask for a chunk cut to nothing: %v, %v", missing, err)
	}
}

func TestAddFrame(t *testing.T) {
	t.Parallel()
	from, _, _ := open(t)
	to, dir, _ := open(t)
	c := records("a")
	put(t, from, c)
	frame, err := from.Frame(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	batch := to.NewBatch()
	defer batch.Discard()
	bad := bytes.Clone(frame)
	bad[30] ^= 1
	for name, try := range map[string]struct {
		id    transcript.ID
		frame []byte
	}{
		"a damaged frame":  {c.ID, bad},
		"another's id":     {records("b").ID, frame},
		"no frame":         {c.ID, nil},
		"a path as its id": {"../../x", frame},
	} {
		if err := batch.AddFrame(try.id, try.frame); !errors.Is(err, transcript.ErrDamaged) {
			t.Errorf("AddFrame of %s = %v, want ErrDamaged", name, err)
		}
	}
	if err := batch.AddFrame(c.ID, frame); err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path(dir, c.ID)); !bytes.Equal(got, frame) || err != nil {
		t.Errorf("the file is not the frame: %d bytes, %v", len(got), err)
	}
}

// A chunk that is there need not be durable: whoever made it visible may be
// about to sync the folder, or have failed to.
func TestCommitMakesDurableWhatWasThere(t *testing.T) {
	t.Parallel()
	s, _, disk := open(t)
	add := func() error {
		batch := s.NewBatch()
		defer batch.Discard()
		if err := batch.Seal(records("a")); err != nil {
			return err
		}
		return batch.Commit(t.Context())
	}
	disk.FailAt(5, nil, false) // mkdir, syncdir; create, write, sync; rename comes next
	if err := add(); err == nil {
		t.Fatal("no fault")
	}
	disk.FailAt(4, nil, false) // create, write, sync, rename; then the sync of the folder
	if err := add(); !errors.Is(err, durabletest.ErrInjected) || len(ids(t, s)) != 1 {
		t.Fatalf("Commit = %v with %d chunks visible, want the fault after the rename", err, len(ids(t, s)))
	}
	disk.Reset()
	if err := add(); err != nil || disk.Count("rename") != 0 || disk.Count("syncdir") != 1 {
		t.Errorf("Commit of a chunk that is there: %v, %v; want the folder synced", err, disk.Ops())
	}
}

func TestMissingChunk(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	id := records("a").ID
	if _, err := s.Plain(id); !errors.Is(err, chunk.ErrMissing) || !strings.Contains(err.Error(), path(dir, id)) {
		t.Errorf("Plain = %v, want ErrMissing with the path", err)
	}
	if _, err := s.Frame(id); !errors.Is(err, chunk.ErrMissing) {
		t.Errorf("Frame = %v, want ErrMissing", err)
	}
	for _, id := range []transcript.ID{"", "x", "../../../../etc/passwd", transcript.ID(strings.Repeat("A", 64))} {
		_, plainErr := s.Plain(id)
		_, hasErr := s.Has(id)
		if plainErr == nil || hasErr == nil || s.NewBatch().Seal(transcript.Sealed{ID: id}) == nil {
			t.Errorf("%q was taken for a chunk id", id)
		}
	}
	for range s.IDs() {
		t.Error("a store without a folder has chunks")
	}
}

// TestCommitFailsAtEveryOperation kills the disk at each operation in turn: what
// is visible then is whole, an index chunk never comes without its parts, and a
// sweep leaves nothing behind.
func TestCommitFailsAtEveryOperation(t *testing.T) {
	t.Parallel()
	for _, dead := range []bool{false, true} {
		for k := 0; ; k++ {
			s, dir, disk := open(t)
			a, b := records("a"), records("b")
			idx := index(a, b)
			disk.FailAt(k, nil, dead)
			batch := s.NewBatch()
			var err error
			for _, c := range []transcript.Sealed{a, b, idx} {
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
				// Only the removal of a temp file may fail unseen.
				t.Errorf("dead %v, operation %d: error %v, want the injected one", dead, k, err)
			}
			visible := ids(t, s)
			for _, id := range visible {
				if _, err := s.Plain(id); err != nil {
					t.Errorf("dead %v, operation %d: a visible chunk is not whole: %v", dead, k, err)
				}
			}
			if slices.Contains(visible, idx.ID) && len(visible) != 3 {
				t.Errorf("dead %v, operation %d: an index chunk is there without its parts", dead, k)
			}
			if !dead && temps(t, dir) != 0 {
				t.Errorf("operation %d: %d temp files were left", k, temps(t, dir))
			}
			none := func(func(transcript.ID) bool) error { return nil }
			report, sweepErr := s.Sweep(t.Context(), chunk.SweepOptions{Live: none, MinAge: -1})
			if sweepErr != nil || report.Removed != len(visible) || temps(t, dir) != 0 || len(ids(t, s)) != 0 {
				t.Errorf("dead %v, operation %d: sweep %+v, %v; %d temp files left", dead, k, report, sweepErr, temps(t, dir))
			}
			put(t, s, a, b, idx)
			if !fired {
				if err != nil {
					t.Errorf("nothing failed, but Commit = %v", err)
				}
				break
			}
		}
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	unlock, err := s.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Shared(t.Context())
	if err != nil {
		t.Fatalf("a second shared lock: %v", err)
	}
	if _, ok, err := s.TryExclusive(); ok || err != nil {
		t.Errorf("TryExclusive beside a shared lock = %v, %v; want false", ok, err)
	}
	report, err := s.Sweep(t.Context(), chunk.SweepOptions{})
	if !report.Busy || err != nil {
		t.Errorf("Sweep beside a shared lock = %+v, %v; want busy", report, err)
	}
	if err := errors.Join(unlock(), second()); err != nil {
		t.Fatal(err)
	}
	exclusive, ok, err := s.TryExclusive()
	if !ok || err != nil {
		t.Fatalf("TryExclusive = %v, %v; want true", ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Shared(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shared beside an exclusive lock = %v, want DeadlineExceeded", err)
	}
	if err := exclusive(); err != nil {
		t.Fatal(err)
	}
}

// age makes files look older.
func age(t *testing.T, dir string, by time.Duration, chunks ...transcript.Sealed) {
	t.Helper()
	for _, c := range chunks {
		when := time.Now().Add(-by)
		if err := os.Chtimes(path(dir, c.ID), when, when); err != nil {
			t.Fatal(err)
		}
	}
}

func roots(chunks ...transcript.Sealed) func(func(transcript.ID) bool) error {
	return func(yield func(transcript.ID) bool) error {
		for _, c := range chunks {
			if !yield(c.ID) {
				return nil
			}
		}
		return nil
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	s, dir, disk := open(t)
	live, dead, young := records("live"), records("dead"), records("young")
	liveChild, deadChild, youngChild := records("child of live"), records("child of dead"), records("child of young")
	liveIndex, deadIndex, youngIndex := index(liveChild), index(deadChild), index(youngChild)
	chunks := []transcript.Sealed{live, dead, young, liveChild, deadChild, youngChild, liveIndex, deadIndex, youngIndex}
	put(t, s, chunks...)
	age(t, dir, 2*time.Hour, live, dead, liveChild, deadChild, youngChild, liveIndex, deadIndex)
	foreign := filepath.Join(dir, ".chunks", "notes.txt")
	oldTemp := filepath.Join(dir, ".chunks", ".x.zst.tmp")
	newTemp := filepath.Join(dir, ".chunks", ".y.zst.tmp")
	for _, name := range []string{foreign, oldTemp, newTemp} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Chtimes(foreign, old, old), os.Chtimes(oldTemp, old, old)); err != nil {
		t.Fatal(err)
	}
	disk.Reset()
	report, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(live, liveIndex)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(idsOf(live, young, liveChild, youngChild, liveIndex, youngIndex), ids(t, s)); diff != "" {
		t.Errorf("chunks after the sweep (-want +got):\n%s", diff)
	}
	want := chunk.SweepReport{Kept: 6, Removed: 3, Temps: 1, RemovedBytes: report.RemovedBytes}
	if report != want || report.RemovedBytes < 100 {
		t.Errorf("report %+v, want %+v", report, want)
	}
	for name, there := range map[string]bool{foreign: true, newTemp: true, oldTemp: false} {
		if _, err := os.Stat(name); (err == nil) != there {
			t.Errorf("%s: there %v, want %v", filepath.Base(name), err == nil, there)
		}
	}
	// The index chunk has gone for good before its part goes.
	var order []string
	for _, op := range disk.Ops() {
		switch {
		case op.Kind == "syncdir":
			order = append(order, "sync")
		case strings.Contains(op.Name, string(deadIndex.ID)):
			order = append(order, "index")
		case strings.Contains(op.Name, string(deadChild.ID)):
			order = append(order, "part")
		}
	}
	if diff := cmp.Diff([]string{"index", "sync", "part", "sync"}, order); diff != "" {
		t.Errorf("order of removal (-want +got):\n%s", diff)
	}
}

func TestSweepRemovesNothingWhenUnsure(t *testing.T) {
	t.Parallel()
	broken := errors.New("a document cannot be read")
	part := records("part")
	idx, dead := index(part), records("dead")
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		live  func(func(transcript.ID) bool) error
		want  error
	}{
		{"an unreadable document", nil, func(func(transcript.ID) bool) error { return broken }, broken},
		{"no word on what is live", nil, nil, nil},
		{"an index chunk in use is damaged", func(t *testing.T, dir string) { damage(t, path(dir, idx.ID), 40) }, roots(idx), transcript.ErrDamaged},
		{"an index chunk in use is missing", func(t *testing.T, dir string) { os.Remove(path(dir, idx.ID)) }, roots(idx), chunk.ErrMissing},
		{"a chunk in use is newer", func(t *testing.T, dir string) { damage(t, path(dir, idx.ID), 12) }, roots(idx), transcript.ErrNewer},
		{"a dead chunk is newer", func(t *testing.T, dir string) { damage(t, path(dir, idx.ID), 12) }, roots(), transcript.ErrNewer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, dir, _ := open(t)
			put(t, s, part, idx, dead)
			age(t, dir, 2*time.Hour, part, idx, dead)
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			before := ids(t, s)
			report, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: tc.live})
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("Sweep = %v, want %v", err, tc.want)
			}
			if diff := cmp.Diff(before, ids(t, s)); diff != "" || report.Removed != 0 {
				t.Errorf("something was removed (%+v):\n%s", report, diff)
			}
		})
	}
}

func TestSweepUnderTheCallersLock(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	a, b := records("a"), records("b")
	put(t, s, a, b)
	damage(t, path(dir, b.ID), 8) // a dead chunk whose header is damaged goes too
	unlock, ok, err := s.TryExclusive()
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	now := time.Now().Add(30 * time.Minute)
	report, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(), Locked: true, Now: now})
	if err != nil || report.Removed != 0 {
		t.Errorf("after half an hour: %+v, %v; want nothing removed", report, err)
	}
	now = now.Add(time.Hour)
	report, err = s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(), Locked: true, Now: now})
	if err != nil || report.Removed != 2 {
		t.Errorf("after more than an hour: %+v, %v; want both removed", report, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".chunks", ".lock")); err != nil {
		t.Errorf("the lock file is gone: %v", err)
	}
}

func TestSweepFailsAtEveryOperation(t *testing.T) {
	t.Parallel()
	for k := 0; ; k++ {
		s, _, disk := open(t)
		part, kept := records("part"), records("kept")
		idx := index(part)
		put(t, s, part, kept, idx)
		disk.FailAt(k, nil, true)
		_, err := s.Sweep(t.Context(), chunk.SweepOptions{Live: roots(kept), MinAge: -1})
		fired := disk.Fired()
		disk.Reset()
		if fired != (err != nil) {
			t.Errorf("operation %d failed %v, but Sweep = %v", k, fired, err)
		}
		left := ids(t, s)
		if !slices.Contains(left, kept.ID) {
			t.Errorf("operation %d: a chunk in use is gone", k)
		}
		if slices.Contains(left, idx.ID) && !slices.Contains(left, part.ID) {
			t.Errorf("operation %d: an index chunk is there without its part", k)
		}
		if !fired {
			break
		}
	}
}

// TestStoreOfAList puts the two packages together.
func TestStoreOfAList(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	var want []transcript.Record
	for i := range 300 {
		want = append(want, fmt.Appendf(nil, `{"n":%d,"text":%q}`, i, strings.Repeat("word ", 7000)))
	}
	want = append(want, bytes.Repeat([]byte("g"), 3<<20), []byte("last"))
	batch := s.NewBatch()
	defer batch.Discard()
	var l transcript.List
	if err := l.Append(want, batch.Seal); err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := 0
	for r, err := range l.All(s.Plain, 0, l.Records) {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r, want[i]) {
			t.Fatalf("record %d differs", i)
		}
		i++
	}
	if i != len(want) || len(l.Index) == 0 {
		t.Errorf("%d records of %d, %d index chunks", i, len(want), len(l.Index))
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range []transcript.Sealed{records("a"), index(records("a")), sealed(transcript.KindPiece, "x")} {
		f.Add(chunk.Encode(c))
	}
	f.Add(bomb(4<<30, nil))
	f.Add([]byte("SESS"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		// The checksum is made to fit, or nothing behind it would be reached.
		if len(frame) >= 26 {
			frame = resum(bytes.Clone(frame))
		}
		kind, err := chunk.Check(frame)
		id := transcript.Sum(frame)
		_, plain, decodeErr := chunk.Decode(id, frame)
		if decodeErr == nil {
			t.Fatalf("Decode under a wrong id gave %d bytes", len(plain))
		}
		if err != nil {
			return
		}
		r, err := zstd.NewReader(bytes.NewReader(frame), zstd.WithDecoderMaxMemory(transcript.MaxPlain), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		content, err := io.ReadAll(io.LimitReader(r, transcript.MaxPlain+1))
		if err != nil {
			return
		}
		gotKind, plain, err := chunk.Decode(transcript.Sum(content), frame)
		if err == nil && (gotKind != kind || !bytes.Equal(plain, content)) {
			t.Fatalf("Decode gave %v and %d bytes; Check %v, a zstd reader %d", gotKind, len(plain), kind, len(content))
		}
	})
}

func BenchmarkEncode64KB(b *testing.B) {
	c := sealed(transcript.KindRecords, strings.Repeat(`{"role":"user","content":"some words of a turn"}`+"\n", 1300))
	b.SetBytes(int64(len(c.Plain)))
	for b.Loop() {
		chunk.Encode(c)
	}
}

func BenchmarkDecode64KB(b *testing.B) {
	c := sealed(transcript.KindRecords, strings.Repeat(`{"role":"user","content":"some words of a turn"}`+"\n", 1300))
	frame := chunk.Encode(c)
	b.SetBytes(int64(len(c.Plain)))
	for b.Loop() {
		if _, _, err := chunk.Decode(c.ID, frame); err != nil {
			b.Fatal(err)
		}
	}
}

// Who waits for a sweep that does not end, as one whose process was stopped, is
// told in the end which process that is.
func TestLockedNamesTheHolder(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	unlock, ok, err := s.TryExclusive()
	if !ok || err != nil {
		t.Fatalf("TryExclusive = %t, %v", ok, err)
	}
	synctest.Test(t, func(t *testing.T) {
		_, err = s.Shared(t.Context())
	})
	held, ok := errors.AsType[*durable.LockedError](err)
	if !ok || held.Holder.PID != os.Getpid() || held.Holder.Operation != "sweep" || !strings.Contains(err.Error(), dir) {
		t.Errorf("Shared during a sweep = %v, want that process %d sweeps", err, os.Getpid())
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = s.Shared(t.Context()); err != nil {
		t.Fatalf("Shared after the sweep: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}
