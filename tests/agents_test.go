package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sess/plugin"
)

// claudeUser is a user of Claude Code, with the folders in which that keeps
// conversations.
type claudeUser struct {
	*user
	in string // the folder that commands run in
}

func newClaudeUser(t *testing.T) *claudeUser {
	t.Helper()
	u := &claudeUser{user: newUser(t)}
	dir, err := filepath.EvalSymlinks(u.dir)
	if err != nil {
		t.Fatal(err)
	}
	u.dir = dir
	u.prepare = func(cmd *exec.Cmd) { cmd.Dir = u.in }
	u.enter("work")
	return u
}

// enter makes a folder of the user's, and lets commands run there.
func (u *claudeUser) enter(name string) {
	u.t.Helper()
	u.in = filepath.Join(u.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(u.in, 0o700); err != nil {
		u.t.Fatal(err)
	}
}

func claudeID(n int) string { return fmt.Sprintf("0b1c2d3e-0000-4000-8000-%012d", n) }

// says adds prompts, each with its answer, to a conversation in the present folder,
// as if that had been long ago.
func (u *claudeUser) says(id string, prompts ...string) (file string) {
	u.t.Helper()
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, u.in)
	file = filepath.Join(u.dir, ".claude", "projects", name, id+".jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		u.t.Fatal(err)
	}
	old, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		u.t.Fatal(err)
	}
	n := strings.Count(string(old), "\n")
	var text strings.Builder
	text.Write(old)
	for _, prompt := range prompts {
		for _, m := range [][2]string{{"user", prompt}, {"assistant", "answer to " + prompt}} {
			parent := "null"
			if n > 0 {
				parent = fmt.Sprintf(`"%s-%d"`, id, n)
			}
			n++
			fmt.Fprintf(&text, `{"type":%q,"uuid":"%s-%d","parentUuid":%s,"sessionId":%q,"cwd":%q,"timestamp":"2026-11-29T15:51:56.000Z","message":{"role":%q,"model":"m-1","content":%q}}`+"\n",
				m[0], id, n, parent, id, u.in, m[0], m[1])
		}
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		u.t.Fatal(err)
	}
	u.ago(file, 2*time.Hour)
	return file
}

// ago sets when a file was written.
func (u *claudeUser) ago(file string, age time.Duration) {
	u.t.Helper()
	then := time.Now().Add(-age)
	if err := os.Chtimes(file, then, then); err != nil {
		u.t.Fatal(err)
	}
}

// claude is the command line for Claude Code's conversations.
func claude(args ...string) []string { return append([]string{"--agent=claude-code"}, args...) }

// What Claude Code has said can be saved, looked at, searched and brought back as
// a new conversation, through the plugin's own verbs; what it keeps never changes.
func TestClaudeCodeSnapshots(t *testing.T) {
	t.Parallel()
	u := newClaudeUser(t)
	file := u.says(claudeID(1), "plan the launch", "make it bold")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text := u.do(claude("save", "v1")...); !strings.Contains(text, "4 messages") || !strings.Contains(text, claudeID(1)) || !strings.Contains(text, "plan the launch") {
		t.Errorf("save does not say which conversation it took: %s", text)
	}
	if text := u.do(claude("view", "v1")...); !strings.Contains(text, "[3] agent: answer to make it bold") || strings.Contains(text, `"uuid"`) {
		t.Errorf("view does not show what was said:\n%s", text)
	}
	if text := u.do(claude("search", "bold")...); !strings.Contains(text, "v1") || strings.Contains(text, `"uuid"`) {
		t.Errorf("search does not find what was said:\n%s", text)
	}
	u.says(claudeID(1), "and now wild")
	u.do(claude("save", "v2")...)
	u.do(claude("copy", "v1", "c1")...)
	u.do(claude("rename", "c1", "branch")...)
	u.do(claude("verify")...)
	u.do(claude("delete", "branch")...)
	var loaded struct {
		Data struct {
			Session, File string
			Resume        []string
		}
	}
	u.answer(&loaded, claude("load", "v1")...)
	d := loaded.Data
	if got := strings.Join(d.Resume, " "); got != "claude --resume "+d.Session || filepath.Base(d.File) != d.Session+".jsonl" {
		t.Errorf("load says to go on with %q, of %s in %s", got, d.Session, d.File)
	}
	var shown struct {
		Messages []struct{ Content string }
	}
	u.answer(&shown, claude("sessions", "show", d.Session)...)
	if len(shown.Messages) != 4 || shown.Messages[2].Content != "make it bold" {
		t.Errorf("the conversation that load made has %+v", shown.Messages)
	}
	now, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(now), string(before)) || strings.Count(string(now), "\n") != 6 {
		t.Errorf("the agent's own file was changed (%v)", err)
	}
	if text := u.do(claude("undo")...); !strings.Contains(text, d.Session) || !strings.Contains(text, "nothing was removed") {
		t.Errorf("undo of a load says: %s", text)
	}
	if _, err := os.Stat(d.File); err != nil {
		t.Errorf("undo of a load: %v", err)
	}
	u.do(claude("undo")...)
	if got := strings.Join(u.names(claude()...), " "); !strings.Contains(got, "branch") {
		t.Errorf("undo of the deletion before brought nothing back: %s", got)
	}
	if got := u.names(); len(got) != 0 {
		t.Errorf("snapshots of another agent are among one's own: %q", got)
	}
}

// What would change a conversation of another agent is refused by name.
func TestClaudeCodeIsOnlyRead(t *testing.T) {
	t.Parallel()
	u := newClaudeUser(t)
	file := u.says(claudeID(1), "plan the launch")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	u.do(claude("save", "v1")...)
	for _, args := range [][]string{
		{"new"},
		{"select", "v1"},
		{"messages", "delete", "0"},
		{"sessions", "delete", claudeID(1)},
		{"sessions", "rename", claudeID(1), "x"},
		{"sessions", "use", claudeID(1)},
		{"chat", "--message", "hi"},
	} {
		var e struct{ Code, Error, Hint string }
		u.fails(plugin.Denied.Info().Exit, &e, claude(args...)...)
		if e.Code != string(plugin.Denied) || !strings.Contains(e.Error, "Claude Code") || e.Hint == "" {
			t.Errorf("%q is refused by %+v", args, e)
		}
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(before) {
		t.Errorf("the agent's own file was changed (%v)", err)
	}
}

// Where two conversations of a folder are worked on, none is guessed; a named one
// is taken, and one of another folder is not.
func TestTwoConversationsAtOnce(t *testing.T) {
	t.Parallel()
	u := newClaudeUser(t)
	one, two := u.says(claudeID(1), "marker one"), u.says(claudeID(2), "marker two")
	u.ago(one, time.Hour)
	if text := u.do(claude("save", "newest")...); !strings.Contains(text, claudeID(1)) {
		t.Errorf("of two old conversations not the newer one was taken: %s", text)
	}
	u.ago(one, time.Minute)
	u.ago(two, 0)
	var e struct{ Code, Error, Hint string }
	u.fails(plugin.Usage.Info().Exit, &e, claude("save", "v1")...)
	if !strings.Contains(e.Error, claudeID(1)) || !strings.Contains(e.Error, claudeID(2)) || !strings.Contains(e.Hint, "--session=") {
		t.Errorf("save where two conversations are worked on is refused by %+v", e)
	}
	u.do(claude("save", "v1", "--session="+claudeID(1))...)
	if text := u.do(claude("view", "v1")...); !strings.Contains(text, "marker one") {
		t.Errorf("the named conversation was not taken:\n%s", text)
	}
	u.enter("elsewhere")
	u.fails(plugin.NotFound.Info().Exit, &e, claude("save", "v1", "--session="+claudeID(1))...)
	u.fails(plugin.NotFound.Info().Exit, new(any), claude("save", "v1")...)
	pools, err := os.ReadDir(filepath.Join(u.home, "agents", "claude-code", "projects"))
	if err != nil || len(pools) != 1 {
		t.Errorf("after saves that were refused there are %d pools, want 1 (%v)", len(pools), err)
	}
	if !strings.Contains(e.Hint, filepath.Join(u.dir, "work")) {
		t.Errorf("a conversation of another folder is refused by %+v", e)
	}
}

// Folders whose names are alike are projects of their own, each with its own
// snapshots, also where the agent itself puts their conversations together.
func TestFoldersAreProjects(t *testing.T) {
	t.Parallel()
	u := newClaudeUser(t)
	folders := []string{"spec-rl", "spec/rl", "spec_rl", "spec.rl", "외주", "개인", "Spec-RL"}
	for i, name := range folders {
		u.enter(name)
		u.says(claudeID(i+1), "marker "+name)
		if text := u.do(claude("save", "main")...); !strings.Contains(text, claudeID(i+1)) {
			t.Errorf("in %s another conversation was saved: %s", name, text)
		}
	}
	u.enter(folders[0])
	u.do(claude("delete", "main")...)
	var all []struct{ Name string }
	u.answer(&all, claude("list", "--all-projects")...)
	if len(all) != len(folders)-1 {
		t.Errorf("after one deletion %d snapshots are left, want %d", len(all), len(folders)-1)
	}
	for _, name := range folders[1:] {
		u.enter(name)
		var view struct{ Header struct{ Cwd string } }
		u.answer(&view, claude("view", "main")...)
		if view.Header.Cwd != u.in {
			t.Errorf("the snapshot of %s says that it is of %s", u.in, view.Header.Cwd)
		}
		if text := u.do(claude("view", "main")...); !strings.Contains(text, "marker "+name) {
			t.Errorf("in %s another snapshot is seen:\n%s", name, text)
		}
	}
}

// agents list tells what there is of each agent, from the heads of files; what is
// switched off is said to be, and is not read.
func TestAgentsList(t *testing.T) {
	t.Parallel()
	u := newClaudeUser(t)
	for i := range 1000 {
		u.says(claudeID(i+1), "plan")
	}
	type row struct {
		ID, State     string
		Conversations int
	}
	find := func() row {
		var rows []row
		u.answer(&rows, "agents", "list")
		for _, r := range rows {
			if r.ID == "claude-code" {
				return r
			}
		}
		t.Fatalf("agents list has no row of claude-code: %+v", rows)
		return row{}
	}
	start := time.Now()
	if got := find(); got.State != "found" || got.Conversations != 1000 {
		t.Errorf("agents list tells of %+v", got)
	}
	t.Logf("agents list over 1,000 conversations took %v", time.Since(start))
	write(t, filepath.Join(u.home, "config.json"), `{"agents": {"claude-code": {"enabled": false}}}`, 0o600)
	if got := find(); got.State != "disabled" || got.Conversations != 0 {
		t.Errorf("agents list tells of a switched off agent %+v", got)
	}
	var e struct{ Code, Error, Hint string }
	u.fails(plugin.Denied.Info().Exit, &e, claude("save", "v1")...)
	moved := filepath.Join(u.dir, "moved")
	if err := os.Rename(filepath.Join(u.dir, ".claude"), moved); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(u.home, "config.json"), fmt.Sprintf(`{"agents": {"claude-code": {"home": %q}}}`, moved), 0o600)
	if got := find(); got.Conversations != 1000 {
		t.Errorf("agents list tells of an agent with another home %+v", got)
	}
}
