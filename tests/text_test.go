package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was said, by whomever, and what programs have written is text wherever it is
// shown: no sign of it steers a terminal, and nothing of it becomes markup on a page.
func TestTextIsOnlyText(t *testing.T) {
	t.Parallel()
	const evil = "<img src=x onerror=alert(1)> \"></script><script>alert(2)</script> \x1b[31m\x1b]0;title\a \u202e\u0007 `](javascript:1)"
	u := newUser(t)
	file, err := json.Marshal(map[string]any{
		"version": 1, "id": "one", "projectId": "default", "title": evil, "cwd": "/" + evil, "status": "error", "error": evil, "model": evil,
		"createdAt": 1, "updatedAt": 1,
		"messages": []any{
			map[string]any{"id": "m1", "role": "user", "content": evil, "status": "complete", "createdAt": 1, "updatedAt": 1, "uploads": []any{map[string]any{"name": evil, "path": "/" + evil}}},
			map[string]any{"id": "m2", "role": "agent", "content": evil, "status": "complete", "createdAt": 2, "updatedAt": 2, "artifactIds": []string{"f1"}},
		},
		"activities": []any{map[string]any{"id": "a1", "messageId": "m2", "name": evil, "title": evil, "status": "completed", "rawInput": evil, "rawOutput": evil, "createdAt": 2}},
		"artifacts":  []any{map[string]any{"id": "f1", "path": "/" + evil, "kind": "workspace-file"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(u.home, "sessions", "default")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "one.json"), string(file), 0o600)
	u.do("sessions", "use", "one")
	u.do("save", "v1", "--note="+evil, "--tags=k="+strings.ReplaceAll(evil, `"`, "'"), "--reason="+evil)
	u.do("copy", "v1", "v2")
	u.do("delete", "v2")
	write(t, filepath.Join(u.pool(), "bad.sess.json"), `{"format":"sess/1","meta":{"note":`+evil, 0o600)
	steers := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\u202e' }
	for _, args := range [][]string{
		{"list"},
		{"view", "v1"},
		{"search", "alert"},
		{"trash", "list"},
		{"tag", "v1", "--note=" + evil},
		{"select", "v1"},
		{"selected"},
		{"deselect"},
		{"sessions", "list"},
		{"sessions", "show", "one"},
		{"messages", "list"},
		{"context", "show"},
		{"chat", "--message", "/session"},
		{"chat", "--message", "/snapshots"},
		{"chat", "--message", "/sess view v1"},
		{"chat", "--message", "/sess load " + quote(evil)},
		{"chat", "--message", evil},
		{"chat", "--message", "/events"},
		{"chat", "--model=" + evil, "--message", "hello"},
		{"sessions", "notifications", "add", evil, "--id=n1"},
		{"sessions", "notifications", "list"},
		{"sessions", "rename", "one", evil},
		{"load", evil},
		{"load", "bad"},
		{"verify"},
		{"list", "--tag=" + evil},
		{"list", "--prefix=" + evil},
		{"export", "v1", "--format=" + evil},
		{"import", evil},
		{"--project=" + evil, "list"},
		{"--agent=" + evil, "list"},
		{evil},
		{"save", "x", "--" + evil},
		{"plugins", "inspect", evil},
		{"help", evil},
		{"export", "v1", "--format=html"},
		{"export", "v1", "--format=markdown"},
	} {
		stdout, stderr, _ := u.run(args...)
		if i := strings.IndexFunc(stdout+stderr, steers); i >= 0 {
			t.Errorf("sess %q shows a sign that steers at %d:\n%q", args, i, stdout+stderr)
		}
	}
	page := u.do("export", "v1", "--format=html")
	for _, never := range []string{"<script", "<img", "href=", "src=\""} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q:\n%s", never, page)
		}
	}
	if !strings.Contains(page, "&lt;img src=x onerror=alert(1)&gt;") || !strings.Contains(page, "default-src") {
		t.Errorf("the page does not show what was said, or has no policy for its content:\n%s", page)
	}
	// For programs it is what it was.
	var list []struct{ Name, Note, Title string }
	u.answer(&list, "list", "--prefix=v1")
	if len(list) != 1 || list[0].Note != evil || list[0].Title != evil {
		t.Errorf("for programs the list has %+v", list)
	}
}

// A snapshot takes what belongs to the messages along: what was uploaded with them,
// what came of them, the calls of tools, and what other programs wrote beside; a copy
// has all of it when the original is gone for good.
func TestCopyHasWhatBelongsToIt(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	const file = `{"version":1,"id":"one","projectId":"default","title":"Plans","cwd":"/w","status":"idle","createdAt":1,"updatedAt":1,"colour":"blue",
		"messages":[{"id":"m1","role":"user","content":"look","status":"complete","createdAt":1,"updatedAt":1,"uploads":[{"id":"u1","name":"photo.png","path":"/w/photo.png"}],"mood":"calm"},
			{"id":"m2","role":"agent","content":"done","status":"complete","createdAt":2,"updatedAt":2,"artifactIds":["f1"]}],
		"activities":[{"id":"a1","messageId":"m2","name":"draw","status":"completed","rawInput":{"n":1},"rawOutput":"ok","createdAt":2}],
		"artifacts":[{"id":"f1","path":"/w/out.png","kind":"workspace-file"}]}`
	dir := filepath.Join(u.home, "sessions", "default")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "one.json"), file, 0o600)
	whole := func() map[string]any {
		t.Helper()
		var shown map[string]any
		u.answer(&shown, "sessions", "show", "one")
		return map[string]any{"messages": shown["messages"], "activities": shown["activities"], "artifacts": shown["artifacts"], "title": shown["title"]}
	}
	u.do("sessions", "use", "one")
	before := whole()
	if text := mustJSON(t, before); !strings.Contains(text, "photo.png") || !strings.Contains(text, "out.png") || !strings.Contains(text, `"draw"`) {
		t.Fatalf("the session is shown as %s", text)
	}
	u.do("save", "alpha", "--note=why", "--tags=t1=yes")
	u.do("copy", "alpha", "beta")
	u.do("delete", "alpha")
	u.do("trash", "empty", "--confirm")
	u.do("chat", "--message", "more")
	u.do("messages", "delete", "0")
	u.do("load", "beta")
	if after := whole(); mustJSON(t, after) != mustJSON(t, before) {
		t.Errorf("after loading the copy the session is\n%s\nand was\n%s", mustJSON(t, after), mustJSON(t, before))
	}
	stored, err := os.ReadFile(filepath.Join(dir, "one.json"))
	if err != nil || !strings.Contains(string(stored), `"mood":"calm"`) || !strings.Contains(string(stored), `"colour":"blue"`) {
		t.Errorf("what only another program knows did not come back (%v):\n%s", err, stored)
	}
	u.do("new", "--from=beta", "--no-backup")
	u.do("chat", "--message", "alone")
	var view struct{ Meta struct{ Messages int } }
	if u.answer(&view, "view", "beta"); view.Meta.Messages != 2 {
		t.Errorf("a session that was made of the copy changed it to %d messages", view.Meta.Messages)
	}
}

// mustJSON is a value as JSON.
func mustJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
