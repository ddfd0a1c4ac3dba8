//go:build unix

package session_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"sess/store/session"
)

// Everything a session leaves is private, also where wider modes are met.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sessions")
	ok(t, os.Mkdir(dir, 0o755))
	s := open(t, dir)
	rnd := rand.New(rand.NewPCG(13, 14))
	create(t, s, ref, prose(rnd, 150<<10), "end")
	ok(t, s.Activate(t.Context(), ref))
	ok(t, s.Select(t.Context(), ref, "id"))
	must(s.OpState(t.Context(), session.Ref{Project: "default", ID: "none"}, "op"))(t)
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	ok(t, must(k.BeginTurn(t.Context(), session.TurnHeader{}))(t).End(t.Context(), nil))
	ok(t, k.Unlock())
	seen := 0
	ok(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info := must(d.Info())(t)
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if seen++; info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want)
		}
		return nil
	}))
	if seen < 12 {
		t.Errorf("only %d files and folders were looked at", seen)
	}
}
