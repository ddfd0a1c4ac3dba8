package chat

import (
	"slices"
	"strings"

	"sess/plugin"
	"sess/surfaces"
)

// hinting is a [Sink] that makes what people are told name commands as they are
// typed in a chat.
type hinting struct {
	Sink
	commands func() []Command
}

func (h hinting) Event(e Event) {
	text := func(s string) string {
		if !strings.Contains(s, "sess ") { // most do not
			return s
		}
		return surfaces.SlashHints(s, specs(h.commands()))
	}
	switch e.Kind {
	case EventNotice:
		e.Text = text(e.Text)
	case EventError:
		shown := *e.Err
		shown.Message, shown.Hint = text(shown.Message), text(shown.Hint)
		e.Err = &shown
	case EventAnswer:
		e.Result.Text = hintLines(e, text)
		notices := make([]string, 0, len(e.Result.Notices))
		for _, n := range e.Result.Notices {
			notices = append(notices, text(n))
		}
		e.Result.Notices = notices
	}
	h.Sink.Event(e)
}

// hintLines changes the lines of an answer that a command says itself, and leaves
// what people wrote: of a change its first line, all where nothing was found, and
// lines that stand in parentheses from their first column to their last.
func hintLines(e Event, text func(string) string) string {
	own := e.Effect != plugin.EffectRead
	nothing := slices.Contains([]string{"null", "[]", "{}"}, string(e.Result.Data))
	var b strings.Builder
	for line := range strings.Lines(e.Result.Text) {
		if body := strings.TrimSuffix(line, "\n"); own || nothing || strings.HasPrefix(body, "(") && strings.HasSuffix(body, ")") {
			line = text(line)
		}
		b.WriteString(line)
		own = false
	}
	return b.String()
}
