//go:build tmux

package tests

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pane is a real terminal with a chat in it, driven through tmux, which .ci/run
// installs where it is missing: that is why these tests have a build tag of their
// own, tmux.
type pane struct {
	u       *user
	socket  string
	changed chan struct{} // has a value when the screen may have changed
}

// shell runs a line of a shell in a new terminal of 80 columns and 24 rows.
func (u *user) shell(line string) *pane {
	u.t.Helper()
	p := &pane{u: u, socket: filepath.Join(u.tmp, "tmux"), changed: make(chan struct{}, 1)}
	p.tmux("new-session", "-d", "-x", "80", "-y", "24", line)
	u.t.Cleanup(func() { p.tmux("kill-server") })
	// A control client is told of all output.
	control := p.command("-C", "attach-session", "-f", "ignore-size")
	in, err := control.StdinPipe()
	if err != nil {
		u.t.Fatal(err)
	}
	out, err := control.StdoutPipe()
	if err == nil {
		err = control.Start()
	}
	if err != nil {
		u.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case p.changed <- struct{}{}:
			default:
			}
		}
	}()
	u.t.Cleanup(func() {
		in.Close() // which ends the client
		<-ended
		_ = control.Wait()
	})
	return p
}

func (p *pane) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", p.socket}, args...)...)
	cmd.Dir, cmd.Env = p.u.dir, append(p.u.env, "LC_ALL=C.UTF-8", "TERM=xterm-256color")
	return cmd
}

func (p *pane) tmux(args ...string) string {
	p.u.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.u.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// types types text, or presses keys by their names in tmux where they begin with
// a colon.
func (p *pane) types(keys ...string) {
	p.u.t.Helper()
	for _, k := range keys {
		if name, ok := strings.CutPrefix(k, ":"); ok {
			p.tmux("send-keys", name)
			continue
		}
		p.tmux("send-keys", "-l", k)
	}
}

// screen is what a person sees, without the empty rows at the end.
func (p *pane) screen() string {
	p.u.t.Helper()
	return strings.TrimRight(p.tmux("capture-pane", "-p"), "\n")
}

// until waits until the screen is as wanted.
func (p *pane) until(what string, wanted func(screen string) bool) string {
	p.u.t.Helper()
	patience := time.NewTimer(30 * time.Second)
	defer patience.Stop()
	for {
		screen := p.screen()
		if wanted(screen) {
			return screen
		}
		select {
		case <-p.changed:
		case <-patience.C:
			p.u.t.Fatalf("the screen never showed %s:\n%s", what, screen)
		}
	}
}

// shows waits until the screen has a text.
func (p *pane) shows(text string) string {
	p.u.t.Helper()
	return p.until(text, func(screen string) bool { return strings.Contains(screen, text) })
}

// ends waits until the screen ends in a text, as it does where a person writes.
func (p *pane) ends(text string) string {
	p.u.t.Helper()
	return p.until("at its end "+text, func(screen string) bool { return strings.HasSuffix(screen, text) })
}

// aChat begins a chat, and tells when it has ended, with what status, and that
// the terminal is as it was.
const aChat = `sess chat; echo "left with $?"; stty -a | tr -d ';' | tr ' ' '\n' | grep -cx -e echo -e icanon -e isig -e icrnl -e opost; exec cat`

// left leaves the chat with Ctrl-D.
func (p *pane) left() {
	p.u.t.Helper()
	p.types(":C-d")
	p.shows("left with 0\n5")
}

// S1-19, S1-20, S1-21, S1-23: a person at a terminal writes messages and commands,
// with everything that a line editor has.
func TestTmuxLines(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.shell(aChat)
	p.ends("\n>")
	p.types("ab日本", ":Left", ":BSpace", "語", ":Enter")
	p.shows("> ab語本\nYou said: \"ab語本\".")
	p.types("/sess sa", ":Tab")
	p.ends("> /sess save")
	p.types("good-plan", ":Enter")
	p.shows("saved good-plan:")
	p.types("/snapshot better-plan --no", ":Tab", "x", ":Enter")
	p.shows("saved better-plan:")
	p.types("/sess view ", ":Tab")
	p.shows("good-plan    ")
	p.types("be", ":Tab")
	p.ends("> /sess view better-plan")
	p.types(":C-c")
	p.shows("> /sess view better-plan ^C\n· nothing runs; Ctrl-D or /exit leaves\n>")
	p.types("/mo", ":Tab", "o", ":Tab", ":Enter")
	p.shows("this session now talks with offline/echo")
	p.types("/sn", ":Tab", ":Tab")
	p.shows("/snapshots  List the snapshots")
	p.types("s", ":Enter")
	list := p.shows("NAME")
	if newest, older := strings.Index(list, "\nbetter-plan "), strings.Index(list, "\ngood-plan "); newest < 0 || older < newest {
		t.Errorf("/snapshots:\n%s", list)
	}
	p.types("/tools", ":Enter")
	p.until("the tools by name", func(screen string) bool {
		words := strings.Join(strings.Fields(screen), " ")
		_, after, found := strings.Cut(words, "> /tools ")
		return found && strings.Contains(after, "messages_manage session-actions The messages") && strings.Contains(after, "sess_manage sess Named snapshots")
	})
	p.left()
}

// A paste of three lines is one message, that is seen before it is sent.
func TestTmuxPaste(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.shell(aChat)
	p.ends("\n>")
	p.tmux("set-buffer", "one\ntwo\n/exit")
	p.tmux("paste-buffer", "-p", "-r")
	p.ends("> one\n… two\n… /exit")
	p.types(":Up", " and a half", ":Enter")
	p.shows(`You said: "one\ntwo and a half\n/exit".`)
	p.left()
	if got := u.messages(); len(got) != 2 || got[0] != "one\ntwo and a half\n/exit" {
		t.Errorf("messages %q", got)
	}
}

// Ctrl-C ends an answer and keeps what came; what is typed during an answer is
// not shown in it, but at the next prompt.
func TestTmuxAnswers(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.shell(aChat)
	p.ends("\n>")
	p.types("slow 60 20ms", ":Enter")
	p.shows("\n1 2 3")
	p.types("typed", " ahead")
	screen := p.ends("> typed ahead")
	if !strings.Contains(screen, "27 28 29\n30 31") || !strings.Contains(screen, "58 59 60\n> typed ahead") {
		t.Errorf("the answer was disturbed:\n%s", screen)
	}
	p.types(":C-u", "slow 100000 21ms", ":Enter")
	p.shows("> slow 100000 21ms\n1 2 3 4")
	p.types(":C-c")
	p.shows("· interrupted; what came until then is kept\n>")
	p.types("/events 4", ":Enter")
	p.shows("run_cancelled")
	p.left()
	got := u.messages()
	if len(got) != 4 || !strings.HasPrefix(got[3], "1 2 3 4") {
		t.Errorf("messages %q", got)
	}
}

// A question is answered by what is typed once it can be seen, and by nothing
// else.
func TestTmuxQuestion(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.shell(aChat)
	p.ends("\n>")
	p.types("/sess save a", ":Enter")
	p.shows("saved a:")
	p.types("/sess save b", ":Enter")
	p.shows("saved b:")
	for _, tt := range []struct{ name, answer, want string }{
		{"a", "n", "failed: error (denied)"},
		{"b", "y", "sess_manage: deleted b"},
	} {
		p.types(`call sess_manage {"action":"delete","name":"`+tt.name+`","confirm":true}`, ":Enter")
		p.shows("· the model wants to run: sess delete --confirm " + tt.name)
		p.ends("allow it? [y/N]")
		p.types(tt.answer, ":Enter")
		p.shows(tt.want)
		p.until("the next prompt", func(s string) bool { return strings.HasSuffix(s, "\n>") })
	}
	p.types(":Up") // an answer is not remembered
	p.shows(`> call sess_manage {"action":"delete","name":"b"`)
	p.types(":C-u")
	p.left()
	if got := strings.Join(u.names(), " "); got != "a" {
		t.Errorf("snapshots %q, want a alone", got)
	}
}

// A snapshot that is selected is shown in the place of the conversation.
func TestTmuxSelected(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("before the snapshot", "/sess save v1", "after it")
	p := u.shell(aChat)
	p.ends("\n>")
	p.types("/sess select v1", ":Enter")
	screen := p.ends("\nv1 (read-only)>")
	if !strings.Contains(screen, "user: before the snapshot") || strings.Contains(screen, "user: after it") {
		t.Errorf("the snapshot is not shown:\n%s", screen)
	}
	p.types("more", ":Enter")
	p.shows("hint: /live goes back to the conversation")
	p.types("/sess rename v1 v2", ":Enter")
	p.ends("\nv2 (read-only)>")
	p.types("/session", ":Enter") // S1-21
	p.shows("\nsnapshot  v2\n")
	p.left()

	p = u.again(p)
	p.shows("· v2 is shown, so nothing can be sent; /live goes back to the conversation\nv2 (read-only)>")
	p.types("/live", ":Enter")
	p.shows("back to the conversation\n>")
	p.left()
}

// again begins another chat in a terminal whose chat has ended.
func (u *user) again(p *pane) *pane {
	u.t.Helper()
	p.tmux("respawn-pane", "-k", aChat)
	p.tmux("clear-history")
	return p
}

// What was written is there at the next start: by the arrow keys, and by a search.
func TestTmuxHistory(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.shell(aChat)
	p.ends("\n>")
	for _, line := range []string{"plan the launch", "/session", "something else"} {
		p.types(line, ":Enter")
		p.until("the next prompt", func(s string) bool { return strings.HasSuffix(s, "\n>") && strings.Contains(s, "> "+line) })
	}
	p.left()
	p = u.again(p)
	p.ends("\n>")
	p.types(":Up", ":Up")
	p.ends("> /session")
	p.types(":C-r", "laun")
	p.ends("(search) laun: plan the launch")
	p.types(":End", "!", ":Enter")
	p.shows("You said: \"plan the launch!\".")
	p.left()
}

// The terminal may change its size at any time.
func TestTmuxResize(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.shell(aChat)
	p.ends("\n>")
	p.tmux("resize-window", "-x", "40")
	p.types(strings.Repeat("word ", 10))
	p.ends("> word word word word word word word wor\nd word word")
	p.tmux("resize-window", "-x", "30")
	p.types("x")
	p.ends("\n> word word word word word wor\nd word word word word x")
	p.types(":C-u", "slow 30 1ms", ":Enter")
	p.ends("\n1 2 3 4 5 6 7 8 9 10 11 12 13\n14 15 16 17 18 19 20 21 22 23\n24 25 26 27 28 29 30\n>")
	p.left()
}

// Colour is for who wants it.
func TestTmuxColour(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  string
		want bool
	}{{"NO_COLOR=1", false}, {"TERM=dumb", false}, {"NO_COLOR=", true}} {
		u := newUser(t)
		p := u.shell("export " + tt.env + "; " + aChat)
		p.ends("\n>")
		if got := strings.Contains(p.tmux("capture-pane", "-p", "-e"), "\x1b[2m"); got != tt.want {
			t.Errorf("with %s there is colour: %v", tt.env, got)
		}
		p.types("/exit", ":Enter")
		p.shows("left with 0")
	}
}

// Ctrl-Z stops the chat, and fg goes on with the line as it was.
func TestTmuxSuspend(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	p := u.shell("HISTFILE= PS1='$ ' bash --norc -i")
	p.ends("$")
	p.types("sess chat", ":Enter")
	p.ends("\n>")
	p.types("half a", ":C-z")
	p.ends("\n$")
	p.types("echo it is \"back\"", ":Enter")
	p.shows("\nit is back")
	p.types("fg", ":Enter")
	p.ends("\n> half a")
	p.types(" line", ":Enter")
	p.shows("You said: \"half a line\".")
	p.types(":C-d")
	p.ends("\n$")
}
