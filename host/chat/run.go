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
	// ReadLine asks for a line. It returns io.EOF when the person wants to leave,
	// ErrInterrupted for Ctrl-C, and the context's error when ctx ends, as the line
	// is not wanted any more; it has ended the line on the screen then.
	ReadLine(ctx context.Context, ask Ask) (string, error)
}

// Ask is what a person is asked for.
type Ask struct {
	Prompt string
	// Question asks for an answer to what was just shown: nothing that was typed
	// before is meant for it, it is not worth remembering, and there is nothing to
	// complete.
	Question bool
}

// ErrInterrupted is what an [Editor] returns for Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

const question = "allow it? [y/N] "

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
	s := newSource(ctx, in)
	defer s.close()
	if in.person() {
		c.greet(ctx)
	}
	var failed error
	for {
		c.flush()
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
		if in.person() {
			s.ask(Ask{Prompt: c.prompt(ctx)})
		}
		select {
		case <-ctx.Done():
			return line{}, context.Cause(ctx)
		case <-in.Interrupt:
			s.withdraw()
		case next := <-s.lines:
			s.took()
			if ctx.Err() != nil {
				return line{}, context.Cause(ctx)
			}
			if !errors.Is(next.err, ErrInterrupted) {
				return next, nil
			}
		}
		c.emit(Event{Kind: EventNotice, Text: "nothing runs; Ctrl-D or /exit leaves"})
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
			s.withdraw()
			return err
		case <-in.Interrupt:
			cancel()
			answers = nil
		case call = <-c.question:
			if !in.person() {
				_ = c.Decline(call) // if it waits no more, all is well
				break
			}
			s.ask(Ask{Prompt: question, Question: true})
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
	if live, err := c.store.Outline(ctx, ref); err == nil {
		text += ", model " + c.modelName(live)
		if live.Doc.Meta.Messages > 0 {
			text += fmt.Sprintf("; going on with %q, %d messages", live.Doc.Meta.Title, live.Doc.Meta.Messages)
		}
	}
	c.emit(Event{Kind: EventNotice, Text: text})
	c.emit(Event{Kind: EventNotice, Text: "/help lists the commands, Ctrl-D leaves"})
	if name := c.shownSnapshot(ctx); name != "" {
		c.emit(Event{Kind: EventNotice, Text: name + " is shown, so nothing can be sent; /live goes back to the conversation"})
	}
}

// prompt is where a person writes, and says what is shown there.
func (c *Chat) prompt(ctx context.Context) string {
	if name := c.shownSnapshot(ctx); name != "" {
		return name + " (read-only)> "
	}
	return "> "
}

// source gives the lines of an [Input]. Its methods are for one goroutine; those
// of nil, which has no lines, do nothing.
type source struct {
	lines chan line
	done  chan struct{} // closed when no more lines are wanted

	prompts io.Writer // nil: nobody is prompted

	// Of an editor.
	ctx    context.Context
	asks   chan asked         // nil: lines come without being asked for
	cancel context.CancelFunc // of the line that was asked for and not taken yet, or nil
	ended  chan struct{}      // closed when the editor is not used any more
}

type asked struct {
	Ask
	ctx context.Context
}

func newSource(ctx context.Context, in Input) *source {
	s := &source{lines: make(chan line), done: make(chan struct{}), ctx: ctx}
	if in.Editor == nil {
		s.prompts = in.Prompt
		go s.readLines(in.Reader)
		return s
	}
	s.asks, s.ended = make(chan asked), make(chan struct{})
	go func() {
		defer close(s.ended)
		for {
			select {
			case a := <-s.asks:
				text, err := in.Editor.ReadLine(a.ctx, a.Ask)
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

// close lets the source's goroutine end. An editor is not used any more when it
// returns.
func (s *source) close() {
	close(s.done)
	if s.cancel != nil {
		s.cancel()
	}
	if s.ended != nil {
		<-s.ended
	}
}

// ask asks for the next line.
func (s *source) ask(a Ask) {
	switch {
	case s.prompts != nil:
		_, _ = io.WriteString(s.prompts, a.Prompt)
	case s.asks != nil:
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(s.ctx)
		s.asks <- asked{a, ctx}
	}
}

// withdraw gives up a line that was asked for.
func (s *source) withdraw() {
	if s != nil && s.cancel != nil {
		s.cancel()
		<-s.lines
		s.cancel = nil
	}
}

// took notes that a line was received.
func (s *source) took() {
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
}

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
