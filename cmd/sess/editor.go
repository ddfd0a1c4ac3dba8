package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"sess/host/chat"
)

// editor lets a person write lines of any length at a terminal: with the arrow
// keys, a history of what was said before, and pasted text of several lines
// kept together as one message. Between two lines the terminal is as it was.
type editor struct {
	keys    *keys
	screen  io.Writer
	raw     func() (restore func() error, err error) // prepares the terminal
	size    func() (width, height int, err error)
	history history

	mu      sync.Mutex // guards restore
	restore func() error

	line *term.Terminal // nil: the next line begins anew
}

var _ chat.Editor = (*editor)(nil)

// newEditor makes an editor for the terminal that in and out are. It is nil
// where the terminal says that it cannot be written on freely.
func newEditor(in, out *os.File, kind string) *editor {
	if kind == "dumb" {
		return nil
	}
	return &editor{
		keys: &keys{r: in}, screen: out,
		raw: func() (func() error, error) {
			state, err := term.MakeRaw(int(in.Fd()))
			if err != nil {
				return nil, err
			}
			return func() error { return term.Restore(int(in.Fd()), state) }, nil
		},
		size: func() (int, int, error) { return term.GetSize(int(out.Fd())) },
	}
}

const (
	continued    = "… " // prompt for the rest of what is being pasted
	pasteModeOn  = "\x1b[?2004h"
	pasteModeOff = "\x1b[?2004l"
)

// ReadLine asks for one line, or for all lines of a paste and the one that the
// person ends it with.
func (e *editor) ReadLine(prompt string, message bool) (string, error) {
	restore, err := e.raw()
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	e.restore = restore
	e.mu.Unlock()
	defer e.Close()
	if e.line == nil {
		e.line = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{e.keys, e.screen}, "")
		e.line.History = &e.history
	}
	if width, height, err := e.size(); err == nil && width > 0 {
		_ = e.line.SetSize(width, height)
	}
	_, _ = io.WriteString(e.screen, pasteModeOn)
	var lines []string
	for {
		e.line.SetPrompt(prompt)
		text, err := e.line.ReadLine()
		switch {
		case errors.Is(err, term.ErrPasteIndicator):
			lines = append(lines, text)
			prompt = continued
			continue
		case err == nil:
			lines = append(lines, text)
		case errors.Is(err, io.EOF):
			e.line = nil // it would read the key that ended it again
			if e.keys.interrupted {
				_, _ = io.WriteString(e.screen, "^C\r\n")
				return "", chat.ErrInterrupted
			}
			_, _ = io.WriteString(e.screen, "\r\n")
			if lines == nil {
				return "", io.EOF
			}
		default:
			return "", err
		}
		text = strings.Join(lines, "\n")
		if message {
			e.history.add(text)
		}
		return text, nil
	}
}

// Close gives the terminal back, also while somebody is being asked. It may be
// called at any time.
func (e *editor) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.restore == nil {
		return nil
	}
	_, _ = io.WriteString(e.screen, pasteModeOff)
	err := e.restore()
	e.restore = nil
	return err
}

// keys tells Ctrl-C from Ctrl-D, which the line editor takes for the same.
type keys struct {
	r           io.Reader
	interrupted bool // Ctrl-C was among what was read last
}

func (k *keys) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	k.interrupted = bytes.IndexByte(p[:n], '\x03') >= 0
	return n, err
}

// history is what was said before, newest last. Only whole messages of one line
// are in it: the line editor cannot show others.
type history struct{ lines []string }

var _ term.History = (*history)(nil)

const historySize = 500

// Add does nothing: what the line editor calls a line may be part of a paste.
func (h *history) Add(string) {}

func (h *history) add(text string) {
	last := len(h.lines) - 1
	if strings.TrimSpace(text) == "" || strings.Contains(text, "\n") || last >= 0 && h.lines[last] == text {
		return
	}
	h.lines = append(h.lines, text)
	h.lines = h.lines[max(0, len(h.lines)-historySize):]
}

func (h *history) Len() int { return len(h.lines) }

// At returns the idx-th line, counted from the newest.
func (h *history) At(idx int) string { return h.lines[len(h.lines)-1-idx] }
