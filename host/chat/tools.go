package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
	"sess/surfaces"
)

// queued is a call that runs when its turn has ended.
type queued struct {
	command Command
	call    plugin.Call
}

// String is the call as people would type it.
func (q queued) String() string {
	return cut(surfaces.Typed(&q.command.Spec, q.call.Argv), titleRunes)
}

// tools lists what the model may call.
func (t *turn) tools() []models.Tool {
	var tools []models.Tool
	for _, c := range t.commands {
		if c.Tool {
			s := surfaces.ToolSchema(&c.Spec)
			tools = append(tools, models.Tool{Name: s.Name, Description: s.Description, Schema: s.InputSchema})
		}
	}
	return tools
}

// callAll runs the calls of one answer in order. The calls are stored before
// the first one runs. When ctx ends, those that have not run are answered as
// interrupted, so that no call is ever without a result.
func (t *turn) callAll(ctx context.Context, calls []transcript.ToolCall) error {
	first := len(t.activities)
	for _, call := range calls {
		now := t.opts.Now().UnixMilli()
		t.activities = append(t.activities, transcript.Activity{
			ID: uuid.NewString(), MessageID: t.message.ID, Name: call.Name, Title: toolTitle(call), Status: transcript.StatusPending,
			RawInput: call.Arguments, CreatedAt: now, UpdatedAt: now,
		})
	}
	if err := t.write(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	for i, call := range calls {
		activity := &t.activities[first+i]
		text, failed := transcript.Interrupted, true
		if ctx.Err() == nil {
			tool := Tool{ID: call.ID, Name: call.Name, Arguments: call.Arguments}
			activity.Status = transcript.StatusInProgress
			t.event(session.EventToolCallStarted, map[string]any{"id": call.ID, "name": call.Name, "arguments": call.Arguments})
			t.out.Event(Event{Kind: EventToolStarted, Turn: t.id, Tool: tool})
			text, failed = t.callOne(ctx, call)
			tool.Text, tool.Failed = text, failed
			t.out.Event(Event{Kind: EventToolFinished, Turn: t.id, Tool: tool})
		}
		activity.Status = transcript.StatusCompleted
		if failed {
			activity.Status = transcript.StatusFailed
		}
		t.event(session.EventToolCallFinished, map[string]any{"id": call.ID, "status": activity.Status, "text": text})
		activity.RawOutput = json.RawMessage(record(text))
		activity.UpdatedAt = t.opts.Now().UnixMilli()
		if err := t.remember(transcript.HistoryItem{Role: transcript.RoleTool, ToolCallID: call.ID, Name: call.Name, Content: text, MessageID: t.message.ID}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// callable returns the calls with arguments that can be stored: what a model
// sends need not be JSON, and the tool shall be the one that says so.
func callable(calls []transcript.ToolCall) []transcript.ToolCall {
	calls = slices.Clone(calls)
	for i := range calls {
		switch a := calls[i].Arguments; {
		case len(a) == 0:
			calls[i].Arguments = json.RawMessage("{}")
		case !json.Valid(a):
			calls[i].Arguments = json.RawMessage(record(string(a)))
		}
	}
	return calls
}

// toolTitle is what people are shown of a call: the tool and its action.
func toolTitle(call transcript.ToolCall) string {
	var args struct {
		Action string `json:"action"`
	}
	if json.Unmarshal(call.Arguments, &args) != nil || args.Action == "" {
		return call.Name
	}
	return call.Name + " " + args.Action
}

// callOne runs or queues a call, and returns what the model is told.
func (t *turn) callOne(ctx context.Context, call transcript.ToolCall) (text string, failed bool) {
	i := slices.IndexFunc(t.commands, func(c Command) bool { return c.Tool && c.Spec.ToolName() == call.Name })
	if i < 0 {
		e := plugin.Errorf(plugin.Usage, "unknown tool %q", call.Name).WithHint("there are no tools")
		if tools := t.tools(); tools != nil {
			var names []string
			for _, tool := range tools {
				names = append(names, tool.Name)
			}
			e = e.WithHint("the tools are %s", strings.Join(names, ", "))
		}
		return surfaces.ToolRender(plugin.Result{}, e)
	}
	command := t.commands[i]
	fields, err := surfaces.ParseObject(call.Arguments)
	if err != nil {
		return surfaces.ToolRender(plugin.Result{}, err)
	}
	lowered, err := surfaces.Lower(&command.Spec, "", fields)
	if err != nil {
		return surfaces.ToolRender(plugin.Result{}, err)
	}
	request := t.call(plugin.CallerTool, lowered.Argv)
	request.Input = lowered.Input
	for _, f := range []struct {
		field *string
		given string
	}{{&request.Agent, lowered.Agent}, {&request.Project, lowered.Project}, {&request.Session, lowered.Session}} {
		if f.given != "" {
			*f.field = f.given
		}
	}
	queue := false
	if request.Project == t.ref.Project && request.Session == t.ref.ID {
		request.Turn = t.id
		if queue = lowered.Verb.AfterTurn; queue { // inside a turn such a call is a check
			if _, err := command.Dispatcher.Dispatch(ctx, request, nil); err != nil {
				return surfaces.ToolRender(plugin.Result{}, err)
			}
		}
	}
	if t.mustConfirm(&command.Spec, lowered.Verb) {
		what := queued{command, request}.String()
		if err := t.confirm(ctx, call, what); err != nil {
			return surfaces.ToolRender(plugin.Result{}, err)
		}
	}
	if queue {
		request.Turn, request.Caller = "", plugin.CallerHost
		t.queue = append(t.queue, queued{command: command, call: request})
		return fmt.Sprintf("queued: %s runs when this turn ends", lowered.Verb.Name), false
	}
	return surfaces.ToolRender(surfaces.ToolCall(ctx, command.Dispatcher, lowered.Verb, request))
}

func (t *turn) mustConfirm(spec *plugin.Spec, verb *plugin.Verb) bool {
	return t.opts.Confirm != nil && Confirms(t.opts.Confirm(), spec, verb)
}

// Confirms reports whether a list of tool actions that ask a person first has that
// verb: by its name, with or without its command, or by its effect.
func Confirms(list []string, spec *plugin.Spec, verb *plugin.Verb) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		return s == verb.Name || s == spec.Command+" "+verb.Name || s == string(verb.Effect)
	})
}

// confirm asks a person whether a call may run, and waits for the answer or the
// end of ctx. The session says so meanwhile.
func (t *turn) confirm(ctx context.Context, call transcript.ToolCall, what string) error {
	answer := make(chan verdict, 1)
	t.mu.Lock()
	t.asked, t.answer = call.ID, answer
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.asked, t.answer = "", nil
		t.mu.Unlock()
	}()
	t.live.Status = session.StatusPermission
	err := t.write(ctx)
	t.live.Status = session.StatusRunning // stored with the answer
	if err != nil {
		return err
	}
	t.out.Event(Event{Kind: EventQuestion, Turn: t.id, Text: what, Tool: Tool{ID: call.ID, Name: call.Name, Arguments: call.Arguments}})
	t.event(session.EventApprovalRequest, map[string]any{"id": call.ID, "name": call.Name, "arguments": call.Arguments, "text": what})
	select { // nobody but a Run takes it out again
	case <-t.question:
	default:
	}
	t.question <- call.ID
	select {
	case <-ctx.Done():
		return &plugin.Error{Code: plugin.Unavailable, Message: what + ": interrupted before a person answered", Err: ctx.Err()}
	case v := <-answer:
		if err := t.write(ctx); err != nil || v == allowed {
			return err
		}
		if v == unasked {
			t.notice("not run, since nobody is here to allow it: " + what + "; run it yourself, or chat at a terminal")
			return plugin.Errorf(plugin.Denied, "%s: only a person may allow it, and none is here", what).
				WithHint("ask for it to be run by hand")
		}
		return plugin.Errorf(plugin.Denied, "%s: a person did not allow it", what).WithHint("ask what to do instead")
	}
}

// verdict is what became of the question whether a call may run.
type verdict int

const (
	refused verdict = iota
	unasked         // there is no person to ask
	allowed
)

// Allow answers the question about the tool call with that id: an
// [EventQuestion] told it, and the turn waits. It is not_found when no such
// call waits.
func (c *Chat) Allow(call string, ok bool) error {
	if ok {
		return c.decide(call, allowed)
	}
	return c.decide(call, refused)
}

// Decline is [Chat.Allow] where nobody is there to be asked: the call is not run,
// and the model and people are told why.
func (c *Chat) Decline(call string) error { return c.decide(call, unasked) }

func (c *Chat) decide(call string, v verdict) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call == "" || c.asked != call {
		return plugin.Errorf(plugin.NotFound, "no call %q waits for an answer", call).WithHint("it was answered or has ended")
	}
	c.asked = ""
	c.answer <- v
	return nil
}

// runQueue runs what the model queued, in order, now that the turn has ended. It
// returns what failed.
func (t *turn) runQueue(ctx context.Context) error {
	var failed []error
	for _, q := range t.queue {
		what := q.String()
		if ctx.Err() != nil {
			t.notice("not run, since the turn was interrupted: " + what)
			continue
		}
		result, err := q.command.Dispatcher.Dispatch(ctx, q.call, nil)
		if err != nil {
			failed = append(failed, fmt.Errorf("queued %s: %w", what, err))
			continue
		}
		t.notice(what + ": " + result.Text)
		for _, n := range result.Notices {
			t.notice(n)
		}
	}
	t.settle(context.WithoutCancel(ctx))
	return errors.Join(failed...)
}
