package durable_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
	"sess/store/durable/durabletest"
)

// TestMain lets the test binary stand in for another process that holds a lock.
func TestMain(m *testing.M) {
	if dir := os.Getenv("DURABLE_TEST_HOLD"); dir != "" {
		fsys, err := durable.OpenDir(dir)
		if err == nil {
			_, err = durable.LockAs(context.Background(), fsys, ".lock", "a test", true)
		}
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		println("held")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is killed
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t *testing.T) durable.FS {
	t.Helper()
	fsys, err := durable.OpenDir(filepath.Join(t.TempDir(), "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() })
	return fsys
}

func content(t *testing.T, fsys durable.FS, name string) string {
	t.Helper()
	b, err := durable.ReadFile(fsys, name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWriteReplacesWhole(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	for _, want := range []string{"one", strings.Repeat("two", 100_000), ""} {
		if err := durable.Write(fsys, "x.json", []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, fsys, "x.json"); got != want {
			t.Fatalf("content has %d bytes, want %d", len(got), len(want))
		}
	}
}

// S4-14, S4-87: A write that fails at any operation leaves the old content or the
// new one, and no temp file.
func TestWriteFailsWhole(t *testing.T) {
	t.Parallel()
	for k := 0; ; k++ {
		var faulty durabletest.Faulty
		fsys, err := faulty.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := durable.Write(fsys, "x.json", []byte("old")); err != nil {
			t.Fatal(err)
		}
		faulty.FailAt(k, syscall.ENOSPC, false)
		err = durable.Write(fsys, "x.json", []byte("new content"))
		fired := faulty.Fired()
		faulty.Reset()
		if !fired {
			if err != nil {
				t.Fatalf("write without a fault: %v", err)
			}
			if k < 5 {
				t.Fatalf("only %d operations in a durable write", k)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("fault at %d: err = %v, want ENOSPC", k, err)
		}
		if got := content(t, fsys, "x.json"); got != "old" && got != "new content" {
			t.Fatalf("fault at %d: content = %q", k, got)
		}
		entries, err := fsys.ReadDir(".")
		if err != nil || len(entries) != 1 {
			t.Fatalf("fault at %d: folder has %v, %v; want x.json alone", k, entries, err)
		}
	}
}

func TestWriteOperations(t *testing.T) {
	t.Parallel()
	var faulty durabletest.Faulty
	fsys, err := faulty.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := durable.Write(fsys, "x.json", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, op := range faulty.Ops() {
		got = append(got, op.Kind)
	}
	if diff := cmp.Diff([]string{"create", "write", "sync", "rename", "syncdir"}, got); diff != "" {
		t.Errorf("operations of a durable write (-want +got):\n%s", diff)
	}
}

// A rename that is refused for a moment, as by a scanner, is tried again.
func TestRenameTriedAgain(t *testing.T) {
	t.Parallel()
	var faulty durabletest.Faulty
	fsys, err := faulty.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := durable.WriteTemp(fsys, "x.json", []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	faulty.FailAt(0, syscall.EBUSY, false)
	if err := tmp.Publish("x.json"); err != nil || !faulty.Fired() {
		t.Fatalf("Publish after one refused rename: %v (fired %v)", err, faulty.Fired())
	}
	if err := durable.Write(fsys, "y.json", []byte("old")); err != nil {
		t.Fatal(err)
	}
	tmp, err = durable.WriteTemp(fsys, "y.json", []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	faulty.FailAt(0, syscall.EBUSY, true)
	if err := tmp.Publish("y.json"); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("Publish with a rename that never works: %v", err)
	}
	faulty.Reset()
	if got := content(t, fsys, "y.json"); got != "old" {
		t.Errorf("y.json = %q, want the old content", got)
	}
}

// S4-86: what stands where a temp file might be is in no write's way.
func TestTakenTempName(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	for _, name := range []string{"x.json.tmp", ".x.json.tmp"} {
		if err := fsys.Mkdir(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Write(fsys, "x.json", []byte("abc")); err != nil {
		t.Errorf("Write beside folders with the obvious temp names: %v", err)
	}
}

func TestModesWhateverTheUmask(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows keeps access lists, not modes")
	}
	for _, mask := range []int{0, 0o077, 0o777} {
		dir := filepath.Join(t.TempDir(), "in", "side") // TempDir heeds the umask
		old := umask(mask)
		fsys, err := durable.OpenDir(dir)
		if err == nil {
			err = errors.Join(durable.MkdirAll(fsys, "p/q"), durable.Write(fsys, "p/q/f", []byte("x")))
		}
		var f durable.File
		if err == nil {
			f, err = fsys.Append("p/log")
		}
		var open durable.File // a write under way
		if err == nil {
			open, err = fsys.Create("p/new")
		}
		var temp *durable.Temp // written, not visible yet
		if err == nil {
			temp, err = durable.WriteTemp(fsys, "p/q/f", []byte("y"))
		}
		umask(old)
		if err != nil {
			t.Fatalf("umask %03o: %v", mask, err)
		}
		temps, err := filepath.Glob(filepath.Join(dir, "p", "q", "*"+durable.TempSuffix))
		if err != nil || len(temps) != 1 {
			t.Fatalf("umask %03o: temp files %q, %v; want one", mask, temps, err)
		}
		for _, path := range append(temps, filepath.Join(dir, "p", "new")) {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("umask %03o: while it is written %s has mode %v, %v; want 0600", mask, path, info.Mode().Perm(), err)
			}
		}
		if err := errors.Join(f.Close(), open.Close(), temp.Publish("p/q/f")); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]fs.FileMode{"": 0o700, "p": 0o700, "p/q": 0o700, "p/q/f": 0o600, "p/log": 0o600, "p/new": 0o600} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %03o: %q has mode %v, %v; want %v", mask, name, info.Mode().Perm(), err, want)
			}
		}
		fsys.Close()
	}
}

func TestWideModesAreTightened(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows keeps access lists, not modes")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o644), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	fsys, err := durable.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	content(t, fsys, "f")
	for path, want := range map[string]fs.FileMode{dir: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

func TestTighten(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows keeps access lists, not modes")
	}
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "f")
	modes := map[string]fs.FileMode{"ours": 0o755, "ours/in": 0o777, "ours/in/f": 0o644, "ours/run": 0o755, "ours/shut": 0o600, "foreign": 0o644}
	for _, name := range []string{"ours", "ours/in"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ours/in/f", "ours/run", "ours/shut", "foreign", outside} {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "ours", "link")); err != nil {
		t.Fatal(err)
	}
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want map[string]fs.FileMode) {
		t.Helper()
		if err := durable.Tighten(dir, func(name string) bool { return name == "ours" }); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		for name, mode := range want {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %s has mode %v, %v; want %v", when, name, info.Mode().Perm(), err, mode)
			}
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check("in a private folder", modes)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	check("in a folder for all", map[string]fs.FileMode{
		"": 0o755, "ours": 0o700, "ours/in": 0o700, "ours/in/f": 0o600, "ours/run": 0o700, "ours/shut": 0o600, "foreign": 0o644,
	})
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("what a link leads to has mode %v, %v", info.Mode().Perm(), err)
	}
	if err := durable.Tighten(filepath.Join(dir, "nosuch"), nil); err != nil {
		t.Errorf("without a folder: %v", err)
	}
}

// A folder such as /tmp is everybody's, whoever names it as a home.
func TestFoldersForEverybodyStay(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows keeps access lists, not modes")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	fsys, err := durable.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&fs.ModeSticky == 0 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

func TestNothingOutsideAndNoLinks(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	canary := filepath.Join(outer, "canary.json")
	if err := os.WriteFile(canary, []byte("tweet"), 0o600); err != nil {
		t.Fatal(err)
	}
	fsys, err := durable.OpenDir(filepath.Join(outer, "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	if err := os.Symlink(canary, filepath.Join(fsys.Dir(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("plain", filepath.Join(fsys.Dir(), "inner")); err != nil {
		t.Fatal(err)
	}
	if err := durable.Write(fsys, "plain", []byte("p")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../canary.json", "link", "inner", "x/../../canary.json", canary} {
		if f, err := fsys.Open(name); err == nil {
			f.Close()
			t.Errorf("Open(%q) worked", name)
		}
		if f, err := fsys.Append(name); err == nil {
			f.Close()
			t.Errorf("Append(%q) worked", name)
		}
	}
	for _, name := range []string{"../canary.json", "../new"} {
		if err := durable.Write(fsys, name, []byte("overwritten")); err == nil {
			t.Errorf("Write(%q) worked", name)
		}
	}
	if b, _ := os.ReadFile(canary); string(b) != "tweet" {
		t.Errorf("canary = %q", b)
	}
}

func TestFolderReplacedByAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pool")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := durable.OpenDir(path)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("OpenDir of a file: %v, want an error that names %s", err, path)
	}
	if _, err := durable.OpenDir(filepath.Join(path, "below")); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("OpenDir below a file: %v, want an error that names %s", err, path)
	}
}

// While a program runs, a file takes the place of a folder: the errors name what
// has to be looked at, not what would lie in it.
func TestFolderReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows moves no folder that is open")
	}
	top := filepath.Join(t.TempDir(), "pool")
	fsys, err := durable.OpenDir(top)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	if err := errors.Join(durable.MkdirAll(fsys, "a/b"), os.RemoveAll(filepath.Join(top, "a")), os.WriteFile(filepath.Join(top, "a"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, openErr := fsys.Open("a/b/c")
	_, statErr := fsys.Stat("a/b/c")
	_, lockErr := fsys.Lock(t.Context(), "a/b/lock", durable.Exclusive, false)
	want := filepath.Join(top, "a")
	for call, err := range map[string]error{"Open": openErr, "Stat": statErr, "Lock": lockErr, "Write": durable.Write(fsys, "a/b/c", nil)} {
		if pe, ok := errors.AsType[*fs.PathError](err); !ok || pe.Path != want {
			t.Errorf("%s below a file: %v, want an error about %s", call, err, want)
		}
	}
	if err := errors.Join(os.Rename(top, top+".away"), os.WriteFile(top, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = fsys.Lock(t.Context(), "lock", durable.Exclusive, false)
	if pe, ok := errors.AsType[*fs.PathError](err); !ok || pe.Path != top {
		t.Errorf("Lock in a folder that is a file now: %v, want an error about %s", err, top)
	}
	if err := errors.Join(os.Remove(top), os.Mkdir(top, 0o700), os.WriteFile(filepath.Join(top, "lock"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	unlock, err := fsys.Lock(t.Context(), "lock", durable.Exclusive, false)
	if runtime.GOOS == "linux" && err == nil { // elsewhere a lock goes by its path
		t.Errorf("Lock in a folder that another took the place of: nil, want an error")
	}
	if err == nil {
		if err := unlock(); err != nil {
			t.Error(err)
		}
	}
}

// TestClosedFolder asks a folder that is closed for what needs more than a root.
func TestClosedFolder(t *testing.T) {
	t.Parallel()
	fsys, err := durable.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.ReadDir("."); err == nil {
		t.Error("ReadDir of a closed folder: nil, want an error")
	}
	if err := fsys.SyncDir("."); err == nil {
		t.Error("SyncDir of a closed folder: nil, want an error")
	}
	if _, err := fsys.Lock(t.Context(), "lock", durable.Exclusive, false); err == nil {
		t.Error("Lock in a closed folder: nil, want an error")
	}
}

// TestReadDirAsksNothing lists a folder: of each entry it tells the kind, and
// more only when asked, which never leaves the folder.
func TestReadDirAsksNothing(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	for _, name := range []string{"b", "a"} {
		if err := durable.Write(fsys, name, []byte(name+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.Mkdir("c"); err != nil {
		t.Fatal(err)
	}
	entries, err := fsys.ReadDir(".")
	if err != nil || len(entries) != 3 || entries[0].Name() != "a" || entries[1].Name() != "b" || !entries[2].IsDir() {
		t.Fatalf("ReadDir: %v, %v; want a, b and the folder c", entries, err)
	}
	if err := durable.Write(fsys, "a", []byte("longer now")); err != nil {
		t.Fatal(err)
	}
	if info, err := entries[0].Info(); err != nil || runtime.GOOS == "linux" && info.Size() != int64(len("longer now")) {
		t.Errorf("Info: %v, %v; want what is there when it is asked", info, err)
	}
	if err := fsys.Remove("b"); err != nil {
		t.Fatal(err)
	}
	if _, err := entries[1].Info(); runtime.GOOS == "linux" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Info of what is gone: %v, want fs.ErrNotExist", err)
	}
}

func TestLocksInOneProcess(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	ctx := t.Context()
	lock := func(mode durable.LockMode) (func() error, error) { return fsys.Lock(ctx, ".lock", mode, false) }
	a, err := lock(durable.Shared)
	if err != nil {
		t.Fatal(err)
	}
	b, err := lock(durable.Shared)
	if err != nil {
		t.Fatalf("a second shared lock: %v", err)
	}
	if _, err := lock(durable.Exclusive); !errors.Is(err, durable.ErrLocked) {
		t.Fatalf("exclusive beside shared: %v, want ErrLocked", err)
	}
	waiting := make(chan error, 1)
	go func() {
		unlock, err := fsys.Lock(ctx, ".lock", durable.Exclusive, true)
		if err == nil {
			err = unlock()
		}
		waiting <- err
	}()
	if err := errors.Join(a(), b(), <-waiting); err != nil {
		t.Fatalf("waiting for the shared ones to end: %v", err)
	}
	held, err := lock(durable.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer held()
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if _, err := fsys.Lock(short, ".lock", durable.Shared, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting until the deadline: %v", err)
	}
}

// A lock names its holder, and ends with it, however it ends.
func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "DURABLE_TEST_HOLD="+fsys.Dir())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	_, err = durable.LockAs(t.Context(), fsys, ".lock", "me", false)
	locked, ok := errors.AsType[*durable.LockedError](err)
	if !ok || locked.Holder.PID != cmd.Process.Pid || locked.Holder.Operation != "a test" {
		t.Errorf("LockAs = %v, want it to name process %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	unlock, err := durable.LockAs(t.Context(), fsys, ".lock", "me", true)
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestSweepTemps(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	if _, err := durable.WriteTemp(fsys, "x.json", []byte("left over")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(durable.Write(fsys, "keep.json", nil), fsys.Mkdir("folder.tmp")); err != nil {
		t.Fatal(err)
	}
	n, err := durable.SweepTemps(fsys, ".")
	if n != 1 || err != nil {
		t.Fatalf("SweepTemps = %d, %v, want 1", n, err)
	}
	entries, _ := fsys.ReadDir(".")
	if len(entries) != 2 {
		t.Errorf("left: %v, want folder.tmp and keep.json", entries)
	}
}

// A file that takes less than it was given is an error that names it, and leaves
// nothing behind.
func TestShortWrite(t *testing.T) {
	t.Parallel()
	var disk durabletest.Faulty
	fsys, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	disk.FailAt(1, io.ErrShortWrite, false)
	err = durable.Write(fsys, "x.json", []byte("content"))
	if named, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, io.ErrShortWrite) || filepath.Dir(named.Path) != fsys.Dir() {
		t.Errorf("Write = %v, want a short write of a file in %s", err, fsys.Dir())
	}
	if entries, err := fsys.ReadDir("."); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestSweepOldTemps(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	if err := durable.SweepOldTemps(fsys, "absent", time.Now()); err != nil {
		t.Errorf("of a folder that is not there: %v", err)
	}
	if _, err := durable.WriteTemp(fsys, "x.json", []byte("left over")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(durable.Write(fsys, "keep.json", nil), fsys.Mkdir("folder.tmp")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		later time.Duration
		want  int
	}{{0, 3}, {2 * time.Hour, 2}} {
		if err := durable.SweepOldTemps(fsys, ".", time.Now().Add(tt.later)); err != nil {
			t.Fatal(err)
		}
		if entries, _ := fsys.ReadDir("."); len(entries) != tt.want {
			t.Errorf("%v later: %v, want %d entries", tt.later, entries, tt.want)
		}
	}
}

func BenchmarkWrite8KB(b *testing.B) {
	fsys, err := durable.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer fsys.Close()
	data := make([]byte, 8<<10)
	for b.Loop() {
		if err := durable.Write(fsys, "x", data); err != nil {
			b.Fatal(err)
		}
	}
}

// Who shares a folder may each close it.
func TestCloseAgain(t *testing.T) {
	t.Parallel()
	fsys := open(t)
	for range 2 {
		if err := fsys.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
	if _, err := fsys.Stat("."); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Stat of a closed folder = %v, want %v", err, fs.ErrClosed)
	}
}

// TestTempAfterItsEnd: a temp file that was synced, even in vain, takes no more and
// says so: others may be about to write to it.
func TestTempAfterItsEnd(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		disk := &durabletest.Faulty{}
		fsys, err := disk.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		temp, err := durable.CreateTemp(fsys, "x")
		if err != nil {
			t.Fatal(err)
		}
		if fails {
			disk.FailAt(0, nil, false)
		}
		if err := temp.Sync(); (err != nil) != fails {
			t.Errorf("sync: %v", err)
		}
		disk.Reset()
		if _, err := temp.Write([]byte("more")); err == nil {
			t.Errorf("sync failed %v: it takes more", fails)
		}
		if err := temp.Sync(); err == nil {
			t.Errorf("sync failed %v: it syncs once more", fails)
		}
		if err := temp.Discard(); err != nil {
			t.Error(err)
		}
		if left, err := fsys.ReadDir("."); len(left) != 0 || err != nil {
			t.Errorf("sync failed %v: left %v, %v", fails, left, err)
		}
	}
}

// unlinked is a disk on which a file has one name.
type unlinked struct{ durable.FS }

// TestPublishNew: what is new never replaces what is there, and after a failure at
// any operation there is nothing.
func TestPublishNew(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(durable.FS) durable.FS{
		"two names": func(f durable.FS) durable.FS { return f },
		"one name":  func(f durable.FS) durable.FS { return unlinked{f} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k := 0; ; k++ {
				var disk durabletest.Faulty
				inner, err := disk.Open(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				fsys := wrap(inner)
				temp, err := durable.WriteTemp(fsys, "new", []byte("content"))
				if err != nil {
					t.Fatal(err)
				}
				disk.FailAt(k, nil, false)
				err = temp.PublishNew("new")
				fired := disk.Fired()
				disk.Reset()
				there, existsErr := durable.Exists(fsys, "new")
				if existsErr != nil || there != (err == nil) {
					t.Errorf("operation %d failed: %v, and it is there: %v, %v", k, err, there, existsErr)
				}
				if !fired {
					if data, readErr := durable.ReadFile(fsys, "new", 0); err != nil || string(data) != "content" {
						t.Errorf("%v, %q, %v", err, data, readErr)
					}
					other, err := durable.WriteTemp(fsys, "new", []byte("other"))
					if err != nil {
						t.Fatal(err)
					}
					if err := other.PublishNew("new"); !errors.Is(err, fs.ErrExist) {
						t.Errorf("over one that is there: %v", err)
					}
					if data, err := durable.ReadFile(fsys, "new", 0); err != nil || string(data) != "content" {
						t.Errorf("it was replaced: %q, %v", data, err)
					}
					break
				}
				if err := inner.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
