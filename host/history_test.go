package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// S1-19: what was typed in a chat is there at the next start, in a file that is
// only its owner's.
func TestHistory(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	h := openHost(t, home, allPermissions)
	first := h.History()
	for _, text := range []string{"one", "one", "", "  ", " a secret", "two\nlines", strings.Repeat("x", 40_000), "three"} {
		first.Add(text)
	}
	want := []string{"one", "two\nlines", "three"}
	for _, got := range [][]string{first.Lines(), h.History().Lines()} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	}
	info, err := os.Stat(filepath.Join(home, "chat.history"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v, %v", info, err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ lines, kept int }{{2500, 1000}, {1500, 1500}} {
		home := t.TempDir()
		file := filepath.Join(home, "chat.history")
		var lines strings.Builder
		for i := range tt.lines {
			fmt.Fprintf(&lines, "%q\n", fmt.Sprint("line ", i))
		}
		if err := os.WriteFile(file, []byte(lines.String()+`"half a li`), 0o600); err != nil {
			t.Fatal(err)
		}
		host := openHost(t, home, allPermissions)
		h := host.History()
		if got := h.Lines(); len(got) != 1000 || got[0] != fmt.Sprint("line ", tt.lines-1000) || got[999] != fmt.Sprint("line ", tt.lines-1) {
			t.Errorf("of %d lines there are %d, the first is %q", tt.lines, len(got), got[0])
		}
		h.Add("more")
		data, err := os.ReadFile(file)
		if n := strings.Count(string(data), `"`+"\n"); err != nil || n != tt.kept+1 {
			t.Errorf("of %d lines %d are in the file (%v)", tt.lines, n, err)
		}
		if got := host.History().Lines(); got[len(got)-1] != "more" {
			t.Errorf("the last line is %q", got[len(got)-1])
		}
	}
}

func TestNoHistory(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, "chat.history")
	if err := os.WriteFile(file, []byte("\"old\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(`{"chat": {"history": 0}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h := openHost(t, home, allPermissions).History()
	h.Add("new")
	if got := h.Lines(); len(got) != 0 {
		t.Errorf("lines %q", got)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("its file is still there: %v", err)
	}
}

// That a line cannot be kept, or those before cannot be read, is told, and once.
func TestHistoryThatCannotBeKept(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	h := openHost(t, home, allPermissions)
	if err := os.Mkdir(filepath.Join(home, "chat.history"), 0o700); err != nil {
		t.Fatal(err)
	}
	history := h.History()
	for _, text := range []string{"one", "two"} {
		history.Add(text)
	}
	if diff := cmp.Diff([]string{"one", "two"}, history.Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	told := h.Troubles()
	if len(told) != 2 || !strings.Contains(told[0], "written in chats before") || !strings.Contains(told[1], "not kept") || !strings.Contains(told[1], "chat.history") {
		t.Errorf("told is %q", told)
	}
	if history.Add("three"); len(h.Troubles()) != 0 {
		t.Error("it is told again")
	}
}
