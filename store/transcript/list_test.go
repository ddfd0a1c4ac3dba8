package transcript_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/transcript"
)

// memory keeps chunks and counts what is loaded.
type memory struct {
	chunks map[transcript.ID]transcript.Sealed
	loads  map[transcript.ID]int
	order  error // an index chunk came before what it names
}

func newMemory() *memory {
	return &memory{chunks: map[transcript.ID]transcript.Sealed{}, loads: map[transcript.ID]int{}}
}

func (m *memory) seal(s transcript.Sealed) error {
	if s.ID != transcript.Sum(s.Plain) || len(s.Plain) > transcript.MaxPlain {
		return fmt.Errorf("chunk %s of %d bytes is not what its id says", s.ID, len(s.Plain))
	}
	if s.Kind == transcript.KindIndex {
		refs, err := transcript.DecodeIndex(s.Plain)
		if err != nil {
			return err
		}
		for _, r := range refs {
			for _, id := range append(slices.Clone(r.IDs), r.ID) {
				if _, ok := m.chunks[id]; id != "" && !ok {
					m.order = errors.Join(m.order, fmt.Errorf("index %s came before %s", s.ID, id))
				}
			}
		}
	}
	s.Plain = bytes.Clone(s.Plain)
	m.chunks[s.ID] = s
	return nil
}

func (m *memory) load(id transcript.ID) ([]byte, error) {
	m.loads[id]++
	s, ok := m.chunks[id]
	if !ok {
		return nil, fmt.Errorf("no chunk %s", id)
	}
	return s.Plain, nil
}

// loaded counts the chunks of a kind that were loaded, and forgets them.
func (m *memory) loaded(kind transcript.Kind) int {
	n := 0
	for id := range m.loads {
		if m.chunks[id].Kind == kind {
			n++
		}
	}
	return n
}

// line makes a record of n bytes; other seeds give other bytes.
func line(seed, n int) transcript.Record {
	r := fmt.Appendf(nil, `"%d `, seed)
	for len(r) < n-1 {
		r = append(r, "the quick brown fox "...)
	}
	return append(r[:max(n-1, 3)], '"')
}

// lines makes records of mixed sizes, giants among them.
func lines(rnd *rand.Rand, n int) []transcript.Record {
	list := make([]transcript.Record, n)
	for i := range list {
		size := 10 + rnd.IntN(3000)
		switch rnd.IntN(150) {
		case 0, 1, 2, 3, 4, 5, 6, 7:
			size = 20<<10 + rnd.IntN(200<<10)
		case 8:
			size = transcript.GiantRecord - 2 + rnd.IntN(5)
		case 9:
			size = 1<<20 + rnd.IntN(2<<20)
		case 10, 11:
			size = 3
		}
		list[i] = line(rnd.IntN(1<<20), size)
	}
	return list
}

// blocks makes n records each of which is a chunk of its own.
func blocks(seed, n int) []transcript.Record {
	list := make([]transcript.Record, n)
	for i := range list {
		list[i] = line(seed+i, transcript.AvgChunk-transcript.MinChunk+1)
	}
	return list
}

func build(t *testing.T, m *memory, records []transcript.Record) *transcript.List {
	t.Helper()
	l := &transcript.List{}
	if err := l.Append(records, m.seal); err != nil {
		t.Fatalf("Append: %v", err)
	}
	return l
}

func all(t *testing.T, m *memory, l *transcript.List, from, to int) []transcript.Record {
	t.Helper()
	var list []transcript.Record
	for r, err := range l.All(m.load, from, to) {
		if err != nil {
			t.Fatalf("All(%d, %d): %v", from, to, err)
		}
		list = append(list, r)
	}
	return list
}

func sameRecords(a, b []transcript.Record) bool {
	return slices.EqualFunc(a, b, func(a, b transcript.Record) bool { return bytes.Equal(a, b) })
}

func newRand(t *testing.T, seed uint64) *rand.Rand {
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestAppendInAnyBatchesGivesOneResult(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		rnd := newRand(t, seed)
		records := lines(rnd, 400)
		m := newMemory()
		want := build(t, m, records)
		got := &transcript.List{}
		for i := 0; i < len(records); {
			n := min(rnd.IntN(40), len(records)-i)
			if err := got.Append(records[i:i+n], m.seal); err != nil {
				t.Fatal(err)
			}
			i += n
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: appended in batches, the list differs (-at once +in batches):\n%s", seed, diff)
		}
		if !sameRecords(all(t, m, got, 0, len(records)), records) {
			t.Fatalf("seed %d: the records are not what was appended", seed)
		}
		if m.order != nil {
			t.Error(m.order)
		}
	}
}

func TestAppendSealsIndexChunksAlike(t *testing.T) {
	t.Parallel()
	records := blocks(0, 700)
	m := newMemory()
	want := build(t, m, records)
	if len(want.Index) < 3 {
		t.Fatalf("700 chunks made %d index chunks; want some", len(want.Index))
	}
	got := &transcript.List{}
	for part := range slices.Chunk(records, 7) {
		if err := got.Append(part, m.seal); err != nil {
			t.Fatal(err)
		}
		if n := len(got.Chunks); n > 2*transcript.InlineRefs {
			t.Fatalf("%d references stay inline", n)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("index chunks depend on how records are appended (-at once +in batches):\n%s", diff)
	}
	if m.order != nil {
		t.Error(m.order)
	}
}

func TestPrefixKeepsItsChunks(t *testing.T) {
	t.Parallel()
	rnd := newRand(t, 1)
	records := lines(rnd, 400)
	m := newMemory()
	whole := build(t, m, records)
	for range 12 {
		n := rnd.IntN(len(records) + 1)
		part := build(t, m, records[:n])
		for i, r := range part.Chunks {
			if !cmp.Equal(r, whole.Chunks[i]) {
				t.Fatalf("chunk %d of the first %d records is not that of all records", i, n)
			}
		}
		if ok, err := whole.Extends(part, m.load); !ok || err != nil {
			t.Errorf("Extends(first %d records) = %v, %v; want true", n, ok, err)
		}
		if ok, err := part.Extends(whole, m.load); ok != (n == len(records)) || err != nil {
			t.Errorf("first %d of %d records: Extends(all) = %v, %v", n, len(records), ok, err)
		}
	}
}

func TestChunkSizes(t *testing.T) {
	t.Parallel()
	rnd := newRand(t, 2)
	for _, size := range []int{40, 500, 4000, 30 << 10} {
		records := make([]transcript.Record, 6<<20/size)
		for i := range records {
			records[i] = line(rnd.IntN(1<<30), size/2+rnd.IntN(size))
		}
		l := build(t, newMemory(), records)
		var sum int64
		for _, r := range l.Chunks {
			sum += r.Bytes
			if r.Bytes < transcript.MinChunk || r.Bytes > transcript.MaxChunk+int64(2*size) {
				t.Errorf("records of about %d bytes: a chunk of %d bytes", size, r.Bytes)
			}
		}
		if avg := sum / int64(len(l.Chunks)); avg < 45<<10 || avg > 80<<10 {
			t.Errorf("records of about %d bytes: chunks of %d bytes on average, want about %d", size, avg, transcript.AvgChunk)
		}
	}
}

func TestNewestRecordStaysInTail(t *testing.T) {
	t.Parallel()
	big := line(1, transcript.GiantRecord) // the longest that is no giant
	l := build(t, newMemory(), []transcript.Record{line(0, 10), big})
	if len(l.Chunks) != 0 || len(l.Tail) != 2 {
		t.Fatalf("%d chunks, %d records in the tail; want all in the tail", len(l.Chunks), len(l.Tail))
	}
	if err := l.Append([]transcript.Record{line(2, 10)}, nil); err != nil {
		t.Fatal(err)
	}
	if len(l.Chunks) != 1 || l.Chunks[0].Records != 2 || len(l.Tail) != 1 {
		t.Fatalf("after one more: %d chunks, %d records in the tail; want the first two sealed", len(l.Chunks), len(l.Tail))
	}
}

func TestGiantIsSealedAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ size, pieces int }{
		{transcript.GiantRecord + 1, 2},
		{2*transcript.PieceBytes - 1, 2}, // with its newline two whole pieces
		{2 * transcript.PieceBytes, 3},
		{2*transcript.PieceBytes + 1, 3},
	} {
		m := newMemory()
		records := []transcript.Record{line(0, 10), line(1, tc.size)}
		l := build(t, m, records)
		if len(l.Tail) != 0 || len(l.Chunks) != 2 || l.Chunks[0].Records != 1 || len(l.Chunks[1].IDs) != tc.pieces {
			t.Errorf("%d bytes: got %+v and %d in the tail; want one small chunk and %d pieces", tc.size, l.Chunks, len(l.Tail), tc.pieces)
		}
		if got := all(t, m, l, 0, 2); !sameRecords(got, records) {
			t.Errorf("%d bytes: the joined record differs", tc.size)
		}
	}
}

func TestAppendRefusesNewline(t *testing.T) {
	t.Parallel()
	l := build(t, newMemory(), []transcript.Record{line(0, 10)})
	before := l.Clone()
	if err := l.Append([]transcript.Record{line(1, 10), []byte("a\nb")}, nil); !errors.Is(err, transcript.ErrNewline) {
		t.Errorf("Append = %v, want ErrNewline", err)
	}
	if err := l.Splice(0, 1, []transcript.Record{[]byte("\n")}, nil, nil); !errors.Is(err, transcript.ErrNewline) {
		t.Errorf("Splice = %v, want ErrNewline", err)
	}
	if !l.Equal(before) {
		t.Error("a refused change changed the list")
	}
}

func TestFailedSealLeavesListAsItWas(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	m := newMemory()
	records := blocks(0, 300)
	l := build(t, m, records)
	before := l.Clone()
	for k := range 4 {
		n := 0
		fail := func(transcript.Sealed) error {
			if n++; n > k {
				return full
			}
			return nil
		}
		if err := l.Append(blocks(1000, 100), fail); !errors.Is(err, full) {
			t.Errorf("Append = %v, want %v", err, full)
		}
		if err := l.Splice(10, 11, blocks(2000, 5), m.load, fail); !errors.Is(err, full) {
			t.Errorf("Splice = %v, want %v", err, full)
		}
		if diff := cmp.Diff(before, l); diff != "" {
			t.Fatalf("after a failure at chunk %d the list differs:\n%s", k, diff)
		}
	}
}

func TestCloneIsIndependent(t *testing.T) {
	t.Parallel()
	m := newMemory()
	l := build(t, m, blocks(0, 300))
	want := l.Clone()
	a, b := l.Clone(), l.Clone()
	for i, c := range []*transcript.List{a, b} {
		if err := c.Append(blocks(1000*(i+1), 200), m.seal); err != nil {
			t.Fatal(err)
		}
	}
	if !l.Equal(want) {
		t.Error("appending to a clone changed the list")
	}
	if a.Equal(b) {
		t.Error("two clones that were appended to are equal")
	}
	for i, c := range []*transcript.List{a, b} {
		if got := build(t, m, slices.Concat(blocks(0, 300), blocks(1000*(i+1), 200))); !c.Equal(got) {
			t.Errorf("clone %d was changed by the other", i)
		}
	}
}

func TestAllRanges(t *testing.T) {
	t.Parallel()
	rnd := newRand(t, 3)
	m := newMemory()
	records := slices.Concat(blocks(0, 250), lines(rnd, 200), blocks(300, 150))
	l := build(t, m, records)
	if len(l.Index) == 0 {
		t.Fatal("no index chunk")
	}
	for range 60 {
		from := rnd.IntN(len(records)+10) - 5
		to := from + rnd.IntN(40) - 5
		lo := min(max(from, 0), len(records))
		hi := max(min(to, len(records)), lo)
		if got := all(t, m, l, from, to); !sameRecords(got, records[lo:hi]) {
			t.Fatalf("All(%d, %d) gave %d records; want %d, or they differ", from, to, len(got), hi-lo)
		}
	}
	clear(m.loads)
	all(t, m, l, len(records)-20, len(records))
	if n := m.loaded(transcript.KindIndex); n != 0 {
		t.Errorf("reading the last 20 records loaded %d index chunks", n)
	}
	for range l.All(m.load, 0, len(records)) {
		break // must not go on loading, nor panic
	}
}

func TestBytesCountsEverything(t *testing.T) {
	t.Parallel()
	m := newMemory()
	records := blocks(0, 400)
	l := build(t, m, records)
	var want int64
	for _, r := range records {
		want += int64(len(r)) + 1
	}
	if got, err := l.Bytes(m.load); got != want || err != nil {
		t.Errorf("Bytes = %d, %v; want %d", got, err, want)
	}
	if got := l.InlineBytes(); got >= want || got <= 0 {
		t.Errorf("InlineBytes = %d; want a part of %d", got, want)
	}
}

func TestSpliceIsAsBuiltAnew(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rnd := newRand(t, seed)
		m := newMemory()
		records := lines(rnd, 150+rnd.IntN(150))
		l := build(t, m, records)
		for step := range 4 {
			from := rnd.IntN(len(records) + 1)
			to := from + rnd.IntN(min(len(records)-from, 20)+1)
			switch rnd.IntN(8) {
			case 0:
				to = len(records)
			case 1:
				from = 0
			case 2, 3: // at the boundary of a chunk
				from = boundary(rnd, l)
				to = max(to, from)
			}
			with := lines(rnd, rnd.IntN(4))
			if rnd.IntN(8) == 0 {
				with = append(with, line(step, transcript.GiantRecord+1))
			}
			if err := l.Splice(from, to, with, m.load, m.seal); err != nil {
				t.Fatalf("seed %d: Splice(%d, %d, %d records): %v", seed, from, to, len(with), err)
			}
			records = slices.Concat(records[:from], with, records[to:])
			if diff := cmp.Diff(build(t, newMemory(), records), l); diff != "" {
				t.Fatalf("seed %d, step %d: Splice(%d, %d, %d records) is not the list built anew (-new +spliced):\n%s", seed, step, from, to, len(with), diff)
			}
			if !sameRecords(all(t, m, l, 0, len(records)), records) {
				t.Fatalf("seed %d: chunks are missing after Splice", seed)
			}
			if len(records) == 0 {
				break
			}
		}
		if m.order != nil {
			t.Error(m.order)
		}
	}
}

// boundary returns where one of the list's chunks begins, or its tail.
func boundary(rnd *rand.Rand, l *transcript.List) int {
	pos := 0
	for _, r := range l.Chunks[:rnd.IntN(len(l.Chunks)+1)] {
		pos += r.Records
	}
	return pos
}

func TestSpliceInALongList(t *testing.T) {
	t.Parallel()
	records := blocks(0, 600)
	for _, tc := range []struct {
		name     string
		from, to int
		with     int
		loads    int // chunks of records at most
	}{
		{"edit at the start", 0, 1, 1, 2},
		{"edit in the index", 200, 201, 1, 3},
		{"insert in the index", 133, 133, 2, 3},
		{"edit near the end", 590, 591, 1, 3},
		{"cut to a third", 200, 600, 0, 2},
		{"cut to almost nothing", 3, 600, 0, 2},
		{"cut everything", 0, 600, 0, 0},
		{"cut the start", 0, 450, 0, 1},
		{"remove the middle", 100, 500, 0, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			l := build(t, m, records)
			with := blocks(5000, tc.with)
			if err := l.Splice(tc.from, tc.to, with, m.load, m.seal); err != nil {
				t.Fatal(err)
			}
			if n := m.loaded(transcript.KindRecords); n > tc.loads {
				t.Errorf("loaded %d chunks of records, want at most %d", n, tc.loads)
			}
			want := slices.Concat(records[:tc.from], with, records[tc.to:])
			if diff := cmp.Diff(build(t, newMemory(), want), l); diff != "" {
				t.Errorf("not the list built anew (-new +spliced):\n%s", diff)
			}
			if !sameRecords(all(t, m, l, 0, len(want)), want) {
				t.Error("the records differ")
			}
		})
	}
}

func TestSpliceRanges(t *testing.T) {
	t.Parallel()
	l := build(t, newMemory(), []transcript.Record{line(0, 10), line(1, 10)})
	for _, r := range [][2]int{{-1, 0}, {1, 0}, {0, 3}, {3, 3}} {
		if err := l.Splice(r[0], r[1], nil, nil, nil); err == nil {
			t.Errorf("Splice(%d, %d) of 2 records was accepted", r[0], r[1])
		}
	}
}

func TestExtends(t *testing.T) {
	t.Parallel()
	m := newMemory()
	base := slices.Concat(blocks(0, 300), []transcript.Record{line(1, 50), line(2, 60)})
	old := build(t, m, base)
	change := func(at int) []transcript.Record {
		c := slices.Clone(base)
		c[at] = line(999, 70)
		return append(c, blocks(400, 200)...)
	}
	for _, tc := range []struct {
		name    string
		records []transcript.Record
		want    bool
	}{
		{"itself", base, true},
		{"a little more", append(slices.Clone(base), line(3, 10)), true},
		{"much more", slices.Concat(base, blocks(400, 300)), true},
		{"an early change", change(0), false},
		{"a late change", change(299), false},
		{"a change in the old tail", change(301), false},
		{"shorter", base[:301], false},
		{"nothing", nil, false},
	} {
		l := build(t, m, tc.records)
		clear(m.loads)
		if got, err := l.Extends(old, m.load); got != tc.want || err != nil {
			t.Errorf("%s: Extends = %v, %v; want %v", tc.name, got, err, tc.want)
		}
		if n := m.loaded(transcript.KindRecords); n > 2 {
			t.Errorf("%s: Extends loaded %d chunks of records", tc.name, n)
		}
	}
	if ok, err := old.Extends(&transcript.List{}, nil); !ok || err != nil {
		t.Errorf("Extends(empty list) = %v, %v; want true", ok, err)
	}
}

func TestReadingDamagedChunks(t *testing.T) {
	t.Parallel()
	giant := line(7, 2<<20)
	m := newMemory()
	l := build(t, m, slices.Concat(blocks(0, 300), []transcript.Record{giant, line(8, 10)}))
	index, small, pieces := l.Index[0], l.Chunks[0].ID, l.Chunks[len(l.Chunks)-1].IDs
	for _, tc := range []struct {
		name  string
		id    transcript.ID
		plain string
	}{
		{"index chunk empty", index, ""},
		{"index chunk not JSON", index, "{\n"},
		{"index chunk with fewer references", index, fmt.Sprintf(`{"id":"%s","records":1,"bytes":2}`+"\n", small)},
		{"records chunk without newline", small, "x"},
		{"records chunk of another size", small, "x\n"},
		{"piece too short", pieces[0], "x"},
		{"last piece without newline", pieces[len(pieces)-1], "x"},
	} {
		load := func(id transcript.ID) ([]byte, error) {
			if id == tc.id {
				return []byte(tc.plain), nil
			}
			return m.load(id)
		}
		var err error
		for _, e := range l.All(load, 0, l.Records) {
			err = e
		}
		if !errors.Is(err, transcript.ErrDamaged) {
			t.Errorf("%s: All ended with %v, want ErrDamaged", tc.name, err)
		}
	}
	for _, err := range l.All(nil, 0, 1) {
		if err == nil {
			t.Error("All without a loader gave a sealed record")
		}
	}
}

// A giant record that is more than is asked for is passed over without being
// loaded; all others are there, also those next to it.
func TestAllUpTo(t *testing.T) {
	t.Parallel()
	s := newMemory()
	records := []transcript.Record{
		transcript.Record(`"first"`), bytes.Repeat([]byte("a"), transcript.GiantRecord+1), transcript.Record(``),
		bytes.Repeat([]byte("b"), 3*transcript.GiantRecord), transcript.Record(`"last"`),
	}
	var l transcript.List
	if err := l.Append(records, s.seal); err != nil {
		t.Fatal(err)
	}
	loaded := 0
	load := func(id transcript.ID) ([]byte, error) {
		loaded++
		return s.load(id)
	}
	for from := range records {
		for to := from; to <= len(records); to++ {
			loaded = 0
			pos := from
			for r, err := range l.AllUpTo(load, from, to, transcript.GiantRecord+1) {
				want := records[pos]
				if pos == 3 {
					want = nil
				}
				if err != nil || !bytes.Equal(r, want) || (r == nil) != (pos == 3) {
					t.Fatalf("record %d of %d to %d: %.20q (nil: %v), %v", pos, from, to, r, r == nil, err)
				}
				pos++
			}
			if pos != to || loaded > 4 {
				t.Errorf("%d to %d: ended at %d after loading %d chunks", from, to, pos, loaded)
			}
		}
	}
}
