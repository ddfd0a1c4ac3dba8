package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// user is somebody with a home of their own, for what a script cannot say.
type user struct {
	t    testing.TB
	dir  string // where commands run
	home string // of the program
	tmp  string // where sockets lie
	bin  string
	env  []string

	prepare func(*exec.Cmd) // does something to every command; nil: nothing
}

func newUser(t testing.TB) *user {
	t.Helper()
	dir := t.TempDir()
	// Sockets lie here, and their paths may have about a hundred bytes.
	tmp, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	bin := binDir(t)
	u := &user{t: t, dir: dir, home: filepath.Join(dir, ".sess"), tmp: tmp, bin: filepath.Join(bin, "sess")}
	u.env = []string{
		"HOME=" + dir, "USERPROFILE=" + dir, "SESS_HOME=" + u.home, "TMPDIR=" + tmp, "TEMP=" + tmp,
		"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"), "SYSTEMROOT=" + os.Getenv("SYSTEMROOT"), "TZ=UTC",
	}
	return u
}

// configure gives the sess plugin its configuration.
func (u *user) configure(config string) {
	u.t.Helper()
	if err := os.MkdirAll(u.home, 0o700); err != nil {
		u.t.Fatal(err)
	}
	text := fmt.Sprintf(`{"plugins":{"entries":{"sess":{"config":%s}}}}`, config)
	if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// askNobody lets the model do everything: nobody is there to allow what destroys.
func (u *user) askNobody() {
	u.t.Helper()
	if err := os.MkdirAll(u.home, 0o700); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(`{"chat":{"confirm":[]}}`), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// command is a run of the program, not started yet.
func (u *user) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(u.t.Context(), u.bin, args...)
	cmd.Dir, cmd.Env = u.dir, u.env
	if u.prepare != nil {
		u.prepare(cmd)
	}
	return cmd
}

// run runs the program to its end.
func (u *user) run(args ...string) (stdout, stderr string, exit int) {
	u.t.Helper()
	var out, errs bytes.Buffer
	cmd := u.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	exit = u.exit(cmd.Run())
	return out.String(), errs.String(), exit
}

// exit is the exit status behind what running a command returned.
func (u *user) exit(err error) int {
	u.t.Helper()
	if err == nil {
		return 0
	}
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		u.t.Fatal(err)
	}
	return ended.ExitCode()
}

// do is run for what must work; it returns stdout.
func (u *user) do(args ...string) string {
	u.t.Helper()
	stdout, stderr, exit := u.run(args...)
	if exit != 0 {
		u.t.Fatalf("sess %s ended with status %d:\n%s%s", strings.Join(args, " "), exit, stdout, stderr)
	}
	return stdout
}

// doWith is do with something to read on stdin.
func (u *user) doWith(stdin string, args ...string) string {
	u.t.Helper()
	var errs bytes.Buffer
	cmd := u.command(args...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &errs
	out, err := cmd.Output()
	if exit := u.exit(err); exit != 0 {
		u.t.Fatalf("sess %s ended with status %d:\n%s%s", strings.Join(args, " "), exit, out, &errs)
	}
	return string(out)
}

// answer is the JSON document that the program prints for args.
func (u *user) answer(into any, args ...string) {
	u.t.Helper()
	out := u.do(append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		u.t.Fatalf("sess %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// fails is run for what must end with the status; into gets the JSON document
// that tells why.
func (u *user) fails(exit int, into any, args ...string) {
	u.t.Helper()
	stdout, stderr, got := u.run(append([]string{"--json"}, args...)...)
	if got != exit || stderr != "" {
		u.t.Fatalf("sess %s ended with status %d, want %d:\n%s%s", strings.Join(args, " "), got, exit, stdout, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		u.t.Fatalf("sess %s: %v\n%s", strings.Join(args, " "), err, stdout)
	}
}

// messages are the contents of the active session's messages.
func (u *user) messages(flags ...string) []string {
	u.t.Helper()
	var session struct{ Messages []struct{ Content string } }
	u.answer(&session, append([]string{"sessions", "show"}, flags...)...)
	contents := make([]string, len(session.Messages))
	for i, m := range session.Messages {
		contents[i] = m.Content
	}
	return contents
}

// names lists the snapshots that list shows with the flags, newest first.
func (u *user) names(flags ...string) []string {
	u.t.Helper()
	var list []struct{ Name string }
	u.answer(&list, append([]string{"list"}, flags...)...)
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// chatEvent is something that a chat showed.
type chatEvent struct {
	Kind, Text, Tool string
	Failed           bool
}

// chat says lines, none of which may fail, in the session that is active, and
// returns what was shown.
func (u *user) chat(lines ...string) []chatEvent {
	u.t.Helper()
	var answer struct{ Data struct{ Events []chatEvent } }
	out := u.doWith(strings.Join(lines, "\n"), "--json", "chat")
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		u.t.Fatalf("the answer of a chat: %v\n%s", err, out)
	}
	return answer.Data.Events
}

// foreignSession writes a live session as another program does: all in one file,
// and nothing of what this program keeps beside it. Every message has 8 KB.
func (u *user) foreignSession(id string, messages int) {
	u.t.Helper()
	file := filepath.Join(u.home, "sessions", "default", id+".json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		u.t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		u.t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, `{"id":%q,"projectId":"default","title":"Foreign","messages":[`, id)
	for i := range messages {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		role := []string{"user", "agent"}[i%2]
		text := strings.Repeat(fmt.Sprintf("%d words of message %d ", i*i, i), 400)[:8<<10]
		fmt.Fprintf(w, "\n"+`{"id":"m%d","role":%q,"status":"complete","content":%q}`, i, role, text)
	}
	fmt.Fprint(w, `],"activities":[],"createdAt":1,"updatedAt":2}`)
	if err := w.Flush(); err != nil {
		u.t.Fatal(err)
	}
}
