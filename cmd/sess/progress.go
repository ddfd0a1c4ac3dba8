package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"sess/plugin"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progress shows the steps of a long operation in one line of a terminal. It
// shows nothing elsewhere, and nothing of what is over at once.
type progress struct {
	w io.Writer // nil: nothing is shown

	mu    sync.Mutex // guards the rest
	begun time.Time
	last  time.Time
	shown bool
}

const (
	progressDelay = 400 * time.Millisecond // before the first line
	progressPause = 100 * time.Millisecond // between two lines
)

func newProgress(w io.Writer, quiet bool) *progress {
	if quiet || !isTerminal(w) {
		w = nil
	}
	return &progress{w: w, begun: time.Now()}
}

func (p *progress) report(step plugin.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.w == nil || now.Sub(p.begun) < progressDelay || now.Sub(p.last) < progressPause {
		return
	}
	p.last, p.shown = now, true
	fmt.Fprintf(p.w, "\r\x1b[K%s", step)
}

// done removes the line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.w = nil
}
