//go:build unix

package tests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// S4-05: an autosave that cannot get on delays no turn and fails none: who follows
// hears of it later, and the next one that gets through has everything.
func TestAutosaveDelaysNoTurn(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"autoSave": true}`)
	a := u.gateway().asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	a.say(t, "s1", "one")
	saved := func(n int) func() bool {
		return func() bool {
			var list []struct{ Messages int }
			u.answer(&list, "list", "--include-auto")
			return len(list) == 1 && list[0].Messages == n
		}
	}
	waitFor(t, "the first autosave", saved(2))
	follows := a.open(t, "GET", "/sessions/s1/events", nil)
	holder := u.stoppedHolder()
	for i := range 3 {
		if answer := a.say(t, "s1", fmt.Sprintf("while it is held %d", i)); answer.Status != "complete" || len(answer.Notices) > 0 {
			t.Errorf("a turn while the snapshots are held: %+v", answer)
		}
	}
	events := follows.until(t, "notice")
	if ended := strings.Count(" "+kindsOf(events)+" ", " turn_end "); ended != 3 || !strings.Contains(events[len(events)-1].field(t, "text"), "autosave failed") {
		t.Errorf("before the notice %s, %d turns ended, want 3", events[len(events)-1].Data, ended)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	for i := range 10 {
		a.say(t, "s1", fmt.Sprintf("quick %d", i))
	}
	waitFor(t, "an autosave of all", saved(28))
}

// A conversation that became shorter does not replace the longer one for good: its
// autosave is in the trash, the event logs have all turns, and a snapshot brings
// the whole back.
func TestAutosaveKeepsTheLonger(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"autoSave": true}`)
	a := u.gateway().asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	const turns = 6
	for i := range turns {
		a.say(t, "s1", fmt.Sprintf("turn %d", i))
	}
	a.say(t, "s1", "/sess save full")
	saved := func(n int) func() bool {
		return func() bool {
			var view struct{ Total int }
			u.answer(&view, "view", "autosave~")
			return view.Total == n
		}
	}
	waitFor(t, "the autosave of all", saved(2*turns))
	var all struct{ Sessions []map[string]json.RawMessage }
	a.must(t, "GET", "/sessions", nil, &all)
	var messages []json.RawMessage
	if len(all.Sessions) != 1 || json.Unmarshal(all.Sessions[0]["messages"], &messages) != nil || len(messages) != 2*turns {
		t.Fatalf("the sessions: %s", all.Sessions)
	}
	short, err := json.Marshal(messages[2*turns-4:])
	if err != nil {
		t.Fatal(err)
	}
	all.Sessions[0]["messages"] = short
	a.must(t, "PUT", "/sessions/s1", all.Sessions[0], nil)
	a.say(t, "s1", "after it was cut")
	waitFor(t, "the autosave of the shorter", saved(6))
	var trash []struct {
		Name     string
		Messages int
	}
	u.answer(&trash, "trash", "list")
	kept := false
	for _, entry := range trash {
		kept = kept || entry.Name == "autosave~" && entry.Messages == 2*turns
	}
	if !kept {
		t.Errorf("the autosave of the longer is not in the trash: %+v", trash)
	}
	logs, err := filepath.Glob(filepath.Join(u.home, "sessions", "default", "s1", "turn-*.jsonl"))
	if err != nil || len(logs) != turns+1 {
		t.Errorf("%d event logs (%v), want %d", len(logs), err, turns+1)
	}
	a.say(t, "s1", "/sess load full")
	if p := a.page(t, "s1", ""); p.Total != 2*turns || p.Messages[0].Content != "turn 0" {
		t.Errorf("after the load the session has %q", p.contents())
	}
}
