package tests

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Where nobody reads the answer, a command is done all the same, ends with the
// status of a broken pipe, says nothing, and leaves no turn behind that runs.
func TestOutputIntoAClosedPipe(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no broken pipes")
	}
	u := newUser(t)
	closed := func(args ...string) (stderr string, exit int) {
		t.Helper()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		cmd := u.command(args...)
		cmd.Stdout, cmd.Stderr = w, &errs
		exit = u.exit(cmd.Run())
		return errs.String(), exit
	}
	u.do("chat", "--message", "hello")
	for _, args := range [][]string{
		{"save", "v1"},
		{"list"},
		{"list", "--json"},
		{"help"},
		{"load", "nosuch", "--json"},
	} {
		if stderr, exit := closed(args...); exit != 141 || stderr != "" {
			t.Errorf("sess %s into a closed pipe ended with status %d and said %q; want 141 and nothing", strings.Join(args, " "), exit, stderr)
		}
	}
	if got := u.names(); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("after save v1 the list has %q", got)
	}

	if _, exit := closed("chat", "--message", "slow 400 50ms"); exit != 141 {
		t.Errorf("chat into a closed pipe ended with status %d, want 141", exit)
	}
	var session struct {
		Status   string
		Messages []struct{ Status string }
	}
	u.answer(&session, "sessions", "show")
	if session.Status != "idle" || len(session.Messages) != 4 {
		t.Errorf("after a chat into a closed pipe the session has status %q and %d messages, want idle and 4", session.Status, len(session.Messages))
	}
}

// A full disk behind stdout is told, and is no success.
func TestOutputOntoAFullDisk(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("/dev/full is Linux's")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"save", "v1"}, {"chat", "--message", "hello again"}} {
		var errs bytes.Buffer
		cmd := u.command(args...)
		cmd.Stdout, cmd.Stderr = full, &errs
		if exit := u.exit(cmd.Run()); exit != 8 || !strings.Contains(errs.String(), "cannot write the output") {
			t.Errorf("sess %s onto a full disk ended with status %d and said %q", strings.Join(args, " "), exit, errs.String())
		}
	}
	if got := u.names(); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("after save v1 the list has %q", got)
	}
}
