package agents_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host/agents"
	"sess/store/transcript"
)

// fixture copies a folder of testdata, which is as an agent left it below the
// user's home, and opens the agent's store in it.
func fixture(t *testing.T, agent, name string) (agents.Store, string) {
	t.Helper()
	home := t.TempDir()
	if err := os.CopyFS(home, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	return open(t, agent, home), home
}

func open(t *testing.T, agent, userHome string) agents.Store {
	t.Helper()
	a := agents.Find(agent)
	s, err := a.Open(a.DefaultHome(agents.Env{UserHome: userHome}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// heads lists the conversations of a folder by their ids.
func heads(t *testing.T, s agents.Store, folder string) map[string]agents.Conversation {
	t.Helper()
	all := map[string]agents.Conversation{}
	for c, err := range s.Conversations(t.Context(), folder) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := all[c.ID]; twice {
			t.Errorf("conversation %s is listed twice", c.ID)
		}
		all[c.ID] = c
	}
	return all
}

// only is the one conversation of a store.
func only(t *testing.T, s agents.Store) agents.Conversation {
	t.Helper()
	all := heads(t, s, "")
	if len(all) != 1 {
		t.Fatalf("%d conversations, want 1", len(all))
	}
	return slices.Collect(maps.Values(all))[0]
}

// snapshot is a conversation as it was read, with its chunks.
type snapshot struct {
	doc    *transcript.Document
	chunks map[transcript.ID][]byte
	report []string
}

func read(t *testing.T, s agents.Store, id string) *snapshot {
	t.Helper()
	snap := &snapshot{chunks: map[transcript.ID][]byte{}}
	w := agents.NewWriter(func(c transcript.Sealed) error {
		snap.chunks[c.ID] = append([]byte(nil), c.Plain...)
		return nil
	})
	var err error
	if snap.doc, err = s.Read(t.Context(), id, w); err != nil {
		t.Fatalf("Read %s: %v", id, err)
	}
	if err := snap.doc.Validate(); err != nil {
		t.Fatalf("Read %s gave a document that %v", id, err)
	}
	snap.report = w.Report()
	return snap
}

func (s *snapshot) load(id transcript.ID) ([]byte, error) { return s.chunks[id], nil }

// records are those of a list, as text.
func (s *snapshot) records(t *testing.T, list string) []string {
	t.Helper()
	var all []string
	l := s.doc.Lists[list]
	if l == nil {
		return nil
	}
	for r, err := range l.All(s.load, 0, l.Records) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(r))
	}
	return all
}

// said are the messages, each as "role: text".
func (s *snapshot) said(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, r := range s.records(t, transcript.ListMessages) {
		var m transcript.Message
		if err := json.Unmarshal([]byte(r), &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, string(m.Role)+": "+m.Content)
	}
	return all
}

func restore(t *testing.T, s agents.Store, snap *snapshot, folder string) agents.Restored {
	t.Helper()
	made, err := s.Restore(t.Context(), snap.doc, snap.load, agents.Target{Folder: folder, Now: time.Now()})
	if err != nil {
		t.Fatalf("Restore: %v", err)
	}
	return made
}

// What is read of a conversation is each line of its file, byte for byte, and
// what people said.
func TestClaudeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		want []string
	}{
		{"basic", []string{
			"user: first question", "agent: reply 1 to: first question", "user: second question [tool] please",
			`tool: Bash {"command":"echo hi","description":"Say hi"}`, "tool: hi",
			"agent: reply 2 to: second question [tool] please (after tool)", "user: third question", "agent: reply 3 to: third question",
		}},
		{"basic-2.1.197", []string{
			"user: first question", "agent: reply 1 to: first question", "user: second question [tool] please",
			`tool: Bash {"command":"echo hi","description":"Say hi"}`, "tool: hi",
			"agent: reply 2 to: second question [tool] please (after tool)", "user: third question", "agent: reply 3 to: third question",
		}},
		{"parallel-tools", []string{
			"user: first [tools] please", `tool: Bash {"command":"echo hi","description":"Say hi"}`, `tool: Bash {"command":"echo ho","description":"Say hi"}`,
			"tool: hi", "tool: ho", "agent: reply 1 to: first [tools] please (after tool)", "user: second question",
			"agent: reply 2 to: second question", "user: third question", "agent: reply 3 to: third question",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := fixture(t, "claude-code", "claude-code/"+c.name)
			head := only(t, s)
			snap := read(t, s, head.ID)
			if diff := cmp.Diff(c.want, snap.said(t)); diff != "" {
				t.Errorf("the messages are not what was said (-want +got):\n%s", diff)
			}
			data, err := os.ReadFile(head.File)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(snap.records(t, transcript.ListLines), "\n") + "\n"; got != string(data) {
				t.Error("the records are not the lines of the file")
			}
			if len(snap.report) > 0 {
				t.Errorf("of a whole file something is told: %q", snap.report)
			}
		})
	}
}

// A restored conversation is a new one for its folder, in which the same was
// said; no other file has changed.
func TestClaudeRestore(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"basic", "basic-2.1.197", "parallel-tools", "subagent-and-compaction", "titled"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, home := fixture(t, "claude-code", "claude-code/"+name)
			head := only(t, s)
			snap := read(t, s, head.ID)
			before := files(t, home)
			made := restore(t, s, snap, "/home/user/other")
			after := files(t, home)
			if got := after[rel(t, home, made.File)]; got == "" || len(after) != len(before)+1 {
				t.Errorf("%d files became %d, with %s", len(before), len(after), made.File)
			}
			for file, content := range before {
				if after[file] != content {
					t.Errorf("%s was changed", file)
				}
			}
			again := heads(t, s, "/home/user/other")[made.ID]
			if again.ID == "" || again.Title != head.Title {
				t.Errorf("the restored conversation is listed as %+v, want the title %q", again, head.Title)
			}
			copied := read(t, s, made.ID)
			if diff := cmp.Diff(snap.said(t), copied.said(t)); diff != "" {
				t.Errorf("the restored conversation differs (-snapshot +restored):\n%s", diff)
			}
			for i, line := range copied.records(t, transcript.ListLines) {
				if strings.Contains(line, head.ID) && strings.Contains(line, `"sessionId":"`+head.ID) {
					t.Errorf("line %d is still of the old session: %.200s", i+1, line)
				}
			}
		})
	}
}

func rel(t *testing.T, base, path string) string {
	t.Helper()
	name, err := filepath.Rel(base, path)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// files are all files below a folder, with what is in them.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[rel(t, dir, path)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func newWriter() *agents.Writer { return agents.NewWriter(nil) }
