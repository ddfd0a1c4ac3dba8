package agents_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host/agents"
	"sess/store/transcript"
)

const written = "0b1c2d3e-0000-4000-8000-000000000001"

// say is a record of Claude Code.
func say(n int, role, text string) string {
	parent := "null"
	if n > 1 {
		parent = fmt.Sprintf(`"u%d"`, n-1)
	}
	return fmt.Sprintf(`{"type":%q,"uuid":"u%d","parentUuid":%s,"sessionId":%q,"cwd":"/home/user/demo","timestamp":"2026-11-29T15:51:5%d.000Z","message":{"role":%q,"content":%q}}`,
		role, n, parent, written, n%10, role, text)
}

// conversation writes a file of Claude Code below a user's home.
func conversation(t *testing.T, home, dir, id, content string) string {
	t.Helper()
	file := filepath.Join(home, ".claude", "projects", dir, id+".jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Dirty lines cost nothing but themselves, and people are told which: what can be
// read is read, in order, and every line is kept as it is.
func TestDirtyLines(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	content := strings.Join([]string{
		"\xef\xbb\xbf" + say(1, "user", "one"),
		say(2, "assistant", "two") + "\r",
		"",
		`{"type":"us`,
		say(3, "user", "three") + say(4, "assistant", "four"),
		`{"type":"from-the-future","uuid":"x"}`,
		"42",
		say(4, "assistant", "four"),
		say(5, "user", "five"), // without a newline
	}, "\n")
	file := conversation(t, home, "-home-user-demo", written, content)
	empty := conversation(t, home, "-home-user-demo", "0b1c2d3e-0000-4000-8000-000000000002", "")
	s := open(t, "claude-code", home)
	snap := read(t, s, written)
	want := []string{"user: one", "agent: two", "user: three", "agent: four", "user: five"}
	if diff := cmp.Diff(want, snap.said(t)); diff != "" {
		t.Errorf("the messages are not those that can be read (-want +got):\n%s", diff)
	}
	if got := strings.Join(snap.records(t, transcript.ListLines), "\n"); got != content {
		t.Errorf("the records are\n%q\nwant the lines\n%q", got, content)
	}
	report := strings.Join(snap.report, "\n")
	if !strings.Contains(report, "2 lines were skipped, since they cannot be read: 4, 7") || !strings.Contains(report, "shown once: 1") {
		t.Errorf("of the dirty lines is told: %q", report)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != content {
		t.Errorf("the file was changed (%v)", err)
	}
	for _, c := range heads(t, s, "") {
		if problem := map[bool]string{true: "empty"}[c.File == empty]; c.Problem != problem {
			t.Errorf("%s has the problem %q, want %q", c.File, c.Problem, problem)
		}
	}
	copied := read(t, s, restore(t, s, snap, "/home/user/demo").ID)
	if diff := cmp.Diff(want, copied.said(t)); diff != "" {
		t.Errorf("what was restored differs (-want +got):\n%s", diff)
	}
	for i, line := range copied.records(t, transcript.ListLines) {
		if objects, ok := agents.Objects([]byte(line)); !ok || len(objects) != 1 || strings.HasSuffix(line, "\r") || line[0] != '{' {
			t.Errorf("line %d of what was restored is dirty: %q", i+1, line)
		}
	}
}

// A last line that is still being written is not there yet, whatever was there
// before; once it is whole, it is read, and what was sealed before stays.
func TestGrowingFile(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	before := say(1, "user", strings.Repeat("long ", 30<<10)) + "\n" + say(2, "assistant", "two") + "\n"
	next := say(3, "user", "three")
	file := conversation(t, home, "-home-user-demo", written, before+next[:len(next)/2])
	s := open(t, "claude-code", home)
	half := read(t, s, written)
	if got := half.said(t); len(got) != 2 || !strings.Contains(strings.Join(half.report, "\n"), "line 3, the last one, is not complete yet") {
		t.Errorf("of a file with half a line %d messages are read, and it is told: %q", len(got), half.report)
	}
	if err := os.WriteFile(file, []byte(before+next+"\n"+say(4, "assistant", "four")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := read(t, s, written)
	if got := full.said(t); len(got) != 4 || len(full.report) > 0 {
		t.Errorf("of the whole file %d messages are read, and it is told: %q", len(got), full.report)
	}
	for id := range half.chunks {
		if full.chunks[id] == nil {
			t.Errorf("chunk %s of the shorter file is not one of the longer", id)
		}
	}
}

// A long line is a message like others: neither it nor those around it are lost.
func TestLongLine(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	result := fmt.Sprintf(`{"type":"user","uuid":"u2","parentUuid":"u1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"%s"}]}}`, strings.Repeat("x", 25<<20))
	conversation(t, home, "-home-user-demo", written, say(1, "user", "one")+"\n"+result+"\n"+strings.Replace(say(3, "assistant", "three"), "u1", "u2", 1))
	s := open(t, "claude-code", home)
	snap := read(t, s, written)
	said := snap.said(t)
	if len(said) != 3 || said[0] != "user: one" || said[2] != "agent: three" || !strings.HasPrefix(said[1], "tool: xxx") || !strings.HasSuffix(said[1], "bytes in all)") {
		t.Errorf("%d messages are read, want 3", len(said))
	}
	if got := snap.records(t, transcript.ListLines)[1]; got != result {
		t.Errorf("the long line is kept as %d bytes, want %d", len(got), len(result))
	}
	if got := read(t, s, restore(t, s, snap, "/home/user/demo").ID).said(t); len(got) != 3 {
		t.Errorf("%d messages are restored, want 3", len(got))
	}
}

// zeros is a reader of many bytes that costs no memory.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, errors.New("read beyond the line")
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// A line above the limit becomes a marker with its size, and costs no memory
// beyond the limit; the lines around it stay.
func TestTooLongLine(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	const size = 64*limit + 7
	r := &chain{parts: []reader{strings.NewReader("{\"n\":1}\n"), &zeros{size}, strings.NewReader("\n{\"n\":3}\n")}}
	var got []string
	for line, err := range agents.LinesUpTo(r, limit) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line.Bytes))
		if line.TooLong > 0 && (line.TooLong != size || agents.TooLong(line.Bytes) != size) {
			t.Errorf("line %d is said to have %d bytes, its marker says %d, want %d", line.Number, line.TooLong, agents.TooLong(line.Bytes), int64(size))
		}
	}
	if diff := cmp.Diff([]string{`{"n":1}`, fmt.Sprintf(`{"$tooLong":%d}`, int64(size)), `{"n":3}`}, got); diff != "" {
		t.Errorf("the lines are not what was written (-want +got):\n%s", diff)
	}
}

// A line of just the limit is a line, whether more follows or not; one byte more
// is too long.
func TestLineOfTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1<<20 + 5 // no multiple of what is read at a time
	for _, size := range []int{limit - 1, limit, limit + 1} {
		for _, end := range []string{"\n", "", "\n{}\n"} {
			text := `{"n":"` + strings.Repeat("x", size-8) + `"}`
			var got []int
			for line, err := range agents.LinesUpTo(strings.NewReader(text+end), limit) {
				if err != nil {
					t.Fatal(err)
				}
				if size <= limit && line.Number == 1 && string(line.Bytes) != text {
					t.Errorf("%d bytes and %q: the line is another one of %d bytes", size, end, len(line.Bytes))
				}
				if line.Number == 1 && (line.TooLong > 0) != (size > limit) {
					t.Errorf("%d bytes and %q: too long is %d", size, end, line.TooLong)
				}
				got = append(got, len(line.Bytes))
			}
			// The last line, without its end, is not there yet where it is too long.
			if want := strings.Count(end, "\n"); end != "" && len(got) != want || end == "" && (len(got) == 1) != (size <= limit) {
				t.Errorf("%d bytes and %q: %d lines", size, end, len(got))
			}
		}
	}
}

type reader interface{ Read([]byte) (int, error) }

// chain reads one after the other, each until it fails.
type chain struct{ parts []reader }

func (c *chain) Read(p []byte) (int, error) {
	for len(c.parts) > 1 {
		if n, err := c.parts[0].Read(p); err == nil {
			return n, nil
		}
		c.parts = c.parts[1:]
	}
	return c.parts[0].Read(p)
}

// Of a conversation that is in two places the copy written last counts, once,
// and names the other; content of unknown types is kept, and told of.
func TestTwoCopiesAndUnknownContent(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	old := conversation(t, home, "-home-user-old", written, say(1, "user", "one")+"\n")
	unknown := `{"type":"assistant","uuid":"u2","parentUuid":"u1","message":{"role":"assistant","content":[{"type":"hologram","data":"h"},{"type":"text","text":"two"}]}}`
	conversation(t, home, "-home-user-demo", written, say(1, "user", "one")+"\n"+unknown+"\n")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	s := open(t, "claude-code", home)
	if c := only(t, s); cmp.Diff([]string{old}, c.Also) != "" {
		t.Errorf("the older copies are %q, want %q", c.Also, old)
	}
	snap := read(t, s, written)
	if diff := cmp.Diff([]string{"user: one", "agent: two"}, snap.said(t)); diff != "" {
		t.Errorf("the messages are not those of the newer copy (-want +got):\n%s", diff)
	}
	report := strings.Join(snap.report, "\n")
	if !strings.Contains(report, old) || !strings.Contains(report, "hologram") {
		t.Errorf("of the other copy and the unknown content is told: %q", report)
	}
	if got := read(t, s, restore(t, s, snap, "/home/user/demo").ID).records(t, transcript.ListLines)[1]; !strings.Contains(got, "hologram") {
		t.Errorf("the unknown content is not in what was restored: %s", got)
	}
}

// Conversations can be listed and read where nothing can be written, and a
// restore there says so and leaves nothing.
func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	conversation(t, home, "-home-user-demo", written, say(1, "user", "one")+"\n")
	before := files(t, home)
	for _, dir := range []string{".claude/projects/-home-user-demo", ".claude/projects", ".claude"} {
		dir := filepath.Join(home, dir)
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	}
	s := open(t, "claude-code", home)
	snap := read(t, s, only(t, s).ID)
	if got := snap.said(t); len(got) != 1 {
		t.Errorf("%d messages are read, want 1", len(got))
	}
	if runtime.GOOS != "windows" && os.Geteuid() != 0 { // for others nothing is read-only
		if _, err := s.Restore(t.Context(), snap.doc, snap.load, agents.Target{Folder: "/home/user/demo", Now: time.Now()}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("Restore into a read-only folder: %v, want %v", err, os.ErrPermission)
		}
	}
	if diff := cmp.Diff(before, files(t, home)); diff != "" {
		t.Errorf("the folder has changed (-before +after):\n%s", diff)
	}
}

// A turn that a person took back is not part of the conversation, nor of what is
// restored; its lines are kept.
func TestClaudeRewind(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	rewound := strings.Replace(say(5, "user", "instead"), `"u4"`, `"u2"`, 1)
	conversation(t, home, "-home-user-demo", written, strings.Join([]string{
		say(1, "user", "one"), say(2, "assistant", "two"), say(3, "user", "wrong"), say(4, "assistant", "bad"), rewound, say(6, "assistant", "six"),
	}, "\n")+"\n")
	s := open(t, "claude-code", home)
	snap := read(t, s, written)
	want := []string{"user: one", "agent: two", "user: instead", "agent: six"}
	if diff := cmp.Diff(want, snap.said(t)); diff != "" {
		t.Errorf("the messages are not those of the live branch (-want +got):\n%s", diff)
	}
	if got := len(snap.records(t, transcript.ListLines)); got != 6 {
		t.Errorf("%d lines are kept, want 6", got)
	}
	if diff := cmp.Diff(want, read(t, s, restore(t, s, snap, "/home/user/demo").ID).said(t)); diff != "" {
		t.Errorf("what was restored is not the live branch (-want +got):\n%s", diff)
	}
}

// Restore refuses what the agent could not go on with, and leaves no file.
func TestRestoreOfNothing(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"claude-code", "codex"} {
		home := t.TempDir()
		for _, dir := range []string{".claude", ".codex"} {
			if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, agent, home)
		w := newWriter()
		if err := w.Record(transcript.ListLines, []byte(`{"type":"mode"}`)); err != nil {
			t.Fatal(err)
		}
		doc, err := w.Finish(agent, agents.Conversation{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Restore(t.Context(), doc, nil, agents.Target{Folder: "/home/user/demo", Now: time.Now()})
		if _, refused := errors.AsType[*agents.RefusedError](err); !refused || len(files(t, home)) > 0 {
			t.Errorf("%s: Restore of a document without messages: %v, want a *RefusedError and no file", agent, err)
		}
	}
}

// Two folders never share a project, however alike their names are, and an id
// says which folder is meant.
func TestProject(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, folder := range []string{"/w/spec-rl", "/w/spec/rl", "/w/spec_rl", "/w/spec.rl", "/w/외주", "/w/개인", "/w/Spec-RL", "/", "/w/" + strings.Repeat("ü", 200)} {
		id := agents.Project(folder)
		if other, taken := seen[strings.ToLower(id)]; taken {
			t.Errorf("%s and %s are both the project %s", folder, other, id)
		}
		seen[strings.ToLower(id)] = folder
		if problem := transcript.IDProblem(id); problem != "" {
			t.Errorf("Project(%q) is %q, but an id %s", folder, id, problem)
		}
	}
	if id := agents.Project("/w/spec-rl"); !strings.HasPrefix(id, "spec-rl-") {
		t.Errorf("the project of /w/spec-rl is %s", id)
	}
}
