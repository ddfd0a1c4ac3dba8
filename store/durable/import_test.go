package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sess/store/durable"
)

func TestImport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys, err := durable.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	for name, program := range map[string]bool{"a/b/data": false, "a/program": true} {
		if n, err := durable.Import(fsys, name, strings.NewReader("text"), program); n != 4 || err != nil {
			t.Fatalf("Import(%s) = %d, %v, want 4 bytes", name, n, err)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		want := map[bool]fs.FileMode{false: 0o600, true: 0o700}[program]
		if err != nil || info.Mode() != want && runtime.GOOS != "windows" {
			t.Errorf("%s has the mode %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
	if _, err := durable.Import(fsys, "a/program", strings.NewReader("other"), true); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Import over a file: %v, want %v", err, fs.ErrExist)
	}
	if _, err := durable.Import(fsys, "../out", strings.NewReader("text"), false); err == nil {
		t.Error("Import out of the folder works")
	}
	if err := durable.SyncTree(fsys, "."); err != nil {
		t.Errorf("SyncTree: %v", err)
	}

	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" {
		if err := os.Symlink(filepath.Dir(kept), filepath.Join(dir, "a", "link")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what is missing is no error
		if err := durable.RemoveAll(fsys, "a"); err != nil {
			t.Fatalf("RemoveAll: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("RemoveAll left the folder: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("RemoveAll followed a link: %v", err)
	}
}
