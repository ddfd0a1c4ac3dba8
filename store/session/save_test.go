package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
	"sess/store/session"
	"sess/store/transcript"
)

// object is a session as a client holds it.
type object map[string]any

// shown is a session as a client is shown it.
func shown(t testing.TB, s *session.Store, r session.Ref) object {
	t.Helper()
	var o object
	ok(t, json.Unmarshal(must(s.View(t.Context(), r))(t), &o))
	return o
}

func (o object) raw(t testing.TB) json.RawMessage {
	t.Helper()
	return must(json.Marshal(o))(t)
}

// list is one of the object's arrays.
func (o object) list(key string) []any { return o[key].([]any) }

// item is an element of one of the object's arrays.
func (o object) item(key string, i int) map[string]any { return o.list(key)[i].(map[string]any) }

// chatMessage is a message with all its fields.
func chatMessage(id, role, content string) map[string]any {
	return map[string]any{
		"id": id, "role": role, "content": content, "status": "complete",
		"eventIds": []any{}, "artifactIds": []any{}, "uploads": []any{}, "createdAt": 5, "updatedAt": 6,
	}
}

func newObject(id string, messages ...any) object {
	return object{
		"id": id, "projectId": "default", "title": "A talk", "cwd": "/w", "status": "idle", "messages": append([]any{}, messages...),
		"activities": []any{}, "artifacts": []any{}, "createdAt": 100, "updatedAt": 200,
	}
}

// history is what the model knows, one line an item.
func history(t testing.TB, s *session.Store, r session.Ref) []string {
	t.Helper()
	lines := []string{}
	for _, h := range records(t, must(s.Read(t.Context(), r))(t), transcript.ListHistory) {
		var item transcript.HistoryItem
		ok(t, json.Unmarshal([]byte(h), &item))
		lines = append(lines, fmt.Sprintf("%s %s %s", item.Role, item.MessageID, item.Content))
	}
	return lines
}

// S3-17, S3-18, S3-31, S3-32, S3-33, S3-34, S3-35, S3-36, S3-37, S3-39, S3-40, S3-41, S3-42: what is saved comes back field by field.
func TestSaveMakesASession(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	o := newObject("s1", chatMessage("m1", "user", "Hello"), chatMessage("m2", "agent", "Hi"))
	o["status"], o["error"] = "error", "it failed"
	o["activities"] = []any{map[string]any{"id": "a1", "messageId": "m2", "title": "read", "status": "completed", "kind": "read"}}
	o["artifacts"] = []any{map[string]any{"id": "x", "path": "a/b.txt", "kind": "workspace-file", "size": 3}}
	if got := must(s.SaveSession(t.Context(), o.raw(t), nil))(t); got != 1 {
		t.Errorf("revision %d, want 1", got)
	}
	o["revision"] = 1
	var want object
	ok(t, json.Unmarshal(o.raw(t), &want))
	if diff := cmp.Diff(want, shown(t, s, ref)); diff != "" {
		t.Errorf("View (-want +got):\n%s", diff)
	}
	// Saved as it was shown it changes nothing, not even the revision.
	before := fileOf(t, s.Dir(), ref)
	if got := must(s.SaveSession(t.Context(), o.raw(t), nil))(t); got != 1 || fileOf(t, s.Dir(), ref) != before {
		t.Errorf("the same again made revision %d", got)
	}
}

// S3-43, S3-66: what clients are not shown stays on disk, through their saves too.
func TestSaveKeepsWhatTheClientWasNotShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	const first, hidden, third = `{"x":1.50, "id":"m1","role":"user","content":"caf\u00e9","status":"complete","createdAt":1,"updatedAt":1}`, `{"id":"h","role":"system","content":"hidden"}`, `{"id":"m3","role":"agent","content":"two","status":"complete","later":{"a": 1}}`
	put(t, dir, ref, `{"future":[1.0],"id":"s1","messages":[`+first+`,`+hidden+`,`+third+`],"activities":[{"odd":1}],"updatedAt":5,
"artifacts":[{"id":"a","path":"p","kind":"workspace-file","content":"bytes"},{"no":"reference"}]}`)

	o := shown(t, s, ref)
	o["messages"] = append(o.list("messages"), chatMessage("m4", "user", "four"))
	o.item("messages", 1)["content"] = "changed"
	must(s.SaveSession(t.Context(), o.raw(t), nil))(t)
	file := fileOf(t, dir, ref)
	for _, want := range []string{
		`"future":[1.0]`, "[\n" + first + ",\n" + hidden + ",\n" + `{"id":"m3","role":"agent","content":"changed","status":"complete","later":{"a": 1}}` + ",\n" + `{`,
		`"activities":[` + "\n" + `{"odd":1}`, `{"id":"a","path":"p","kind":"workspace-file","content":"bytes"},{"no":"reference"}`,
	} {
		if !strings.Contains(file, want) {
			t.Errorf("the file lacks %s:\n%s", want, file)
		}
	}
	// What a client leaves out of what it was shown goes, what it was not shown stays.
	o = shown(t, s, ref)
	o["messages"] = o.list("messages")[2:]
	o["artifacts"] = []any{}
	must(s.SaveSession(t.Context(), o.raw(t), nil))(t)
	file = fileOf(t, dir, ref)
	if !strings.Contains(file, "[\n"+hidden+",\n{") || strings.Contains(file, "m3") || !strings.Contains(file, `"artifacts":[{"no":"reference"}]`) {
		t.Errorf("after removing messages:\n%s", file)
	}
	if diff := cmp.Diff([]string{"four"}, contents(t, s, ref)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// S3-21: a save that names an older revision is refused, the file unchanged; without
// a revision a session can be added to.
func TestSaveOverAnotherRevision(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one", "two")
	stale := shown(t, s, ref)
	append1(t, s, ref, "three")
	before := fileOf(t, s.Dir(), ref)
	refused := func(what string, o object, base *int64) {
		t.Helper()
		if _, err := s.SaveSession(t.Context(), o.raw(t), base); !errors.Is(err, session.ErrConflict) {
			t.Errorf("%s: %v, want a conflict", what, err)
		}
		if got := fileOf(t, s.Dir(), ref); got != before {
			t.Errorf("%s changed the file:\n%s", what, got)
		}
	}
	refused("an older revision", stale, nil)
	refused("an older revision beside", newObject("s1"), new(int64(1)))
	refused("a revision that is not there yet", stale, new(int64(3)))

	change := func(f func(o object)) object {
		o := shown(t, s, ref)
		delete(o, "revision")
		f(o)
		return o
	}
	refused("a changed message", change(func(o object) { o.item("messages", 0)["content"] = "1" }), nil)
	refused("another order", change(func(o object) { m := o.list("messages"); m[0], m[1] = m[1], m[0] }), nil)
	refused("another title", change(func(o object) { o["title"] = "Another" }), nil)
	refused("another folder", change(func(o object) { o["cwd"] = "/elsewhere" }), nil)

	added := change(func(o object) {
		o["messages"] = append(o.list("messages")[1:], chatMessage("m4", "user", "four"))
	})
	if got := must(s.SaveSession(t.Context(), added.raw(t), nil))(t); got != 3 {
		t.Errorf("revision %d, want 3", got)
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "four"}, contents(t, s, ref)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestHistoryFollowsWhatClientsChange(t *testing.T) {
	t.Parallel()
	items := []string{
		`{"role":"system","content":"be nice"}`,
		`{"role":"user","content":"one","messageId":"m1"}`,
		`{"role":"assistant","content":"","toolCalls":[{"id":"c","name":"t"}],"messageId":"m2"}`,
		`{"role":"tool","content":"r","toolCallId":"c","messageId":"m2"}`,
		`{"role":"assistant","content":"two","messageId":"m2"}`,
		`{"role":"user","content":"three","messageId":"m3"}`,
		`{"role":"assistant","content":"four","messageId":"m4"}`,
	}
	whole := []string{"system  be nice", "user m1 one", "assistant m2 ", "tool m2 r", "assistant m2 two", "user m3 three", "assistant m4 four"}
	for _, c := range []struct {
		name   string
		change func(o object)
		want   []string
		state  bool // the provider's state stays
	}{
		{"nothing", func(object) {}, whole, true},
		{"title", func(o object) { o["title"] = "Another" }, whole, true},
		{"status of a message", func(o object) { o.item("messages", 3)["status"] = "error" }, whole, true},
		{"added", func(o object) {
			o["messages"] = append(o.list("messages"), chatMessage("m5", "user", "five"))
		}, append(whole[:7:7], "user m5 five"), true},
		{"last answer", func(o object) { o.item("messages", 3)["content"] = "4" }, append(whole[:5:5], "user m3 three", "assistant m4 4"), false},
		{"first question", func(o object) { o.item("messages", 0)["content"] = "1" }, []string{"system  be nice", "user m1 1", "assistant m2 two", "user m3 three", "assistant m4 four"}, false},
		{"an answer removed", func(o object) { o["messages"] = o.list("messages")[:3] }, append(whole[:5:5], "user m3 three"), false},
		{"a turn removed", func(o object) { o["messages"] = o.list("messages")[2:] }, []string{whole[0], whole[5], whole[6]}, false},
		{"a question removed, an answer changed", func(o object) {
			o["messages"] = []any{o.list("messages")[0], o.list("messages")[1], o.list("messages")[3]}
			o.item("messages", 2)["content"] = "4"
		}, []string{whole[0], whole[1], "assistant m2 two", "assistant m4 4"}, false},
		{"all removed", func(o object) { o["messages"] = []any{} }, whole[:1], false},
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s known=%v", c.name, known), func(t *testing.T) {
				t.Parallel()
				s := open(t, t.TempDir())
				l := s.New(ref, "a title", "/w")
				for i, content := range []string{"one", "two", "three", "four"} {
					ok(t, l.Append(transcript.ListMessages, message(fmt.Sprintf("m%d", i+1), []string{"user", "agent"}[i%2], content)))
				}
				for _, item := range items {
					if !known { // as they were written before anybody noted it
						item = item[:strings.LastIndex(item+`,"messageId"`, `,"messageId"`)]
						item = strings.TrimSuffix(item, "}") + "}"
					}
					ok(t, l.Append(transcript.ListHistory, transcript.Record(item)))
				}
				ok(t, l.Set("providerState", map[string]string{"continuation": "r1"}))
				ok(t, s.Create(t.Context(), l))
				o := shown(t, s, ref)
				c.change(o)
				must(s.SaveSession(t.Context(), o.raw(t), nil))(t)
				want := c.want
				if got := history(t, s, ref); !known {
					for i := range got {
						role, rest, _ := strings.Cut(got[i], " ")
						_, content, _ := strings.Cut(rest, " ")
						got[i] = role + " " + content
					}
					bare := []string{}
					for _, w := range want {
						role, rest, _ := strings.Cut(w, " ")
						_, content, _ := strings.Cut(rest, " ")
						bare = append(bare, role+" "+content)
					}
					if diff := cmp.Diff(bare, got); diff != "" {
						t.Errorf("history (-want +got):\n%s", diff)
					}
				} else if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("history (-want +got):\n%s", diff)
				}
				if got := must(s.Read(t.Context(), ref))(t).Get("providerState") != nil; got != c.state {
					t.Errorf("provider's state there: %v, want %v", got, c.state)
				}
			})
		}
	}
}

// S3-20: activities are bounded, never inside a character; messages are not.
func TestActivitiesAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	part := func(kind, text string) map[string]any {
		return map[string]any{"type": "content", "content": map[string]any{"type": kind, "text": text}}
	}
	o := newObject("s1", chatMessage("m1", "user", strings.Repeat("m", 100_000)))
	o["activities"] = []any{
		map[string]any{
			"id": "a1", "status": "completed", "rawInput": map[string]any{"k": strings.Repeat("r", 7_992)}, "rawOutput": strings.Repeat("r", 7_999),
			"content": []any{part("text", strings.Repeat("é", 15_999)+"e\u0301"+"rest"), part("text", strings.Repeat("b", 15_000)), part("text", strings.Repeat("c", 3_000)), part("text", "gone")},
		},
		map[string]any{"id": "a2", "status": "completed", "content": strings.Repeat("ö", 16_000)},
		map[string]any{"id": "a3", "status": "completed", "content": strings.Repeat("ö", 16_001)},
	}
	must(s.SaveSession(t.Context(), o.raw(t), nil))(t)
	got := shown(t, s, ref)
	if n := len(got.item("messages", 0)["content"].(string)); n != 100_000 {
		t.Errorf("the message has %d characters", n)
	}
	a1 := got.item("activities", 0)
	if a1["rawInput"] == nil || a1["rawOutput"] != nil {
		t.Errorf("raw values: input there %v, output there %v", a1["rawInput"] != nil, a1["rawOutput"] != nil)
	}
	texts := []string{}
	for _, p := range a1["content"].([]any) {
		texts = append(texts, p.(map[string]any)["content"].(map[string]any)["text"].(string))
	}
	// Kinds count as well: 11 characters a part, behind the text.
	want := []string{strings.Repeat("é", 15_999) + "\n…", strings.Repeat("b", 15_000), strings.Repeat("c", 32_000-16_000-15_000-2*11) + "\n…"}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("texts of the content (-want +got):\n%s", diff)
	}
	if got := got.item("activities", 1)["content"]; got != strings.Repeat("ö", 16_000) {
		t.Error("a text of exactly as much was cut")
	}
	if got := got.item("activities", 2)["content"]; got != strings.Repeat("ö", 16_000)+"\n…" {
		t.Error("a text of one character more was not cut")
	}
	file := fileOf(t, s.Dir(), ref)
	must(s.SaveSession(t.Context(), got.raw(t), nil))(t)
	if fileOf(t, s.Dir(), ref) != file {
		t.Error("what is within the bounds was bounded again")
	}
}

func TestSaveRefusesWhatIsNoSession(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	for _, c := range []struct{ object, field string }{
		{`[]`, ""},
		{`{"id":"s1"`, ""},
		{`{"projectId":"default"}`, "id"},
		{`{"id":4,"projectId":"default"}`, "id"},
		{`{"id":"s1"}`, "projectId"},
		{`{"id":"s1","projectId":"default","messages":{}}`, "messages"},
		{`{"id":"s1","projectId":"default","activities":null}`, "activities"},
		{`{"id":"s1","projectId":"default","artifacts":"x"}`, "artifacts"},
		{`{"id":"s1","projectId":"default","revision":-1}`, "revision"},
	} {
		_, err := s.SaveSession(t.Context(), json.RawMessage(c.object), nil)
		if e, is := errors.AsType[*session.ObjectError](err); !is || e.Field != c.field {
			t.Errorf("SaveSession(%s) = %v, want an *ObjectError about %q", c.object, err, c.field)
		}
	}
	if _, err := s.SaveSession(t.Context(), json.RawMessage(`{"id":"../x","projectId":"default"}`), nil); !isIDError(err) {
		t.Errorf("SaveSession of a path = %v", err)
	}
	if refs := must(s.List(t.Context()))(t); len(refs) > 0 {
		t.Errorf("a refused save left %v", refs)
	}
}

func TestSaveIsRefusedWhileSomebodyWorks(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	create(t, s, ref, "one")
	o := shown(t, s, ref)
	o["title"] = "Another"
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	if _, err := s.SaveSession(t.Context(), o.raw(t), nil); !errors.Is(err, durable.ErrLocked) || !strings.Contains(err.Error(), "default/s1") {
		t.Errorf("during a turn: %v", err)
	}
	ok(t, k.Unlock())
	ok(t, s.Select(t.Context(), ref, "snap"))
	if _, err := s.SaveSession(t.Context(), o.raw(t), nil); !errors.Is(err, session.ErrReadOnly) {
		t.Errorf("while a snapshot is shown: %v", err)
	}
	ok(t, s.Select(t.Context(), ref, ""))
	must(s.SaveSession(t.Context(), o.raw(t), nil))(t)
}
