package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/session"
	"sess/store/transcript"
)

func TestForeignFileKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	const first = `{"id": "m1", "role":"user","content":"<a> & caf\u00e9 \/ é","status":"complete","x":1.50,  "createdAt":1}`
	const spread = "{\n  \"id\": \"m2\",\n  \"role\": \"agent\",\n  \"content\": \"two\\nlines\"\n}"
	put(t, dir, ref, "\xEF\xBB\xBF"+`{"future" : {"k" : [1.0, 2e3]}, "id":"s1", "projectId":"elsewhere",
 "messages":[ `+first+` ,
`+spread+`],"activities":[],"ti\u0074le":"T","zeta":"<&>","createdAt":5,"updatedAt":6,"notifications":[ 1 ]}`)

	before := must(s.Read(t.Context(), ref))(t)
	if before.Revision != 0 || before.Status != session.StatusIdle || before.CreatedAt != 5 || before.Doc.Meta.Title != "T" {
		t.Errorf("Read: revision %d, status %q, createdAt %d, title %q", before.Revision, before.Status, before.CreatedAt, before.Doc.Meta.Title)
	}
	if got, want := string(before.Doc.Header), `{"future":{"k" : [1.0, 2e3]},"ti\u0074le":"T","zeta":"<&>"}`; got != want {
		t.Errorf("header\n got %s\nwant %s", got, want)
	}
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	l := must(k.Read(t.Context()))(t)
	if got := must(k.Write(t.Context(), l, 0))(t); got != 1 {
		t.Errorf("Write = revision %d, want 1", got)
	}
	ok(t, k.Unlock())

	compact := `{"id":"m2","role":"agent","content":"two\nlines"}`
	want := `{"future":{"k" : [1.0, 2e3]},"id":"s1","projectId":"default","messages":[` + "\n" + first + ",\n" + compact + "\n" +
		`],"activities":[],"ti\u0074le":"T","zeta":"<&>","createdAt":5,"updatedAt":` + fmt.Sprint(noon().UnixMilli()) +
		`,"notifications":[ 1 ],"status":"idle","sess":{"format":"sess/1","revision":1,"lists":{}}}` + "\n"
	if diff := cmp.Diff(want, fileOf(t, dir, ref)); diff != "" {
		t.Errorf("file after Write (-want +got):\n%s", diff)
	}
}

func TestRewritingIsStable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	put(t, dir, ref, `{"id":"s1","messages":[{"id":"m1"}],"sess":{"format":"sess/1","revision":7,"ops":[{"id":"o1"}],"later":{"a": 1},"note":"n","noteRevision":3,"lists":{"history":{"sealed":0,"bytes":0,"tail":[{"role":"user"}]}}}}`)
	append1(t, s, ref, "x")
	first := fileOf(t, dir, ref)
	for _, want := range []string{`"revision":8`, `"ops":[{"id":"o1"}]`, `"later":{"a": 1}`, `"note":"n","noteRevision":3`, `{"role":"user"}`} {
		if !strings.Contains(first, want) {
			t.Errorf("file lacks %s:\n%s", want, first)
		}
	}
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	l := must(k.Read(t.Context()))(t)
	must(k.Write(t.Context(), l, 8))(t)
	if got, want := fileOf(t, dir, ref), strings.Replace(first, `"revision":8`, `"revision":9`, 1); got != want {
		t.Errorf("written again\n got %s\nwant %s", got, want)
	}
}

func TestReadRules(t *testing.T) {
	t.Parallel()
	chunk := strings.Repeat("a", 64)
	for _, c := range []struct {
		name, file string
		check      func(*session.Live) string
		is         error
		reason     string
	}{
		{name: "smallest", file: `{"id":"s1"}`, check: func(l *session.Live) string { return l.Doc.Meta.Title + l.Status }, reason: "s1idle"},
		{name: "project is the folder's", file: `{"id":"s1","projectId":"x"}`, check: func(l *session.Live) string { return l.Ref.Project }, reason: "default"},
		{name: "unknown status", file: `{"id":"s1","status":"asleep"}`, check: func(l *session.Live) string { return l.Status }, reason: "idle"},
		{name: "last of two keys counts", file: `{"id":"s1","error":"a","error":"b"}`, check: func(l *session.Live) string { return l.Error }, reason: "b"},
		{name: "null run", file: `{"id":"s1","activeRun":null}`, check: func(l *session.Live) string { return string(l.ActiveRun) }, reason: ""},
		{name: "null messages", file: `{"id":"s1","messages":null}`, check: func(l *session.Live) string { return fmt.Sprint(l.Doc.Meta.Messages) }, reason: "0"},
		{name: "bytes that are no text become one", file: "{\"id\":\"s1\",\"messages\":[{\"id\":\"\xff\"}]}", check: func(l *session.Live) string { return string(l.Doc.List("messages").Tail[0]) }, reason: "{\"id\":\"\uFFFD\"}"},
		{name: "a foreign program added a message", file: `{"id":"s1","messages":[1,2,3],"sess":{"format":"sess/1","revision":2,"lists":{"messages":{"sealed":4,"bytes":9,"chunks":[{"id":"` + chunk + `","records":4,"bytes":9}]}}}}`, check: func(l *session.Live) string { return fmt.Sprint(l.Doc.Meta.Messages, l.Doc.Meta.Bytes) }, reason: "7 15"},
		{name: "empty", file: ``, is: session.ErrDamaged, reason: "it is empty"},
		{name: "zeros", file: "\x00\x00", is: session.ErrDamaged, reason: "byte 1"},
		{name: "cut", file: `{"id":"s1","messages":[{`, is: session.ErrDamaged, reason: "it is cut off"},
		{name: "not an object", file: `[]`, is: session.ErrDamaged, reason: "not a JSON object"},
		{name: "no id", file: `{}`, is: session.ErrDamaged, reason: "it has no id"},
		{name: "other id", file: `{"id":"s2"}`, is: session.ErrDamaged, reason: `its id is "s2"`},
		{name: "messages of a wrong type", file: `{"id":"s1","messages":{}}`, is: session.ErrDamaged, reason: "messages: an array is due"},
		{name: "deep", file: `{"id":"s1","x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, is: session.ErrDamaged, reason: "depth"},
		{name: "sess of a wrong type", file: `{"id":"s1","sess":4}`, is: session.ErrDamaged, reason: "sess: it is not a JSON object"},
		{name: "bad count", file: `{"id":"s1","sess":{"format":"sess/1","lists":{"messages":{"sealed":3}}}}`, is: session.ErrDamaged, reason: "3 records"},
		{name: "bad chunk id", file: `{"id":"s1","sess":{"format":"sess/1","lists":{"messages":{"sealed":1,"bytes":2,"chunks":[{"id":"../x","records":1,"bytes":2}]}}}}`, is: session.ErrDamaged, reason: "no chunk id"},
		{name: "negative revision", file: `{"id":"s1","sess":{"format":"sess/1","revision":-1}}`, is: session.ErrDamaged, reason: "revision"},
		{name: "newer", file: `{"id":"s1","sess":{"format":"sess/99","revision":"?"}}`, is: session.ErrNewer, reason: `"sess/99"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			put(t, dir, ref, c.file)
			l, err := s.Read(t.Context(), ref)
			if c.is != nil {
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.reason) {
					t.Fatalf("Read = %v, want %v with %q", err, c.is, c.reason)
				}
				if got := fileOf(t, dir, ref); got != c.file {
					t.Errorf("reading changed the file to %q", got)
				}
				return
			}
			ok(t, err)
			if got := c.check(l); got != c.reason {
				t.Errorf("got %q, want %q", got, c.reason)
			}
		})
	}
}

// S1-32, S1-33: an id that is made here has letters, digits, hyphens and underscores,
// at most 64.
func TestMissingAndForbiddenNames(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	if _, err := s.Read(t.Context(), ref); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Read of nothing = %v", err)
	}
	for _, id := range []string{"", ".", "..", ".hidden", "a/b", `a\b`, "a\x00b", "a\nb", "x.tmp", "manifest", "a.invalid-1", strings.Repeat("a", 201), "\xff"} {
		if _, err := session.ParseRef("default", id); !isIDError(err) {
			t.Errorf("ParseRef of id %q = %v, want an *IDError", id, err)
		}
		if _, err := s.Read(t.Context(), session.Ref{Project: id, ID: "s1"}); !isIDError(err) {
			t.Errorf("Read in project %q = %v, want an *IDError", id, err)
		}
		if _, err := s.Lock(t.Context(), session.Ref{Project: "default", ID: id}, "x", false); !isIDError(err) {
			t.Errorf("Lock of id %q = %v, want an *IDError", id, err)
		}
	}
	for _, id := range []string{"외주", "a b", "a.b", "x~y"} {
		if _, err := session.ParseRef("default", id); err != nil {
			t.Errorf("ParseRef of %q = %v", id, err)
		}
		err := session.ParseID(id)
		e, isID := errors.AsType[*session.IDError](err)
		if !isID || e.Suggestion != "" && session.ParseID(e.Suggestion) != nil {
			t.Errorf("ParseID(%q) = %v, want an *IDError with a valid suggestion", id, err)
		}
	}
	if err := session.ParseID(strings.Repeat("a", 65)); !isIDError(err) {
		t.Errorf("ParseID of 65 letters = %v", err)
	}
	if id := session.NewID(noon()); session.ParseID(id) != nil || len(id) != len("20311231_12345678") {
		t.Errorf("NewID = %q", id)
	}
}

func isIDError(err error) bool {
	_, is := errors.AsType[*session.IDError](err)
	return is
}

func TestListIsNewestFirstAndNamesProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for i, r := range []session.Ref{{Project: "p1", ID: "old"}, {Project: "p2", ID: "new"}, {Project: "p1", ID: "tie"}} {
		put(t, dir, r, fmt.Sprintf(`{"id":%q,"title":"T%d","messages":[1,2],"updatedAt":%d}`, r.ID, i, []int{10, 20, 10}[i]))
	}
	put(t, dir, session.Ref{Project: "p1", ID: "running"}, `{"id":"running","status":"running","updatedAt":5}`)
	put(t, dir, session.Ref{Project: "p1", ID: "bad"}, `{`)
	put(t, dir, session.Ref{Project: "p1", ID: "x.json.invalid-1"}, `{`)
	ok(t, os.Symlink(filepath.Join(dir, "p2", "new.json"), filepath.Join(dir, "p1", "link.json")))
	ok(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{}`), 0o600))
	got := []string{}
	for _, i := range must(s.List(t.Context()))(t) {
		got = append(got, fmt.Sprint(i.Ref, " ", i.Title, " ", i.Status, " ", i.Messages, " ", i.Problem != ""))
	}
	want := []string{"p1/bad bad error 0 true", "p2/new T1 idle 2 false", "p1/old T0 idle 2 false", "p1/tie T2 idle 2 false", "p1/running running error 0 false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
}

func TestFindReadsNoSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for _, r := range []session.Ref{{Project: "p2", ID: "x"}, {Project: "p1", ID: "x"}, {Project: "p1", ID: "y"}} {
		put(t, dir, r, `{`)
	}
	want := []session.Ref{{Project: "p1", ID: "x"}, {Project: "p2", ID: "x"}}
	if diff := cmp.Diff(want, must(s.Find(t.Context(), "x"))(t)); diff != "" {
		t.Errorf("Find (-want +got):\n%s", diff)
	}
	if got := must(s.Find(t.Context(), "z"))(t); len(got) != 0 {
		t.Errorf("Find of an id that is not there: %v", got)
	}
}

func TestSetAsideKeepsTheDamagedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	put(t, dir, ref, `{"id":"s1"`)
	path := must(s.SetAside(t.Context(), ref))(t)
	if data := must(os.ReadFile(path))(t); string(data) != `{"id":"s1"` || !strings.Contains(path, "s1.json.invalid-1956484800000") {
		t.Errorf("SetAside = %s with %q", path, data)
	}
	create(t, s, ref, "again")
	if path := must(s.SetAside(t.Context(), ref))(t); path != "" {
		t.Errorf("SetAside of a good file = %q", path)
	}
}

func TestHeaderKeys(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	l := s.New(ref, "old", "/w")
	ok(t, l.Set("model", "offline/echo"))
	ok(t, l.Set("title", "a <b>"))
	ok(t, l.Set("cwd", nil))
	if got, want := string(l.Doc.Header), `{"title":"a <b>","artifacts":[],"model":"offline/echo"}`; got != want {
		t.Errorf("header = %s, want %s", got, want)
	}
	if l.Doc.Meta.Title != "a <b>" || l.Doc.Meta.Model != "offline/echo" || string(l.Get("model")) != `"offline/echo"` {
		t.Errorf("meta = %+v", l.Doc.Meta)
	}
	for _, key := range []string{"id", "messages", "sess", "status", "notifications"} {
		if err := l.Set(key, 1); err == nil {
			t.Errorf("Set(%q) was accepted", key)
		}
	}
}

func TestOtherListsAndOddRecordsComeBack(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	l := s.New(ref, "t", "/w")
	odd := []transcript.Record{[]byte("not json\r"), []byte(`{"$raw":"eA=="}`), []byte(""), []byte("\xff\xfe"), []byte(` {"a":1}`)}
	ok(t, l.Append(transcript.ListLines, odd...))
	ok(t, l.Append("file:a/b.txt", []byte(`{"x":1}`)))
	ok(t, s.Create(t.Context(), l))
	back := must(s.Read(t.Context(), ref))(t)
	if diff := cmp.Diff(records(t, l, transcript.ListLines), records(t, back, transcript.ListLines)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if a, b := l.Doc.Digest(), back.Doc.Digest(); a != b {
		t.Errorf("digest %s became %s", a, b)
	}
	var object map[string]json.RawMessage
	ok(t, json.Unmarshal(must(s.View(t.Context(), ref))(t), &object))
}
