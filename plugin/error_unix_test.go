//go:build unix

package plugin_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sess/plugin"
)

// What the system refuses about a file is no bug of ours, and its hint names a
// place that is there.
func TestAsErrorOfTheSystem(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "v1.json")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := func(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }
	for _, tt := range []struct {
		err  error
		code plugin.Code
		hint string
	}{
		{path("write", "/p/.v1.json.tmp", syscall.ENOSPC), plugin.NoSpace, "free some space on the disk, then try again"},
		{path("write", "/p/.v1.json.tmp", syscall.EDQUOT), plugin.NoSpace, "free some space on the disk, then try again"},
		{path("openat", "/p/.v1.json.tmp", syscall.EACCES), plugin.Denied, "make /p readable and writable for this user, then try again"},
		{path("mkdirat", "/p/.ops", syscall.EPERM), plugin.Denied, "make /p readable and writable for this user, then try again"},
		{path("openat", there, syscall.EACCES), plugin.Denied, "make " + there + " readable and writable for this user, then try again"},
		{path("openat", "/p/.lock", syscall.EACCES), plugin.Denied, "make /p readable and writable for this user, then try again"},
		{path("openat", "/p/.v1.json.tmp", syscall.EROFS), plugin.Denied, "make /p readable and writable for this user, then try again"},
		{path("open", "/p/agents", syscall.ENOTDIR), plugin.Unavailable, "see that /p/agents is there and a folder, then try again"},
		{path("open", "/p/.lock", errors.New("not a regular file")), plugin.Unavailable, "see what is wrong with /p/.lock, or move it away, then try again"},
		{path("read", "/p/v1.json", syscall.EIO), plugin.Unavailable, "see what is wrong with /p/v1.json, or move it away, then try again"},
		{&os.LinkError{Op: "renameat", Old: "/p/.x.tmp", New: "/p/x", Err: syscall.EEXIST}, plugin.Unavailable, "see what is wrong with /p/x, or move it away, then try again"},
		{errors.New("index out of range"), plugin.Internal, ""},
		{fs.ErrNotExist, plugin.Internal, ""},
	} {
		got := plugin.AsError(fmt.Errorf("save v1: %w", tt.err))
		if got.Code != tt.code || got.Hint != tt.hint {
			t.Errorf("%v: %s, hint %q; want %s, %q", tt.err, got.Code, got.Hint, tt.code, tt.hint)
		}
	}
}
