package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listedSession is a session as lists show it.
type listedSession struct{ ID, Why string }

// S1-06, S1-07, S1-09, S1-10: a gateway that starts moves the sessions above the
// configured limit to the trash, in the background; not the source of a named
// snapshot. It tells of it in its log, and what went comes back.
func TestSessionsExpireWhenAGatewayStarts(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	for _, id := range []string{"kept", "first", "second", "third"} {
		u.do("--session="+id, "chat", "--message", "this is "+id)
		if id == "kept" {
			u.do("save", "v1")
		}
	}
	u.config(`{"sessions":{"max":2}}`)
	u.gateway()
	var trash []listedSession
	waitFor(t, "sessions that expire", func() bool {
		u.answer(&trash, "sessions", "list", "--trash")
		return len(trash) == 2
	})
	gone := map[string]bool{}
	for _, s := range trash {
		gone[s.ID] = strings.Contains(s.Why, "sessions.max")
	}
	if !gone["first"] || !gone["second"] {
		t.Errorf("in the trash are %v, want first and second", trash)
	}
	if log := u.log(); !strings.Contains(log, "session expired") || strings.Contains(log, "this is") {
		t.Errorf("the log:\n%s", log)
	}
	u.do("sessions", "restore", "first")
	var first struct{ Messages []struct{ Content string } }
	u.answer(&first, "sessions", "show", "first")
	if len(first.Messages) != 2 || first.Messages[0].Content != "this is first" {
		t.Errorf("it came back with %+v", first)
	}
}

// S1-01, S1-03, S1-04: every turn belongs to a session, in whose folder its log is, one
// JSON object a line.
func TestTurnsBelongToASession(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=s1", "chat", "--message", "one")
	u.do("--session=s1", "chat", "--message", "two")
	u.do("--session=s2", "chat", "--message", "three")
	for name, input := range map[string]string{"s1/turn-001.jsonl": "one", "s1/turn-002.jsonl": "two", "s2/turn-001.jsonl": "three"} {
		data, err := os.ReadFile(filepath.Join(u.home, "sessions", "default", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		for i, line := range lines {
			var event struct {
				Seq   int
				Type  string
				Input string
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil || event.Seq != i+1 || event.Type == "" || i == 0 && event.Input != input {
				t.Errorf("%s, line %d: %v: %s", name, i+1, err, line)
			}
		}
	}
	logs, err := filepath.Glob(filepath.Join(u.home, "sessions", "*", "*", "*.jsonl"))
	if err != nil || len(logs) != 3 {
		t.Errorf("the event logs are %v, %v", logs, err)
	}
}
