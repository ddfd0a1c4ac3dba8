package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable/durabletest"
	"sess/store/transcript"
)

// What can be read is written so that it reads the same, byte for byte.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"id":"s1"}`, `[]`, "\xEF\xBB\xBF{\"id\":\"s1\"}", "{\"id\":\"s1\",\"messages\":[\"\xff\"]}",
		`{"id":"s1","messages":[ {"a" : 1} , 2,"x\ny", {"$raw":"eA=="} ],"activities":null,"status":"running","activeRun":{"t":1},"error":"e"}`,
		`{"id":"s1","un\u0000known":{"k":[1.0]},"title":"t","title":"u","createdAt":1e3,"updatedAt":-4,"notifications":[]}`,
		`{"id":"s1","sess":{"format":"sess/1","revision":3,"ops":[{"id":"a","void":true}],"x":1,"lists":{"history":{"sealed":0,"bytes":0,"tail":[1,{"$raw":"Cg=="}]}}}}`,
		`{"id":"s1","messages":[1],"sess":{"format":"sess/1","revision":3,"lists":{"messages":{"sealed":2,"bytes":9,"chunks":[{"id":"` + strings.Repeat("a", 64) + `","records":2,"bytes":9}]}}}}`,
		`{"id":"s1","sess":{"format":"sess/2"}}`, `{"id":"s1","sess":{"lists":[]}}`, `{"id":"s1","messages":[{}`,
	} {
		f.Add([]byte(seed))
	}
	r := Ref{Project: "default", ID: "s1"}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decode(r, data)
		if err != nil {
			return
		}
		first, err := l.encode()
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		back, err := decode(r, first)
		if err != nil {
			t.Fatalf("decode of what was encoded: %v\n%q", err, first)
		}
		if a, b := l.Doc.Digest(), back.Doc.Digest(); a != b {
			t.Fatalf("the digest changed:\n%q\n%q", data, first)
		}
		if back.Revision != l.Revision || back.Status != l.Status || back.Error != l.Error || !bytes.Equal(back.ActiveRun, l.ActiveRun) || len(back.Ops) != len(l.Ops) {
			t.Fatalf("the state changed:\n%q\n%q", data, first)
		}
		second, err := back.encode()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("encoding is not stable (%v):\n%q\n%q", err, first, second)
		}
	})
}

// Every line of a log is an event, a warning or blank, and nothing is made up.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", `{"seq":1,"type":"turn_start"}` + "\n", `{"seq":1,"type":"a"}` + "\n" + `{"seq":2,"ty`,
		`{"seq":"x","type":"a"}` + "\n7\nnull\n" + `{"type":"a"}{"type":"b"}` + "\r\n", "\x00\xff\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		events, warnings := decodeEvents(data)
		if n := bytes.Count(data, []byte{'\n'}) + 1; len(events)+len(warnings) > n {
			t.Fatalf("%d events and %d warnings of %d lines", len(events), len(warnings), n)
		}
		for _, e := range events {
			if !json.Valid(e.Raw) || e.Type == "" || !bytes.Contains(data, e.Raw) {
				t.Fatalf("event %q of %q", e.Raw, data)
			}
		}
	})
}

// Whatever lies in the small files of a session, they are read or known to be
// damaged, and stand in the way of nobody who writes them anew.
func FuzzSmallFiles(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "[]", "null", "4", `{"version":1,"lastProjectId":"default","lastSessionId":"s1"}`, `{"version":2,"lastProjectId":"../x","lastSessionId":"s1"}`,
		`{"lastProjectId":"default","lastSessionId":"none"}`, `{"lastSessionId":4}`, `{"createdAt":-1,"lastActiveAt":1e99}`, `{"activatedAt":7}`,
		`{"snapshot":""}`, `{"snapshot":"0190"}`, `{"snapshot":["a"]}`, `{"snapshot":"a"} {}`, "\x00\x00\x00\x00",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	s, err := Open(dir, Options{FS: durabletest.Unsynced})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	r := Ref{Project: "default", ID: "s1"}
	folder := filepath.Join(dir, filepath.FromSlash(r.folder()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(folder+".json", []byte(`{"id":"s1"}`), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, file := range []string{filepath.Join(dir, manifestFile), filepath.Join(folder, metaFile), filepath.Join(folder, viewFile)} {
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if id, err := s.Selected(r); err == nil && id == "" {
			t.Errorf("view.json holds %q, and nothing is selected", data)
		}
		if _, err := s.Meta(r); err != nil {
			t.Errorf("Meta: %v", err)
		}
		m, err := s.Manifest(t.Context())
		if err != nil {
			t.Fatalf("Manifest: %v", err)
		}
		if err := s.SaveManifest(t.Context(), m); err != nil {
			t.Fatalf("SaveManifest(%+v): %v", m, err)
		}
		if again, err := s.Manifest(t.Context()); err != nil || again != m {
			t.Fatalf("Manifest = %+v, %v; saved was %+v", again, err, m)
		}
		if err := s.Activate(t.Context(), r); err != nil {
			t.Fatalf("Activate: %v", err)
		}
		if m, err := s.Manifest(t.Context()); err != nil || m.LastSessionID != r.ID || m.LastProjectID != r.Project {
			t.Fatalf("Manifest = %+v, %v after Activate", m, err)
		}
		if meta, err := s.Meta(r); err != nil || meta.LastActiveAt == 0 || meta.ActivatedAt == 0 || meta.CreatedAt == 0 {
			t.Fatalf("Meta = %+v, %v after Activate", meta, err)
		}
		for _, id := range []string{"id-1", ""} {
			if err := s.Select(t.Context(), r, id); err != nil {
				t.Fatalf("Select(%q): %v", id, err)
			}
			if got, err := s.Selected(r); err != nil || got != id {
				t.Fatalf("Selected = %q, %v; want %q", got, err, id)
			}
		}
	})
}

// What clients are shown of any session that can be read is one JSON object, and
// showing it changes nothing. Saved as it was read, the session is shown the same,
// and its state is the same.
func FuzzView(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"id":"s1"}`},
		{`{"id":"s1","title":7,"cwd":[],"artifacts":{"a":1},"error":{}}`},
		{
			`{"id":"s1","status":"running","activeRun":{"t":1},"messages":[{"id":"m1","role":"user","content":"hi","uploads":null},{"id":"m2","role":"agent","content":"","status":"streaming","x":[1.0]},7,{"$raw":"eA=="}]}`,
			`{"seq":1,"type":"text_delta","messageId":"m2","text":"a\u0000"}` + "\n" + `{"seq":2,"type":"text_delta","messageId":"m2","text":"b"}` + "\n{",
		},
		{`{"id":"s1","artifacts":[{"id":"a","kind":"workspace-file","path":"p","content":"c"},{"id":"a"},1,null],"activities":["x",{"$raw":"/w=="}]}`},
		{`{"id":"s1","status":"running","sess":{"format":"sess/1","revision":3,"lists":{"history":{"tail":[{"role":"assistant","content":[{"type":"tool_use","id":"a"}]}]}}}}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	dir := f.TempDir()
	s, err := Open(dir, Options{FS: durabletest.Unsynced})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	r := Ref{Project: "default", ID: "s1"}
	folder := filepath.Join(dir, filepath.FromSlash(r.folder()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data, log []byte) {
		write := func(name string, data []byte) {
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(folder+".json", data)
		write(filepath.Join(folder, "turn-001.jsonl"), log)
		shown, err := s.View(t.Context(), r)
		if now, e := os.ReadFile(folder + ".json"); e != nil || !bytes.Equal(now, data) {
			t.Fatalf("showing the session changed it (%v):\n%q\n%q", e, data, now)
		}
		if err != nil {
			return
		}
		k, err := s.Lock(t.Context(), r, "test", false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := k.Unlock(); err != nil {
				t.Error(err)
			}
		}()
		l, err := k.Read(t.Context())
		if err != nil {
			t.Fatalf("it is shown, and cannot be read: %v", err)
		}
		if l.Revision < 0 || l.Revision >= 1<<53 {
			return // no number that can be counted on
		}
		digest := l.Doc.Digest()
		if _, err := k.Write(t.Context(), l, l.Revision); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := k.Read(t.Context())
		if err != nil || again.Doc.Digest() != digest {
			t.Fatalf("written as it was read the state is another one (%v):\n%q", err, data)
		}
		reshown, err := s.View(t.Context(), r)
		if err != nil {
			t.Fatalf("View of what was written: %v", err)
		}
		if diff := cmp.Diff(stateShown(t, shown), stateShown(t, reshown)); diff != "" {
			t.Errorf("%q, written as it was read, is shown otherwise:\n%s", data, diff)
		}
	})
}

// stateShown is a view without what every save changes.
func stateShown(t *testing.T, view json.RawMessage) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(view, &object); err != nil {
		t.Fatalf("the view is no JSON object: %v\n%q", err, view)
	}
	delete(object, "revision")
	delete(object, "updatedAt")
	delete(object, "createdAt")
	return object
}

// A client saves a session as it was shown it, with messages moved, doubled and
// taken out by the way. Without any of that nothing changes, whatever the file holds,
// unless a turn had died. With it the client is shown what it sent, and what it was
// not shown is there as it was.
func FuzzSave(f *testing.F) {
	for _, seed := range []string{
		`{"id":"s1"}`,
		`{"id":"s1","title":7,"cwd":[],"artifacts":{"a":1},"error":{},"status":"odd"}`,
		`{"id":"s1","status":"running","activeRun":{"t":1},"messages":[{"id":"m1","role":"user","content":"hi","uploads":null},{"id":"m2","role":"agent","content":"","status":"streaming","x":[1.0]},7,{"$raw":"eA=="}]}`,
		`{"id":"s1","artifacts":[{"id":"a","kind":"workspace-file","path":"p","content":"c"},{"id":"a"},1,null],"activities":["x",{"$raw":"/w=="}]}`,
		`{"id":"s1","messages":[{"id":"m1","role":"user","content":"a"},{"id":"m1","role":"agent","content":"b"},{"role":"user","content":"c"},{"id":"m1","id":"m2","role":"user","content":"d","status":"odd"}]}`,
		`{"id":"s1","activities":[{"title":"a"},{"title":"a"},{"id":"x","status":"odd"},{"status":"odd"},{"id":"x"},{"id":4}]}`,
		`{"id":"s1","messages":[{"id":"m1","role":"user","content":"a"},{"id":"m2","role":"agent","content":"b"},{"id":"m3","role":"user","content":"c"},{"id":"m4","role":"agent","content":"d"}],"sess":{"format":"sess/1","revision":3,"lists":{"history":{"tail":[{"role":"user","content":"a","messageId":"m1"},{"role":"assistant","content":"b","messageId":"m2","toolCalls":[{"id":"t","name":"n"}]},{"role":"tool","toolCallId":"t","messageId":"m2"},{"role":"user","content":"c"}]}}}}`,
	} {
		f.Add([]byte(seed), []byte(nil))
		f.Add([]byte(seed), []byte("xd\x01m\x00\x02"))
	}
	dir := f.TempDir()
	s, err := Open(dir, Options{FS: durabletest.Unsynced})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	r := Ref{Project: "default", ID: "s1"}
	file := filepath.Join(dir, filepath.FromSlash(r.folder())+".json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data, edits []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := s.Read(t.Context(), r)
		if err != nil || l.Revision >= 1<<53-9 { // a number that cannot be counted on
			return
		}
		died := l.Interrupted || interruptible(l.Status)
		for round, edits := range [][]byte{nil, nil, edits, nil} {
			before, hidden := bytesOf(t, file), hiddenFrom(t, s, r)
			view, err := s.View(t.Context(), r)
			if err != nil {
				t.Fatalf("View: %v", err)
			}
			sent := edited(t, view, edits)
			if _, err := s.SaveSession(t.Context(), sent, nil); err != nil {
				t.Fatalf("round %d: what is shown cannot be saved: %v\n%q\n%q", round, err, data, sent)
			}
			if len(edits) == 0 && (round > 0 || !died) && !bytes.Equal(before, bytesOf(t, file)) {
				t.Fatalf("saved as it was shown in round %d:\n%q\nbecame\n%q", round, before, bytesOf(t, file))
			}
			if len(edits) == 0 {
				continue
			}
			again, err := s.View(t.Context(), r)
			if err != nil {
				t.Fatalf("View after %q: %v", sent, err)
			}
			if diff := cmp.Diff(messagesIn(t, sent), messagesIn(t, again)); diff != "" {
				t.Fatalf("%q\nsaved as\n%q\nis shown otherwise (-sent +shown):\n%s", before, sent, diff)
			}
			for _, h := range hidden {
				if !slices.Contains(hiddenFrom(t, s, r), h) {
					t.Fatalf("%q, saved as %q, lost %q", before, sent, h)
				}
			}
		}
	})
}

func bytesOf(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// hiddenFrom lists the messages that clients are never shown. A further one of an id
// goes with the first.
func hiddenFrom(t *testing.T, s *Store, r Ref) (hidden []string) {
	t.Helper()
	l, err := s.Read(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	list := l.Doc.List(keyMessages)
	for rec, err := range list.All(l.load, 0, list.Records) {
		if err != nil {
			t.Fatal(err)
		}
		if shown, _ := shownMessage(rec); shown == nil {
			hidden = append(hidden, string(rec))
		}
	}
	return hidden
}

// messagesIn lists the messages of a view, or of what a client sends, of which those
// count that can be shown.
func messagesIn(t *testing.T, object json.RawMessage) []any {
	t.Helper()
	values, err := elements(headerValue(object, keyMessages))
	if err != nil {
		t.Fatal(err)
	}
	var list []any
	show := showing(shownMessage)
	for _, v := range values {
		if shown, _ := show(v); shown != nil {
			var m any
			if err := json.Unmarshal(shown, &m); err != nil {
				t.Fatal(err)
			}
			list = append(list, m)
		}
	}
	return list
}

// edited is a view with its messages as edits have them: x takes out the next one, d
// doubles it, m puts it in front of all, c changes what it says; all else keeps it.
func edited(t *testing.T, view json.RawMessage, edits []byte) json.RawMessage {
	t.Helper()
	if len(edits) == 0 {
		return view
	}
	values, err := elements(headerValue(view, keyMessages))
	if err != nil {
		t.Fatal(err)
	}
	var list []json.RawMessage
	for i, v := range values {
		edit := byte(0)
		if i < len(edits) {
			edit = edits[i]
		}
		switch edit {
		case 'x':
		case 'd':
			list = append(list, v, v)
		case 'm':
			list = slices.Insert(list, 0, v)
		case 'c':
			if v, err = setMember(v, "content", json.RawMessage(`"changed"`)); err != nil {
				t.Fatal(err)
			}
			fallthrough
		default:
			list = append(list, v)
		}
	}
	object, err := setMember(view, keyMessages, encode(append([]json.RawMessage{}, list...)))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// Whatever a client does to the messages, the model is told what they say and nothing
// else, and every call of a tool in what it is told has its result. shape is a turn a
// byte; edits are those of edited.
func FuzzHistoryFollows(f *testing.F) {
	f.Add([]byte("\x01\x05\x0a\x0f"), []byte("\x00x\x00c"))
	f.Add([]byte("\x1d\x16"), []byte("md"))
	f.Add([]byte("\x0e\x06\x02"), []byte("\x00\x00x\x00\x00x"))
	f.Add([]byte("\x06\x06"), []byte("\x00x\x00\x00c"))
	f.Add([]byte("\x0e\x2e\x0e"), []byte("\x00x\x00\x00\x00\x00x"))
	f.Add([]byte("\x06\x26\x0e"), []byte("\x00c"))
	f.Add([]byte("\x30\x31"), []byte("d"))
	dir := f.TempDir()
	s, err := Open(dir, Options{FS: durabletest.Unsynced})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	r := Ref{Project: "default", ID: "s1"}
	file := filepath.Join(dir, filepath.FromSlash(r.folder())+".json")
	f.Fuzz(func(t *testing.T, shape, edits []byte) {
		if len(shape) > 12 {
			return
		}
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		l := conversation(t, s, r, shape)
		if err := s.Create(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		view, err := s.View(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		before := historyTold(t, l)
		sent := edited(t, view, edits)
		if _, err := s.SaveSession(t.Context(), sent, nil); err != nil {
			t.Fatal(err)
		}
		if l, err = s.Read(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		all, err := l.spoken()
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, m := range all {
			want = append(want, m.content)
		}
		if got := historyTold(t, l); !slices.Equal(got, want) {
			t.Fatalf("of %q, saved as %q, the model is told %q, want %q", before, messagesIn(t, sent), got, want)
		}
	})
}

// conversation is a session of one turn a byte: of a question and some answers, which
// may have called tools, with history that knows, from some turn on, whose its items
// are. It may have been compacted; another provider is told what was said all the same.
func conversation(t *testing.T, s *Store, r Ref, shape []byte) *Live {
	t.Helper()
	l := s.New(r, "T", "")
	n, known := 0, false
	add := func(list string, v any) {
		if err := l.Append(list, transcript.Record(encode(v))); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range shape {
		answers, calls, once := int(b&3), b&4 != 0, b&16 != 0
		known = known || b&8 != 0
		for i := range 1 + answers {
			n++
			m := transcript.Message{ID: fmt.Sprintf("m%d", n), Role: transcript.RoleUser, Content: fmt.Sprintf("said %d", n), Status: transcript.StatusComplete}
			item := transcript.HistoryItem{Role: transcript.RoleUser, Content: m.Content}
			if known {
				item.MessageID = m.ID
			}
			if i > 0 {
				m.Role, item.Role = transcript.RoleAgent, transcript.RoleAssistant
			}
			add(transcript.ListMessages, m)
			if i > 0 && calls {
				call := item
				call.ToolCalls = []transcript.ToolCall{{ID: fmt.Sprintf("t%d", n), Name: "tool"}}
				if !once {
					call.Content = ""
				}
				add(transcript.ListHistory, call)
				add(transcript.ListHistory, transcript.HistoryItem{Role: transcript.RoleTool, Content: "result", ToolCallID: call.ToolCalls[0].ID, MessageID: item.MessageID})
				if once {
					continue
				}
			}
			add(transcript.ListHistory, item)
		}
		if b&32 != 0 {
			summary := transcript.Record(encode(transcript.HistoryItem{Role: transcript.RoleSystem, Content: "what was said", Native: &transcript.Native{Kind: "x"}}))
			c := transcript.Compaction{Provider: "x", Range: transcript.Range{End: new(n)}}
			doc := l.Doc.Clone()
			if err := transcript.Compact(doc, l.load, l.seal, summary, c); err != nil {
				t.Fatal(err)
			}
			if err := l.adopt(doc); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// historyTold lists what history says of what users and the model said. It makes sure
// that every call has its result, and every result its call.
func historyTold(t *testing.T, l *Live) []string {
	t.Helper()
	var told []string
	open := map[string]bool{}
	for item, err := range transcript.History(&l.Doc, l.load, "", 0, l.Doc.List(transcript.ListHistory).Records) {
		switch {
		case err != nil:
			t.Fatal(err)
		case item.Role == transcript.RoleTool && !open[item.ToolCallID]:
			t.Fatalf("the result %s has no call", item.ToolCallID)
		case item.Role == transcript.RoleTool:
			delete(open, item.ToolCallID)
			continue
		case len(open) > 0:
			t.Fatalf("the calls %v have no result before %+v", open, item)
		}
		for _, c := range item.ToolCalls {
			open[c.ID] = true
		}
		if item.Content != "" && item.Role != transcript.RoleSystem { // a summary stays
			told = append(told, item.Content)
		}
	}
	if len(open) > 0 {
		t.Fatalf("the calls %v have no result", open)
	}
	return told
}
