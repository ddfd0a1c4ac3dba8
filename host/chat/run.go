package chat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"sess/plugin"
)

// Input is where the lines of a conversation come from.
type Input struct {
	Reader io.Reader
	// Prompt is where a person is asked for the next line; nil where nobody
	// waits for one, such as a pipe.
	Prompt io.Writer
	// Editor asks a person in place of Reader and Prompt. It may be nil.
	Editor Editor
	// Interrupt ends the turn that runs, and nothing else, with every value
	// that it sends (Ctrl-C). It may be nil.
	Interrupt <-chan struct{}
}

// person says whether somebody waits for each line to be asked for.
func (in Input) person() bool { return in.Prompt != nil || in.Editor != nil }

// Editor lets a person write a line. It is asked for one line at a time, and
// only when one is wanted, so that it may change how the terminal behaves
// meanwhile.
type Editor interface {
	// ReadLine asks with a prompt; a message is worth remembering, unlike the
	// answer to a question. It returns io.EOF when the person wants to leave, and
	// ErrInterrupted for Ctrl-C; it has ended the line on the screen then.
	ReadLine(prompt string, message bool) (string, error)
}

// ErrInterrupted is what an [Editor] returns for Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

const (
	prompt   = "> "
	question = "allow it? [y/N] "
)

type line struct {
	text string
	err  error
}

// Run sends every line of the input until it ends, a command leaves the chat,
// or ctx ends; a turn that runs then is ended and kept. It returns the context's
// error, or that of reading. Where nobody is asked for lines, it otherwise
// returns the error of the last line that failed, so that a script can tell.
// Lines may have any length. A read that is blocked when Run returns goes on in
// the background until the reader gives something or ends.
func (c *Chat) Run(ctx context.Context, in Input) error {
	s := newSource(in)
	defer s.close()
	if in.person() {
		c.greet(ctx)
	}
	var failed error
	for {
		c.flush()
		s.ask(prompt)
		next, err := awaitLine(ctx, c, in, s)
		switch {
		case err != nil || errors.Is(next.err, io.EOF):
			if in.Prompt != nil {
				_, _ = io.WriteString(in.Prompt, "\n")
			}
			if err != nil {
				return err
			}
			return failed
		case next.err != nil:
			return plugin.Errorf(plugin.Unavailable, "cannot read the next line: %w", next.err)
		}
		err = c.sendInterruptibly(ctx, in, next.text, s)
		switch {
		case errors.Is(err, ErrExit):
			return failed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !in.person():
			failed = err
		}
	}
}

// SendAlone is [Chat.Send] where no person is there to be asked: what the model
// may do only if one allows it is refused at once.
func (c *Chat) SendAlone(ctx context.Context, line string) error {
	return c.sendInterruptibly(ctx, Input{}, line, nil)
}

// awaitLine waits for the next line. An interrupt at the prompt ends nothing.
func awaitLine(ctx context.Context, c *Chat, in Input, s *source) (line, error) {
	for {
		select {
		case <-ctx.Done():
			return line{}, context.Cause(ctx)
		case <-in.Interrupt:
		case next := <-s.lines:
			s.took()
			if !errors.Is(next.err, ErrInterrupted) {
				return next, nil
			}
		}
		c.emit(Event{Kind: EventNotice, Text: "nothing runs; Ctrl-D or /exit leaves"})
		s.ask(prompt)
	}
}

// sendInterruptibly is Send, ended by ctx or by an interrupt. Meanwhile it has
// the person's answers; without a person everything that needs one is refused.
func (c *Chat) sendInterruptibly(ctx context.Context, in Input, text string, s *source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- c.Send(ctx, text) }()
	var answers <-chan line // nil unless a person is asked
	var call string
	for {
		select {
		case err := <-sent:
			return err
		case <-in.Interrupt:
			cancel()
			answers = nil
		case call = <-c.question:
			if !in.person() {
				_ = c.Decline(call) // if it waits no more, all is well
				break
			}
			s.ask(question)
			answers = s.lines
		case next := <-answers:
			s.took()
			answers = nil
			if errors.Is(next.err, ErrInterrupted) {
				cancel()
				break
			}
			yes := strings.ToLower(strings.TrimSpace(next.text))
			_ = c.Allow(call, next.err == nil && (yes == "y" || yes == "yes"))
		}
	}
}

func (c *Chat) greet(ctx context.Context) {
	ref := c.Ref()
	text := fmt.Sprintf("session %s of project %s", ref.ID, ref.Project)
	if live, err := c.store.Read(ctx, ref); err == nil {
		text += ", model " + c.modelName(live)
		if live.Doc.Meta.Messages > 0 {
			text += fmt.Sprintf("; going on with %q, %d messages", live.Doc.Meta.Title, live.Doc.Meta.Messages)
		}
	}
	c.emit(Event{Kind: EventNotice, Text: text})
	c.emit(Event{Kind: EventNotice, Text: "/help lists the commands, Ctrl-D leaves"})
	if selected, err := c.store.Selected(ref); err == nil && selected != "" {
		c.emit(Event{Kind: EventNotice, Text: "a snapshot is selected, so nothing can be sent; /live goes back to the conversation"})
	}
}

// source gives the lines of an [Input]. Its methods are for one goroutine.
type source struct {
	lines chan line
	done  chan struct{} // closed when no more lines are wanted

	prompts io.Writer   // nil: nobody is prompted
	asks    chan string // nil: lines come without being asked for
	waiting bool        // an editor was asked, and its line was not taken yet
}

func newSource(in Input) *source {
	s := &source{lines: make(chan line), done: make(chan struct{})}
	if in.Editor == nil {
		s.prompts = in.Prompt
		go s.readLines(in.Reader)
		return s
	}
	s.asks = make(chan string)
	go func() {
		for {
			select {
			case p := <-s.asks:
				text, err := in.Editor.ReadLine(p, p == prompt)
				if !s.send(line{text, err}) {
					return
				}
			case <-s.done:
				return
			}
		}
	}()
	return s
}

// close lets the source's goroutine end.
func (s *source) close() { close(s.done) }

// ask asks for the next line. A person who is being asked already, for an
// answer that is of no use any more, gives that line instead.
func (s *source) ask(prompt string) {
	switch {
	case s.prompts != nil:
		_, _ = io.WriteString(s.prompts, prompt)
	case s.asks != nil && !s.waiting:
		s.waiting = true
		s.asks <- prompt
	}
}

// took notes that a line was received.
func (s *source) took() { s.waiting = false }

func (s *source) send(l line) bool {
	select {
	case s.lines <- l:
		return true
	case <-s.done:
		return false
	}
}

// readLines sends every line without its end, and then why there are no more,
// as often as somebody wants to know.
func (s *source) readLines(r io.Reader) {
	br := bufio.NewReader(r)
	for {
		text, err := br.ReadString('\n')
		if err == nil || text != "" {
			text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
			if !s.send(line{text: text}) {
				return
			}
		}
		for err != nil {
			if !s.send(line{err: err}) {
				return
			}
		}
	}
}
