package agents_test

import (
	"bufio"
	"encoding/json"
	"errors"
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

const (
	piBasic = "01a22803-6919-74c0-b25e-d08119d4cdcc"
	piTree  = "01a22821-ab3b-707b-bf6b-3b330cf8e3dc"
	piFork  = "01a22821-aa53-71c9-8844-325dc935bd26"
	piHurt  = "01a22840-ddd0-7365-89ed-46b277437be6"
)

// The heads tell of each conversation of a folder what a list shows.
func TestPiHeads(t *testing.T) {
	t.Parallel()
	s, home := fixture(t, "pi", "pi")
	all := heads(t, s, "/home/user/proj")
	if len(all) != 5 {
		t.Fatalf("%d conversations, want 5", len(all))
	}
	c := all[piBasic]
	got := []string{c.Folder, c.Title, c.Model, c.CreatedAt.Format(time.RFC3339), c.File}
	want := []string{"/home/user/proj", "first question: alpha", "stub/stub-1", "2026-11-29T15:54:01Z", piFile(t, home, piBasic)}
	if diff := cmp.Diff(want, got); diff != "" || c.Messages != 8 || c.Problem != "" {
		t.Errorf("head (-want +got), %d messages, problem %q:\n%s", c.Messages, c.Problem, diff)
	}
	if others := heads(t, s, "/home/user-proj"); len(others) != 0 {
		t.Errorf("a folder whose name is written alike has %d conversations, want none", len(others))
	}
}

func piFile(t *testing.T, home, id string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(home, ".pi/agent/sessions/*/*_"+id+".jsonl"))
	if err != nil || len(found) != 1 {
		t.Fatalf("files of %s: %v, %v", id, found, err)
	}
	return found[0]
}

func fileLines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// Of a tree people read the active branch, with what pi tells its model instead
// of the rest: a summary stands where the model's view begins.
func TestPiRead(t *testing.T) {
	t.Parallel()
	s, home := fixture(t, "pi", "pi")
	for _, c := range []struct {
		name, id string
		want     []string
	}{
		{"a tool", piBasic, []string{
			"user: first question: alpha", "agent: reply 1 to: first question: alpha", "user: second question: bravo [tool]",
			`tool: bash {"command":"echo stub-tool-ok"}`, "tool: stub-tool-ok", "agent: reply 2 to: second question: bravo [tool]",
			"user: third question: charlie", "agent: reply 3 to: third question: charlie",
		}},
		{"a branch, a compaction, a label and a command", piTree, []string{
			"system: [Compacted: instead of what is above, the model sees this summary]\nreply 1 to: <conversation>",
			"user: first question: alpha", "agent: reply 1 to: first question: alpha\n[label: checkpoint one]",
			"system: [Summary of another branch]\nThe user explored a different conversation branch before returning here.\nSummary of that exploration:\n\nreply 1 to: <conversation>",
			"user: summarised branch question: echo", "agent: reply 3 to: summarised branch question: echo",
			"tool: $ echo from-bang\nfrom-bang", "user: after compaction: foxtrot", "agent: reply 6 to: after compaction: foxtrot",
		}},
		{"a fork", piFork, []string{
			"user: first question: alpha", "agent: reply 1 to: first question: alpha\n[label: checkpoint one]",
			"user: in fork: golf", "agent: reply 2 to: in fork: golf",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			snap := read(t, s, c.id)
			if diff := cmp.Diff(c.want, snap.said(t)); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(fileLines(t, piFile(t, home, c.id)), snap.records(t, transcript.ListLines)); diff != "" {
				t.Errorf("records (-file +snapshot):\n%s", diff)
			}
			if len(snap.report) != 0 {
				t.Errorf("report: %q, want none", snap.report)
			}
		})
	}
}

// A half line that pi wrote on costs pi all that was said before it. What was
// written is read, and a restored conversation has it again.
func TestPiDamaged(t *testing.T) {
	t.Parallel()
	s, home := fixture(t, "pi", "pi-damaged")
	snap := read(t, s, piHurt)
	want := []string{
		"user: first question: alpha", "agent: reply 1 to: first question: alpha", "user: after partial",
		"agent: reply 2 to: after partial", "user: second after partial", "agent: reply 1 to: second after partial",
	}
	if diff := cmp.Diff(want, snap.said(t)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fileLines(t, piFile(t, home, piHurt)), snap.records(t, transcript.ListLines)); diff != "" {
		t.Errorf("records (-file +snapshot):\n%s", diff)
	}
	if len(snap.report) != 1 || !strings.Contains(snap.report[0], "line 6") {
		t.Errorf("report: %q, want one about line 6", snap.report)
	}
	folder := t.TempDir()
	made := restore(t, s, snap, folder)
	if len(made.Notes) != 1 {
		t.Errorf("notes: %q, want one", made.Notes)
	}
	if diff := cmp.Diff(want, piContext(t, made.File)); diff != "" {
		t.Errorf("what pi would go on with (-want +got):\n%s", diff)
	}
}

// piContext are the messages on the path from the last line of a file to its
// root, as pi follows it: by the lines that are whole JSON, the last of an id.
func piContext(t *testing.T, file string) []string {
	t.Helper()
	type entry struct {
		Type     string
		ID       string
		ParentID *string
		Message  struct {
			Role    string
			Content json.RawMessage
		}
	}
	byID := map[string]entry{}
	var last entry
	for _, line := range fileLines(t, file)[1:] {
		var e entry
		if json.Unmarshal([]byte(line), &e) == nil {
			byID[e.ID], last = e, e
		}
	}
	var said []string
	for at, ok := last, true; ok; {
		if at.Type == "message" {
			var blocks []struct{ Text string }
			_ = json.Unmarshal(at.Message.Content, &blocks)
			role := map[string]string{"user": "user", "assistant": "agent"}[at.Message.Role]
			for _, b := range blocks {
				said = append(said, role+": "+b.Text)
			}
		}
		if at.ParentID == nil {
			break
		}
		at, ok = byID[*at.ParentID]
	}
	slices.Reverse(said)
	return said
}

// A restored conversation is a new file for the folder, with a header of its own
// and all entries as they were. Nothing that is there is changed.
func TestPiRestore(t *testing.T) {
	t.Parallel()
	for _, id := range []string{piBasic, piTree, piFork} {
		s, home := fixture(t, "pi", "pi")
		folder := filepath.Join(t.TempDir(), "my proj")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		before := tree(t, home)
		snap := read(t, s, id)
		made := restore(t, s, snap, folder)
		lines, old := fileLines(t, made.File), fileLines(t, piFile(t, home, id))
		var h struct {
			Type, ID, CWD string
			Version       int
		}
		if err := json.Unmarshal([]byte(lines[0]), &h); err != nil {
			t.Fatal(err)
		}
		if h.Type != "session" || h.ID != made.ID || h.ID == id || h.CWD != folder || h.Version != 3 {
			t.Errorf("header %s", lines[0])
		}
		if diff := cmp.Diff(old[1:], lines[1:]); diff != "" {
			t.Errorf("entries (-old +restored):\n%s", diff)
		}
		after := tree(t, home)
		rel, err := filepath.Rel(home, made.File)
		if err != nil {
			t.Fatal(err)
		}
		delete(after, rel)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("other files (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(snap.said(t), read(t, s, made.ID).said(t)); diff != "" {
			t.Errorf("what it says (-snapshot +restored):\n%s", diff)
		}
		if all := heads(t, s, folder); len(all) != 1 || all[made.ID].File != made.File {
			t.Errorf("conversations of the folder: %v", all)
		}
		if !strings.HasSuffix(made.File, "_"+made.ID+".jsonl") || !strings.Contains(made.File, "-my proj--") {
			t.Errorf("file %s", made.File)
		}
	}
}

// tree is what the files below a folder hold, by their names.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// piStore is a store with one conversation of these lines.
func piStore(t *testing.T, lines string) (agents.Store, string) {
	t.Helper()
	home := t.TempDir()
	dir := filepath.Join(home, ".pi/agent/sessions/--w--")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "2026-01-01T00-00-00-000Z_x.jsonl"), []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	return open(t, "pi", home), home
}

const piHead = `{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}` + "\n"

func piSay(id, parent, role, text string) string {
	p := `null`
	if parent != "" {
		p = `"` + parent + `"`
	}
	return `{"type":"message","id":"` + id + `","parentId":` + p + `,"message":{"role":"` + role + `","content":[{"type":"text","text":"` + text + `"}]}}`
}

// Dirty lines cost nothing but themselves.
func TestPiDirtyLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, lines string
		want        []string
		report      int
	}{
		{"a byte order mark and CRLF", "\xef\xbb\xbf" + strings.ReplaceAll(piHead+piSay("a", "", "user", "one")+"\n"+piSay("b", "a", "assistant", "two")+"\n", "\n", "\r\n"), []string{"user: one", "agent: two"}, 0},
		{"blank lines", piHead + "\n \n" + piSay("a", "", "user", "one") + "\n", []string{"user: one"}, 0},
		{"two objects on a line", piHead + piSay("a", "", "user", "one") + piSay("b", "a", "assistant", "two") + "\n" + piSay("c", "b", "user", "three") + "\n", []string{"user: one", "agent: two", "user: three"}, 0},
		{"an unknown type on the branch", piHead + piSay("a", "", "user", "one") + "\n" + `{"type":"mood","id":"b","parentId":"a","mood":5}` + "\n" + piSay("c", "b", "user", "three") + "\n", []string{"user: one", "user: three"}, 0},
		{"a number for an object", piHead + piSay("a", "", "user", "one") + "\n" + `{"type":"message","id":"b","parentId":"a","message":7}` + "\n" + "7\n" + piSay("c", "b", "user", "three") + "\n", []string{"user: one", "user: three"}, 1},
		{"an id twice", piHead + piSay("a", "", "user", "one") + "\n" + piSay("b", "a", "user", "two") + "\n" + piSay("b", "a", "user", "two again") + "\n" + piSay("c", "b", "user", "three") + "\n", []string{"user: one", "user: two again", "user: three"}, 0},
		{"a half line that is lost", piHead + piSay("a", "", "user", "one") + "\n" + `{"type":"message","id":"b","par` + "\n" + piSay("c", "b", "user", "three") + "\n", []string{"user: one", "user: three"}, 2},
		{"a parent that never was", piHead + piSay("a", "", "user", "one") + "\n" + piSay("c", "b", "user", "three") + "\n", []string{"user: three"}, 1},
		{"a ring", piHead + piSay("a", "b", "user", "one") + "\n" + piSay("b", "a", "user", "two") + "\n", []string{"user: one", "user: two"}, 0},
		{"a half last line", piHead + piSay("a", "", "user", "one") + "\n" + `{"type":"mess`, []string{"user: one"}, 1},
		{"a last line without its end", piHead + piSay("a", "", "user", "one"), []string{"user: one"}, 0},
		{"a block of an unknown type", piHead + `{"type":"message","id":"a","message":{"role":"user","content":[{"type":"text","text":"one"},{"type":"hologram"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}}` + "\n", []string{"user: one\n[a block of the unknown type \"hologram\"; an image, image/png, of 3 bytes]"}, 0},
		{"the first version", `{"type":"session","id":"x","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}` + "\n" +
			`{"type":"message","message":{"role":"user","content":"old"}}` + "\n" + `{"type":"message","message":{"role":"assistant","content":"kept"}}` + "\n" +
			`{"type":"compaction","summary":"of it","firstKeptEntryIndex":2}` + "\n" + `{"type":"message","message":{"role":"user","content":"new"}}` + "\n", []string{
			"user: old", "system: [Compacted: instead of what is above, the model sees this summary]\nof it", "agent: kept", "user: new",
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := piStore(t, c.lines)
			snap := read(t, s, "x")
			if diff := cmp.Diff(c.want, snap.said(t)); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if len(snap.report) != c.report {
				t.Errorf("report: %q, want %d", snap.report, c.report)
			}
			if got := strings.Join(snap.records(t, transcript.ListLines), "\n"); !strings.HasPrefix(c.lines, got) {
				t.Errorf("records %q are not the beginning of the file", got)
			}
		})
	}
}

// What pi would not go on with as it is meant is refused, and nothing is made.
func TestPiRefuses(t *testing.T) {
	t.Parallel()
	whole := piHead + piSay("a", "", "user", "one") + "\n" + piSay("b", "a", "assistant", "two") + "\n"
	for _, c := range []struct{ name, lines, folder string }{
		{"no answer yet", piHead + piSay("a", "", "user", "one") + "\n", "."},
		{"a newer version", strings.Replace(whole, `"version":3`, `"version":9`, 1), "."},
		{"no such folder", whole, "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, home := piStore(t, c.lines)
			snap := read(t, s, "x")
			before := tree(t, home)
			_, err := s.Restore(t.Context(), snap.doc, snap.load, agents.Target{Folder: filepath.Join(t.TempDir(), c.folder), Now: time.Now()})
			if _, ok := errors.AsType[*agents.RefusedError](err); !ok {
				t.Errorf("Restore: %v, want it refused", err)
			}
			if diff := cmp.Diff(before, tree(t, home)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

// Of a conversation that is there twice the newer copy counts, and the other one
// is told of. An id is found in a file of any name.
func TestPiTwice(t *testing.T) {
	t.Parallel()
	s, home := piStore(t, piHead+piSay("a", "", "user", "old")+"\n")
	dir := filepath.Join(home, ".pi/agent/sessions/--elsewhere--")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "moved_x.jsonl")
	if err := os.WriteFile(newer, []byte(piHead+piSay("a", "", "user", "old")+"\n"+piSay("b", "a", "assistant", "more")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(newer, later, later); err != nil {
		t.Fatal(err)
	}
	all := heads(t, s, "")
	if c := all["x"]; len(all) != 1 || c.File != newer || len(c.Also) != 1 {
		t.Errorf("conversations: %+v, want the newer one and its copy", all)
	}
	snap := read(t, s, "x")
	if diff := cmp.Diff([]string{"user: old", "agent: more"}, snap.said(t)); diff != "" || len(snap.report) != 1 {
		t.Errorf("messages (-want +got), report %q:\n%s", snap.report, diff)
	}
	if _, err := s.Read(t.Context(), "nosuch", agents.NewWriter(nil)); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("Read of another id: %v, want ErrNotFound", err)
	}
}

// A file that holds no conversation is listed with what is wrong with it.
func TestPiProblems(t *testing.T) {
	t.Parallel()
	for lines, want := range map[string]string{"": "empty", "{}\n": "its first line is no header of a session", "half": "its first line is no header of a session"} {
		s, _ := piStore(t, lines)
		if c := only(t, s); c.Problem != want || c.ID != "x" {
			t.Errorf("of %q: %+v, want problem %q", lines, c, want)
		}
	}
}

// The list reads heads only: of a long conversation not its middle.
func TestPiHeadOfLong(t *testing.T) {
	t.Parallel()
	s, home := piStore(t, "")
	name := filepath.Join(home, ".pi/agent/sessions/--w--/2026-01-01T00-00-00-000Z_x.jsonl")
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriter(f)
	say := func(line string) { _, _ = out.WriteString(line) }
	say(piHead + piSay("a", "", "user", "one") + "\n")
	for range 2000 {
		say(piSay("b", "a", "user", strings.Repeat("x", 500)) + "\n")
	}
	say(`{"type":"session_info","id":"n","parentId":"b","name":"named"}` + "\n" + `{"type":"model_change","id":"m","parentId":"n","provider":"p","modelId":"q"}` + "\n")
	if err := errors.Join(out.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if c := only(t, s); c.Title != "named" || c.Model != "p/q" || c.Messages != -1 || c.Folder != "/w" {
		t.Errorf("head %+v", c)
	}
}

// Folders whose names pi writes alike keep their conversations apart.
func TestPiFoldersWrittenAlike(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	folders := []string{"/w/spec-rl", "/w/spec/rl", "/w/spec_rl", "/w/spec.rl", "/w/외주", "/w/개인", "/w/Spec-RL"}
	for i, folder := range folders {
		dir := filepath.Join(home, ".pi/agent/sessions/--"+strings.ReplaceAll(folder[1:], "/", "-")+"--")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		id := string(rune('a' + i))
		lines := strings.Replace(strings.Replace(piHead, `"x"`, `"`+id+`"`, 1), `"/w"`, `"`+folder+`"`, 1) + piSay("1", "", "user", folder) + "\n"
		if err := os.WriteFile(filepath.Join(dir, "2026_"+id+".jsonl"), []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, "pi", home)
	for i, folder := range folders {
		all := heads(t, s, folder)
		if c := all[string(rune('a'+i))]; len(all) != 1 || c.Folder != folder || c.Title != folder {
			t.Errorf("conversations of %s: %+v, want its own one", folder, all)
		}
	}
}

// Sessions in a folder that a user chose lie side by side there.
func TestPiChosenFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := agents.Env{UserHome: "/nowhere", Get: func(key string) string {
		return map[string]string{"PI_CODING_AGENT_SESSION_DIR": dir, "PI_CODING_AGENT_DIR": "/elsewhere"}[key]
	}}
	if err := os.WriteFile(filepath.Join(dir, "2026_x.jsonl"), []byte(piHead+piSay("a", "", "user", "one")+"\n"+piSay("b", "a", "assistant", "two")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	pi := agents.Find("pi")
	s, err := pi.Open(pi.DefaultHome(env))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if all := heads(t, s, "/w"); len(all) != 1 {
		t.Errorf("%d conversations of /w, want 1", len(all))
	}
	if all := heads(t, s, "/other"); len(all) != 0 {
		t.Errorf("%d conversations of another folder, want none", len(all))
	}
	folder := t.TempDir()
	made := restore(t, s, read(t, s, "x"), folder)
	if filepath.Dir(made.File) != dir {
		t.Errorf("restored as %s, want it in %s", made.File, dir)
	}
	if all := heads(t, s, folder); len(all) != 1 {
		t.Errorf("%d conversations of the folder that it was restored for, want 1", len(all))
	}
}

// A line of 25 MB costs nothing; one that is above the limit costs itself only.
func TestPiLongLines(t *testing.T) {
	t.Parallel()
	long := piSay("b", "a", "toolResult", strings.Repeat("x", 25<<20))
	s, home := piStore(t, piHead+piSay("a", "", "user", "one")+"\n"+long+"\n"+piSay("c", "b", "assistant", "three"))
	snap := read(t, s, "x")
	said := snap.said(t)
	if len(said) != 3 || said[0] != "user: one" || !strings.HasPrefix(said[1], "tool: xxx") || said[2] != "agent: three" {
		t.Errorf("%d messages, want the three", len(said))
	}
	if lines := snap.records(t, transcript.ListLines); len(lines) != 4 || lines[2] != long {
		t.Errorf("%d records, want 4 with the long one", len(lines))
	}
	made := restore(t, s, snap, home)
	if lines := fileLines(t, made.File); len(lines) != 4 || lines[2] != long {
		t.Errorf("%d lines restored, want 4 with the long one", len(lines))
	}
	// The marker that stands for a longer one.
	s, home = piStore(t, piHead+piSay("a", "", "user", "one")+"\n"+`{"$tooLong":300000000}`+"\n"+piSay("c", "b", "assistant", "three")+"\n")
	snap = read(t, s, "x")
	want := []string{"user: one", "agent: three"}
	if diff := cmp.Diff(want, snap.said(t)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, piContext(t, restore(t, s, snap, home).File)); diff != "" {
		t.Errorf("what pi would go on with (-want +got):\n%s", diff)
	}
}
