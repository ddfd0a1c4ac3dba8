package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// peak is the most memory that a process has had resident, in bytes, since
// forgetPeak.
func peak(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		t.Fatalf("process %d does not tell its peak:\n%s", pid, status)
	}
	kilobytes, err := strconv.Atoi(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

func forgetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// What is done to a conversation takes no memory for its size, neither in the
// gateway nor in the plugin, also where another program wrote it in one piece.
// TESTS_LARGE_MB says how large it is; the bound stays the same.
func TestMemoryWithLargeConversation(t *testing.T) {
	t.Parallel()
	mb := 24
	if text := os.Getenv("TESTS_LARGE_MB"); text != "" {
		var err error
		if mb, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TESTS_LARGE_MB: %v", err)
		}
	}
	u := newUser(t)
	u.foreignSession("tiny", 4)
	u.foreignSession("small", 4)
	u.foreignSession("large", mb<<7)
	g := u.gateway()
	var pids map[string]int
	work := func(id string) map[string]int {
		t.Helper()
		most, n := map[string]int{}, 0
		do := func(args ...string) {
			t.Helper()
			for _, pid := range pids {
				forgetPeak(t, pid)
			}
			u.do(args...)
			n++
			for name, pid := range pids {
				most[fmt.Sprintf("%s at command %d, %s,", name, n, args[0])] = peak(t, pid)
			}
		}
		do("sessions", "use", id)
		do("sessions", "list")
		do("save", id+"1")
		do("sessions", "show")
		do("search", "nothing is like this", "--of-session="+id)
		do("chat", "--message", "hello")
		do("save", id+"2")
		do("sessions", "show")
		do("load", id+"1")
		do("undo")
		do("search", "nothing is like this", "--of-session="+id)
		do("messages", "delete", "1")
		do("undo")
		do("copy", id+"1", id+"3")
		do("view", id+"2")
		do("verify", id+"2")
		do("export", id+"2", "--output="+filepath.Join(u.dir, id+".json"))
		do("import", filepath.Join(u.dir, id+".json"), "--name="+id+"4")
		do("sessions", "delete", id)
		do("sessions", "restore", id)
		do("new")
		return most
	}
	work("tiny") // starts the plugins
	pids = map[string]int{"gateway": g.PID, "sess": u.plugin("sess").PID, "session-actions": u.plugin("session-actions").PID}
	few := work("small")
	for what, most := range work("large") {
		const more = 40 << 20
		if base, ok := few[what]; !ok || most > base+more {
			t.Errorf("%s takes %d MB with %d MB of conversation, and %d MB with a small one: want at most %d MB more", what, most>>20, mb, base>>20, more>>20)
		}
	}
}
