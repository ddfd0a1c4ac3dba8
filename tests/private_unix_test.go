//go:build unix

package tests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inHome prepares the binary to run in a home of its own, under a umask.
func inHome(ctx context.Context, bin, home, tmp, umask string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `umask "$0" && exec "$@"`, umask, filepath.Join(bin, "sess")}, args...)...)
	cmd.Dir = tmp
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SESS_HOME=" + filepath.Join(home, ".sess"), "TMPDIR=" + tmp, "TZ=UTC"}
	return cmd
}

// wide lists what others have rights on below the folders, and how many files
// and folders there are.
func wide(t *testing.T, dirs ...string) (list []string, seen int) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went meanwhile
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if seen++; info.Mode().Perm()&0o077 != 0 {
				list = append(list, fmt.Sprintf("%s %v", path, info.Mode()))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list, seen
}

// While a turn is being answered, a plugin runs and an answer grows in the log,
// all of it is private: locks, logs, temp files and sockets too.
func TestPrivateWhileATurnRuns(t *testing.T) {
	t.Parallel()
	bin := binDir(t)
	for _, umask := range []string{"000", "077"} {
		t.Run("umask "+umask, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			tmp, err := os.MkdirTemp("", "s") // short: sockets lie here
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(tmp) })
			ctx, kill := context.WithTimeout(t.Context(), time.Minute)
			defer kill()
			chat := inHome(ctx, bin, home, tmp, umask, "chat")
			in, err1 := chat.StdinPipe()
			out, err2 := chat.StdoutPipe()
			var stderr bytes.Buffer
			chat.Stderr = &stderr
			if err := errors.Join(err1, err2, chat.Start()); err != nil {
				t.Fatal(err)
			}
			// The last answer has more words than any test waits for.
			if _, err := io.WriteString(in, "hello\n/sess save v1\n/sess save v1 --overwrite\nslow 100000 20ms\n"); err != nil {
				t.Fatal(err)
			}
			words := bufio.NewScanner(out)
			words.Split(bufio.ScanWords)
			for words.Scan() && words.Text() != "17" {
			}
			if words.Text() != "17" {
				t.Fatalf("the chat ended early: %v, %v\n%s", words.Err(), chat.Wait(), &stderr)
			}
			list, seen := wide(t, filepath.Join(home, ".sess"), filepath.Join(tmp, fmt.Sprintf("sess-%d", os.Getuid())))
			if len(list) > 0 || seen < 20 {
				t.Errorf("of %d files and folders others have rights on\n%s", seen, strings.Join(list, "\n"))
			}
			kill()
			_ = chat.Wait() // it was killed
			if list, _ := wide(t, filepath.Join(home, ".sess")); len(list) > 0 {
				t.Errorf("after its end others have rights on\n%s", strings.Join(list, "\n"))
			}
		})
	}
}

// nobody is a user to whom nothing belongs.
const nobody = 65534

// letPass lets everybody pass the folders on the way down to dir.
func letPass(t *testing.T, dir string) {
	t.Helper()
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o011 == 0o011 {
			continue
		}
		if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			t.Fatal(err)
		}
	}
}

// Somebody else is told that the home is not theirs; they neither see what is in
// it nor get one of their own in its place.
func TestSomebodyElsesHome(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	bin, home, tmp := filepath.Join(top, "bin"), filepath.Join(top, "home"), filepath.Join(top, "tmp")
	for _, dir := range []string{bin, home, tmp} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(tmp, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, filepath.Join(binDir(t), "sess"), filepath.Join(bin, "sess"))
	for _, args := range [][]string{{"chat", "--message", "a secret"}, {"save", "v1"}} {
		if out, err := inHome(t.Context(), bin, home, tmp, "000", args...).CombinedOutput(); err != nil {
			t.Fatalf("sess %v: %v\n%s", args, err, out)
		}
	}
	before, err := readTree(filepath.Join(home, ".sess"))
	if err != nil {
		t.Fatal(err)
	}
	// Without root nobody can become somebody else: then the home is shut to
	// its owner as well, who is refused on the same way.
	root := os.Getuid() == 0
	if root {
		letPass(t, top)
	} else if err := os.Chmod(filepath.Join(home, ".sess"), 0); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"list"},
		{"list", "--json"},
		{"save", "v2"},
		{"load", "v1"},
		{"delete", "v1"},
		{"sessions", "list"},
		{"chat", "--message", "hello"},
		{"chat", "--message", "/sess list"},
		{"config", "show"},
		{"prune"},
	} {
		cmd := inHome(t.Context(), bin, home, tmp, "022", args...)
		if root {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		out, err := cmd.CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit == nil || exit.ExitCode() != 6 || !bytes.Contains(out, []byte("permission denied")) {
			t.Errorf("sess %v by somebody else: %v, want exit status 6 and permission denied:\n%s", args, err, out)
		}
		if bytes.Contains(out, []byte("secret")) || bytes.Contains(out, []byte("v1:")) {
			t.Errorf("sess %v told somebody else:\n%s", args, out)
		}
	}
	if !root {
		if err := os.Chmod(filepath.Join(home, ".sess"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	after, err := readTree(filepath.Join(home, ".sess"))
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := diffTrees(before, after, []string{"logs"}); err != nil || changes != "" {
		t.Errorf("somebody else changed the home: %v\n%s", err, changes)
	}
	// With a home of their own they use the same folder for sockets, and work.
	own := filepath.Join(tmp, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := inHome(t.Context(), bin, own, tmp, "022", "list")
	if root {
		if err := os.Chown(own, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("no snapshots yet")) {
		t.Errorf("sess list in a home of their own: %v\n%s", err, out)
	}
}

// copyProgram copies an executable file. Another process does it: a child that
// this one forks meanwhile would hold the new file open for writing, and then
// nobody could run it.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy the program: %v: %s", err, out)
	}
}

// A home that others could read is closed to them by a gateway too, also where a
// command has looked for one before.
func TestPrivateUnderAGateway(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "v1")
	err := filepath.WalkDir(u.home, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	u.do("gateway", "status")
	u.gateway()
	err = filepath.WalkDir(u.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
