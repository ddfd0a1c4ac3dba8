//go:build unix

package tests

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// newMortal is a user whom permissions concern: root becomes nobody, anybody
// else stays who they are.
func newMortal(t *testing.T) (u *user, uid int) {
	t.Helper()
	u = newUser(t)
	if uid = os.Geteuid(); uid != 0 {
		return u, uid
	}
	bin := filepath.Join(u.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, u.bin, filepath.Join(bin, "sess"))
	u.bin = filepath.Join(bin, "sess")
	letPass(t, bin)
	if err := errors.Join(os.Chown(u.dir, nobody, nobody), os.Chown(u.tmp, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	u.prepare = func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return u, nobody
}

// give makes all below dir a user's, with these permissions of folders and files.
func give(dir string, uid int, dirMode, fileMode fs.FileMode) error {
	if err := os.Chmod(dir, 0o700); err != nil { // to look into it
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fileMode
		if d.IsDir() {
			mode = dirMode | 0o100
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		return os.Lchown(path, uid, -1)
	})
}

// A folder of snapshots that may not be written, or belongs to somebody else:
// what would change it is refused with its path and changes nothing, the session
// included; what only reads works where reading is allowed; talking goes on with
// a notice; and all is well again when the folder is.
func TestFolderThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	type spoiled struct {
		name     string
		spoil    func(pool string) error
		readable bool
	}
	tests := []spoiled{
		{"read-only", func(pool string) error { return os.Chmod(pool, 0o500) }, true},
		{"shut", func(pool string) error { return os.Chmod(pool, 0) }, false},
	}
	if os.Geteuid() == 0 {
		tests = append(
			tests,
			spoiled{"somebody else's", func(pool string) error { return os.Chown(pool, 0, 0) }, false},
			spoiled{"somebody else's with all in it", func(pool string) error { return give(pool, 0, 0o700, 0o600) }, false},
			spoiled{"somebody else's for all to read", func(pool string) error { return give(pool, 0, 0o755, 0o644) }, true},
		)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, uid := newMortal(t)
			u.configure(`{"autoSave": true}`)
			if err := os.Lchown(u.home, uid, -1); err != nil {
				t.Fatal(err)
			}
			if err := os.Lchown(filepath.Join(u.home, "config.json"), uid, -1); err != nil {
				t.Fatal(err)
			}
			u.do("chat", "--message", "one")
			u.do("save", "v1")
			u.do("chat", "--message", "two")
			before, err := readTree(u.pool())
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.spoil(u.pool()); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"save", "v2"},
				{"save", "v1", "--overwrite"},
				{"load", "v1"},
				{"new"},
				{"copy", "v1", "v2"},
				{"rename", "v1", "v2"},
				{"tag", "v1", "a=b"},
				{"delete", "v1"},
				{"prune"},
			} {
				var failure struct{ Code, Error, Hint string }
				u.fails(6, &failure, args...)
				if failure.Code != "denied" || !strings.Contains(failure.Error, u.pool()) || !strings.Contains(failure.Hint, u.pool()) {
					t.Errorf("sess %s says %+v", strings.Join(args, " "), failure)
				}
			}
			for _, args := range [][]string{{"list"}, {"view", "v1"}, {"verify"}} {
				if out, errs, exit := u.run(args...); (exit == 0) != tt.readable || exit != 0 && exit != 6 {
					t.Errorf("sess %s ended with status %d\n%s%s", strings.Join(args, " "), exit, out, errs)
				}
			}
			if _, stderr, exit := u.run("chat", "--message", "three"); exit != 0 || !strings.Contains(stderr, "autosave failed") || !strings.Contains(stderr, u.pool()) {
				t.Errorf("a turn ended with status %d and said %q", exit, stderr)
			}
			if got := len(u.messages()); got != 6 {
				t.Errorf("the session has %d messages, want 6", got)
			}

			if err := give(u.pool(), uid, 0o700, 0o600); err != nil {
				t.Fatal(err)
			}
			after, err := readTree(u.pool())
			if err != nil {
				t.Fatal(err)
			}
			if changes, err := diffTrees(before, after, []string{".lock", "*.holder"}); err != nil || changes != "" {
				t.Errorf("what was refused changed the snapshots (%v):\n%s", err, changes)
			}
			u.do("save", "v2")
			u.do("load", "v1")
			u.do("undo")
			u.do("verify")
			if got := len(u.messages()); got != 6 {
				t.Errorf("after a load and its undo the session has %d messages, want 6", got)
			}
		})
	}
}
