package chat

import (
	"fmt"
	"io"
	"strings"

	"sess/plugin"
	"sess/surfaces"
)

// Terminal shows a chat as plain text: what the model says and what commands
// answer on one writer, everything about it (notices, errors, thoughts, tools)
// on the other. Control characters in any of it are made visible. It is the
// [Sink] of one chat and writes without buffering; what cannot be written is
// lost.
type Terminal struct {
	out, notes io.Writer
	streaming  EventKind // kind of the unfinished line, or ""
}

// NewTerminal makes a Terminal from what are usually stdout and stderr.
func NewTerminal(out, notes io.Writer) *Terminal { return &Terminal{out: out, notes: notes} }

var _ Sink = (*Terminal)(nil)

// Event shows e.
func (t *Terminal) Event(e Event) {
	if e.Kind == EventText || e.Kind == EventThought {
		t.stream(e)
		return
	}
	t.endLine()
	switch e.Kind {
	case EventToolStarted:
		t.note("%s %s", e.Tool.Name, e.Tool.Arguments)
	case EventToolFinished:
		line, _, _ := strings.Cut(e.Tool.Text, "\n")
		if e.Tool.Failed {
			line = "failed: " + line
		}
		t.note("%s: %s", e.Tool.Name, line)
	case EventQuestion:
		t.note("the model wants to run: %s", e.Text)
	case EventAnswer:
		t.render(surfaces.RenderCLI(e.Result, nil, surfaces.CLIOptions{JSON: e.JSON, Effect: e.Effect}))
	case EventNotice:
		t.note("%s", e.Text)
	case EventError:
		t.render(surfaces.RenderCLI(plugin.Result{}, e.Err, surfaces.CLIOptions{Prog: "error", JSON: e.JSON}))
	}
}

// stream continues the unfinished line, or begins another.
func (t *Terminal) stream(e Event) {
	if t.streaming != e.Kind {
		t.endLine()
		if e.Kind == EventThought {
			_, _ = io.WriteString(t.notes, "(thinking) ")
		}
		t.streaming = e.Kind
	}
	w := t.out
	if e.Kind == EventThought {
		w = t.notes
	}
	_, _ = io.WriteString(w, surfaces.Printable(e.Text))
}

func (t *Terminal) endLine() {
	switch t.streaming {
	case EventText:
		_, _ = io.WriteString(t.out, "\n")
	case EventThought:
		_, _ = io.WriteString(t.notes, "\n")
	}
	t.streaming = ""
}

func (t *Terminal) note(format string, args ...any) {
	_, _ = io.WriteString(t.notes, "· "+surfaces.Printable(fmt.Sprintf(format, args...))+"\n")
}

func (t *Terminal) render(o surfaces.CLIOutput) {
	_, _ = t.out.Write(o.Stdout)
	_, _ = t.notes.Write(o.Stderr)
}
