package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"sess/store/session"
	"sess/store/transcript"
)

// put lays a snapshot into the user's pool, as a file that came from elsewhere.
func (u *user) put(name string, doc *transcript.Document) (file string) {
	u.t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	doc.Meta.ID, doc.Meta.CreatedAt, doc.Meta.UpdatedAt = uuid.Must(uuid.NewV7()).String(), now, now
	doc.Meta.Messages, doc.Meta.Digest = doc.List(transcript.ListMessages).Records, doc.Digest()
	file = filepath.Join(u.pool(), name+".sess.json")
	if err := errors.Join(os.MkdirAll(u.pool(), 0o700), os.WriteFile(file, doc.Encode(), 0o600)); err != nil {
		u.t.Fatal(err)
	}
	return file
}

// fill puts values into a list of a document.
func fillList[T any](t testing.TB, doc *transcript.Document, list string, values ...T) {
	t.Helper()
	for _, v := range values {
		data, err := json.Marshal(v)
		if err == nil {
			err = doc.List(list).Append([]transcript.Record{data}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// active is the session that was active last, as it is stored.
func (u *user) active() *session.Live {
	u.t.Helper()
	ctx := u.t.Context()
	store, err := session.Open(filepath.Join(u.home, "sessions"), session.Options{})
	if err != nil {
		u.t.Fatal(err)
	}
	defer store.Close()
	m, err := store.Manifest(ctx)
	if err != nil {
		u.t.Fatal(err)
	}
	live, err := store.Read(ctx, session.Ref{Project: m.LastProjectID, ID: m.LastSessionID})
	if err != nil {
		u.t.Fatal(err)
	}
	return live
}

// items are the records of a list that lies in the session's file whole, one a
// line.
func items(t testing.TB, live *session.Live, list string) []string {
	t.Helper()
	var all []string
	for r, err := range live.Doc.List(list).All(live.Load, 0, live.Doc.List(list).Records) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(r))
	}
	return all
}

// A snapshot may end in a call that has no result, or hold a result of no call;
// every provider refuses to go on from such a history. What is loaded is mended
// once, in the session's file; the snapshot stays as it is; and the next process
// finds nothing to mend.
func TestUnansweredToolCalls(t *testing.T) {
	t.Parallel()
	call := func(ids ...string) transcript.HistoryItem {
		item := transcript.HistoryItem{Role: transcript.RoleAssistant}
		for _, id := range ids {
			item.ToolCalls = append(item.ToolCalls, transcript.ToolCall{ID: id, Name: "search", Arguments: json.RawMessage(`{"q": 1}`)})
		}
		return item
	}
	result := func(id, text string) transcript.HistoryItem {
		return transcript.HistoryItem{Role: transcript.RoleTool, ToolCallID: id, Name: "search", Content: text}
	}
	says := func(role transcript.Role, text string) transcript.HistoryItem {
		return transcript.HistoryItem{Role: role, Content: text}
	}
	ask, then, done := says(transcript.RoleUser, "look it up"), says(transcript.RoleUser, "and?"), says(transcript.RoleAssistant, "there")
	cut := transcript.Interrupted
	type history = []transcript.HistoryItem
	for _, tt := range []struct {
		name         string
		stored, live history
		notice       string // of the load
	}{
		{"a call at the end", history{ask, call("t1")}, history{ask, call("t1"), result("t1", cut)}, "1 tool call had no result"},
		{"a call before a question", history{ask, call("t1"), then}, history{ask, call("t1"), result("t1", cut), then}, "1 tool call had no result"},
		{"a result of no call", history{ask, done, result("t9", "?"), then}, history{ask, done, then}, "1 result belonged to no tool call"},
		{"one call of two answered", history{ask, call("t1", "t2"), result("t2", "yes"), then}, history{ask, call("t1", "t2"), result("t1", cut), result("t2", "yes"), then}, "1 tool call had no result"},
		{"all is well", history{ask, call("t1"), result("t1", "yes"), done}, history{ask, call("t1"), result("t1", "yes"), done}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			u.do("chat", "--message", "something else")
			doc := &transcript.Document{Header: json.RawMessage(`{"title":"calls","cwd":"/w"}`)}
			fillList(t, doc, transcript.ListMessages, transcript.Message{ID: "m1", Role: transcript.RoleUser, Content: "look it up", Status: transcript.StatusComplete})
			fillList(t, doc, transcript.ListHistory, tt.stored...)
			file := u.put("calls", doc)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			out, errs, exit := u.run("load", "calls")
			if exit != 0 || !strings.Contains(out+errs, tt.notice) || tt.notice == "" && strings.Contains(out+errs, "tool") {
				t.Errorf("load ended with status %d and said %q, %q; want a notice of %q", exit, out, errs, tt.notice)
			}
			want := &transcript.Document{}
			fillList(t, want, transcript.ListHistory, tt.live...)
			wanted := make([]string, 0, len(tt.live))
			for _, r := range want.List(transcript.ListHistory).Tail {
				wanted = append(wanted, string(r))
			}
			if diff := cmp.Diff(wanted, items(t, u.active(), transcript.ListHistory)); diff != "" {
				t.Errorf("history after the load (-want +got):\n%s", diff)
			}
			// Each of these is a process of its own.
			for i := range 2 {
				if _, errs, exit := u.run("chat", "--message", "go on"); exit != 0 || errs != "" {
					t.Errorf("a turn ended with status %d and said %q", exit, errs)
				}
				got := items(t, u.active(), transcript.ListHistory)
				if n := len(wanted) + 2*(i+1); len(got) != n || !slices.Equal(got[:len(wanted)], wanted) {
					t.Errorf("after %d turns the history is\n%s", i+1, strings.Join(got, "\n"))
				}
			}
			if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
				t.Errorf("the load changed the snapshot (%v): it was\n%s\nand is\n%s", err, before, after)
			}
			u.do("verify")
		})
	}
}

// When the history is shortened, the long one is not lost: the autosave keeps
// what it replaces, the event log has every turn, and what was saved before can
// be loaded, whole.
func TestCompactedSession(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"autoSave": true}`)
	const turns = 20
	lines := make([]string, turns)
	for i := range lines {
		lines[i] = fmt.Sprintf("question-%02d", i)
	}
	u.doWith(strings.Join(lines, "\n")+"\n", "chat")
	u.do("save", "full")
	if got := len(u.messages()); got != 2*turns {
		t.Fatalf("%d messages, want %d", got, 2*turns)
	}

	compactActive(t, u, 3)
	u.do("chat", "--message", "after it")
	u.do("save", "after")

	var list, trash []struct {
		Name     string
		Messages int
	}
	u.answer(&list, "list", "--include-auto")
	u.answer(&trash, "trash", "list")
	var autosaved []int // the messages of each autosave that is kept
	for _, s := range slices.Concat(list, trash) {
		if s.Name == "autosave~" {
			autosaved = append(autosaved, s.Messages)
		}
	}
	if !slices.Equal(autosaved, []int{6, 2 * turns}) {
		t.Errorf("the autosaves that are kept have %v messages; want the new state, and the long one in the trash", autosaved)
	}
	if got := u.do("view", "after"); !strings.Contains(got, "compacted") {
		t.Errorf("view does not say that the conversation was compacted:\n%s", got)
	}
	if got := u.do("view", "full"); strings.Contains(got, "compacted") {
		t.Errorf("view says of the whole conversation that it was compacted:\n%s", got)
	}
	log := u.eventLogs()
	for _, line := range append(lines, "after it") {
		if !strings.Contains(log, `"input":"`+line+`"`) {
			t.Errorf("the event log has lost the turn %q", line)
		}
	}

	u.do("load", "full")
	if got := u.messages(); len(got) != 2*turns || got[0] != lines[0] || got[2*turns-2] != lines[turns-1] {
		t.Errorf("after the load there are %d messages: %q", len(got), got)
	}
	if got := len(items(t, u.active(), transcript.ListHistory)); got != 2*turns {
		t.Errorf("after the load the model sees %d items, want %d", got, 2*turns)
	}
	if got := u.do("chat", "--message", "go on"); !strings.Contains(got, fmt.Sprintf("%d messages from you; the first was %q", turns+1, lines[0])) {
		t.Errorf("the model sees another conversation: %s", got)
	}
	u.do("verify")
}

// compactActive replaces what the active session holds but for the last records
// by a summary, as whoever shortens a conversation does.
func compactActive(t *testing.T, u *user, keep int) {
	t.Helper()
	ctx := t.Context()
	ref := u.active().Ref
	store, err := session.Open(filepath.Join(u.home, "sessions"), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	locked, err := store.Lock(ctx, ref, "compaction", true)
	if err != nil {
		t.Fatal(err)
	}
	live, err := locked.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var summary transcript.Document
	fillList(t, &summary, transcript.ListMessages, transcript.Message{ID: "summary", Role: transcript.RoleAgent, Content: "many questions", Status: transcript.StatusComplete})
	fillList(t, &summary, transcript.ListHistory, transcript.HistoryItem{Role: transcript.RoleUser, Content: "many questions were asked"})
	for _, list := range []string{transcript.ListMessages, transcript.ListHistory} {
		if err := live.Splice(list, 0, live.Doc.List(list).Records-keep, summary.List(list).Tail...); err != nil {
			t.Fatal(err)
		}
	}
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(live.Doc.Header, &header); err != nil {
		t.Fatal(err)
	}
	header["compaction"] = json.RawMessage(`{"items":37}`)
	if live.Doc.Header, err = json.Marshal(header); err != nil {
		t.Fatal(err)
	}
	_, err = locked.Write(ctx, live, live.Revision)
	if err := errors.Join(err, locked.Unlock()); err != nil {
		t.Fatal(err)
	}
}

// eventLogs are the event logs of all sessions.
func (u *user) eventLogs() string {
	u.t.Helper()
	files, err := filepath.Glob(filepath.Join(u.home, "sessions", "*", "*", "turn-*.jsonl"))
	if err != nil {
		u.t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			u.t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
