package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"sess/store/durable"
)

const (
	historyName = "chat.history"
	// historyText bounds a line that is kept, in bytes; the file is read whole.
	historyText = 32 << 10
	historyFile = 64 << 20
)

// History is what people wrote in the chats of a home, for the arrow keys. It is
// one for all sessions. A line that begins with a blank is not kept, so that there
// is a way to say what nobody shall find. Safe for concurrent use, also by other
// processes; what two of them write at the same moment may come in either order.
type History struct {
	home durable.FS
	log  *slog.Logger
	most int

	mu    sync.Mutex // guards lines
	lines []string   // newest last
}

// History reads what was written before. What cannot be read is left out: a
// conversation does not need it.
func (h *Host) History() *History {
	l := &History{home: h.home, log: h.log, most: h.Config().Chat.History}
	if err := l.load(); err != nil {
		l.log.Error("what was written in chats before is not there", "err", err)
	}
	return l
}

func (l *History) load() error {
	data, err := durable.ReadFile(l.home, historyName, historyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case l.most == 0:
		return l.home.Remove(historyName) // as who set it wants it
	}
	for raw := range bytes.Lines(data) {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			l.lines = append(l.lines, text)
		}
	}
	n := len(l.lines)
	l.lines = l.lines[max(0, n-l.most):]
	if n <= 2*l.most {
		if len(data) > 0 && data[len(data)-1] != '\n' { // a line that was cut off must not take the next one with it
			return l.write([]byte{'\n'})
		}
		return nil
	}
	var kept []byte
	for _, text := range l.lines {
		kept = append(kept, historyLine(text)...)
	}
	return durable.Write(l.home, historyName, kept)
}

// historyLine is a text as it stands in the file: one JSON string.
func historyLine(text string) []byte {
	line, _ := json.Marshal(text) // of a string: it cannot fail
	return append(line, '\n')
}

// Lines are the lines that are kept, newest last.
func (l *History) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Add keeps a line. It is in the file when Add returns, but not durable.
func (l *History) Add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.lines) - 1
	if l.most == 0 || strings.TrimSpace(text) == "" || text[0] == ' ' || len(text) > historyText || last >= 0 && l.lines[last] == text {
		return
	}
	l.lines = append(l.lines, text)
	l.lines = l.lines[max(0, len(l.lines)-l.most):]
	if err := l.write(historyLine(text)); err != nil {
		l.log.Error("what is written in this chat is not kept for the next one", "err", err)
	}
}

func (l *History) write(line []byte) error {
	f, err := l.home.Append(historyName)
	if err != nil {
		return err
	}
	return errors.Join(durable.WriteAll(f, historyName, line), f.Close())
}
