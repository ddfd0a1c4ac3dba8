package chat_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"sess/host/chat"
	"sess/plugin"
)

func TestRunOfAPipe(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	for _, tt := range []struct {
		rule, input string
		want        []string
		code        plugin.Code
	}{
		{"every line is a turn or command", "hi\r\n/pad save v1\n\n  ho", []string{"text: " + first, "answer: saved v1", "text: " + seen("ho", 2, "hi")}, ""},
		{"a command that fails is told by the exit", "/pad load v9\nhi\n", []string{"error: not_found: there is no v9; save it first", "text: " + first}, plugin.NotFound},
		{"the last failure counts", "fail\n/nope\n", []string{"error: unavailable: offline/echo failed because it was told to; say something else", "error: usage: unknown command /nope; the commands are /help, /session, /events, /model, /tools, /live, /exit, /quit, /pad, /snapshot, /new"}, plugin.Usage},
		{"exit leaves the rest", "/exit\nhi\n", nil, ""},
		{"nothing", "", nil, ""},
		{"a long line", long, []string{"text: You said: \"" + long[:59] + "…\". This is your first message in this conversation."}, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			err := d.chat.Run(t.Context(), chat.Input{Reader: strings.NewReader(tt.input)})
			if tt.code == "" && err != nil || tt.code != "" && !errors.Is(err, &plugin.Error{Code: tt.code}) {
				t.Errorf("Run = %v, want code %q", err, tt.code)
			}
			d.equal("shown", tt.want, d.shown.take())
		})
	}
}

func TestRunWithAPerson(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var prompts bytes.Buffer
	if err := d.chat.Run(t.Context(), chat.Input{Reader: strings.NewReader("hi\n/nope\n"), Prompt: &prompts}); err != nil {
		t.Errorf("Run = %v, want nil: a person has seen the failure", err)
	}
	if got, want := prompts.String(), "> > > \n"; got != want {
		t.Errorf("prompts %q, want %q", got, want)
	}
	help := "notice: /help lists the commands, Ctrl-D leaves"
	d.equal("greeting", []string{"notice: session s1 of project default, model offline/echo", help}, d.shown.take()[:2])
	if err := d.chat.Run(t.Context(), chat.Input{Reader: strings.NewReader(""), Prompt: io.Discard}); err != nil {
		t.Errorf("Run = %v", err)
	}
	d.equal("greeting of one who comes back", []string{`notice: session s1 of project default, model offline/echo; going on with "hi", 2 messages`, help}, d.shown.take())
}

func TestRunInterrupts(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	in, lines := io.Pipe()
	interrupt := make(chan struct{})
	started := make(chan struct{}, 1)
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventText {
			select {
			case started <- struct{}{}:
			default:
			}
		}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- d.chat.Run(t.Context(), chat.Input{Reader: in, Prompt: io.Discard, Interrupt: interrupt})
	}()
	interrupt <- struct{}{} // at the prompt
	io.WriteString(lines, "slow 100000 1ms\n")
	<-started
	interrupt <- struct{}{} // in the turn
	io.WriteString(lines, "hi\n")
	lines.Close()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	shown := d.shown.take()
	d.equal("at the prompt", []string{"notice: nothing runs; Ctrl-D or /exit leaves"}, shown[2:3])
	d.equal("in the turn", []string{"notice: interrupted; what came until then is kept", "text: " + seen("hi", 2, "slow 100000 1ms")}, shown[4:])
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	stopped := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventText {
			cancel(stopped)
		}
	}
	in, lines := io.Pipe()
	defer lines.Close()
	go io.WriteString(lines, "slow 100000 1ms\n")
	if err := d.chat.Run(ctx, chat.Input{Reader: in}); !errors.Is(err, stopped) {
		t.Errorf("Run = %v, want its cause", err)
	}
	if got := d.messages(); len(got) != 2 || !strings.HasPrefix(got[1], "agent complete: 1 ") {
		t.Errorf("messages %q, want what came", got)
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(stopped)
	if err := d.chat.Run(ctx, chat.Input{Reader: in}); !errors.Is(err, stopped) {
		t.Errorf("Run at the prompt = %v, want its cause", err)
	}
}

func TestRunTellsThatReadingFailed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	in, lines := io.Pipe()
	go lines.CloseWithError(errors.New("the line is cut"))
	if err := d.chat.Run(t.Context(), chat.Input{Reader: in}); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("Run = %v, want unavailable", err)
	}
}

func TestRunAsksThePerson(t *testing.T) {
	t.Parallel()
	const call = "call pad_manage {\"action\":\"save\",\"name\":\"v1\"}\n"
	for _, tt := range []struct {
		rule, input string
		person      bool
		want        string
	}{
		{"yes", call + "y\n/session\n", true, "tool_finished: pad_manage failed=false saved v1"},
		{"anything else is no", call + "yep\n/session\n", true, "tool_finished: pad_manage failed=true error (denied): "},
		{"the end of the input is no", call, true, "tool_finished: pad_manage failed=true error (denied): "},
		{"nobody is there", call + "/session\n", false, "tool_finished: pad_manage failed=true error (denied): pad save v1: only a person may allow it, and none is here"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.opts.Confirm = func() []string { return []string{"save"} }
			d.open(offline(t))
			in := chat.Input{Reader: strings.NewReader(tt.input)}
			var prompts bytes.Buffer
			if tt.person {
				in.Prompt = &prompts
			}
			if err := d.chat.Run(t.Context(), in); err != nil {
				t.Errorf("Run = %v", err)
			}
			shown := strings.Join(d.shown.take(), "\n")
			if !strings.Contains(shown, tt.want) {
				t.Errorf("shown:\n%s\nwant %q", shown, tt.want)
			}
			if strings.Contains(tt.input, "/session") != strings.Contains(shown, "answer: session   s1") {
				t.Errorf("the line after the answer was not taken as a command:\n%s", shown)
			}
			if tt.person != strings.Contains(prompts.String(), "> allow it? [y/N] ") {
				t.Errorf("prompts %q", prompts.String())
			}
		})
	}
}

// typist is an [chat.Editor] that gives prepared lines and notes how it was
// asked for them.
type typist struct {
	lines []string // "^C" is an interrupt; after the last one comes the end
	asked []string
}

func (e *typist) ReadLine(_ context.Context, ask chat.Ask) (string, error) {
	kind := "line"
	if ask.Question {
		kind = "answer"
	}
	e.asked = append(e.asked, ask.Prompt+kind)
	if len(e.lines) == 0 {
		return "", io.EOF
	}
	text := e.lines[0]
	e.lines = e.lines[1:]
	if text == "^C" {
		return "", chat.ErrInterrupted
	}
	return text, nil
}

// editorFunc is an [chat.Editor] in one function.
type editorFunc func(ctx context.Context, ask chat.Ask) (string, error)

func (f editorFunc) ReadLine(ctx context.Context, ask chat.Ask) (string, error) { return f(ctx, ask) }

// A question that needs no answer any more is given up, and what the person
// writes next is no answer to it.
func TestQuestionIsWithdrawn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.opts.Confirm = func() []string { return []string{"save"} }
	d.open(offline(t))
	lines := []string{`call pad_manage {"action":"save","name":"v1"}`, "hi"}
	withdrawn := 0
	err := d.chat.Run(t.Context(), chat.Input{Editor: editorFunc(func(ctx context.Context, ask chat.Ask) (string, error) {
		if ask.Question {
			if err := d.chat.Allow("call_1", true); err != nil {
				t.Errorf("Allow = %v", err)
			}
			<-ctx.Done()
			withdrawn++
			return "", ctx.Err()
		}
		if len(lines) == 0 {
			return "", io.EOF
		}
		line := lines[0]
		lines = lines[1:]
		return line, nil
	})})
	if err != nil || withdrawn != 1 {
		t.Errorf("Run = %v, %d questions withdrawn", err, withdrawn)
	}
	if got := strings.Join(d.shown.take(), "\n"); !strings.Contains(got, "failed=false saved v1") || !strings.Contains(got, `You said: "hi"`) {
		t.Errorf("shown:\n%s", got)
	}
}

// The terminal is not used any more when Run returns, so that it can be given
// back.
func TestRunEndsWithItsEditor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("told to stop")
	ended := false
	err := d.chat.Run(ctx, chat.Input{Editor: editorFunc(func(ctx context.Context, _ chat.Ask) (string, error) {
		cancel(stopped)
		<-ctx.Done()
		ended = true
		return "", ctx.Err()
	})})
	if !errors.Is(err, stopped) || !ended {
		t.Errorf("Run = %v, its editor ended: %v", err, ended)
	}
}

// A person sees at the prompt that a snapshot is shown.
func TestPromptOfASnapshot(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.store.Select(t.Context(), d.ref, "0198-snapshot"); err != nil {
		t.Fatal(err)
	}
	e := &typist{lines: []string{"/live"}}
	if err := d.chat.Run(t.Context(), chat.Input{Editor: e}); err != nil {
		t.Errorf("Run = %v", err)
	}
	d.equal("prompts", []string{"0198-snapshot (read-only)> line", "> line"}, e.asked)
	d.equal("greeting", []string{"notice: 0198-snapshot is shown, so nothing can be sent; /live goes back to the conversation"}, d.shown.take()[2:3])
}

func TestRunWithAnEditor(t *testing.T) {
	t.Parallel()
	const call = `call pad_manage {"action":"save","name":"v1"}`
	for _, tt := range []struct {
		rule         string
		lines, asked []string
		want         []string // of what is shown after the greeting
	}{
		{"lines are asked for one by one", []string{"hi", "a\nb"}, []string{"> line", "> line", "> line"}, []string{"text: " + first, "text: " + seen("a\nb", 2, "hi")}},
		{"an interrupt at the prompt ends nothing", []string{"^C", "hi"}, []string{"> line", "> line", "> line"}, []string{"notice: nothing runs; Ctrl-D or /exit leaves", "text: " + first}},
		{"a failure does not end it", []string{"/nope"}, []string{"> line", "> line"}, nil},
		{"an answer is no message", []string{call, "y"}, []string{"> line", "allow it? [y/N] answer", "> line"}, nil},
		{"an interrupt instead of an answer ends the turn", []string{call, "^C"}, []string{"> line", "allow it? [y/N] answer", "> line"}, nil},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.opts.Confirm = func() []string { return []string{"save"} }
			d.open(offline(t))
			e := &typist{lines: tt.lines}
			if err := d.chat.Run(t.Context(), chat.Input{Editor: e}); err != nil {
				t.Errorf("Run = %v", err)
			}
			shown := d.shown.take()
			d.equal("prompts", tt.asked, e.asked)
			if tt.want != nil {
				d.equal("shown", tt.want, shown[2:])
			}
			if all := strings.Join(shown, "\n"); tt.lines[len(tt.lines)-1] == "^C" && !strings.Contains(all, "tool_finished: pad_manage failed=true error (unavailable): pad save v1: interrupted before a person answered\nnotice: interrupted; what came until then is kept") {
				t.Errorf("shown:\n%s\nwant that the turn was interrupted", all)
			}
		})
	}
}

// One line of a program has nobody behind it who could be asked.
func TestSendAloneDoesNotWaitForAPerson(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.opts.Confirm = func() []string { return []string{"save"} }
	d.open(offline(t))
	if err := d.chat.SendAlone(t.Context(), `call pad_manage {"action":"save","name":"v1"}`); err != nil {
		t.Errorf("SendAlone = %v", err)
	}
	shown := strings.Join(d.shown.take(), "\n")
	for _, want := range []string{
		"tool_finished: pad_manage failed=true error (denied): pad save v1: only a person may allow it, and none is here",
		"not run, since nobody is here to allow it: pad save v1; run it yourself",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("shown:\n%s\nwant %q", shown, want)
		}
	}
}
