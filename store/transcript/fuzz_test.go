package transcript_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sess/store/transcript"
)

// conversations are lines as real programs have written them.
func conversations(f *testing.F) map[string][]byte {
	f.Helper()
	files, err := filepath.Glob("testdata/conversations/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("conversations: %v, %v", files, err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		if all[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			f.Fatal(err)
		}
	}
	return all
}

// FuzzLines makes a document of any lines, whatever they are. Stored and read
// again every line has the bytes that it had, from the tail as well as from
// chunks, and the digest is that of the same lines.
func FuzzLines(f *testing.F) {
	for _, lines := range conversations(f) {
		f.Add(lines, 1)
		f.Add(lines, 40)
	}
	f.Add([]byte("\n\r\n \n{\"$raw\":\"eA==\"}\n\xff\x00\n\"\\ud800\"\n1 2\n[1,\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, times int) {
		if len(text) > 1<<16 || times < 0 || times > 40 {
			return
		}
		var records []transcript.Record
		for range times {
			for line := range bytes.SplitSeq(text, []byte{'\n'}) {
				records = append(records, line)
			}
		}
		m := newMemory()
		d := &transcript.Document{}
		list := d.List("lines")
		if err := list.Append(records, m.seal); err != nil {
			t.Fatal(err)
		}
		encoded := d.Encode()
		back, err := transcript.Decode(encoded)
		if err != nil {
			t.Fatalf("Decode: %v\n%q", err, encoded)
		}
		if !bytes.Equal(back.Encode(), encoded) || back.Digest() != d.Digest() {
			t.Fatalf("written again the document is another one:\n%q\n%q", encoded, back.Encode())
		}
		list = back.List("lines")
		i := 0
		for r, err := range list.All(m.load, 0, list.Records) {
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r, records[i]) {
				t.Fatalf("line %d is %q, was %q", i, r, records[i])
			}
			i++
		}
		if i != len(records) {
			t.Fatalf("%d lines, were %d", i, len(records))
		}
	})
}

// FuzzCut makes records of all sizes from a script and cuts them where at says:
// what comes first has the chunks that it has alone, whatever follows, and is
// known to be its beginning. Two lists have one digest if, and only if, they have
// the same records.
func FuzzCut(f *testing.F) {
	f.Add([]byte{}, byte(0), byte(0))
	f.Add([]byte("\x01\x12\x23\x34\x45\x56\x67\x78\x89\x9a\xab\xbc\xcd\xde"), byte(5), byte(1))
	f.Add(bytes.Repeat([]byte("\xa0\xb1\x93"), 30), byte(60), byte(7))
	f.Add(bytes.Repeat([]byte("\xe1\x07"), 6), byte(3), byte(200))
	f.Add(bytes.Repeat([]byte("\x80\x81\x82\x83"), 20), byte(79), byte(9))
	sizes := [16]int{
		0, 1, 2, 100, 1000, 4 << 10, 8 << 10, 16 << 10, 20 << 10, transcript.MinChunk - 1, transcript.MinChunk, 50 << 10,
		transcript.MaxChunk, 200 << 10, transcript.GiantRecord + 1, 1 << 20,
	}
	f.Fuzz(func(t *testing.T, script []byte, at, change byte) {
		if len(script) > 100 {
			script = script[:100]
		}
		records := make([]transcript.Record, len(script))
		total := 0
		for i, b := range script {
			if total += sizes[b>>4]; total > 2<<20 {
				records = records[:i]
				break
			}
			records[i] = line(int(b&15)+i/16, sizes[b>>4])
		}
		m := newMemory()
		whole := build(t, m, records)
		n := int(at) % (len(records) + 1)
		first := build(t, m, records[:n])
		if len(first.Chunks) > len(whole.Chunks) || len(first.Index)+len(whole.Index) > 0 {
			t.Fatalf("%d chunks of the first %d records, %d of all", len(first.Chunks), n, len(whole.Chunks))
		}
		for i, r := range first.Chunks {
			if !cmp.Equal(r, whole.Chunks[i]) {
				t.Fatalf("chunk %d of the first %d records is not that of all records", i, n)
			}
		}
		if ok, err := whole.Extends(first, m.load); !ok || err != nil {
			t.Fatalf("Extends(first %d) = %v, %v", n, ok, err)
		}
		if err := first.Append(records[n:], m.seal); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, first); diff != "" {
			t.Fatalf("appended to, the first %d records are not all (-want +got):\n%s", n, diff)
		}
		if !sameRecords(all(t, m, whole, 0, len(records)), records) {
			t.Fatal("the records are not those that were appended")
		}
		digest := func(l *transcript.List) string {
			return (&transcript.Document{Lists: map[string]*transcript.List{"a": l}}).Digest()
		}
		if len(records) == 0 {
			return
		}
		other := append([]transcript.Record(nil), records...)
		other[int(change)%len(other)] = line(int(change), sizes[change>>4])
		same := sameRecords(other, records)
		if got := digest(build(t, m, other)) == digest(whole); got != same {
			t.Errorf("record %d changed: the records are the same: %v, the digests: %v", int(change)%len(other), same, got)
		}
	})
}

// state is what a digest stands for, in a form that can be compared.
type state struct {
	Header map[string]string
	Lists  map[string][]string
}

// scripted makes a document from lines: "=key value" sets a key of the header,
// "#comment" does nothing, "x…" adds a record to the list x.
func scripted(t *testing.T, script string) (*transcript.Document, state) {
	t.Helper()
	d := &transcript.Document{}
	s := state{map[string]string{}, map[string][]string{}}
	var header []byte
	var order []string
	for line := range strings.SplitSeq(script, "\n") {
		line = strings.ToValidUTF8(line, "?")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '=':
			key, value, _ := strings.Cut(line[1:], " ")
			if _, ok := s.Header[key]; !ok {
				order = append(order, key)
			}
			s.Header[key] = value
		default:
			_, n := utf8.DecodeRuneInString(line)
			name, record := line[:n], line[n:]
			s.Lists[name] = append(s.Lists[name], record)
			if err := d.List(name).Append([]transcript.Record{transcript.Record(record)}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, key := range order { // in the order in which they were set first
		k, err := json.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		v, err := json.Marshal(s.Header[key])
		if err != nil {
			t.Fatal(err)
		}
		header = append(append(append(append(header, ", "...), k...), " : "...), v...)
	}
	if len(header) > 0 {
		d.Header = json.RawMessage("{" + string(header[1:]) + "}")
	}
	return d, s
}

// FuzzDigest compares two documents: their digests are equal if, and only if, the
// states are.
func FuzzDigest(f *testing.F) {
	f.Add("", "#")
	f.Add("=a 1\n=b 2\nm{}\nmx\nh1", "h1\n=b 2\nm{}\n=a 1\nmx")
	f.Add("mab\nmc", "ma\nmbc")
	f.Add("ma\nmb", "mb\nma")
	f.Add("ma", "ha")
	f.Add("ma\nhb", "mb\nha")
	f.Add("=a 1", "=a  1")
	f.Add("=\u00e9 1", "=e\u0301 1")
	f.Add("=a \u2028<", "=a \\u2028<")
	f.Add("m", "")
	f.Fuzz(func(t *testing.T, one, two string) {
		a, sa := scripted(t, one)
		b, sb := scripted(t, two)
		same := maps.Equal(sa.Header, sb.Header) && cmp.Equal(sa.Lists, sb.Lists)
		if got := a.Digest() == b.Digest(); got != same {
			t.Errorf("the states are the same: %v, the digests: %v\n%+v\n%+v", same, got, sa, sb)
		}
		for _, d := range []*transcript.Document{a, b} {
			back, err := transcript.Decode(d.Encode())
			if err != nil || back.Digest() != d.Digest() {
				t.Errorf("written and read again it has another digest: %v\n%q", err, d.Encode())
			}
		}
	})
}
