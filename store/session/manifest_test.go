package session_test

import (
	"os"
	"path/filepath"
	"testing"

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
