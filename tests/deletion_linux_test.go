package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Whichever process is killed in the middle of a deletion, it has then happened
// whole, with its snapshot, or not at all: so there are as many snapshots as
// deletions. Where the gateway lives on this holds as soon as it has answered.
func TestDeletionKilled(t *testing.T) {
	t.Parallel()
	const total = 100
	k := newKiller(t, 0)
	k.seed("talk", total)
	k.do("sessions", "use", "talk")
	pool := filepath.Join(k.home, "agents", "main", "sessions")
	// made counts the snapshots as they lie on the disk.
	made := func() int {
		entries, err := os.ReadDir(pool)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		n := 0
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "pre-delete~") && strings.HasSuffix(e.Name(), ".sess.json") {
				n++
			}
		}
		return n
	}
	whole := func(when string) {
		t.Helper()
		var messages, snapshots []struct{ Reason string }
		k.answer(&messages, "messages", "list", "--count=1000")
		k.answer(&snapshots, "list", "--include-auto")
		if len(messages) != total-len(snapshots) {
			t.Errorf("%s: %d of %d messages are left, and there are %d snapshots", when, len(messages), total, len(snapshots))
		}
	}
	g := k.gateway()
	for _, c := range []struct {
		victim string // a plugin, or "" for the gateway
		late   bool   // it is killed when the snapshot is there
	}{
		{"session-actions", true}, {"sess", true}, {"", true}, {"session-actions", false}, {"session-actions", true}, {"sess", true}, {"", true},
	} {
		k.do("messages", "list", "--count=1") // all are up
		k.do("list")
		pid := g.cmd.Process.Pid
		if c.victim != "" {
			var plugins []struct {
				ID  string
				PID int
			}
			k.answer(&plugins, "plugins", "list")
			for _, p := range plugins {
				if p.ID == c.victim {
					pid = p.PID
				}
			}
		}
		before, asker := made(), g.asker()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			// How it ends is not the point here.
			_, _, _ = asker.ask(t.Context(), http.MethodDelete, "/sessions/talk/messages/3", nil)
		}()
		if c.late {
			k.wait("a snapshot, or the answer", func() bool {
				select {
				case <-answered:
					return true
				default:
					return made() > before
				}
			})
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s, process %d: %v", c.victim, pid, err)
		}
		<-answered
		if c.victim == "" {
			_ = g.cmd.Wait()
			k.wait("the end of all processes", func() bool { return len(k.processes()) == 0 })
			g = k.gateway()
		}
		whole("after the end of " + c.victim)
	}
	if made() == 0 {
		t.Error("no deletion has happened")
	}
}
