package session_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
	"sess/store/session"
)

// S3-12, S3-13, and the fields that each case names: what clients are shown of a field that a file has in
// some way; "" is nothing. Loading does not rewrite the file.
func TestWhatClientsAreShown(t *testing.T) {
	t.Parallel()
	const interrupted = `"Session was interrupted before the app closed."`
	message := func(fields string) string {
		return `"messages":[{"id":"m1","role":"user","content":"x"` + fields + `}]`
	}
	for _, c := range []struct {
		rule, file, field, want string
	}{
		{"S3-31", `"title":"T"`, "id", `"s1"`},
		{"S3-32, S3-43: the folder says which project", `"projectId":"elsewhere"`, "projectId", `"default"`},
		{"S3-33", `"title":"T"`, "title", `"T"`},
		{"S3-43: a missing title is the id", `"cwd":"/w"`, "title", `"s1"`},
		{"S3-34", `"cwd":"/w"`, "cwd", `"/w"`},
		{"S3-43: unknown keys are not shown", `"future":1`, "future", ""},
		{"S3-36: in order", `"messages":[{"id":"b","role":"user","content":"1"},{"id":"a","role":"agent","content":"2"}]`, "messages.1.id", `"a"`},
		{"S3-35, S3-44, S3-45", `"status":"idle"`, "status", `"idle"`},
		{"S3-43: an unknown status", `"status":"asleep"`, "status", `"idle"`},
		{"S3-46, S3-49: nobody runs it any more", `"status":"running"`, "status", `"error"`},
		{"S3-47, S3-50", `"status":"waiting-permission"`, "status", `"error"`},
		{"S3-48", `"status":"error","error":"it failed"`, "status", `"error"`},
		{"S3-38, S3-51", `"status":"running","activeRun":{"id":"r"}`, "activeRun", ""},
		{"S3-51: of a session that waited", `"status":"waiting-permission","activeRun":{"id":"r"}`, "activeRun", ""},
		{"S3-52", `"status":"running"`, "error", interrupted},
		{"S3-53: a recorded error is kept", `"status":"running","error":"it failed"`, "error", `"it failed"`},
		{"S3-53: an empty one counts as none", `"status":"waiting-permission","error":""`, "error", interrupted},
		{"S3-39: none", `"status":"idle"`, "error", ""},
		{"S3-41", `"createdAt":5`, "createdAt", `5`},
		{"S3-42", `"updatedAt":6`, "updatedAt", `6`},
		{"S3-41: no number", `"createdAt":"soon"`, "createdAt", `0`},

		{"S3-54, S3-66: no id", `"messages":[{"role":"user","content":"x"}]`, "messages", `[]`},
		{"S3-54: an id that is there already", `"messages":[{"id":"m","role":"user","content":"1"},{"id":"m","role":"user","content":"2"}]`, "messages.1", ""},
		{"S3-55, S3-66: another role", `"messages":[{"id":"m1","role":"assistant","content":"x"}]`, "messages", `[]`},
		{"S3-56, S3-66: content that is no text", `"messages":[{"id":"m1","role":"user","content":["x"]}]`, "messages", `[]`},
		{"S3-57", message(`,"status":"error"`), "messages.0.status", `"error"`},
		{"S3-57: an unknown status", message(`,"status":"lost"`), "messages.0.status", `"complete"`},
		{"S3-65: always, whatever the session's status", message(`,"status":"streaming"`), "messages.0.status", `"error"`},
		{"S3-58", message(`,"streamId":"s"`), "messages.0.streamId", `"s"`},
		{"S3-58: no text", message(`,"streamId":4`), "messages.0.streamId", ""},
		{"S3-59", message(`,"responseToMessageId":"m0"`), "messages.0.responseToMessageId", `"m0"`},
		{"S3-60", message(`,"eventIds":["e1","e2"]`), "messages.0.eventIds", `["e1","e2"]`},
		{"S3-60: other elements", message(`,"eventIds":["e1",2]`), "messages.0.eventIds", `["e1"]`},
		{"S3-60: missing", message(``), "messages.0.eventIds", `[]`},
		{"S3-61", message(`,"artifactIds":["a"]`), "messages.0.artifactIds", `["a"]`},
		{"S3-61: no array", message(`,"artifactIds":{}`), "messages.0.artifactIds", `[]`},
		{"S3-62", message(`,"uploads":[{"id":"u","name":"n"}]`), "messages.0.uploads", `[{"id":"u","name":"n"}]`},
		{"S3-63", message(`,"createdAt":7`), "messages.0.createdAt", `7`},
		{"S3-64: missing", message(``), "messages.0.updatedAt", `0`},

		{"S3-37, S3-66", `"activities":[{"id":"a","status":"completed","title":"read"}]`, "activities.0.title", `"read"`},
		{"S3-66: open ones have failed", `"activities":[{"id":"a","status":"pending"}]`, "activities.0.status", `"failed"`},
		{"S3-66: in progress", `"activities":[{"id":"a","status":"in_progress"}]`, "activities.0.status", `"failed"`},
		{"S3-66: another status", `"activities":[{"id":"a","status":"lost"}]`, "activities.0.status", `"failed"`},
		{"S3-20: bounded when it is loaded, too", `"activities":[{"id":"a","status":"failed","content":"` + strings.Repeat("x", 16_001) + `"}]`, "activities.0.content", `"` + strings.Repeat("x", 16_000) + `\n…"`},

		{"S3-40, S3-67", `"artifacts":[{"id":"a","path":"p","kind":"managed-file"}]`, "artifacts", `[{"id":"a","path":"p","kind":"managed-file"}]`},
		{"S3-67: no bytes", `"artifacts":[{"id":"a","path":"p","kind":"workspace-file","data":"AAAA"}]`, "artifacts", `[{"id":"a","path":"p","kind":"workspace-file"}]`},
		{"S3-67: another kind", `"artifacts":[{"id":"a","path":"p","kind":"memory"}]`, "artifacts", `[]`},
		{"S3-67: no path", `"artifacts":[{"id":"a","kind":"external-file"}]`, "artifacts", `[]`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			file := `{"id":"s1",` + c.file + `}`
			put(t, dir, ref, file)
			all, errs := loadAll(t, s)
			if len(all) != 1 || len(errs) > 0 {
				t.Fatalf("LoadAll = %v, %v", all, errs)
			}
			got := ""
			if v, there := at(all[0], strings.Split(c.field, ".")); there {
				got = string(must(json.Marshal(v))(t))
			}
			want := c.want
			if want != "" { // as Go writes it
				var v any
				ok(t, json.Unmarshal([]byte(want), &v))
				want = string(must(json.Marshal(v))(t))
			}
			if got != want {
				t.Errorf("%s is %.200s, want %.200s", c.field, got, want)
			}
			if fileOf(t, dir, ref) != file {
				t.Error("loading rewrote the file")
			}
		})
	}
}

// at is the value at a path in decoded JSON.
func at(v any, path []string) (any, bool) {
	for _, step := range path {
		switch o := v.(type) {
		case object:
			v = o[step]
		case map[string]any:
			v = o[step]
		case []any:
			i := int(step[0] - '0')
			if i >= len(o) {
				return nil, false
			}
			v = o[i]
		}
		if v == nil {
			return nil, false
		}
	}
	return v, true
}

// S3-01, S3-02, S3-03, S3-04, S3-05, S3-06, S3-68, S3-69, S3-70: sessions are files by project and id, the manifest
// lies beside them, and both are there after a restart; a session that was in a turn
// comes back so that it can be tried again.
func TestSessionsSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := must(session.Open(dir, session.Options{Now: noon}))(t)
	running := newObject("s1", chatMessage("m1", "user", "Hello"))
	running["status"], running["activeRun"] = "running", map[string]any{"id": "run"}
	must(s.SaveSession(t.Context(), running.raw(t), nil))(t)
	ok(t, s.SaveManifest(t.Context(), session.Manifest{LastProjectID: "default", LastSessionID: "s1"}))
	ok(t, s.Close())

	if _, err := os.Stat(filepath.Join(dir, "default", "s1.json")); err != nil {
		t.Error(err)
	}
	var manifest map[string]any
	ok(t, json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "manifest.json")))(t), &manifest))
	if diff := cmp.Diff(map[string]any{"version": 1.0, "lastProjectId": "default", "lastSessionId": "s1"}, manifest); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	s = open(t, dir)
	if got := must(s.Manifest(t.Context()))(t); got.LastProjectID != "default" || got.LastSessionID != "s1" {
		t.Errorf("Manifest = %+v", got)
	}
	o := shown(t, s, ref)
	if o["status"] != "error" || o["error"] != session.InterruptedText || o["activeRun"] != nil || len(o.list("messages")) != 1 {
		t.Errorf("after the restart: %v", o)
	}
	o["status"] = "idle"
	delete(o, "error")
	must(s.SaveSession(t.Context(), o.raw(t), nil))(t)
	if o := shown(t, s, ref); o["status"] != "idle" || o["error"] != nil {
		t.Errorf("after the next save: %v", o)
	}
}

// S1-05: whoever holds a session is named, and what was refused has changed nothing,
// not even a time.
func TestRefusedByALockChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "one")
	o := shown(t, s, ref)
	o["title"] = "Another"
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	state := func() map[string]string {
		files := map[string]string{}
		for _, name := range must(filepath.Glob(filepath.Join(dir, "*", "*")))(t) {
			info := must(os.Stat(name))(t)
			files[name] = info.ModTime().String()
		}
		return files
	}
	before := state()
	for what, call := range map[string]func() error{
		"Lock":    func() error { _, err := s.Lock(t.Context(), ref, "turn", false); return err },
		"save":    func() error { _, err := s.SaveSession(t.Context(), o.raw(t), nil); return err },
		"rename":  func() error { return s.Rename(t.Context(), ref, "Another") },
		"delete":  func() error { return s.Delete(t.Context(), ref) },
		"project": func() error { _, err := s.DeleteProject(t.Context(), "default"); return err },
	} {
		held, is := errors.AsType[*durable.LockedError](call())
		if !is || held.Holder.PID != os.Getpid() || held.Holder.Operation != "turn" || held.Holder.Since.IsZero() || !strings.Contains(held.Error(), "session default/s1") {
			t.Errorf("%s: %v, want it to name the session and its holder", what, held)
		}
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("files changed (-before +after):\n%s", diff)
	}
}
