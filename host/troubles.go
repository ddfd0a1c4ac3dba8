package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"sess/host/chat"
)

const (
	// mostTroubles bounds what is kept for a chat that may never come.
	mostTroubles = 16
	// sameTroubles is how many of those that were told last are not told again.
	sameTroubles = 64
)

// troubles is what went wrong in the background, where nobody waits for an
// answer: what is logged as an error, and what plugins have to say to nobody in
// particular. The next chat is told, or who ran the command whose process ends
// with some of it left; each thing once. Safe for concurrent use.
type troubles struct {
	mu    sync.Mutex
	texts []string // not yet told
	told  []string // the last ones, the newest last
	more  int      // that there was no room for
}

func (t *troubles) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case slices.Contains(t.texts, text), slices.Contains(t.told, text):
	case len(t.texts) == mostTroubles:
		t.more++
	default:
		t.texts = append(t.texts, text)
	}
}

// take returns what was not told yet.
func (t *troubles) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	texts := t.texts
	t.told = append(t.told, texts...)
	t.told = slices.Clone(t.told[max(0, len(t.told)-sameTroubles):])
	if t.more > 0 {
		texts = append(texts, fmt.Sprintf("%d more things went wrong in the background: logs/sess.log in the home has them", t.more))
	}
	t.texts, t.more = nil, 0
	return texts
}

// Troubles returns what went wrong in the background and was not told yet; it
// counts as told then.
func (h *Host) Troubles() []string { return h.troubles.take() }

// tellTroubles tells in a chat what went wrong.
func (h *Host) tellTroubles(out chat.Sink) {
	for _, text := range h.troubles.take() {
		out.Event(chat.Event{Kind: chat.EventNotice, Text: text})
	}
}

// troubleHandler makes troubles of the errors in a log. Only records with an
// attribute err are: the others are of what is answered as well.
type troubleHandler struct {
	troubles *troubles
	attrs    []slog.Attr
}

func (t *troubleHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (t *troubleHandler) Handle(_ context.Context, r slog.Record) error {
	var plugin, err string
	look := func(a slog.Attr) bool {
		switch a.Key {
		case "plugin":
			plugin = a.Value.String()
		case "err":
			err = a.Value.String()
		}
		return true
	}
	for _, a := range t.attrs {
		look(a)
	}
	if r.Attrs(look); err == "" {
		return nil
	}
	what := r.Message
	if plugin != "" {
		what = fmt.Sprintf("plugin %s: %s", plugin, what)
	}
	t.troubles.add(fmt.Sprintf("something went wrong in the background: %s: %s (sess doctor may say more)", what, err))
	return nil
}

func (t *troubleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := *t
	own.attrs = slices.Concat(t.attrs, attrs)
	return &own
}

// WithGroup leaves the names of attributes as they are: who logs in a group is no
// less in trouble.
func (t *troubleHandler) WithGroup(string) slog.Handler { return t }
