package session

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"sess/store/transcript"
)

// A file that is read part by part says the same as one that is read as a whole,
// wherever the parts end.
func FuzzPartByPart(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, ` { } `, `[]`, `{"a":1,}`, `{"a":1`, `{"a":12}x`, `{,}`, `{"a" 1}`, `{1:2}`, `{"a":tru}`, "{\"a\":1}\x00", "\x00",
		"\xEF\xBB\xBF{\"id\":\"s1\"}", "{\"id\":\"s1\",\"messages\":[\"\xff\"]}",
		`{"id":"s1","messages":[ {"a" : 1} , 2,"x\ny", {"$raw":"eA=="} ],"activities":null,"status":"running","n":12.5e3}`,
		`{"id":"s1","messages":[1,2],"messages":[3],"title":"t","title":"u"}`, `{"id":"s1","messages":[1],"messages":"none"}`,
		`{"id":"s1","messages":[1,]}`, `{"id":"s1","messages":[,1]}`, `{"messages":[1 2]}`, `{"messages":[`, `{"messages":[1`, `{"messages":[{"$raw":"Cg=="}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > 9000 {
			return // how deep is too deep is counted from another place
		}
		got := map[string][]transcript.Record{}
		in := &jsonReader{r: iotest.OneByteReader(bytes.NewReader(data))}
		list, err := in.session(arrays{
			begin: func(name string) error { got[name] = nil; return nil },
			record: func(name string, r transcript.Record) error {
				got[name] = append(got[name], bytes.Clone(r))
				return nil
			},
		})
		whole, wholeErr := members(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")))
		want := map[string][]transcript.Record{}
		for i, m := range whole {
			if m.key != keyMessages && m.key != keyActivities || m.value[0] != '[' {
				continue
			}
			l := &transcript.List{}
			if wholeErr == nil {
				wholeErr = decodeTail(l, m.value)
			}
			want[m.key], whole[i].value = l.Tail, json.RawMessage("[]")
		}
		if twice(data) && wholeErr == nil && err != nil {
			return // in an array that is replaced, every record is looked at all the same
		}
		if (err == nil) != (wholeErr == nil) {
			t.Fatalf("%q: part by part: %v, as a whole: %v", data, err, wholeErr)
		}
		if err != nil {
			return
		}
		if !slices.EqualFunc(list, whole, func(a, b member) bool {
			return a.key == b.key && bytes.Equal(a.rawKey, b.rawKey) && bytes.Equal(a.value, b.value)
		}) {
			t.Fatalf("%q: part by part: %q, as a whole: %q", data, list, whole)
		}
		for _, name := range []string{keyMessages, keyActivities} {
			if !slices.EqualFunc(got[name], want[name], func(a, b transcript.Record) bool { return bytes.Equal(a, b) }) {
				t.Fatalf("%q: %s part by part: %q, as a whole: %q", data, name, got[name], want[name])
			}
		}
	})
}

// twice reports whether an array of records may stand in data twice.
func twice(data []byte) bool {
	return strings.Count(string(data), keyMessages)+strings.Count(string(data), keyActivities)+bytes.Count(data, []byte(`\u`)) > 1
}

// A large file is cut as one that is held and written again is.
func TestLargeIsCutAlike(t *testing.T) {
	t.Parallel()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l := s.New(Ref{Project: "p", ID: "s"}, "title", "/w")
	more := func(from, to int) {
		for i := from; i < to; i++ {
			text := strings.Repeat(string(rune('a'+i%26))+"ß ", 400+i%700)
			if i == 1000 {
				text = strings.Repeat("giant ", 300_000)
			}
			if err := l.Append(keyMessages, transcript.Record(encode(map[string]any{"id": i, "content": text}))); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				if err := l.Append(keyActivities, transcript.Record(encode(map[string]any{"id": -i, "output": text}))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	more(0, 200)
	if err := s.Create(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	stored, err := s.Read(t.Context(), l.Ref)
	if err != nil {
		t.Fatal(err)
	}
	more(200, 6000)
	want, err := l.encode()
	if err != nil {
		t.Fatal(err)
	}
	// Another program that passed on what was sealed has added the rest.
	uncut := stored.clone()
	for _, name := range []string{keyMessages, keyActivities} {
		list := uncut.Doc.Lists[name]
		had, i := list.Records, 0
		for r, err := range l.Doc.Lists[name].All(l.load, had, l.Doc.Lists[name].Records) {
			if err != nil {
				t.Fatal(err)
			}
			list.Tail = append(list.Tail, bytes.Clone(r))
			i++
		}
		list.Records += i
	}
	file, err := uncut.encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(file) < 2*maxHeld {
		t.Fatalf("the file has %d bytes, too few for this test", len(file))
	}
	f, err := s.fs.Append(l.Ref.file())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(file); err != nil {
		t.Fatal(err)
	}
	outline, err := s.Outline(t.Context(), l.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := outline.Doc.Meta, l.Doc.Meta; a.Messages != b.Messages || a.Bytes != b.Bytes || a.Title != b.Title {
		t.Errorf("Outline counts %+v, want %+v", a, b)
	}
	got, err := s.Read(t.Context(), l.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if n := tailBytes(got.Doc.Lists[keyMessages]); n > 2*transcript.MaxChunk {
		t.Errorf("%d bytes of messages are held", n)
	}
	cut, err := got.encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(cut, want) {
		t.Errorf("the file is cut into\n%.2000s\nwant\n%.2000s", cut, want)
	}
	records := 0
	for _, err := range got.Doc.Lists[keyMessages].All(got.load, 0, got.Doc.Lists[keyMessages].Records) {
		if err != nil {
			t.Fatal(err)
		}
		records++
	}
	if records != 6000 {
		t.Errorf("%d messages are there, want 6000", records)
	}
}
