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
	// Interrupt ends the turn that runs, and nothing else, with every value
	// that it sends (Ctrl-C). It may be nil.
	Interrupt <-chan struct{}
}

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
	lines, done := make(chan line), make(chan struct{})
	defer close(done)
	go readLines(in.Reader, lines, done)
	if in.Prompt != nil {
		c.greet()
	}
	var failed error
	for {
		c.flush()
		if in.Prompt != nil {
			_, _ = io.WriteString(in.Prompt, prompt)
		}
		next, err := awaitLine(ctx, c, in, lines)
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
		err = c.sendInterruptibly(ctx, in, next.text, lines)
		switch {
		case errors.Is(err, ErrExit):
			return failed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && in.Prompt == nil:
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
func awaitLine(ctx context.Context, c *Chat, in Input, lines <-chan line) (line, error) {
	for {
		select {
		case <-ctx.Done():
			return line{}, context.Cause(ctx)
		case <-in.Interrupt:
			c.emit(Event{Kind: EventNotice, Text: "nothing runs; Ctrl-D or /exit leaves"})
			if in.Prompt != nil {
				_, _ = io.WriteString(in.Prompt, prompt)
			}
		case next := <-lines:
			return next, nil
		}
	}
}

// sendInterruptibly is Send, ended by ctx or by an interrupt. Meanwhile it has
// the person's answers; without a person everything that needs one is refused.
func (c *Chat) sendInterruptibly(ctx context.Context, in Input, text string, lines <-chan line) error {
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
			if in.Prompt == nil {
				_ = c.decide(call, unasked) // if it waits no more, all is well
				break
			}
			_, _ = io.WriteString(in.Prompt, question)
			answers = lines
		case next := <-answers:
			answers = nil
			yes := strings.ToLower(strings.TrimSpace(next.text))
			_ = c.Allow(call, next.err == nil && (yes == "y" || yes == "yes"))
		}
	}
}

func (c *Chat) greet() {
	ref := c.Ref()
	c.emit(Event{Kind: EventNotice, Text: fmt.Sprintf(
		"session %s of project %s, model %s; /help lists the commands, Ctrl-D leaves", ref.ID, ref.Project, c.model.Name(),
	)})
	if selected, err := c.store.Selected(ref); err == nil && selected != "" {
		c.emit(Event{Kind: EventNotice, Text: "a snapshot is selected, so nothing can be sent; /live goes back to the conversation"})
	}
}

// readLines sends every line without its end, and then why there are no more,
// as often as somebody wants to know.
func readLines(r io.Reader, lines chan<- line, done <-chan struct{}) {
	br := bufio.NewReader(r)
	for {
		text, err := br.ReadString('\n')
		if err == nil || text != "" {
			text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
			select {
			case lines <- line{text: text}:
			case <-done:
				return
			}
		}
		for err != nil {
			select {
			case lines <- line{err: err}:
			case <-done:
				return
			}
		}
	}
}
