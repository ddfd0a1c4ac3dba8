package chat

import (
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
		// What a command says about itself is on the first line; behind it, and in
		// what only reads, may be what people wrote.
		if first, rest, more := strings.Cut(e.Result.Text, "\n"); e.Effect != plugin.EffectRead {
			if e.Result.Text = text(first); more {
				e.Result.Text += "\n" + rest
			}
		}
		notices := make([]string, 0, len(e.Result.Notices))
		for _, n := range e.Result.Notices {
			notices = append(notices, text(n))
		}
		e.Result.Notices = notices
	}
	h.Sink.Event(e)
}
