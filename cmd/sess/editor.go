package main

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/term"

	"sess/cmd/sess/lineedit"
	"sess/host/chat"
)

// editor asks a person at a terminal for the lines of a chat. From its start to
// its Close the terminal echoes nothing by itself, so that what is typed during
// an answer is not written into it; the next line has it.
type editor struct {
	lines    *lineedit.Editor
	tty      *tty
	history  messages
	complete func(ctx context.Context, before string) chat.Completion
	close    []func() error
}

var _ chat.Editor = (*editor)(nil)

// messages is what was said in chats before.
type messages interface {
	Lines() []string // newest last
	Add(text string)
}

const (
	pasteModeOn  = "\x1b[?2004h"
	pasteModeOff = "\x1b[?2004l"
)

// newEditor makes an editor for the terminal that in and out are. It is nil
// where the terminal says that it cannot be written on freely.
func newEditor(in, out *os.File, kind string, history messages, complete func(context.Context, string) chat.Completion) (*editor, error) {
	if kind == "dumb" {
		return nil, nil
	}
	t, err := openTTY(in)
	if err != nil {
		return nil, err
	}
	resized, ignore := resizes()
	e := &editor{tty: t, history: history, complete: complete}
	e.lines = lineedit.New(lineedit.Options{
		Keys: in, Screen: out, Resized: resized, Waiting: t.waiting,
		Raw: func() (func() error, error) { return t.calm, t.raw() },
		Size: func() (width, height int) {
			width, height, err := term.GetSize(int(out.Fd()))
			if err != nil {
				return 0, 0
			}
			return width, height
		},
		Suspend: func() {
			_ = t.restore()
			suspend()
			_ = t.raw() // else what is typed is shown twice, which a person sees
		},
	})
	_, err = io.WriteString(out, pasteModeOn)
	e.close = []func() error{ignore, func() error {
		_, err := io.WriteString(out, pasteModeOff)
		return err
	}, t.restore}
	if err = errors.Join(err, t.calm()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// ReadLine asks for one line.
func (e *editor) ReadLine(ctx context.Context, ask chat.Ask) (string, error) {
	line := lineedit.Line{Prompt: ask.Prompt, Fresh: ask.Question}
	if !ask.Question {
		line.History = e.history.Lines()
		line.Complete = func(before string) lineedit.Completion {
			ctx, cancel := context.WithTimeout(ctx, completeTime)
			defer cancel()
			found := e.complete(ctx, before)
			out := lineedit.Completion{From: found.From}
			for _, c := range found.Candidates {
				out.Candidates = append(out.Candidates, lineedit.Candidate{Value: c.Value, Help: c.Help})
			}
			return out
		}
	}
	text, err := e.lines.ReadLine(ctx, line)
	if errors.Is(err, lineedit.ErrInterrupted) {
		err = chat.ErrInterrupted
	}
	if err == nil && !ask.Question {
		e.history.Add(text)
	}
	return text, err
}

// Close gives the terminal back as it was.
func (e *editor) Close() error {
	var failed []error
	for _, f := range e.close {
		failed = append(failed, f())
	}
	return errors.Join(failed...)
}

// tty is a terminal, and how it was.
type tty struct {
	in  *os.File
	was *term.State
}

func openTTY(in *os.File) (*tty, error) {
	was, err := term.GetState(int(in.Fd()))
	return &tty{in, was}, err
}

// raw gives every key as it is typed, Ctrl-C too.
func (t *tty) raw() error {
	_, err := term.MakeRaw(int(t.in.Fd()))
	return err
}

// restore makes the terminal what it was.
func (t *tty) restore() error { return term.Restore(int(t.in.Fd()), t.was) }
