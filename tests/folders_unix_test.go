//go:build unix

package tests

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sess/plugin"
)

// newMortal is a user whom permissions concern: root becomes nobody, anybody
// else stays who they are.
func newMortal(t *testing.T) (u *user, uid int) {
	t.Helper()
	u = newUser(t)
	if uid = os.Geteuid(); uid != 0 {
		return u, uid
	}
	bin := filepath.Join(u.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, u.bin, filepath.Join(bin, "sess"))
	u.bin = filepath.Join(bin, "sess")
	letPass(t, bin)
	if err := errors.Join(os.Chown(u.dir, nobody, nobody), os.Chown(u.tmp, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	u.prepare = func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return u, nobody
}

// give makes all below dir a user's, with these permissions of folders and files.
func give(dir string, uid int, dirMode, fileMode fs.FileMode) error {
	if err := os.Chmod(dir, 0o700); err != nil { // to look into it
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fileMode
		if d.IsDir() {
			mode = dirMode | 0o100
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		return os.Lchown(path, uid, -1)
	})
}

// S4-29: A folder of snapshots that may not be written, or belongs to somebody
// else: what would change it is refused with its path and changes nothing, the
// session included; what only reads works where reading is allowed; talking goes on
// with a notice; and all is well again when the folder is.
func TestFolderThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	type spoiled struct {
		name     string
		spoil    func(pool string) error
		readable bool
	}
	tests := []spoiled{
		{"read-only", func(pool string) error { return os.Chmod(pool, 0o500) }, true},
		{"shut", func(pool string) error { return os.Chmod(pool, 0) }, false},
	}
	if os.Geteuid() == 0 {
		tests = append(
			tests,
			spoiled{"somebody else's", func(pool string) error { return os.Chown(pool, 0, 0) }, false},
			spoiled{"somebody else's with all in it", func(pool string) error { return give(pool, 0, 0o700, 0o600) }, false},
			spoiled{"somebody else's for all to read", func(pool string) error { return give(pool, 0, 0o755, 0o644) }, true},
		)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, uid := newMortal(t)
			u.configure(`{"autoSave": true}`)
			if err := os.Lchown(u.home, uid, -1); err != nil {
				t.Fatal(err)
			}
			if err := os.Lchown(filepath.Join(u.home, "config.json"), uid, -1); err != nil {
				t.Fatal(err)
			}
			u.do("chat", "--message", "one")
			u.do("save", "v1")
			u.do("chat", "--message", "two")
			before, err := readTree(u.pool())
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.spoil(u.pool()); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"save", "v2"},
				{"save", "v1", "--overwrite"},
				{"load", "v1"},
				{"new"},
				{"copy", "v1", "v2"},
				{"rename", "v1", "v2"},
				{"tag", "v1", "a=b"},
				{"delete", "v1"},
				{"prune"},
			} {
				var failure struct{ Code, Error, Hint string }
				u.fails(6, &failure, args...)
				if failure.Code != "denied" || !strings.Contains(failure.Error, u.pool()) || !strings.Contains(failure.Hint, u.pool()) {
					t.Errorf("sess %s says %+v", strings.Join(args, " "), failure)
				}
			}
			for _, args := range [][]string{{"list"}, {"view", "v1"}, {"verify"}} {
				if out, errs, exit := u.run(args...); (exit == 0) != tt.readable || exit != 0 && exit != 6 {
					t.Errorf("sess %s ended with status %d\n%s%s", strings.Join(args, " "), exit, out, errs)
				}
			}
			if _, stderr, exit := u.run("chat", "--message", "three"); exit != 0 || !strings.Contains(stderr, "autosave failed") || !strings.Contains(stderr, u.pool()) {
				t.Errorf("a turn ended with status %d and said %q", exit, stderr)
			}
			if got := len(u.messages()); got != 6 {
				t.Errorf("the session has %d messages, want 6", got)
			}

			if err := give(u.pool(), uid, 0o700, 0o600); err != nil {
				t.Fatal(err)
			}
			after, err := readTree(u.pool())
			if err != nil {
				t.Fatal(err)
			}
			if changes, err := diffTrees(before, after, []string{".lock", "*.holder"}); err != nil || changes != "" {
				t.Errorf("what was refused changed the snapshots (%v):\n%s", err, changes)
			}
			u.do("save", "v2")
			u.do("load", "v1")
			u.do("undo")
			u.do("verify")
			if got := len(u.messages()); got != 6 {
				t.Errorf("after a load and its undo the session has %d messages, want 6", got)
			}
		})
	}
}

// While the folder of snapshots may not be written, a gateway refuses what would
// change it on every surface, with the path; what only reads works, talking goes on
// with a notice, and all is well again when the folder is, without a restart.
func TestFolderThatMayNotBeWrittenEverywhere(t *testing.T) {
	t.Parallel()
	u, uid := newMortal(t)
	u.configure(`{"autoSave":true}`)
	if err := errors.Join(os.Lchown(u.home, uid, -1), os.Lchown(filepath.Join(u.home, "config.json"), uid, -1)); err != nil {
		t.Fatal(err)
	}
	u.do("--session=one", "chat", "--message", "first")
	u.do("save", "v1")
	u.do("--session=one", "chat", "--message", "second")
	e := newEverywhere(t, u)
	if err := os.Chmod(u.pool(), 0o500); err != nil {
		t.Fatal(err)
	}
	var cases []refusedCall
	for verb, fields := range map[string]map[string]any{
		"save": {"name": "v2"}, "load": {"name": "v1"}, "new": nil, "copy": {"from": "v1", "to": "v2"}, "rename": {"from": "v1", "to": "v2"},
		"tag": {"name": "v1", "note": "x"}, "delete": {"name": "v1"}, "prune": nil,
	} {
		cases = append(cases, refusedCall{verb, fields, plugin.Denied, u.pool()})
	}
	e.refuse(cases...)
	for _, surface := range objectSurfaces() {
		if got := e.listed(surface, nil); !slices.Equal(got, []string{"v1"}) {
			t.Errorf("list on %s: %q", surface, got)
		}
	}
	follows := e.open(t, http.MethodGet, "/sessions/one/events", nil)
	e.asker.say(t, "one", "third")
	notices := follows.until(t, "notice")
	if notice := notices[len(notices)-1].field(t, "text"); !strings.Contains(notice, "autosave failed") || !strings.Contains(notice, u.pool()) {
		t.Errorf("who follows is told %q, want that there was no autosave, and the folder", notice)
	}
	follows.leave()
	if n := len(u.messages("--session=one")); n != 6 {
		t.Errorf("the session has %d messages, want 6", n)
	}
	if err := os.Chmod(u.pool(), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, surface := range objectSurfaces() {
		if got := e.call(surface, "save", false, map[string]any{"name": fmt.Sprintf("again-%d", i)}); got.code != "" {
			t.Errorf("save on %s when the folder is well again: %+v", surface, got)
		}
	}
}

// The live sessions may not be written, or belong to somebody else: a turn, a
// load and a new session are refused with the path, before anything changes, in
// the snapshots either. What concerns snapshots alone works where the sessions can
// be read, else the home cannot be used at all. All is well again when the folder
// is.
func TestSessionsThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	type spoiled struct {
		name     string
		spoil    func(dir string) error
		readable bool
	}
	tests := []spoiled{
		{"read-only", func(dir string) error { return give(dir, -1, 0o500, 0o400) }, true},
		{"shut", func(dir string) error { return os.Chmod(dir, 0) }, false},
	}
	if os.Geteuid() == 0 {
		tests = append(
			tests,
			spoiled{"somebody else's", func(dir string) error { return give(dir, 0, 0o700, 0o600) }, false},
			spoiled{"somebody else's for all to read", func(dir string) error { return give(dir, 0, 0o755, 0o644) }, true},
		)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, uid := newMortal(t)
			u.do("chat", "--message", "one")
			u.do("save", "v1")
			u.do("save", "v2")
			u.do("save", "v3") // so that all folders of the pool are there
			u.do("delete", "v3")
			u.do("chat", "--message", "two")
			sessions := filepath.Join(u.home, "sessions")
			u.foreignSession("large", 700)
			large := filepath.Join(sessions, "default", "large.json")
			if err := errors.Join(os.Chown(large, uid, -1), os.Chmod(large, 0o600)); err != nil {
				t.Fatal(err)
			}
			before, err1 := readTree(sessions)
			pool, err2 := readTree(u.pool())
			if err := errors.Join(err1, err2, tt.spoil(sessions)); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"chat", "--message", "three"}, {"load", "v1"}, {"load", "v1", "--no-backup"}, {"new"}} {
				var failure struct{ Code, Error, Hint string }
				u.fails(6, &failure, args...)
				if failure.Code != "denied" || !strings.Contains(failure.Error+failure.Hint, sessions) || failure.Hint == "" {
					t.Errorf("sess %s says %+v", strings.Join(args, " "), failure)
				}
			}
			now, err := readTree(u.pool())
			if err != nil {
				t.Fatal(err)
			}
			if changes, err := diffTrees(pool, now, []string{".lock", "*.holder", ".prune.json"}); err != nil || changes != "" {
				t.Errorf("what was refused changed the snapshots (%v):\n%s", err, changes)
			}
			for _, args := range [][]string{
				{"list"},
				{"view", "v1"},
				{"copy", "v1", "v3"},
				{"rename", "v2", "v4"},
				{"verify"},
				{"sessions", "list"},
				{"sessions", "show"},
				{"messages", "list"},
				{"selected"},
				{"search", "one"},
				{"sessions", "show", "large"},
				{"--session=large", "save", "v5"},
			} {
				out, errs, exit := u.run(args...)
				if tt.readable && exit != 0 || !tt.readable && (exit != 6 || !strings.Contains(errs, sessions)) {
					t.Errorf("sess %s ended with status %d\n%s%s", strings.Join(args, " "), exit, out, errs)
				}
			}

			if err := give(sessions, uid, 0o700, 0o600); err != nil {
				t.Fatal(err)
			}
			after, err := readTree(sessions)
			if err != nil {
				t.Fatal(err)
			}
			if changes, err := diffTrees(before, after, []string{".lock", "*.holder"}); err != nil || changes != "" {
				t.Errorf("what was refused changed the sessions (%v):\n%s", err, changes)
			}
			u.do("chat", "--message", "three")
			u.do("load", "v1")
			u.do("undo")
			if got := len(u.messages()); got != 6 {
				t.Errorf("then the session has %d messages, want 6", got)
			}
		})
	}
}

// conversation is a chat that runs, one line and its answer at a time.
type conversation struct {
	*user
	chat   *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr string // the file that it goes to
}

func (u *user) converse() *conversation {
	u.t.Helper()
	c := &conversation{user: u, chat: u.command("chat")}
	in, err1 := c.chat.StdinPipe()
	out, err2 := c.chat.StdoutPipe()
	c.stderr = filepath.Join(u.t.TempDir(), "stderr")
	notes, err3 := os.Create(c.stderr)
	c.chat.Stderr = notes
	if err := errors.Join(err1, err2, err3, c.chat.Start(), notes.Close()); err != nil {
		u.t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	return c
}

// says returns the line that answers a line.
func (c *conversation) says(line string) string {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
	answer, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("after %s: %v", line, err)
	}
	return answer
}

// told reports whether the chat said something beside its answers.
func (c *conversation) told(text string) bool {
	c.t.Helper()
	said, err := os.ReadFile(c.stderr)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Contains(string(said), text)
}

// refuses is says for what must fail with the code and name the place.
func (c *conversation) refuses(line, code, place string) {
	c.t.Helper()
	var failure struct{ Code, Error, Hint string }
	answer := c.says(line + " --json")
	if err := json.Unmarshal([]byte(answer), &failure); err != nil {
		c.t.Fatalf("%s: %v\n%s", line, err, answer)
	}
	if failure.Code != code || !strings.Contains(failure.Error, place) || !strings.Contains(failure.Hint, place+" ") {
		c.t.Errorf("%s says %+v, want %s about %s", line, failure, code, place)
	}
}

// end ends the chat and returns its exit status.
func (c *conversation) end() int {
	c.t.Helper()
	if err := c.in.Close(); err != nil {
		c.t.Fatal(err)
	}
	return c.exit(c.chat.Wait())
}

// While a chat runs, a file takes the place of the folder of snapshots, and then
// of the sessions': each failure names what lies there, the chat goes on where it
// can, and when the folder is back so is everything in it.
func TestFileInPlaceOfAFolder(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"autoSave": true}`)
	c := u.converse()
	replaced := func(dir string, during func()) {
		t.Helper()
		if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		during()
		if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
			t.Fatal(err)
		}
	}
	c.says("one")
	c.says("/sess save v1")
	replaced(u.pool(), func() {
		for _, line := range []string{"/sess list", "/sess save v2", "/sess load v1", "/sess copy v1 v2", "/sess delete v1", "/sess prune", "/sess verify", "/sess undo"} {
			c.refuses(line, "unavailable", u.pool())
		}
		if got := c.says("two"); !strings.Contains(got, "2 messages from you") {
			t.Errorf("a turn without the snapshots' folder: %q", got)
		}
		// What became of the autosave is told before the next answer that follows it.
		for deadline := time.Now().Add(30 * time.Second); !c.told("autosave failed"); {
			if c.refuses("/sess list", "unavailable", u.pool()); time.Now().After(deadline) {
				t.Fatal("the chat never said that an autosave failed")
			}
		}
	})
	c.says("/sess save v2")
	sessions := filepath.Join(u.home, "sessions")
	replaced(sessions, func() {
		for _, line := range []string{"/sess save v3", "/sess load v1"} {
			c.refuses(line, "unavailable", sessions)
		}
	})
	if got := c.says("three"); !strings.Contains(got, "3 messages from you") {
		t.Errorf("a turn after the sessions' folder was back: %q", got)
	}
	c.says("/sess load v1")
	c.says("/sess undo")
	if exit := c.end(); exit != 9 {
		t.Errorf("the chat ended with status %d, want that of the line that failed last", exit)
	}
	if !c.told(u.pool()) {
		t.Error("the failed autosave does not name its folder")
	}
	if got := u.names(); !slices.Equal(got, []string{"v2", "v1"}) {
		t.Errorf("the list has %q", got)
	}
	if got := len(u.messages()); got != 6 {
		t.Errorf("the session has %d messages, want 6", got)
	}
	u.do("verify")
}

// The folder of snapshots is removed under a chat that runs. What was in it is
// gone and said to be; the chat makes another one as soon as there is something
// to keep, and does not go on writing into the one that nobody can reach.
func TestFolderRemovedUnderAChat(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"autoSave": true}`)
	c := u.converse()
	c.says("one")
	c.says("/sess save v1")
	// What the chat still does there can put another file into the folder while it
	// goes.
	err := os.RemoveAll(u.pool())
	for range 100 {
		if err == nil {
			break
		}
		err = os.RemoveAll(u.pool())
	}
	if err != nil {
		t.Fatal(err)
	}
	var failure struct{ Code string }
	if answer := c.says("/sess load v1 --json"); json.Unmarshal([]byte(answer), &failure) != nil || failure.Code != "not_found" {
		t.Errorf("load of what went with its folder says %s", answer)
	}
	if got := c.says("two"); !strings.Contains(got, "2 messages from you") {
		t.Errorf("a turn after the folder was gone: %q", got)
	}
	c.says("/sess save v2")
	if got := c.says("/sess load v2"); !strings.Contains(got, "equals v2") {
		t.Errorf("load of what was saved since: %q", got)
	}
	if exit := c.end(); exit != 3 {
		t.Errorf("the chat ended with status %d, want that of the line that failed last", exit)
	}
	if got := u.names("--include-auto"); !slices.Contains(got, "v2") || !slices.Contains(got, "autosave~") || slices.Contains(got, "v1") {
		t.Errorf("then the list has %q", got)
	}
	u.do("verify")
}

// Homes, temporary folders and programs may lie where people and their systems
// put them.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"blanks":           "a folder  with blanks",
		"120 characters":   strings.Repeat("long", 30),
		"quotes and signs": `it's "odd" $HOME & (more) \ #1 %20 *`,
		"other letters":    "ü 한글 ñ",
		"a leading hyphen": "-rf",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			dir := filepath.Join(u.dir, part)
			u.home, u.tmp = filepath.Join(dir, "home"), filepath.Join(dir, "tmp")
			if err := os.MkdirAll(u.tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			copyProgram(t, u.bin, filepath.Join(dir, "sess"))
			u.bin, u.dir = filepath.Join(dir, "sess"), dir
			u.env = append(u.env, "SESS_HOME="+u.home, "TMPDIR="+u.tmp, "HOME="+dir)
			u.do("chat", "--message", "one")
			u.do("save", "v1")
			u.do("chat", "--message", "two")
			u.do("load", "v1")
			u.do("undo")
			u.do("verify")
			if got := len(u.messages()); got != 4 {
				t.Errorf("the session has %d messages, want 4", got)
			}
			if got, want := strings.TrimSpace(u.do("config", "path")), filepath.Join(u.home, "config.json"); got != want {
				t.Errorf("config path says %q, want %q", got, want)
			}
			if left, err := os.ReadDir(u.tmp); err != nil || len(left) > 1 {
				t.Errorf("left in the temporary folder: %v, %v", left, err)
			}
		})
	}
}

// A plugin whose folder may not be changed stays as it is, its configuration too.
func TestPluginThatMayNotBeMoved(t *testing.T) {
	t.Parallel()
	u, _ := newMortal(t)
	dir := notePackage(t, nil)
	letPass(t, dir)
	for _, name := range []string{"note", "plugin.json"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u.do("plugins", "install", "--yes", dir)
	u.do("plugins", "disable", "note")
	plugins := filepath.Join(u.home, "plugins")
	for _, folder := range []string{plugins, filepath.Join(plugins, "note")} {
		if err := os.Chmod(folder, 0o500); err != nil {
			t.Fatal(err)
		}
		for _, line := range [][]string{{"plugins", "uninstall", "note", "--yes"}, {"plugins", "update", dir, "--yes"}} {
			var got refusal
			u.fails(6, &got, line...)
			if !strings.Contains(got.Error+got.Hint, folder) || strings.Contains(got.Hint, "plugins/.") {
				t.Errorf("%q without the right to write %s: %+v", line, folder, got)
			}
			if got := u.plugin("note"); got.State != "disabled" {
				t.Errorf("after %q: %+v, want it disabled", line, got)
			}
		}
		if err := os.Chmod(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	u.do("plugins", "enable", "note")
	u.do("note", "list")
	u.do("plugins", "uninstall", "--yes", "note")
}
