package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// inMounts, set in the environment, tells a test that it runs in a process that
// may mount what it wants: nobody else sees it, and it goes with the process.
const inMounts = "TESTS_IN_MOUNTS"

// withMounts runs the test once more in a process with its own mounts, and
// reports whether this is that process. Root needs nothing else for it, others a
// system that lets them be root among themselves.
func withMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inMounts) != "" {
		return true
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), inMounts+"=1", "SESS_BIN_DIR="+binDir(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	refused := errors.Is(err, fs.ErrPermission) || strings.Contains(string(out), "--- SKIP: "+t.Name())
	if euid := os.Geteuid(); refused {
		t.Skipf("this system lets user %d mount nothing: %v\n%s", euid, err, out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a process with its own mounts: %v\n%s", err, out)
	}
	return false
}

// mountSmall mounts an empty disk of 512 KiB.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// First of all the mounts are kept to this process.
	err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("none", dir, "tmpfs", 0, "size=512k,mode=700")
	}
	if euid := os.Geteuid(); errors.Is(err, fs.ErrPermission) {
		t.Skipf("user %d may not mount: %v", euid, err)
	}
	if err != nil {
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// fill writes a file until the disk has no byte left.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "fill"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for n := 4096; n > 0; {
		if _, err := f.Write(make([]byte, n)); errors.Is(err, syscall.ENOSPC) {
			n /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// noise is text that does not compress to much less than n bytes.
func noise(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(strconv.FormatUint(rng.Uint64(), 36))
	}
	return b.String()
}

// The snapshots lie on a disk of 512 KiB, which conversations fill. What does
// not fit is refused as such and changes nothing; talking goes on, with a notice;
// what is there can be read, and with some space all works again.
func TestSmallDisk(t *testing.T) {
	if !withMounts(t) {
		return
	}
	u := newUser(t)
	small := filepath.Join(u.dir, "small")
	mountSmall(t, small)
	u.configure(fmt.Sprintf(`{"storageDir": %q, "autoSave": true, "maxSnapshots": 0}`, small))
	u.do("chat", "--message", "hello")
	for _, name := range []string{"base", "gone", "old"} {
		u.do("save", name)
	}
	u.do("delete", "gone")

	// Conversations until nothing fits any more.
	rng, full := rand.New(rand.NewPCG(1, 2)), 0
	for n := 0; full < 3; n++ {
		if n > 50 {
			t.Fatal("fifty turns of 50 KB fit on a disk of 512 KiB")
		}
		cmd := u.command("chat")
		cmd.Stdin = strings.NewReader(noise(rng, 50_000) + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("a turn when the snapshots' disk is full: %v\n%.500s", err, out)
		}
		var failure struct{ Code, Error, Hint string }
		if _, _, exit := u.run("save", fmt.Sprint("s", n)); exit != 0 {
			u.fails(8, &failure, "save", fmt.Sprint("s", n))
			if failure.Code != "no_space" || !strings.Contains(failure.Error, small) || failure.Hint == "" {
				t.Errorf("save onto a full disk says %+v", failure)
			}
			full++
		}
	}
	fill(t, small)
	before, err := readTree(small)
	if err != nil {
		t.Fatal(err)
	}
	names, said := u.names("--include-auto"), len(u.messages())
	for _, args := range [][]string{
		{"save", "more"},
		{"save", "old", "--overwrite"},
		{"load", "base"},
		{"load", "base", "--as-new"},
		{"new"},
		{"copy", "base", "copied"},
		{"rename", "base", "renamed"},
		{"rename", "base", "old", "--overwrite"},
		{"tag", "base", "a=b"},
		{"pin", "base"},
		{"delete", "base"},
		{"undo"},
		{"prune"},
	} {
		var failure struct{ Code, Error, Hint string }
		u.fails(8, &failure, args...)
		if failure.Code != "no_space" || failure.Hint == "" {
			t.Errorf("sess %s on a full disk says %+v", strings.Join(args, " "), failure)
		}
	}
	if _, stderr, exit := u.run("chat", "--message", "still there?"); exit != 0 || !strings.Contains(stderr, "autosave failed") || !strings.Contains(stderr, "no space left") {
		t.Errorf("a turn ended with status %d and said %q", exit, stderr)
	}
	after, err := readTree(small)
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := diffTrees(before, after, []string{".lock", "*.lock", "*.holder"}); err != nil || changes != "" {
		t.Errorf("what did not fit changed the disk (%v):\n%s", err, changes)
	}
	if got := u.names("--include-auto"); !slices.Equal(got, names) {
		t.Errorf("the list has %q, want %q", got, names)
	}
	if got := len(u.messages()); got != said+2 {
		t.Errorf("the session has %d messages, want %d and one turn", got, said)
	}
	u.do("verify")
	u.do("view", "base")

	// The trash is what can go without help. Where there is none any more, nobody
	// is sent there.
	u.do("trash", "empty", "--confirm")
	u.do("rename", "old", "older")
	u.do("trash", "empty", "--confirm")
	fill(t, small)
	var failure struct{ Code, Error, Hint string }
	u.fails(8, &failure, "delete", "base")
	if failure.Code != "no_space" || strings.Contains(failure.Hint, "trash empty") || !strings.Contains(failure.Hint, small) {
		t.Errorf("delete on a full disk without trash says %+v", failure)
	}
	if err := syscall.Mount("none", small, "tmpfs", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatalf("a larger disk: %v", err)
	}
	u.do("chat", "--message", "and on")
	u.do("load", "base")
	u.do("undo")
	u.do("delete", "base")
	u.do("trash", "restore", "base")
	u.do("verify")
}
