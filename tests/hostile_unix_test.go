//go:build unix

package tests

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// answering starts a turn that takes long, and returns when the answer has
// begun, with what waits for its end.
func (u *user) answering() (turn *exec.Cmd, rest func() string) {
	u.t.Helper()
	turn = u.command("chat", "--message", "slow 2000 20ms")
	out, err := turn.StdoutPipe()
	if err != nil {
		u.t.Fatal(err)
	}
	if err := turn.Start(); err != nil {
		u.t.Fatal(err)
	}
	var said strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(said.String(), "3 ") {
		n, err := out.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			u.t.Fatalf("the answer ended after %q: %v", said.String(), err)
		}
	}
	return turn, func() string {
		for {
			n, err := out.Read(buf)
			said.Write(buf[:n])
			if err != nil {
				return said.String()
			}
		}
	}
}

// A signal in the middle of a turn ends it in order: what came until then is
// kept, and the session is free.
func TestSignalInATurn(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			turn, rest := u.answering()
			if err := turn.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			said := strings.TrimSpace(rest())
			if exit := u.exit(turn.Wait()); exit != 130 {
				t.Errorf("exit status %d, want 130", exit)
			}
			var s struct {
				Status   string
				Messages []struct{ Status, Content string }
			}
			u.answer(&s, "sessions", "show")
			if len(s.Messages) != 2 || s.Status != "idle" {
				t.Fatalf("the session is %s and has %d messages, want idle and 2", s.Status, len(s.Messages))
			}
			if got := s.Messages[1]; strings.TrimSpace(got.Content) != said || got.Status != "complete" {
				t.Errorf("kept %q (%s), said %q", got.Content, got.Status, said)
			}
			u.do("chat", "--message", "go on")
		})
	}
}

// While a turn runs, saving works, and what would change the conversation under
// it is refused and changes nothing.
func TestOthersDuringATurn(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "before")
	turn, rest := u.answering()
	u.do("save", "during")
	pool := filepath.Join(u.home, "agents")
	was, err := readTree(pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"load", "before"}, {"new"}, {"chat", "--message", "me too"}} {
		if out, errs, exit := u.run(args...); exit != 5 {
			t.Errorf("sess %s during a turn: exit %d, want 5\n%s%s", strings.Join(args, " "), exit, out, errs)
		}
	}
	is, err := readTree(pool)
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := diffTrees(was, is, []string{"*.holder"}); err != nil || changes != "" {
		t.Errorf("what was refused changed the snapshots (%v):\n%s", err, changes)
	}
	if err := turn.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rest()
	if exit := u.exit(turn.Wait()); exit != -1 {
		t.Errorf("the turn had ended with status %d before it was killed", exit)
	}
	u.do("load", "before")
	if got := u.names(); !slices.Contains(got, "during") {
		t.Errorf("listed %v, want what was saved during the turn", got)
	}
}

// A signal comes right after the last of twenty quick turns: all of them are
// stored, the autosave that was due has them, and the program is gone soon. One
// that is killed has lost nothing but, at most, the end of the last turn.
func TestSignalAfterTwentyTurns(t *testing.T) {
	t.Parallel()
	const turns = 20
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			u.configure(`{"autoSave": true}`)
			c := u.converse()
			for i := range turns {
				if got := c.says(fmt.Sprintf("turn %d", i)); !strings.Contains(got, fmt.Sprintf("turn %d", i)) {
					t.Fatalf("turn %d was answered %q", i, got)
				}
			}
			start := time.Now()
			if err := c.chat.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			exit := c.exit(c.chat.Wait())
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("the program took %v to end", took)
			}
			killed := sig == syscall.SIGKILL
			if killed != (exit == -1) {
				t.Errorf("the program ended with status %d", exit)
			}
			got := u.messages()
			if len(got) != 2*turns || got[2*turns-2] != fmt.Sprint("turn ", turns-1) || !strings.Contains(got[2*turns-1], "You said") {
				t.Errorf("the session has %d messages, the last ones %q", len(got), got[max(0, len(got)-2):])
			}
			var list []struct{ Messages int }
			u.answer(&list, "list", "--include-auto")
			if !killed && (len(list) != 1 || list[0].Messages != 2*turns) {
				t.Errorf("the autosaves are %v, want one of %d messages", list, 2*turns)
			}
			for i, line := range strings.SplitAfter(strings.TrimSuffix(u.eventLogs(), "\n"), "\n") {
				if !json.Valid([]byte(line)) && !killed {
					t.Errorf("line %d of the event logs is %q", i+1, line)
				}
			}
			if got := u.do("chat", "--message", "go on"); !strings.Contains(got, fmt.Sprintf("%d messages from you", turns+1)) {
				t.Errorf("the next turn was answered %q", got)
			}
			u.do("verify")
		})
	}
}
