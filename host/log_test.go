package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sess/store/durable"
)

// TestLogRotates writes much more than a log may have: what is kept is bounded,
// has the newest lines, each whole and in order, and nobody else may read it.
func TestLogRotates(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	const limit, keep = 1000, 3
	log := &logFile{open: durable.OpenDir, home: home, name: gatewayLogName, limit: limit, keep: keep}
	const lines = 1000
	for i := range lines {
		if _, err := fmt.Fprintf(log, "line %04d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(home, logDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if info, err := e.Info(); err != nil || info.Size() > limit+10 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v bytes, mode %v, %v; want at most %d and 0600", e.Name(), info.Size(), info.Mode(), err, limit+10)
		}
	}
	if want := []string{"gateway.log", "gateway.log.1", "gateway.log.2", "gateway.log.3"}; !slices.Equal(names, want) {
		t.Fatalf("files: %v, want %v", names, want)
	}
	var all strings.Builder
	for _, name := range []string{"gateway.log.3", "gateway.log.2", "gateway.log.1", "gateway.log"} {
		data, err := os.ReadFile(filepath.Join(home, logDir, name))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	got := strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
	for i, line := range got {
		if want := fmt.Sprintf("line %04d", lines-len(got)+i); line != want {
			t.Fatalf("line %d of what is kept: %q, want %q", i, line, want)
		}
	}
	if len(got) < keep*limit/10 {
		t.Errorf("%d lines are kept, want at least %d", len(got), keep*limit/10)
	}
}

// TestLogSharedByProcesses begins a new log in one of two processes that write to
// it: the other follows, and does not throw the new one away.
func TestLogSharedByProcesses(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	open := func() *logFile {
		l := &logFile{open: durable.OpenDir, home: home, name: logName, limit: 100, keep: 1}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, two := open(), open()
	write := func(l *logFile, text string) {
		t.Helper()
		if _, err := l.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(one, strings.Repeat("a", 97)+"\n")
	write(two, "b\n") // now it is full
	write(two, "c\n") // begins a new one
	write(one, "d\n") // still has the old one, and now it knows that that is full
	write(one, "e\n")
	old, err := os.ReadFile(filepath.Join(home, logName+".1"))
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(filepath.Join(home, logName))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("a", 97) + "\nb\nd\n"; string(old) != want || string(now) != "c\ne\n" {
		t.Errorf("logs: %q and %q, want %q and %q", old, now, want, "c\ne\n")
	}
}
