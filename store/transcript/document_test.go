package transcript_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sess/store/transcript"
)

// sample is a document with everything in it.
func sample(t testing.TB) *transcript.Document {
	t.Helper()
	d := &transcript.Document{
		Meta: transcript.Meta{
			ID: "0197a1b2-0000-7000-8000-000000000001", Agent: "main", SessionID: "s1", ProjectID: "default",
			Title: "Über <b>Größe</b> & \"mehr\"\u2028", Model: "openai/gpt", Messages: 3, Bytes: 1234,
			CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), UpdatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Note: "first\nsecond", Tags: map[string]string{"b": "2", "a": "1"}, Pinned: true, Reason: "before restore",
			Automatic: true, Trigger: transcript.TriggerDeleteMessages, Plugin: "actions", Action: "delete", Indices: []int{1, 2},
			Range: &transcript.Range{Start: 3, End: new(5)}, Parent: "p", Digest: "sha256:00",
			Extra: map[string]json.RawMessage{"mood": json.RawMessage(`{ "x" : 1.0 }`)},
		},
		Header: json.RawMessage(`{"cwd": "/home/<x>", "n":1.50}`),
		Extra:  map[string]json.RawMessage{"later": json.RawMessage(`[1, 2]`)},
		Format: transcript.Format,
	}
	add := func(list string, records ...string) {
		var all []transcript.Record
		for _, r := range records {
			all = append(all, transcript.Record(r))
		}
		if err := d.List(list).Append(all, nil); err != nil {
			t.Fatal(err)
		}
	}
	add(transcript.ListMessages, `{"id":"m1","content":"<script>&amp;"}`, `{ "id" : "m2" }`, `[1]`, `"text"`, `12`, `null`)
	add(transcript.ListLines, "", " {}", "{}\r", "not JSON", "\xff\xfe", `{"$raw":"eA=="}`, `{ "$raw" : 1}`, `{"a":1}{"a":2}`, `"\ud800"`)
	add("file:a \"b\".txt", string(line(1, 2<<20)), string(line(2, 10)))
	add("table:\t\r\n\x01\\\u2028", "1")
	add("empty")
	return d
}

func TestDocumentRoundTrip(t *testing.T) {
	t.Parallel()
	d := sample(t)
	encoded := d.Encode()
	if !json.Valid(encoded) || !bytes.HasPrefix(encoded, []byte(`{"format":"sess/1","meta":{"id":"0197a1b2-`)) {
		t.Fatalf("not JSON that begins with format and meta: %.80s", encoded)
	}
	got, err := transcript.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, got); diff != "" {
		t.Errorf("decoded document (-want +got):\n%s", diff)
	}
	if again := got.Encode(); !bytes.Equal(again, encoded) {
		t.Errorf("encoded again it differs:\n%.300s\n%.300s", encoded, again)
	}
	for _, want := range []string{
		`"createdAt":"2026-01-02T03:04:05.006Z"`, `"updatedAt":"2026-01-02T03:04:05.000Z"`, `<b>`,
		`{ "id" : "m2" }`, `{"$raw":"IHt9"}`, `"mood":{ "x" : 1.0 }`, `"later":[1, 2]`,
	} {
		if !bytes.Contains(encoded, []byte(want)) {
			t.Errorf("the encoded document has no %s", want)
		}
	}
}

func TestZeroDocument(t *testing.T) {
	t.Parallel()
	got, err := transcript.Decode((&transcript.Document{}).Encode())
	if err != nil {
		t.Fatal(err)
	}
	want := &transcript.Document{Format: transcript.Format, Lists: map[string]*transcript.List{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded zero document (-want +got):\n%s", diff)
	}
}

func TestMetaTimesAreMilliseconds(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("x", 2*3600)
	m := transcript.Meta{CreatedAt: time.Date(2026, 5, 6, 7, 8, 9, 123456789, zone)}
	if got := string(m.AppendJSON(nil)); !strings.Contains(got, `"createdAt":"2026-05-06T05:08:09.123Z"`) {
		t.Errorf("meta is %s", got)
	}
	got, err := transcript.Decode([]byte(`{"format":"sess/1","meta":{"createdAt":"2026-05-06T07:08:09.123456+02:00","Title":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := transcript.Meta{CreatedAt: time.Date(2026, 5, 6, 5, 8, 9, 123e6, time.UTC), Extra: map[string]json.RawMessage{"Title": json.RawMessage(`"x"`)}}
	if diff := cmp.Diff(want, got.Meta); diff != "" {
		t.Errorf("decoded meta (-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 64)
	list := func(s string) string { return `{"format":"sess/1","lists":{"messages":` + s + `}}` }
	for _, tc := range []struct{ name, data, says string }{
		{"empty file", "", "is empty"},
		{"zeros", "\x00\x00\x00\x00", "an object is due"},
		{"garbage", "hello", "an object is due"},
		{"an array", "[]", "an object is due"},
		{"no document", `{"a":1}`, "none of the keys"},
		{"another's format", `{"format":"har/1","meta":{}}`, "har/1"},
		{"format not text", `{"format":1}`, "a string is due"},
		{"two values", `{"format":"sess/1"}{}`, "more follows"},
		{"a key twice", `{"format":"sess/1","meta":{},"meta":{}}`, `"meta" stands twice`},
		{"a list twice", `{"lists":{"a":{"records":0},"a":{"records":0}}}`, `"a" stands twice`},
		{"meta not an object", `{"format":"sess/1","meta":[]}`, "byte 26"},
		{"meta with a wrong type", `{"format":"sess/1","meta":{"messages":"x"}}`, "meta: messages"},
		{"meta with a negative count", `{"format":"sess/1","meta":{"messages":-1}}`, "-1 messages"},
		{"meta with a wrong time", `{"format":"sess/1","meta":{"createdAt":"yesterday"}}`, "createdAt"},
		{"header not an object", `{"format":"sess/1","header":"x"}`, "header"},
		{"lists not an object", `{"format":"sess/1","lists":[]}`, "an object is due"},
		{"list not an object", list(`[]`), `list "messages": an object is due`},
		{"negative count", list(`{"records":-1}`), "a count is due"},
		{"broken count", list(`{"records":1.5}`), "a count is due"},
		{"count too high", list(`{"records":2,"tail":[1]}`), "counts 2 records, but has 1"},
		{"count too low", list(`{"records":0,"tail":[1]}`), "counts 0 records, but has 1"},
		{"huge count", list(`{"records":99999999999999999999}`), "a count is due"},
		{"index without count", list(`{"index":["` + id + `"]}`), "index chunks"},
		{"index with no records", list(`{"records":1,"index":["` + id + `"],"tail":[1]}`), "index chunks"},
		{"not an id", list(`{"records":1,"chunks":[{"id":"../x","records":1,"bytes":2}]}`), "not a chunk id"},
		{"id and ids", list(`{"records":1,"chunks":[{"id":"` + id + `","ids":["` + id + `"],"records":1,"bytes":2}]}`), "one of id and ids"},
		{"no id", list(`{"records":1,"chunks":[{"records":1,"bytes":2}]}`), "one of id and ids"},
		{"chunk too large", list(`{"records":1,"chunks":[{"id":"` + id + `","records":1,"bytes":3000000}]}`), "more than the limit"},
		{"more records than bytes", list(`{"records":9,"chunks":[{"id":"` + id + `","records":9,"bytes":2}]}`), "cannot be 2 bytes"},
		{"pieces do not fit", list(`{"records":1,"chunks":[{"ids":["` + id + `"],"records":1,"bytes":3000000}]}`), "not 1 pieces"},
		{"tail not an array", list(`{"records":1,"tail":{}}`), "an array is due"},
		{"raw not base64", list(`{"records":1,"tail":[{"$raw":"?"}]}`), "$raw"},
		{"raw not text", list(`{"records":1,"tail":[{"$raw":1}]}`), "$raw"},
		{"raw with more", list(`{"records":1,"tail":[{"$raw":"eA==","x":1}]}`), "$raw"},
		{"raw with a newline", list(`{"records":1,"tail":[{"$raw":"Cg=="}]}`), "$raw"},
		{"not UTF-8", `{"format":"sess/1","header":{"a":"` + "\xff" + `"}}`, "UTF-8"},
		{"nested too deeply", `{"format":"sess/1","x":` + strings.Repeat("[", 1<<20), "nested too deeply"},
		{"bad escape", `{"format":"sess\x"}`, "escape"},
	} {
		d, err := transcript.Decode([]byte(tc.data))
		if d != nil || !errors.Is(err, transcript.ErrDamaged) || errors.Is(err, transcript.ErrNewer) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: Decode = %v, want ErrDamaged that says %q", tc.name, err, tc.says)
		}
	}
}

func TestDecodeOfAnyCut(t *testing.T) {
	t.Parallel()
	encoded := sample(t).Encode()
	for n := range encoded {
		if _, err := transcript.Decode(encoded[:n]); !errors.Is(err, transcript.ErrDamaged) {
			t.Fatalf("Decode of the first %d of %d bytes = %v, want ErrDamaged", n, len(encoded), err)
		}
	}
}

func TestNewerFormat(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"format":"sess/99","meta":{"id":7},"lists":[]}`,
		`{"format":"sess/99","what":`, // it need not be whole for us to know
	} {
		_, err := transcript.Decode([]byte(data))
		e, ok := errors.AsType[*transcript.NewerError](err)
		if !ok || e.Format != "sess/99" || !strings.Contains(err.Error(), `"sess/99"`) || !errors.Is(err, transcript.ErrNewer) || errors.Is(err, transcript.ErrDamaged) {
			t.Errorf("Decode(%s) = %v, want a NewerError for sess/99", data, err)
		}
		if _, _, err := transcript.DecodeHead([]byte(data)); !errors.Is(err, transcript.ErrNewer) {
			t.Errorf("DecodeHead(%s) = %v, want ErrNewer", data, err)
		}
	}
}

func TestDecodeReadsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	d, err := transcript.Decode([]byte(`
{
  "lists": { "messages": { "tail": [ { "id": "m1",
      "content": "a  b" }, {"$raw" : "e30N"} ], "colour": 1 } },
  "meta": { "id": "x" }
}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []transcript.Record{[]byte(`{"id":"m1","content":"a  b"}`), []byte("{}\r")}
	if l := d.List("messages"); !sameRecords(l.Tail, want) || l.Records != 2 || d.Meta.ID != "x" || d.Format != "" {
		t.Errorf("got %+v with %q", d, l.Tail)
	}
}

func TestDecodeHead(t *testing.T) {
	t.Parallel()
	d := sample(t)
	encoded := d.Encode()
	end := bytes.Index(encoded, []byte(`,"header"`))
	for n := range len(encoded) {
		got, ok, err := transcript.DecodeHead(encoded[:n])
		if err != nil || ok != (n >= end) {
			t.Fatalf("DecodeHead of %d bytes = %v, %v; meta ends at %d", n, ok, err, end)
		}
		if ok {
			if diff := cmp.Diff(d.Meta, got.Meta); diff != "" || got.Format != transcript.Format {
				t.Fatalf("DecodeHead of %d bytes (-want +got):\n%s", n, diff)
			}
		}
	}
	for _, tc := range []struct {
		name, head string
		ok, fails  bool
	}{
		{"meta stands last", `{"format":"sess/1","header":{},"meta":{"id":"x"}}`, true, false},
		{"no format, whole", `{"meta":{"id":"x"}}`, true, false},
		{"no format, cut", `{"meta":{"id":"x"}`, false, false},
		{"nothing yet", ``, false, false},
		{"no document", `{"a":1}`, false, true},
		{"garbage", `PK`, false, true},
		{"broken meta", `{"format":"sess/1","meta":{"id":1}`, false, true},
	} {
		_, ok, err := transcript.DecodeHead([]byte(tc.head))
		if ok != tc.ok || (err != nil) != tc.fails || err != nil && !errors.Is(err, transcript.ErrDamaged) {
			t.Errorf("%s: DecodeHead = %v, %v", tc.name, ok, err)
		}
	}
}

func TestEncodePanicsOnWhatCouldNotBeRead(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]*transcript.Document{
		"header not JSON":        {Header: json.RawMessage(`{`)},
		"header not an object":   {Header: json.RawMessage(`1`)},
		"header with blanks":     {Header: json.RawMessage(` {}`)},
		"extra not JSON":         {Extra: map[string]json.RawMessage{"x": nil}},
		"extra of meta not JSON": {Meta: transcript.Meta{Extra: map[string]json.RawMessage{"x": json.RawMessage("}")}}},
		"wrong count":            {Lists: map[string]*transcript.List{"a": {Records: 1}}},
		"newline in a record":    {Lists: map[string]*transcript.List{"a": {Records: 1, Tail: []transcript.Record{[]byte("\n")}}}},
		"not a chunk id":         {Lists: map[string]*transcript.List{"a": {Records: 1, Chunks: []transcript.Ref{{ID: "x", Records: 1, Bytes: 2}}}}},
	} {
		if err := d.Validate(); err == nil {
			t.Errorf("%s: Validate finds nothing", name)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Encode did not panic", name)
				}
			}()
			d.Encode()
		}()
	}
	if err := sample(t).Validate(); err != nil {
		t.Error(err)
	}
}

func TestRecordJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ record, want string }{
		{`{"a":1}`, `{"a":1}`},
		{`{"a": "\u00e9<>&"}`, `{"a": "\u00e9<>&"}`},
		{`1e999`, `1e999`},
		{`{"raw":1}`, `{"raw":1}`},
		{`{"x":1,"$raw":"y"}`, `{"x":1,"$raw":"y"}`},
		{``, `{"$raw":""}`},
		{` 1`, `{"$raw":"IDE="}`},
		{`1 2`, `{"$raw":"MSAy"}`},
		{`{"$raw":"x"}`, `{"$raw":"eyIkcmF3IjoieCJ9"}`},
		{`{` + "\t" + `"$raw":1}`, `{"$raw":"ewkiJHJhdyI6MX0="}`},
		{"\"\xff\"", `{"$raw":"Iv8i"}`},
	} {
		got := transcript.EncodeRecordJSON([]byte("…"), transcript.Record(tc.record))
		if string(got) != "…"+tc.want {
			t.Errorf("EncodeRecordJSON(%q) = %s, want %s", tc.record, got, tc.want)
		}
		if back, err := transcript.DecodeRecordJSON(json.RawMessage(tc.want)); string(back) != tc.record || err != nil {
			t.Errorf("DecodeRecordJSON(%s) = %q, %v; want %q", tc.want, back, err, tc.record)
		}
	}
	for _, v := range []string{"", "{", `1 2`, `{"$raw":"eA"}`, "\"\xff\""} {
		if r, err := transcript.DecodeRecordJSON(json.RawMessage(v)); !errors.Is(err, transcript.ErrDamaged) {
			t.Errorf("DecodeRecordJSON(%q) = %q, %v; want ErrDamaged", v, r, err)
		}
	}
}

func TestChunkIDs(t *testing.T) {
	t.Parallel()
	m := newMemory()
	d := &transcript.Document{Lists: map[string]*transcript.List{
		"a": build(t, m, append(blocks(0, 400), line(1, 3<<20), line(2, 10))),
		"b": build(t, m, blocks(0, 3)),
	}}
	want := map[transcript.ID]bool{}
	for id := range m.chunks {
		want[id] = true
	}
	got := map[transcript.ID]bool{}
	for id, err := range d.ChunkIDs(m.load) {
		if err != nil {
			t.Fatal(err)
		}
		got[id] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ChunkIDs (-stored +got):\n%s", diff)
	}
	inline := d.InlineIDs()
	for _, id := range inline {
		if !want[id] {
			t.Errorf("InlineIDs has %s, which is not stored", id)
		}
	}
	if len(inline) >= len(want) || !slices.Contains(inline, d.List("a").Index[0]) {
		t.Errorf("InlineIDs has %d of %d ids; want the index chunks without what they name", len(inline), len(want))
	}
	seen := 0
	var last error
	for _, err := range d.ChunkIDs(func(transcript.ID) ([]byte, error) { return nil, errors.New("gone") }) {
		seen, last = seen+1, err
	}
	if seen != 2 || last == nil {
		t.Errorf("without index chunks ChunkIDs gave %d values, then %v", seen, last)
	}
}

func TestDocumentCloneIsIndependent(t *testing.T) {
	t.Parallel()
	d := sample(t)
	want := d.Encode()
	c := d.Clone()
	c.Meta.Tags["a"] = "changed"
	c.Meta.Indices[0] = 9
	*c.Meta.Range.End = 9
	c.Meta.Extra["more"] = json.RawMessage("1")
	c.Extra["more"] = json.RawMessage("1")
	c.List("other")
	if err := c.List("messages").Append([]transcript.Record{[]byte("1")}, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(d.Encode(), want) {
		t.Error("changing a clone changed the document")
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	digest := func(header string, lists map[string][]string) string {
		d := &transcript.Document{Header: json.RawMessage(header)}
		for name, records := range lists {
			for _, r := range records {
				if err := d.List(name).Append([]transcript.Record{[]byte(r)}, nil); err != nil {
					t.Fatal(err)
				}
			}
			d.List(name)
		}
		return d.Digest()
	}
	lists := map[string][]string{"a": {"1", "2", "33"}, "b": {"x"}}
	base := digest(`{"t":"x","n":{"a":1,"b":[1,2]}}`, lists)
	if !strings.HasPrefix(base, "sha256:") || len(base) != len("sha256:")+64 {
		t.Fatalf("digest %q", base)
	}
	for name, same := range map[string]string{
		"again":                base,
		"blanks in the header": digest(` { "t" : "x" , "n" : { "a":1, "b":[ 1,2 ] } }`, lists),
		"order of keys":        digest(`{"n":{"b":[1,2],"a":1.0},"t":"\u0078"}`, lists),
		"an empty list":        digest(`{"t":"x","n":{"a":1,"b":[1,2]}}`, map[string][]string{"a": {"1", "2", "33"}, "b": {"x"}, "c": nil}),
	} {
		if same != base {
			t.Errorf("%s changes the digest", name)
		}
	}
	if digest("", nil) != digest("{}", nil) {
		t.Error("no header and {} differ")
	}
	seen := map[string]string{base: "the original"}
	header := `{"t":"x","n":{"a":1,"b":[1,2]}}`
	for name, other := range map[string]string{
		"another header":   digest(`{"t":"y","n":{"a":1,"b":[1,2]}}`, lists),
		"order in header":  digest(`{"t":"x","n":{"a":1,"b":[2,1]}}`, lists),
		"a record changed": digest(header, map[string][]string{"a": {"1", "2", "34"}, "b": {"x"}}),
		"blanks in record": digest(header, map[string][]string{"a": {"1", "2", "33 "}, "b": {"x"}}),
		"order of records": digest(header, map[string][]string{"a": {"2", "1", "33"}, "b": {"x"}}),
		"a record split":   digest(header, map[string][]string{"a": {"1", "2", "3", "3"}, "b": {"x"}}),
		"an empty record":  digest(header, map[string][]string{"a": {"1", "2", "33", ""}, "b": {"x"}}),
		"a record missing": digest(header, map[string][]string{"a": {"1", "2"}, "b": {"x"}}),
		"a list renamed":   digest(header, map[string][]string{"a": {"1", "2", "33"}, "c": {"x"}}),
		"a list missing":   digest(header, map[string][]string{"a": {"1", "2", "33"}}),
		"lists exchanged":  digest(header, map[string][]string{"b": {"1", "2", "33"}, "a": {"x"}}),
		"a record moved":   digest(header, map[string][]string{"a": {"1", "2"}, "b": {"33", "x"}}),
	} {
		if was, ok := seen[other]; ok {
			t.Errorf("%s has the digest of %s", name, was)
		}
		seen[other] = name
	}
	d := sample(t)
	before := d.Digest()
	d.Meta.Title, d.Extra = "other", nil
	if d.Digest() != before {
		t.Error("meta or extra keys change the digest")
	}
}

func TestDigestOfSealedRecords(t *testing.T) {
	t.Parallel()
	records := blocks(0, 300)
	digest := func(change int) string {
		d := &transcript.Document{}
		list := slices.Clone(records)
		if change >= 0 {
			list[change] = line(7777, 100)
		}
		if err := d.List("a").Append(list, nil); err != nil {
			t.Fatal(err)
		}
		return d.Digest()
	}
	base := digest(-1)
	for _, at := range []int{0, 150, 298, 299} {
		if digest(at) == base {
			t.Errorf("changing record %d of 300 leaves the digest", at)
		}
	}
}

// TestDigestIsStable fails when the format changes: then old digests would no
// longer be those of the same conversations.
func TestDigestIsStable(t *testing.T) {
	t.Parallel()
	d := &transcript.Document{Header: json.RawMessage(`{"title":"x"}`)}
	for i := range 3000 {
		if err := d.List("messages").Append([]transcript.Record{line(i, 50+i%700)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	const want = "sha256:0b8129a93fefb9e3c2bc854922669db4f11ec7554f9bec6ac4f1796933c2dab8"
	if got := d.Digest(); got != want {
		t.Errorf("Digest = %s, want %s", got, want)
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{` { "b" : 1 , "a" : [ true , null , false ] } `, `{"a":[true,null,false],"b":1}`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`{}`, `{}`},
		{`[]`, `[]`},
		{`"\u20ac$\u000f\nA'B\"\\\/\u007f"`, "\"\u20ac$\\u000f\\nA'B\\\"\\\\/\u007f\""},
		{`"\b\f\n\r\t"`, `"\b\f\n\r\t"`},
		{`"\ud83d\ude02"`, `"😂"`},
		{`"\uD800x"`, `"\ud800x"`},
		{`"\udc00\ud800"`, `"\udc00\ud800"`},
		// The order of names is that of their UTF-16.
		{`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`, `{"\r":2,"1":4,"` + "\u0080" + `":6,"ö":7,"€":1,"😀":5,"` + "\ufb33" + `":3}`},
		// Numbers are written as ECMAScript does.
		{`[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]`, `[333333333.33333329,1e+30,4.5,0.002,1e-27]`},
		{`[0,-0,0.0,1.0,10e1,1e21,1e20,1e-6,1e-7,-1.5]`, `[0,0,0,1,100,1e+21,100000000000000000000,0.000001,1e-7,-1.5]`},
		{`[0.1,0.10,9007199254740992,9007199254740993,12345678901234567890]`, `[0.1,0.1,9007199254740992,9007199254740993,12345678901234567890]`},
		{`[1e400,-1e400,1e-400,1e99999999999]`, `[1e400,-1e400,1e-400,1e99999999999]`},
		{`[5e-324,1.7976931348623157e308]`, `[5e-324,1.7976931348623157e+308]`},
	} {
		got, err := transcript.Canonical(json.RawMessage(tc.in))
		if string(got) != tc.want || err != nil {
			t.Errorf("Canonical(%s) = %s, %v; want %s", tc.in, got, err, tc.want)
		}
	}
	for _, in := range []string{"", "{", `{"a"}`, `{"a":1,}`, `{,}`, `[1,]`, `1 2`, `01`, `"` + "\xff" + `"`, strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<20)} {
		if got, err := transcript.Canonical(json.RawMessage(in)); err == nil {
			t.Errorf("Canonical(%.20q) = %.20s, want an error", in, got)
		}
	}
}

// seeds are documents, whole and broken.
func seeds(f *testing.F) {
	f.Add(sample(f).Encode())
	for _, s := range []string{
		"", "{}", "[]", `{"format":"sess/1"}`, `{"format":"sess/2"}`, `{"lists":{"a":{"records":1,"tail":[{"$raw":"eA=="}]}}}`,
		`{"meta":{"id":"x","range":{"start":1,"end":null},"future":[1]}}`, "{\"lists\":{\"a\":{\"tail\":[{\n\"a\":\n1}]}}}",
		`{"format":"sess/1","header":{"\ud800":1e400}}`,
		`{"meta":{"createdAt":"0000-01-01T00:00:00+23:59"}}`, `{"meta":{"updatedAt":"9999-12-31T00:01:00-23:59"}}`,
	} {
		f.Add([]byte(s))
	}
}

func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		head, whole, headErr := transcript.DecodeHead(data)
		d, err := transcript.Decode(data)
		if err != nil {
			if !errors.Is(err, transcript.ErrDamaged) && !errors.Is(err, transcript.ErrNewer) {
				t.Fatalf("Decode = %v, neither damaged nor newer", err)
			}
			return
		}
		if headErr != nil || !whole || !cmp.Equal(head.Meta, d.Meta) {
			t.Fatalf("DecodeHead = %v, %v of a document that decodes, or another meta", whole, headErr)
		}
		encoded := d.Encode()
		again, err := transcript.Decode(encoded)
		if err != nil {
			t.Fatalf("Decode of what Encode gave: %v\n%s", err, encoded)
		}
		if !bytes.Equal(again.Encode(), encoded) || again.Digest() != d.Digest() {
			t.Fatalf("decoded and encoded again it differs:\n%s\n%s", encoded, again.Encode())
		}
	})
}

func FuzzRecordJSON(f *testing.F) {
	for _, s := range []string{"", "{}", `{"$raw":"x"}`, "\xff", `"\ud800"`, `1 `, `-0.0e+1`, `{"a":[1,{"b":null}]}`, "[" + strings.Repeat("[", 10000), `"\u12`, "\"\x01\"", "truex"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		v := transcript.EncodeRecordJSON(nil, record)
		if !json.Valid(v) {
			t.Fatalf("%q stands as %s, which is not JSON", record, v)
		}
		if bytes.IndexByte(record, '\n') >= 0 {
			return
		}
		got, err := transcript.DecodeRecordJSON(v)
		if err != nil || !bytes.Equal(got, record) {
			t.Fatalf("%q came back as %q, %v", record, got, err)
		}
		// The reader here agrees with encoding/json on what JSON is.
		_, err = transcript.Canonical(record)
		if valid := json.Valid(record) && bytes.Equal(bytes.ToValidUTF8(record, nil), record); valid != (err == nil) {
			t.Fatalf("json.Valid(%q) and UTF-8: %v, but Canonical says %v", record, valid, err)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":2}`, `[1e400,0.1,1E2]`, `"\ud83d\ude02\ud800"`, `{"a":1,"a":{"b":[]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		once, err := transcript.Canonical(v)
		if err != nil {
			return
		}
		twice, err := transcript.Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("Canonical is not stable: %s, then %s, %v", once, twice, err)
		}
		var a, b any
		if json.Unmarshal(v, &a) == nil && (json.Unmarshal(once, &b) != nil || !cmp.Equal(a, b)) {
			t.Fatalf("Canonical changed the value: %s to %s", v, once)
		}
	})
}

func FuzzDecodeIndex(f *testing.F) {
	id := strings.Repeat("0", 64)
	f.Add(fmt.Appendf(nil, `{"id":"%s","records":1,"bytes":2}`+"\n", id))
	f.Add(fmt.Appendf(nil, `{"ids":["%s","%s"],"records":1,"bytes":1048579}`+"\n", id, id))
	f.Add([]byte("{}\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, plain []byte) {
		refs, err := transcript.DecodeIndex(plain)
		if err != nil {
			if !errors.Is(err, transcript.ErrDamaged) {
				t.Fatalf("DecodeIndex = %v, want ErrDamaged", err)
			}
			return
		}
		for _, r := range refs {
			if r.Records < 1 || r.Bytes < 1 || (r.ID == "") == (len(r.IDs) == 0) {
				t.Fatalf("DecodeIndex gave %+v", r)
			}
		}
	})
}

func benchmarkDocument(b *testing.B, size int) *transcript.Document {
	rnd := rand.New(rand.NewPCG(1, 1))
	d := &transcript.Document{Meta: sample(b).Meta, Header: json.RawMessage(`{"title":"x","cwd":"/"}`)}
	for total := 0; total < size; {
		var records []transcript.Record
		for range 64 {
			r := line(rnd.IntN(1<<30), 200+rnd.IntN(7000))
			records, total = append(records, r), total+len(r)
		}
		if err := d.List(transcript.ListMessages).Append(records, nil); err != nil {
			b.Fatal(err)
		}
	}
	return d
}

func BenchmarkSaveTurn(b *testing.B) {
	for _, mb := range []int{1, 50} {
		d := benchmarkDocument(b, mb<<20)
		turn := []transcript.Record{line(1, 1000), line(2, 7000)}
		l := d.List(transcript.ListMessages)
		b.Run(fmt.Sprintf("Append/%dMB", mb), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Clone().Append(turn, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("Digest/%dMB", mb), func(b *testing.B) {
			for b.Loop() {
				d.Digest()
			}
		})
		encoded := d.Encode()
		b.Run(fmt.Sprintf("Encode/%dMB", mb), func(b *testing.B) {
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				d.Encode()
			}
		})
		b.Run(fmt.Sprintf("Decode/%dMB", mb), func(b *testing.B) {
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				if _, err := transcript.Decode(encoded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeHead(b *testing.B) {
	head := benchmarkDocument(b, 1<<20).Encode()[:4096]
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := transcript.DecodeHead(head); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// TestEveryByteAtEveryPlaceOfAString holds the scanner, which looks at eight
// bytes at a time, against encoding/json.
func TestEveryByteAtEveryPlaceOfAString(t *testing.T) {
	t.Parallel()
	for size := range 20 {
		for at := range size {
			for c := range 256 {
				v := []byte(`"` + strings.Repeat(" ", size) + `"`)
				v[1+at] = byte(c)
				_, err := transcript.DecodeRecordJSON(v)
				// encoding/json takes bytes that are not UTF-8.
				if got, want := err == nil, json.Valid(v) && utf8.Valid(v); got != want {
					t.Fatalf("%q: %v, want valid %v", v, err, want)
				}
			}
		}
	}
}
