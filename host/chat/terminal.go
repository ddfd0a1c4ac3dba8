package chat

import (
	"fmt"
	"io"
	"strings"

	"sess/plugin"
	"sess/surfaces"
)

// TerminalOptions say what a [Terminal] writes to. The zero value is for files
// and pipes.
type TerminalOptions struct {
	// Columns is how wide the terminal is now; nil, and 0, leave lines as long as
	// they are.
	Columns func() int
	// Color sets off by colour what the words say, too.
	Color bool
}

// Terminal shows a chat as plain text: what the model says and what commands
// answer on one writer, everything about it (notices, errors, thoughts, tools)
// on the other. Control characters in any of it are made visible. It is the
// [Sink] of one chat and writes without buffering; what cannot be written is
// lost.
type Terminal struct {
	out, notes io.Writer
	o          TerminalOptions
	streaming  EventKind // kind of the unfinished line, or ""
	wrap       wrapper   // of what is streaming
}

// NewTerminal makes a Terminal from what are usually stdout and stderr.
func NewTerminal(out, notes io.Writer, o TerminalOptions) *Terminal {
	return &Terminal{out: out, notes: notes, o: o}
}

var _ Sink = (*Terminal)(nil)

// style is how something is set off, as a parameter of SGR (ECMA-48).
type style string

const (
	plain style = ""
	bold  style = "1"
	faint style = "2"
	red   style = "31"
)

// shownRunes bounds what is shown of a call, and of what a tool said, in
// characters.
const shownRunes = 400

// paint sets a text off. Line ends stay outside, so that nothing is left over.
func (t *Terminal) paint(s style, text string) string {
	if !t.o.Color || s == plain || text == "" {
		return text
	}
	body := strings.TrimRight(text, "\n")
	return "\x1b[" + string(s) + "m" + body + "\x1b[m" + text[len(body):]
}

// Event shows e.
func (t *Terminal) Event(e Event) {
	if e.Kind == EventText || e.Kind == EventThought {
		t.stream(e)
		return
	}
	t.endLine()
	switch e.Kind {
	case EventToolStarted:
		t.note(faint, "%s %s", e.Tool.Name, cut(string(e.Tool.Arguments), shownRunes))
	case EventToolFinished:
		line, _, _ := strings.Cut(e.Tool.Text, "\n")
		if e.Tool.Failed {
			line = "failed: " + line
		}
		t.note(faint, "%s: %s", e.Tool.Name, cut(line, shownRunes))
	case EventQuestion:
		t.note(bold, "the model wants to run: %s", e.Text)
		if strings.HasSuffix(e.Text, "…") { // whoever allows it has to see all of it
			t.note(bold, "in full: %s %s", e.Tool.Name, e.Tool.Arguments)
		}
	case EventAnswer:
		t.render(surfaces.RenderCLI(e.Result, nil, surfaces.CLIOptions{JSON: e.JSON, Effect: e.Effect}), faint, e.JSON)
	case EventNotice:
		t.note(faint, "%s", e.Text)
	case EventError:
		t.render(surfaces.RenderCLI(plugin.Result{}, e.Err, surfaces.CLIOptions{Prog: "error", JSON: e.JSON}), red, e.JSON)
	}
}

// stream continues the unfinished line, or begins another.
func (t *Terminal) stream(e Event) {
	w, s := t.out, plain
	if e.Kind == EventThought {
		w, s = t.notes, faint
	}
	text := surfaces.Printable(e.Text)
	if t.streaming != e.Kind {
		t.endLine()
		if e.Kind == EventThought {
			text = "(thinking) " + text
		}
		t.streaming, t.wrap = e.Kind, wrapper{}
	}
	if t.o.Columns != nil {
		text = t.wrap.add(text, t.o.Columns())
	}
	_, _ = io.WriteString(w, t.paint(s, text))
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

func (t *Terminal) note(s style, format string, args ...any) {
	text := "· " + surfaces.Printable(fmt.Sprintf(format, args...)) + "\n"
	_, _ = io.WriteString(t.notes, t.paint(s, t.broken(text)))
}

func (t *Terminal) render(o surfaces.CLIOutput, s style, json bool) {
	if !json {
		o.Stdout = []byte(t.broken(string(o.Stdout)))
	}
	_, _ = t.out.Write(o.Stdout)
	_, _ = io.WriteString(t.notes, t.paint(s, t.broken(string(o.Stderr))))
}

// broken is a whole text, its lines broken between words where the terminal is not
// wide enough. Lines with columns are laid out already.
func (t *Terminal) broken(text string) string {
	if t.o.Columns == nil {
		return text
	}
	var b strings.Builder
	var w wrapper
	columns := t.o.Columns()
	for line := range strings.Lines(text) {
		if !strings.Contains(strings.TrimSpace(line), "  ") {
			line = w.add(line, columns)
		}
		b.WriteString(line)
	}
	return b.String()
}
