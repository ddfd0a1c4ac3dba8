//go:build unix

package supervise

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sess/plugin"
)

// short is a private folder whose path a socket's fits behind.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestWithoutASocketFolderTheErrorNamesThemAll(t *testing.T) {
	t.Parallel()
	base := short(t)
	long := filepath.Join(base, strings.Repeat("long", 30))
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bar := filepath.Join(base, "a|b")
	shared := filepath.Join(base, "shared")
	link := filepath.Join(base, "link")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o770), os.Symlink(short(t), link)); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(base, "none", "sub")
	dir, err := newSocketDir(t.Context(), []place{
		{long, os.MkdirAll},
		{file, os.Mkdir},
		{bar, os.Mkdir},
		{shared, os.Mkdir},
		{link, os.Mkdir},
		{missing, os.Mkdir},
	})
	if err == nil {
		t.Fatalf("newSocketDir = %s, want an error", dir.path)
	}
	if !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("error = %v, want unavailable", err)
	}
	for _, part := range []string{
		long + " is too long", "the limit is 10",
		file + " is not a folder",
		"a|b\" has a character",
		shared + " can be written to by other users",
		link + " is not a folder",
		missing + ": no such file",
		"set TMPDIR",
	} {
		if text := plugin.AsError(err).Text(); !strings.Contains(text, part) {
			t.Errorf("the error does not say %q: %s", part, text)
		}
	}
}

func TestSocketFoldersArePrivateAndSweptWhenDead(t *testing.T) {
	t.Parallel()
	root := filepath.Join(short(t), "run")
	open := func() *SocketDir {
		t.Helper()
		dir, err := newSocketDir(context.Background(), []place{{root, os.MkdirAll}})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	first, second := open(), open()
	if first.path == second.path {
		t.Fatalf("two supervisors share %s", first.path)
	}
	for _, path := range []string{root, first.path} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v, want mode 0700", path, info.Mode(), err)
		}
	}
	// The host of the first is killed: its lock goes, its folder stays.
	if err := errors.Join(os.WriteFile(filepath.Join(first.path, "socket"), nil, 0o600), first.lock.Close()); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(root, "not-ours")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	third := open()
	if _, err := os.Stat(filepath.Join(first.path, "socket")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dead host's socket is still there: %v", err)
	}
	for _, path := range []string{second.path, third.path, foreign} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("swept although it is in use or foreign: %v", err)
		}
	}
	if err := errors.Join(second.Close(), third.Close()); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 2 { // the lock and the foreign folder
		t.Errorf("in the end %v, %v", entries, err)
	}
}
