package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"sess/plugin"
)

// A gateway gets the files that the command line names, and no others.
func TestUserFilesAreThoseOfTheCommandLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named, secret := filepath.Join(dir, "named"), filepath.Join(dir, "secret")
	for _, name := range []string{named, secret} {
		if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := userFiles{words: []string{"import", named, "--output=" + named}}
	if r, err := files.Open(t.Context(), named); err != nil {
		t.Errorf("open a file that is named: %v", err)
	} else if data, err := io.ReadAll(r); err != nil || string(data) != "content" || r.Close() != nil {
		t.Errorf("it reads %q, %v", data, err)
	}
	if _, err := files.Open(t.Context(), secret); plugin.AsError(err) == nil || plugin.AsError(err).Code != plugin.Denied {
		t.Errorf("open another file: %v, want it denied", err)
	}
	if _, err := files.Create(t.Context(), secret); plugin.AsError(err) == nil || plugin.AsError(err).Code != plugin.Denied {
		t.Errorf("write another file: %v, want it denied", err)
	}
}

// A file is there when it is whole, or it is as it was.
func TestUserFilesAreWrittenWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	write := func(end func(plugin.File) error) {
		f, err := userFiles{}.Create(t.Context(), link)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("new")); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != "old" {
			t.Errorf("while it is written the file holds %q, %v", got, err)
		}
		if err := end(f); err != nil {
			t.Error(err)
		}
	}
	write(plugin.File.Discard)
	if got, err := os.ReadFile(name); err != nil || string(got) != "old" {
		t.Errorf("after a failure the file holds %q, %v", got, err)
	}
	write(plugin.File.Commit)
	if got, err := os.ReadFile(name); err != nil || string(got) != "new" {
		t.Errorf("at the end the file holds %q, %v", got, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().IsRegular() {
		t.Errorf("the link became a file: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind are %v, %v", left, err)
	}
}
