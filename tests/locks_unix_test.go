//go:build unix

package tests

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sess/store/durable"
)

// holdLock, set in the environment, makes the test process take the lock of the
// snapshots in that folder, and stop.
const holdLock = "TESTS_HOLD_LOCK"

// hold takes the lock, stops its own process, and releases the lock as soon as
// somebody lets it go on.
func hold(t *testing.T, dir string) {
	fsys, err := durable.OpenExisting(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	unlock, err := durable.LockAs(t.Context(), fsys, ".lock", "a long nap", true) // a gateway may be pruning
	if err != nil {
		t.Fatal(err)
	}
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-goOn // this thread may be a little ahead of the stop
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// stoppedHolder is a process that holds the lock of the user's snapshots, and is
// stopped.
func (u *user) stoppedHolder() *exec.Cmd {
	u.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.CommandContext(u.t.Context(), exe, "-test.run=^TestStoppedHolderOfALock$", "-test.count=1")
	cmd.Env = append(os.Environ(), holdLock+"="+u.pool())
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	var status syscall.WaitStatus
	for !status.Stopped() {
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && err != syscall.EINTR {
			u.t.Fatal(err)
		}
		if status.Exited() {
			u.t.Fatalf("who was to hold the lock ended: %s", &out)
		}
	}
	return cmd
}

// A process that holds the lock of the snapshots is stopped, as by Ctrl-Z. Who
// only reads does not notice, and a turn is a turn; who wants to change something
// waits a while and is then told who stands in the way, and nothing has changed.
// When the holder goes on, so does who waits; when it is killed all is free.
func TestStoppedHolderOfALock(t *testing.T) {
	if dir := os.Getenv(holdLock); dir != "" {
		hold(t, dir)
		return
	}
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "one")
	u.do("save", "v1")
	u.do("save", "v2")
	u.do("chat", "--message", "two")
	before, err := readTree(u.pool())
	if err != nil {
		t.Fatal(err)
	}
	holder := u.stoppedHolder()
	var all sync.WaitGroup
	for _, args := range [][]string{
		{"save", "v3"},
		{"save", "v2", "--overwrite"},
		{"load", "v1"},
		{"rename", "v1", "v3"},
		{"delete", "v1"},
		{"new"},
	} {
		all.Go(func() {
			out, err := u.command(args...).CombinedOutput()
			if exit := u.exit(err); exit != 5 || !strings.Contains(string(out), "(a long nap)") {
				t.Errorf("sess %s ended with status %d, want 5 and who holds the lock:\n%s", strings.Join(args, " "), exit, out)
			}
		})
	}
	if got := u.names(); !slices.Equal(got, []string{"v2", "v1"}) {
		t.Errorf("the list has %q", got)
	}
	u.do("view", "v1")
	u.do("verify")
	u.do("chat", "--message", "three")
	all.Wait()
	after, err := readTree(u.pool())
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := diffTrees(before, after, []string{".lock", "*.holder", "*.zst"}); err != nil || changes != "" {
		t.Errorf("what was refused changed the snapshots (%v):\n%s", err, changes)
	}
	if got := len(u.messages()); got != 6 {
		t.Errorf("the session has %d messages, want 6", got)
	}

	saved := make(chan error, 1)
	go func() { saved <- u.command("save", "v3").Run() }()
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := holder.Wait(); err != nil {
		t.Errorf("the holder, when it went on: %v", err)
	}
	if err := <-saved; err != nil {
		t.Errorf("a save while the holder went on: %v", err)
	}

	holder = u.stoppedHolder()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	u.do("load", "v1")
	u.do("undo")
	u.do("verify")
}

// The snapshots cannot be reached after a turn, which is safe in the session by
// then: whoever talks is told that there was no autosave, and nothing failed.
func TestTurnWhileTheSnapshotsAreLocked(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"autoSave": true}`)
	u.do("chat", "--message", "one")
	holder := u.stoppedHolder()
	_, stderr, exit := u.run("chat", "--message", "two")
	if exit != 0 || !strings.Contains(stderr, "autosave failed") || !strings.Contains(stderr, "(a long nap)") {
		t.Errorf("the turn ended with status %d and said %q", exit, stderr)
	}
	if got := len(u.messages()); got != 4 {
		t.Errorf("the session has %d messages, want 4", got)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	u.do("chat", "--message", "three")
	var list []struct{ Messages int }
	if u.answer(&list, "list", "--include-auto"); len(list) != 1 || list[0].Messages != 6 {
		t.Errorf("after the next turn the autosaves are %v, want one of 6 messages", list)
	}
}
