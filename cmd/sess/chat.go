package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"sess/dispatch"
	"sess/host"
	"sess/host/chat"
	"sess/plugin"
)

// chat talks with a model: one line, lines from a pipe, or a person at a
// terminal.
func (a *app) chat(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	one, given := in.String("message"), in.Changed("message")
	a.stays = !given
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	a.relay = newRelay(host.GatewaySocketPath(home))
	h, err := a.open(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	interactive := !given && isTerminal(a.stdin) && isTerminal(a.stdout)
	if given && strings.TrimSpace(one) == "" {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "--message is empty").WithHint("write --message 'some text'")
	}
	if !given && a.flags.JSON && isTerminal(a.stdin) {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "a conversation at a terminal has no JSON").WithHint("add --message 'some text'")
	}
	record := &recorder{events: []recorded{}}
	var sink chat.Sink = record
	if !a.flags.JSON {
		notes := a.stderr
		if a.flags.Quiet {
			notes = io.Discard
		}
		sink = chat.NewTerminal(a.out, notes, a.terminalOptions(interactive))
	}
	c, err := h.OpenChat(ctx, host.ChatOptions{
		Agent: in.Call.Agent, Project: in.Call.Project, Session: in.Call.Session,
		Cwd: in.Call.Cwd, Model: in.String("model"), Out: sink, Paced: interactive,
	})
	if err != nil {
		return plugin.Result{}, err
	}
	// Where nobody sees the answer there is no use in writing it: the turn ends as
	// after Ctrl-C, and what came is kept.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a.out.onFailure(stop)
	ctx = plugin.WithFiles(ctx, userFiles{}) // what goes in and out beside them is the conversation
	if given {
		err = c.SendAlone(ctx, one)
	} else {
		input := chat.Input{Reader: a.stdin}
		giveBack := func() {}
		if interactive {
			ed, err := newEditor(a.stdin.(*os.File), a.stdout.(*os.File), a.getenv("TERM"), h.History(), c.Complete)
			switch {
			case err != nil:
				return plugin.Result{}, errors.Join(err, c.Close(ctx))
			case ed != nil:
				input.Editor = ed
				defer ed.Close()
			default:
				input.Prompt = a.out
			}
			turns := make(chan struct{})
			giveBack = a.interrupts.take(turns)
			input.Interrupt = turns
		}
		err = c.Run(ctx, input)
		giveBack() // an interrupt ends the program again, also while the chat closes
	}
	end, cancel := ending(ctx)
	defer cancel()
	if cerr := c.Close(end); err == nil {
		err = cerr
	}
	if errors.Is(err, chat.ErrExit) {
		err = nil
	}
	if !a.flags.JSON {
		if err != nil {
			err = &shownError{err}
		}
		return plugin.Result{}, err
	}
	ref := c.Ref()
	res, failed := answer(record.text(), map[string]any{"sessionId": ref.ID, "projectId": ref.Project, "events": record.events})
	res.Notices = record.notices
	if err = cmp.Or(err, failed); err != nil {
		a.before = res // the lines before the one that failed have been answered
	}
	return res, err
}

// terminalOptions say what a chat is shown on.
func (a *app) terminalOptions(interactive bool) (o chat.TerminalOptions) {
	if !interactive || a.getenv("TERM") == "dumb" {
		return o
	}
	o.Color = a.getenv("NO_COLOR") == "" && isTerminal(a.stderr)
	o.Columns = func() int {
		columns, _, err := term.GetSize(int(a.stdout.(*os.File).Fd()))
		if err != nil {
			return 0
		}
		return columns
	}
	return o
}

// lastSaves bounds how long a chat waits at its end for what plugins do after a
// turn, such as the first autosave of a long conversation.
const lastSaves = time.Minute

// ending is the context of a chat's end: short only for who wants the program to
// end, by a signal.
func ending(ctx context.Context) (context.Context, context.CancelFunc) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaves)
	stop := context.AfterFunc(ctx, func() {
		hurry := time.AfterFunc(closeTime, cancel)
		context.AfterFunc(end, func() { hurry.Stop() })
	})
	return end, func() {
		stop()
		cancel()
	}
}

// recorder gathers what a chat shows, for programs.
type recorder struct {
	events  []recorded
	notices []string
}

type recorded struct {
	Kind   chat.EventKind  `json:"kind"`
	Text   string          `json:"text,omitempty"`
	Tool   string          `json:"tool,omitempty"`
	Failed bool            `json:"failed,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Code   plugin.Code     `json:"code,omitempty"`
}

func (r *recorder) Event(e chat.Event) {
	rec := recorded{Kind: e.Kind, Text: e.Text}
	switch e.Kind {
	case chat.EventText, chat.EventThought:
		if n := len(r.events); n > 0 && r.events[n-1].Kind == e.Kind {
			r.events[n-1].Text += e.Text
			return
		}
	case chat.EventToolStarted:
		rec.Tool, rec.Data = e.Tool.Name, e.Tool.Arguments
	case chat.EventToolFinished:
		rec.Tool, rec.Text, rec.Failed = e.Tool.Name, e.Tool.Text, e.Tool.Failed
	case chat.EventAnswer:
		rec.Text, rec.Data = e.Result.Text, e.Result.Data
		r.notices = append(r.notices, e.Result.Notices...)
	case chat.EventNotice:
		r.notices = append(r.notices, e.Text)
	case chat.EventError:
		rec.Text, rec.Code = e.Err.Text(), e.Err.Code
	}
	r.events = append(r.events, rec)
}

// text is what the model said and commands answered.
func (r *recorder) text() string {
	var parts []string
	for _, e := range r.events {
		if e.Kind == chat.EventText || e.Kind == chat.EventAnswer {
			parts = append(parts, e.Text)
		}
	}
	return strings.Join(parts, "\n")
}
