//go:build unix

package tests

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// While a chat is open a snapshot is loaded into its conversation over HTTP. The
// chat says so, and its next turn goes on from what was loaded: for the model, in
// the session's file and in its log.
func TestLoadUnderAnOpenChat(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	web := u.gateway().asker()
	c := u.converse()
	c.says("one")
	c.says("two")
	c.says("/sess save alpha")
	for _, line := range []string{"three", "four", "five"} {
		c.says(line)
	}
	web.must(t, http.MethodPost, "/sess/load", map[string]any{"name": "alpha"}, nil)
	if got := u.messages(); len(got) != 4 {
		t.Errorf("after the load there are %d messages, want 4: %q", len(got), got)
	}
	if got := c.says("six"); !strings.Contains(got, "has 3 messages from you") {
		t.Errorf("the model answers %q, want it to be given the two turns of alpha", got)
	}
	if !c.told("this conversation was replaced: snapshot alpha was loaded") {
		t.Error("the chat does not say that its conversation was replaced")
	}
	if got := u.messages(); len(got) != 6 || !slices.Equal([]string{got[0], got[2], got[4]}, []string{"one", "two", "six"}) {
		t.Errorf("after one more turn the messages are %q", got)
	}
	logs, err := filepath.Glob(filepath.Join(u.home, "sessions", "default", "*", "turn-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range logs {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if last := i == len(logs)-1; strings.Contains(string(data), `"six"`) != last {
			t.Errorf("%s of %d: has the turn after the load: %t", name, len(logs), !last)
		}
	}
	if exit := c.end(); exit != 0 {
		t.Errorf("the chat ended with status %d", exit)
	}
}

// Two sessions of one project are open. A chat means its own one; who names none
// means the one that is active, on every surface, and is told which that is; and a
// load into one leaves the other as it was.
func TestTwoSessionsSideBySide(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	web := u.gateway().asker()
	active := func() string {
		var session struct{ ID string }
		u.answer(&session, "sessions", "show")
		return session.ID
	}
	c := u.converse()
	c.says("marker one")
	c.says("/sess save alpha")
	first := active()
	u.do("new")
	u.chat("marker two")
	second := active()
	if first == second {
		t.Fatalf("new made no session beside %s", first)
	}
	file := filepath.Join(u.home, "sessions", "default", second+".json")
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	c.says("/sess save x")
	type saved struct{ Data struct{ SessionID string } }
	of := map[string]saved{}
	var list []struct{ Name, SessionID string }
	if u.answer(&list, "list"); len(list) == 0 || list[0].Name != "x" || list[0].SessionID != first {
		t.Errorf("the chat of %s saved %+v", first, list)
	}
	means := active()
	var y saved
	u.answer(&y, "save", "y-cli")
	of["command line"] = y
	web.must(t, http.MethodPost, "/sess/save", map[string]any{"name": "y-http"}, &y)
	of["HTTP"] = y
	answer, err := web.rpc(t.Context(), "sess.invoke", map[string]any{"action": "save", "name": "y-rpc"})
	if err != nil || answer.Error != nil || json.Unmarshal(answer.Result, &y) != nil {
		t.Fatalf("save over RPC: %+v, %v", answer, err)
	}
	of["RPC"] = y
	for surface, got := range of {
		if got.Data.SessionID != means {
			t.Errorf("save over %s without a session: of %q, want %q, which is active", surface, got.Data.SessionID, means)
		}
	}

	web.must(t, http.MethodPost, "/sess/load", map[string]any{"name": "alpha", "session": first}, nil)
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("a load into %s changed %s (%v)", first, second, err)
	}
	if got := u.messages("--session=" + second); len(got) != 2 || got[0] != "marker two" {
		t.Errorf("then the other one has %q", got)
	}
	if exit := c.end(); exit != 0 {
		t.Errorf("the chat ended with status %d", exit)
	}
}
