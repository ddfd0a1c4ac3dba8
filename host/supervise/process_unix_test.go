//go:build unix

package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sess/host/supervise"
	"sess/plugin"
)

// host is a program that starts a plugin and a child of that, tells their
// process numbers, and waits to be killed.
func host() {
	cfg := config("plugin")
	mux := os.Getenv("MUX") != ""
	cfg.Manifest.Mux = &mux
	cfg.RuntimeDir = os.Getenv("RUNTIME_DIR")
	s := supervise.New(cfg)
	child, err := s.Dispatch(context.Background(), plugin.Call{Argv: []string{"spawn"}}, nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.State().PID, child.Text)
	block()
}

// gone waits until there is no process pid, or only its remains.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		// An orphan stays until its new parent reaps it.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("the process %d is still there after 5 s", pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNothingOutlivesAKilledHost(t *testing.T) {
	t.Parallel()
	for _, mux := range []string{"", "1"} {
		t.Run("mux="+mux, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			cmd := exec.Command(self())
			cmd.Env = append(os.Environ(), asRole+"=host", "MUX="+mux, "RUNTIME_DIR="+dir)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(firstLine(t, stdout))
			if len(words) != 2 {
				t.Fatalf("the host says %q", words)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			for _, word := range words {
				gone(t, number(t, word))
			}
			// What it left behind goes with the next host's start.
			if left := leftovers(t, dir); len(left) == 0 {
				t.Error("the killed host left nothing, so that this test proves nothing")
			}
			cfg := config("plugin")
			cfg.RuntimeDir = dir
			s := supervisor(t, cfg)
			mustDispatch(t, s, "pid")
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left in the runtime dir: %q", left)
			}
		})
	}
}

func TestStartingAndClosingLeavesNothingBehind(t *testing.T) {
	dir := shortDir(t)
	cycle := func(mux bool) {
		t.Helper()
		cfg := config("plugin")
		cfg.Manifest.Mux, cfg.RuntimeDir = &mux, dir
		s := supervise.New(cfg)
		mustDispatch(t, s, "pid")
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	descriptors := func() int {
		entries, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	cycle(true) // makes what the process keeps
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for i := range 10 {
		cycle(i%2 == 0)
	}
	// The last of go-plugin's goroutines end a moment after its Kill returns.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		g, f := runtime.NumGoroutine(), descriptors()
		if g <= goroutines && f <= files {
			break
		}
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines and %d open files have become %d and %d\n%s",
				goroutines, files, g, f, stacks[:runtime.Stack(stacks, true)])
		}
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left in the runtime dir: %q", left)
	}
}

func TestAGrandchildEndsWithItsPlugin(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"close", "exit"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := supervisor(t, config("plugin"))
			child := number(t, mustDispatch(t, s, "spawn"))
			began := time.Now()
			if how == "close" {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			} else {
				_, err := dispatch(t, s, "exit")
				wantError(t, err, plugin.Unavailable, "exit status 3")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the child that held stderr delayed the end by %v", took)
			}
			gone(t, child)
		})
	}
}

func TestAStoppedPluginCanBeClosed(t *testing.T) {
	t.Parallel()
	for _, mux := range []bool{false, true} {
		t.Run(fmt.Sprint("mux=", mux), func(t *testing.T) {
			t.Parallel()
			cfg := config("plugin")
			cfg.Manifest.Mux = &mux
			s := supervisor(t, cfg)
			pid := number(t, mustDispatch(t, s, "pid"))
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			// The signal takes a moment; then no call comes back in time.
			var ctx context.Context
			for err := error(nil); err == nil; {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err = s.Dispatch(ctx, plugin.Call{Argv: []string{"pid"}}, nil)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Dispatch = %v, want the deadline", err)
				}
			}
			if err := s.Close(ctx); err != nil {
				t.Errorf("Close = %v", err)
			}
			gone(t, pid)
		})
	}
}

func TestSocketFolders(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	odd := filepath.Join(shortDir(t), "a ü b")
	shared := filepath.Join(shortDir(t), "shared")
	for _, dir := range []string{long, odd, shared} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, temp, preferred string
	}{
		{"a long temporary folder", long, ""},
		{"blanks and more", odd, ""},
		{"a missing temporary folder", filepath.Join(odd, "missing"), ""},
		{"a file for a temporary folder", file, ""},
		{"a long preferred folder", "", long},
		{"a shared preferred folder", "", shared},
		{"a missing preferred folder", "", filepath.Join(shortDir(t), "a", "b")},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.temp != "" {
				t.Setenv("TMPDIR", test.temp)
			}
			cfg := config("plugin")
			cfg.RuntimeDir = test.preferred
			s := supervise.New(cfg)
			mustDispatch(t, s, "pid")
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close = %v", err)
			}
		})
	}
}

func TestGuardTiesACommandToItsStdin(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(self(), "--", "env", asRole+"=lives-alone", self())
	cmd.Env = append(os.Environ(), asRole+"=guarded")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := number(t, firstLine(t, stdout))
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	_ = cmd.Wait()
}

func TestGuardReturnsTheCommandsStatus(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   []string
		want   int
		stderr string
	}{
		{[]string{"--", "env", asRole + "=exit-7", self()}, 7, ""},
		{[]string{"sh", "-c", "kill -9 $$"}, 137, ""},
		{[]string{"--", "/no/such/program"}, 127, "/no/such/program"},
		{[]string{"--", t.TempDir()}, 126, "cannot be run"},
		{nil, 2, "usage"},
	} {
		cmd := exec.Command(self(), test.args...)
		cmd.Env = append(os.Environ(), asRole+"=guarded")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		err = cmd.Run()
		_ = stdin.Close()
		if got := cmd.ProcessState.ExitCode(); got != test.want || !strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("guard %q = %d (%v), stderr %q, want %d and %q", test.args, got, err, stderr.String(), test.want, test.stderr)
		}
	}
}

func TestASupervisedPluginUnderGuard(t *testing.T) {
	t.Parallel()
	cfg := config("plugin")
	cfg.Env = []string{asRole + "=guarded", "GORACE=exitcode=0"}
	cfg.Guard = []string{self(), "--", "env", asRole + "=plugin"}
	s := supervisor(t, cfg)
	pid := number(t, mustDispatch(t, s, "pid"))
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
	gone(t, pid)
}
