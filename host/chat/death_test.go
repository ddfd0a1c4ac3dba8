package chat_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sess/host/chat"
	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
)

// childDir makes the test binary a chat on the session in that folder.
const childDir = "SESS_TEST_CHAT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child is a chat program as small as can be. Each ended turn becomes a line
// in the file "told".
func child(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	store, err := session.Open(filepath.Join(dir, "sessions"), session.Options{})
	if err != nil {
		return err
	}
	model, err := models.Open("", models.Config{})
	if err != nil {
		return err
	}
	told, err := os.OpenFile(filepath.Join(dir, "told"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	c, err := chat.Open(ctx, store, testRef, model, chat.NewTerminal(os.Stdout, os.Stderr, chat.TerminalOptions{}), chat.Options{
		Notify: func(_ context.Context, e plugin.Event) ([]string, error) {
			_, err := fmt.Fprintln(told, e.Turn)
			return nil, err
		},
	})
	if err != nil {
		return err
	}
	runErr := c.Run(ctx, chat.Input{Reader: os.Stdin})
	if errors.Is(runErr, context.Canceled) {
		runErr = nil
	}
	closeCtx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	return errors.Join(runErr, c.Close(closeCtx), store.Close(), told.Close())
}

// process is a running child.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines io.WriteCloser
	out   *bufio.Reader
}

func startChild(t *testing.T, dir string) *process {
	t.Helper()
	store, err := session.Open(filepath.Join(dir, "sessions"), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Create(t.Context(), store.New(testRef, "", "")), store.Close()); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), childDir+"="+dir)
	p.cmd.Stderr = os.Stderr
	p.lines, err = p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

func (p *process) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.lines, line+"\n"); err != nil {
		p.t.Fatalf("send %q: %v", line, err)
	}
}

// await reads the output up to and including a text.
func (p *process) await(text string) {
	p.t.Helper()
	var all strings.Builder
	for !strings.HasSuffix(all.String(), text) {
		b, err := p.out.ReadByte()
		if err != nil {
			p.t.Fatalf("the output ended before %q: %v\n%s", text, err, all.String())
		}
		all.WriteByte(b)
	}
}

// reopen is a desk on what a child left behind.
func reopen(t *testing.T, dir string) *desk {
	t.Helper()
	d := &desk{t: t, dir: filepath.Join(dir, "sessions"), ref: testRef, shown: &recorder{}}
	d.store = openStore(t, d.dir)
	d.open(offline(t))
	return d
}

// S1-11, S3-65: what came until the end of the process is there afterwards, and the
// model knows it.
func TestKilledInTheMiddleOfATurn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startChild(t, dir)
	p.send("hi")
	p.send("slow 100000 1ms")
	p.await(" 29 30 ")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()

	d := reopen(t, dir)
	shown := d.send("go on")
	if got, want := shown[len(shown)-1], "text: "+seen("go on", 3, "hi"); got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
	if len(shown) < 2 || !strings.HasPrefix(shown[0], "notice: ") {
		t.Errorf("shown %q, want a notice of the interruption first", shown)
	}
	messages := d.messages()
	d.equal("before", []string{"user complete: hi", "agent complete: " + first, "user complete: slow 100000 1ms"}, messages[:3])
	if !strings.HasPrefix(messages[3], "agent error: 1 2 3 4 ") || !strings.Contains(messages[3], " 29 30 ") {
		t.Errorf("the answer that was cut off is %q, want what came of it", messages[3])
	}
	d.equal("after", []string{"user complete: go on", "agent complete: " + seen("go on", 3, "hi")}, messages[4:])
	d.equal("the model knows what it had said", []string{"user: slow 100000 1ms", "assistant: " + strings.TrimPrefix(messages[3], "agent error: "), "user: go on"}, d.history()[2:5])
	if live := d.live(); live.Status != session.StatusIdle || live.Error != "" {
		t.Errorf("status %s, error %q, want idle", live.Status, live.Error)
	}
	d.equal("told once", []string{"text: " + seen("and", 4, "hi")}, d.send("and"))
}

// A copy of the files, made while a program runs, is what it leaves behind when
// it is killed at that moment.
func TestKilledBetweenTools(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	copied := t.TempDir()
	round := 0
	d.open(modelFunc(func(_ context.Context, _ models.Request, emit func(models.Delta)) (models.Answer, error) {
		round++
		say := func(text string) { emit(models.Delta{Kind: models.DeltaText, Text: text}) }
		call := func(id string) transcript.ToolCall {
			return transcript.ToolCall{ID: id, Name: "pad_manage", Arguments: json.RawMessage(`{"action":"save","name":"v1"}`)}
		}
		switch round {
		case 1:
			say("first a")
			return models.Answer{ToolCalls: []transcript.ToolCall{call("a")}}, nil
		case 2:
			say("now b and c")
			return models.Answer{ToolCalls: []transcript.ToolCall{call("b"), call("c")}}, nil
		}
		say("done")
		return models.Answer{}, nil
	}))
	calls := 0
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventToolStarted {
			if calls++; calls == 3 {
				if err := os.CopyFS(filepath.Join(copied, "sessions"), os.DirFS(d.dir)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	d.send("go")

	dead := reopen(t, copied)
	shown := dead.send("go on")
	const args = `{"action":"save","name":"v1"}`
	dead.equal("history", []string{
		"user: go",
		"assistant [a pad_manage " + args + "]: first a",
		"tool of a: saved v1\n\n{\"did\":\"save\"}",
		"assistant [b pad_manage " + args + "] [c pad_manage " + args + "]: now b and c",
		"tool of b: interrupted",
		"tool of c: interrupted",
		"user: go on",
		"assistant: " + seen("go on", 2, "go"),
	}, dead.history())
	dead.equal("messages", []string{
		"user complete: go", "agent error: first a\n\nnow b and c",
		"user complete: go on", "agent complete: " + seen("go on", 2, "go"),
	}, dead.messages())
	if len(shown) < 2 || !strings.HasPrefix(shown[0], "notice: ") {
		t.Errorf("shown %q, want a notice first", shown)
	}
	dead.equal("told once", []string{"text: " + seen("and", 3, "go")}, dead.send("and"))
}

// What is mended after a death may seal records. The chunks are not stored
// before the next write, and the turn reads them before that.
func TestKilledInALongCall(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	note := strings.Repeat("x", 2*transcript.MaxChunk)
	copied := t.TempDir()
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventToolStarted {
			if err := os.CopyFS(filepath.Join(copied, "sessions"), os.DirFS(d.dir)); err != nil {
				t.Error(err)
			}
		}
	}
	line := `call pad_manage {"action":"save","name":"v1","note":"` + note + `"}`
	d.send(line)

	dead := reopen(t, copied)
	shown := dead.send("go on")
	if got, want := shown[len(shown)-1], "text: "+seen("go on", 2, line[:59]+"…"); got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
	if history := dead.history(); len(history) != 5 || history[2] != "tool of call_1: interrupted" {
		t.Errorf("%d items of history, want 5 with an interrupted call", len(history))
	}
}

func TestStoppedAfterTwentyTurns(t *testing.T) {
	t.Parallel()
	for _, sig := range append(stopSignals(), os.Kill) {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := startChild(t, dir)
			for i := 1; i <= 20; i++ {
				p.send(fmt.Sprintf("turn %d.", i))
			}
			p.await(`You said: "turn 20.". This conversation has 20 messages from you; the first was "turn 1.".`)
			start := time.Now()
			if err := p.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			err := p.cmd.Wait()
			if killed := sig == os.Kill; killed != (err != nil) {
				t.Errorf("the program ended with %v", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("the program took %v to end", took)
			}
			d := reopen(t, dir)
			messages := records[transcript.Message](d, transcript.ListMessages)
			if len(messages) != 40 {
				t.Fatalf("the session has %d messages, want 40", len(messages))
			}
			for i, m := range messages {
				inFlight := sig == os.Kill && i == 39 // its text is in the log
				if m.Status != transcript.StatusComplete && !inFlight || m.Content == "" && !inFlight {
					t.Errorf("message %d is %s: %q", i, m.Status, m.Content)
				}
			}
			told, err := os.ReadFile(filepath.Join(dir, "told"))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(told), "\n"); n != 20 && sig != os.Kill {
				t.Errorf("the plugins were told of %d turns, want 20", n)
			}
			shown := d.send("hi")
			d.equal("the next turn", []string{"text: " + seen("hi", 21, "turn 1.")}, shown[len(shown)-1:])
		})
	}
}
