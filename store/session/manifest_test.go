package session_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/session"
)

// S3-03, S3-04, S3-29, S3-30, S3-68, S3-69, S3-70: the manifest is a small file, which
// counts as empty where it is damaged.
func TestManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if m := must(s.Manifest(t.Context()))(t); m != (session.Manifest{Version: 1}) {
		t.Errorf("Manifest of an empty store = %+v", m)
	}
	if entries := must(os.ReadDir(dir))(t); len(entries) != 0 {
		t.Errorf("reading made %v", entries)
	}
	path := filepath.Join(dir, "manifest.json")
	ok(t, s.SaveManifest(t.Context(), session.Manifest{LastProjectID: "p"}))
	if got := string(must(os.ReadFile(path))(t)); got != `{"version":1,"lastProjectId":"p"}`+"\n" {
		t.Errorf("manifest.json = %s", got)
	}
	for _, bad := range []string{"", "{", "[]", `{"lastProjectId":4}`} {
		ok(t, os.WriteFile(path, []byte(bad), 0o600))
		if m := must(s.Manifest(t.Context()))(t); m != (session.Manifest{Version: 1}) {
			t.Errorf("Manifest of %q = %+v", bad, m)
		}
	}
	create(t, s, ref)
	ok(t, s.Activate(t.Context(), ref))
	if m := must(s.Manifest(t.Context()))(t); m != (session.Manifest{Version: 1, LastProjectID: "default", LastSessionID: "s1"}) {
		t.Errorf("Manifest = %+v", m)
	}
	now := noon().UnixMilli()
	if m := must(s.Meta(ref))(t); m != (session.Meta{CreatedAt: now, LastActiveAt: now, ActivatedAt: now}) {
		t.Errorf("Meta = %+v", m)
	}
	if err := s.Activate(t.Context(), session.Ref{Project: "default", ID: "none"}); err == nil {
		t.Error("a session that does not exist was activated")
	}
}

// What a newer version stores beside what this one knows stays there when this one
// changes something: of the manifest, of a session, of its notifications, and of each
// of those.
func TestSmallFilesKeepWhatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref, "hello")
	path := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	manifest, meta, told := path("manifest.json"), path("default/s1/session_meta.json"), path("default/s1/notifications.json")
	ok(t, os.MkdirAll(filepath.Dir(meta), 0o700))
	ok(t, os.WriteFile(manifest, []byte(`{"version":1,"panes":[ 1, 2 ],"lastProjectId":"gone"}`), 0o600))
	ok(t, os.WriteFile(meta, []byte(`{"createdAt":1,"lastActiveAt":1,"Pinned":true,"colour":"blue"}`), 0o600))
	ok(t, os.WriteFile(told, []byte(`{"schema":2,"operations":[`+
		`{"id":"a","text":"x","status":"done","createdAt":1,"updatedAt":1,"link":"l&1"},`+
		`{"id":"b","text":"y","status":"done","createdAt":1,"updatedAt":1}],"acknowledged":[`+
		`{"id":"c","text":"z","status":"done","createdAt":1,"updatedAt":1,"acknowledgedAt":1,"link":"l3"}]}`), 0o600))

	ok(t, s.Activate(t.Context(), ref))
	ok(t, s.Pin(t.Context(), ref, false))
	must(s.Acknowledge(t.Context(), ref, []string{"a"}))(t)
	must(s.Notify(t.Context(), ref, session.Notification{ID: "c", Text: "again", Status: session.NotificationDone}))(t)

	now := strconv.FormatInt(noon().UnixMilli(), 10)
	for file, want := range map[string]string{
		manifest: `{"version":1,"lastProjectId":"default","lastSessionId":"s1","panes":[ 1, 2 ]}`,
		meta:     `{"createdAt":1,"lastActiveAt":` + now + `,"activatedAt":` + now + `,"colour":"blue"}`,
		told: `{"operations":[{"id":"b","text":"y","status":"done","createdAt":1,"updatedAt":1},` +
			`{"id":"c","text":"again","status":"done","createdAt":1,"updatedAt":` + now + `,"link":"l3"}],` +
			`"acknowledged":[{"id":"a","text":"x","status":"done","createdAt":1,"updatedAt":1,"acknowledgedAt":` + now + `,"link":"l&1"}],"schema":2}`,
	} {
		if diff := cmp.Diff(want+"\n", string(must(os.ReadFile(file))(t))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", filepath.Base(file), diff)
		}
	}
}

func TestSelection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref)
	ok(t, s.Select(t.Context(), ref, ""))
	ok(t, s.Select(t.Context(), ref, "id-1"))
	if id := must(s.Selected(ref))(t); id != "id-1" {
		t.Errorf("Selected = %q", id)
	}
	ok(t, os.WriteFile(filepath.Join(dir, "default", "s1", "view.json"), []byte("{"), 0o600))
	if id, err := s.Selected(ref); err == nil {
		t.Errorf("Selected of a damaged file = %q, nil", id)
	}
	ok(t, s.Select(t.Context(), ref, ""))
	if id := must(s.Selected(ref))(t); id != "" {
		t.Errorf("Selected after returning = %q", id)
	}
}
