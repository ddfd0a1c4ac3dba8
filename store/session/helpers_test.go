package session_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sess/store/session"
	"sess/store/transcript"
)

var ref = session.Ref{Project: "default", ID: "s1"}

// noon is the clock of the tests.
func noon() time.Time { return time.Date(2031, 12, 31, 12, 0, 0, 0, time.UTC) }

func open(t testing.TB, dir string) *session.Store {
	t.Helper()
	s, err := session.Open(dir, session.Options{Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// put writes a session file as another program would.
func put(t testing.TB, dir string, r session.Ref, content string) {
	t.Helper()
	path := filepath.Join(dir, r.Project, r.ID+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func fileOf(t testing.TB, dir string, r session.Ref) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, r.Project, r.ID+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func message(id, role, content string) transcript.Record {
	data, err := json.Marshal(transcript.Message{ID: id, Role: transcript.Role(role), Content: content, Status: transcript.StatusComplete, CreatedAt: 1, UpdatedAt: 1})
	if err != nil {
		panic(err)
	}
	return data
}

// create makes a session with these messages.
func create(t testing.TB, s *session.Store, r session.Ref, contents ...string) *session.Live {
	t.Helper()
	l := s.New(r, "a title", "/w")
	for i, c := range contents {
		ok(t, l.Append(transcript.ListMessages, message(fmt.Sprintf("m%d", i+1), "user", c)))
		ok(t, l.Append(transcript.ListHistory, transcript.Record(fmt.Sprintf(`{"role":"user","content":%q}`, c))))
	}
	ok(t, s.Create(t.Context(), l))
	return l
}

// append1 stores one more message.
func append1(t testing.TB, s *session.Store, r session.Ref, content string) int64 {
	t.Helper()
	k := must(s.Lock(t.Context(), r, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	l := must(k.Read(t.Context()))(t)
	ok(t, l.Append(transcript.ListMessages, message(fmt.Sprintf("m%d", l.Doc.Meta.Messages+1), "user", content)))
	return must(k.Write(t.Context(), l, l.Revision))(t)
}

// contents are the texts of the messages that clients are shown.
func contents(t testing.TB, s *session.Store, r session.Ref) []string {
	t.Helper()
	var v struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	ok(t, json.Unmarshal(must(s.View(t.Context(), r))(t), &v))
	list := []string{}
	for _, m := range v.Messages {
		list = append(list, m.Content)
	}
	return list
}

// records are all records of a list.
func records(t testing.TB, l *session.Live, list string) []string {
	t.Helper()
	part := l.Doc.List(list)
	all := []string{}
	for r, err := range part.All(l.Load, 0, part.Records) {
		ok(t, err)
		all = append(all, string(r))
	}
	return all
}

// prose is text that compresses like text.
func prose(rnd *rand.Rand, size int) string {
	words := strings.Fields("the session keeps what people and agents said to each other while a model reads it again from its first line on")
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "%s %d ", words[rnd.IntN(len(words))], rnd.IntN(100000))
	}
	return b.String()
}

// temps are the temp files below dir.
func temps(t testing.TB, dir string) []string {
	t.Helper()
	var list []string
	ok(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			list = append(list, path)
		}
		return err
	}))
	return list
}
