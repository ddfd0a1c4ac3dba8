package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
)

const (
	maxRounds   = 16              // requests to the model in one turn
	lockWait    = time.Second     // for a change by somebody else, which takes milliseconds
	keepTimeout = 3 * time.Second // to store what came until an interruption
	titleRunes  = 60
	// defaultTitle is the title of a session that has none of its own yet.
	defaultTitle = "New session"
	// separator stands between what a message says before and after tools.
	separator = "\n\n"
)

// turn is one turn while it runs. It belongs to the goroutine that runs it.
type turn struct {
	*Chat
	id       string
	ref      session.Ref
	system   string
	commands []Command
	locked   *session.Locked
	live     *session.Live
	model    models.Model
	log      *session.TurnLog
	logError error // the first one: people are told once

	message      transcript.Message // what the model says; the last one of the session
	activities   []transcript.Activity
	firstOpen    int             // index of activities[0] in the session's list
	stored       int             // how many of the activities are in the list
	content      strings.Builder // of the message
	said         int             // where in content the answer to this request begins
	usage        models.Usage
	modelNotices []string // of the model
	queue        []queued
}

// turn runs one turn, then what the model queued for its end, and tells the
// plugins.
func (c *Chat) turn(ctx context.Context, l Line) error {
	t := &turn{Chat: c, id: uuid.NewString(), ref: c.Ref(), system: cmp.Or(l.System, c.opts.System), commands: c.opts.Commands()}
	err := t.run(ctx, l)
	switch {
	case t.log == nil && ctx.Err() != nil:
		t.notice("interrupted before the message was stored; send it again")
		return ctx.Err()
	case t.log == nil:
		return err
	}
	c.out.Event(Event{
		Kind: EventTurnEnded, Turn: t.id, Revision: t.live.Revision, Message: t.message, Activities: t.activities, Usage: t.usage,
	})
	if queueErr := t.runQueue(ctx); queueErr != nil {
		err = errors.Join(err, queueErr)
	}
	c.tell(plugin.Event{
		Kind: plugin.EventTurnEnded, Agent: cmp.Or(c.opts.Agent, "main"),
		Project: t.ref.Project, Session: t.ref.ID, Turn: t.id, Revision: t.live.Revision,
		Model: t.model.Name(),
	})
	return err
}

// run holds the session's lock for the whole turn.
func (t *turn) run(ctx context.Context, l Line) (err error) {
	if t.locked, err = t.lock(ctx); err != nil {
		return err
	}
	defer func() {
		if unlockErr := t.locked.Unlock(); err == nil && unlockErr != nil {
			err = StoreError(unlockErr)
		}
	}()
	if err := t.begin(ctx, l); err != nil {
		return err
	}
	err = t.converse(ctx)
	return t.end(ctx, err)
}

// lock takes the session's lock. A turn elsewhere is busy; whoever changes the
// session between two turns is waited for.
func (t *turn) lock(ctx context.Context) (*session.Locked, error) {
	waitCtx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	locked, err := t.store.Lock(waitCtx, t.ref, "turn", true)
	if err == nil {
		return locked, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if holder, held, _ := t.store.InUse(t.ref); held {
		e := plugin.Errorf(plugin.Busy, "session %s is in use by %s", t.ref.ID, holder)
		e.Err = err
		return nil, e.WithHint("send the message again when that has ended").WithDetail("session", t.ref.ID)
	}
	return nil, StoreError(err)
}

// begin reads the session and stores the user's message, durably.
func (t *turn) begin(ctx context.Context, l Line) (err error) {
	text := l.Text
	if t.live, err = t.locked.Read(ctx); err != nil {
		return StoreError(err)
	}
	if err := l.expected(t.live); err != nil {
		return err
	}
	t.see(t.live)
	for _, n := range t.live.Notices {
		t.notice(n)
	}
	if err := t.writable(); err != nil {
		return err
	}
	if err := t.takeModel(l.Model); err != nil {
		return err
	}
	if err := t.adoptMessages(ctx); err != nil {
		return StoreError(err)
	}
	if t.live.Interrupted {
		if err := t.recover(ctx); err != nil {
			return StoreError(err)
		}
	}
	now := t.opts.Now()
	user := transcript.Message{
		ID: uuid.NewString(), Role: transcript.RoleUser, Content: text, Status: transcript.StatusComplete,
		CreatedAt: now.UnixMilli(), UpdatedAt: now.UnixMilli(),
	}
	t.message = transcript.Message{
		ID: uuid.NewString(), Role: transcript.RoleAgent, Status: transcript.StatusStreaming, StreamID: t.id, ResponseToMessageID: user.ID,
		CreatedAt: now.UnixMilli(), UpdatedAt: now.UnixMilli(),
	}
	t.firstOpen = t.live.Doc.List(transcript.ListActivities).Records
	if err := errors.Join(
		t.append(transcript.ListMessages, user, t.message),
		t.remember(transcript.HistoryItem{Role: transcript.RoleUser, Content: text, MessageID: user.ID}),
		t.describe(text),
	); err != nil {
		return StoreError(err)
	}
	t.live.Status, t.live.Error = session.StatusRunning, ""
	t.live.ActiveRun = json.RawMessage(record(map[string]any{"turn": t.id, "messageId": t.message.ID, "startedAt": now.UnixMilli()}))
	log, err := t.locked.BeginTurn(ctx, session.TurnHeader{Turn: t.id, Input: text, Time: now, Model: t.model.Name()})
	if err != nil {
		return StoreError(err)
	}
	for _, w := range log.Warnings {
		t.notice(w)
	}
	if err := t.write(ctx); err != nil {
		return errors.Join(err, log.End(ctx, map[string]any{"status": "error"}))
	}
	t.log = log
	t.tookModel()
	t.out.Event(Event{Kind: EventTurnStarted, Turn: t.id})
	t.told(session.EventTurnStart, map[string]any{
		"turn": t.id, "n": log.Number, "input": text, "model": t.model.Name(), "userMessageId": user.ID, "messageId": t.message.ID,
	})
	return nil
}

// recover stores what was mended of a turn that died, before the next turn's
// log takes the place of the log it was mended from. What the model had said
// becomes part of what it knows, as after an interruption.
func (t *turn) recover(ctx context.Context) error {
	if err := t.live.Recall(); err != nil {
		return err
	}
	return t.commit(ctx)
}

// describe fills in what the header tells about the conversation.
func (t *turn) describe(text string) error {
	var title string
	_ = json.Unmarshal(t.live.Get("title"), &title)
	var err error
	if !t.live.Titled() && (title == "" || title == t.ref.ID || title == defaultTitle) {
		line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		err = t.live.Set("title", cut(line, titleRunes))
	}
	var cwd string
	if _ = json.Unmarshal(t.live.Get("cwd"), &cwd); cwd == "" && t.opts.Cwd != "" {
		err = errors.Join(err, t.live.Set("cwd", t.opts.Cwd))
	}
	return errors.Join(err, t.live.Set(modelKey, t.model.Name()))
}

// converse asks the model until it needs no more tools. The text, the
// activities and the history are then as far as they came.
func (t *turn) converse(ctx context.Context) error {
	tools := t.tools()
	for range maxRounds {
		t.said = t.content.Len()
		answer, err := t.model.Turn(ctx, models.Request{
			System: t.system, History: t.historySince(0), Tools: tools, State: t.live.Get("providerState"),
			Items: t.live.Doc.List(transcript.ListHistory).Records, Since: t.historySince,
		}, t.delta)
		said := transcript.HistoryItem{Role: transcript.RoleAssistant, Content: t.content.String()[t.said:], MessageID: t.message.ID}
		if err != nil {
			if said.Content == "" {
				return err
			}
			return errors.Join(err, t.remember(said))
		}
		t.usage = t.usage.Add(answer.Usage)
		if answer.State != nil {
			if err := t.live.Set("providerState", answer.State); err != nil {
				return err
			}
		}
		said.ToolCalls, said.Native = callable(answer.ToolCalls), answer.Native
		if err := t.remember(said); err != nil {
			return err
		}
		if len(said.ToolCalls) == 0 {
			return nil
		}
		if err := t.callAll(ctx, said.ToolCalls); err != nil {
			return err
		}
	}
	return plugin.Errorf(plugin.Unavailable, "%s still wanted to call tools after %d rounds, so the turn was ended", t.model.Name(), maxRounds).
		WithHint("send another message to go on")
}

// delta takes one piece of what the model says.
func (t *turn) delta(d models.Delta) {
	switch d.Kind {
	case models.DeltaText:
		text := d.Text
		if text == "" {
			return
		}
		if t.said > 0 && t.content.Len() == t.said {
			t.said += len(separator)
			text = separator + text
		}
		t.content.WriteString(text)
		t.logged(t.log.Text(t.message.ID, text))
		t.told(session.EventTextDelta, map[string]any{"messageId": t.message.ID, "text": text})
		t.out.Event(Event{Kind: EventText, Turn: t.id, Text: text})
	case models.DeltaThought:
		t.event(session.EventThoughtDelta, map[string]any{"text": d.Text})
		t.out.Event(Event{Kind: EventThought, Turn: t.id, Text: d.Text})
	case models.DeltaNotice:
		if !slices.Contains(t.modelNotices, d.Text) { // the next request may meet the same
			t.modelNotices = append(t.modelNotices, d.Text)
			t.notice(d.Text)
		}
	case models.DeltaTool: // it is told when it starts
	}
}

// end stores how the turn ended, durably, even if ctx has.
func (t *turn) end(ctx context.Context, cause error) error {
	cancelled := cause != nil && ctx.Err() != nil
	if cancelled {
		cause = ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	status := transcript.StatusComplete
	t.live.Status, t.live.ActiveRun = session.StatusIdle, nil
	if cause == nil || t.usage != (models.Usage{}) {
		t.event(session.EventUsage, t.usage)
	}
	switch {
	case cause == nil:
		t.event(session.EventRunFinished, nil)
	case cancelled:
		if t.content.Len() == 0 {
			status = transcript.StatusError
		}
		t.event(session.EventRunCancelled, nil)
	default:
		e := plugin.AsError(cause)
		status, t.live.Status, t.live.Error = transcript.StatusError, session.StatusError, e.Message
		t.event(session.EventError, map[string]any{"code": e.Code, "text": e.Message})
	}
	t.message.Status = status
	t.message.UpdatedAt = t.opts.Now().UnixMilli()
	err := t.write(ctx)
	ended := map[string]any{"status": status, "revision": t.live.Revision}
	t.logged(t.log.End(ctx, ended))
	t.told(session.EventTurnEnd, ended)
	if t.logError != nil {
		t.notice(fmt.Sprintf("the event log of this turn is incomplete: %v", t.logError))
	}
	switch {
	case err != nil && cause != nil && !cancelled:
		t.notice("the end of the turn could not be stored: " + plugin.AsError(err).Text())
	case err != nil:
		return err
	case cancelled:
		t.notice("interrupted; what came until then is kept")
	}
	return cause
}

// write stores the turn as it is now, durably.
func (t *turn) write(ctx context.Context) error {
	t.message.Content = t.content.String()
	last := t.live.Doc.List(transcript.ListMessages).Records - 1
	if err := t.live.Splice(transcript.ListMessages, last, last+1, record(t.message)); err != nil {
		return StoreError(err)
	}
	if n := len(t.activities); n > 0 {
		records := make([]transcript.Record, n)
		for i := range t.activities {
			// All of it is in the event log and in history.
			records[i] = session.BoundActivity(record(t.activities[i]))
		}
		if err := t.live.Splice(transcript.ListActivities, t.firstOpen, t.firstOpen+t.stored, records...); err != nil {
			return StoreError(err)
		}
		t.stored = n
	}
	return t.commit(ctx)
}

// commit stores the session as it is in memory, durably.
func (t *turn) commit(ctx context.Context) error {
	revision, err := t.locked.Write(ctx, t.live, t.live.Revision)
	if err != nil {
		return StoreError(err)
	}
	t.live.Revision = revision
	t.saw(revision)
	return nil
}

// append adds records to a list of the session.
func (t *turn) append(list string, values ...any) error {
	for _, v := range values {
		if err := t.live.Append(list, record(v)); err != nil {
			return err
		}
	}
	return nil
}

// remember adds an item to what the model knows.
func (t *turn) remember(item transcript.HistoryItem) error {
	r, err := item.AppendJSON(nil)
	if err != nil {
		return err
	}
	return t.live.Append(transcript.ListHistory, r)
}

// historySince is what the model knows of the conversation, from an item on.
func (t *turn) historySince(item int) iter.Seq2[transcript.HistoryItem, error] {
	provider, _, _ := strings.Cut(t.model.Name(), "/")
	return t.historyFor(provider, item)
}

// historyFor is history from an item on, as a provider is told it.
func (t *turn) historyFor(provider string, from int) iter.Seq2[transcript.HistoryItem, error] {
	return func(yield func(transcript.HistoryItem, error) bool) {
		for item, err := range transcript.History(&t.live.Doc, t.live.Load, provider, from, math.MaxInt) {
			if !yield(item, StoreError(err)) {
				return
			}
		}
	}
}

// adoptMessages makes history of the messages of a session that another program
// wrote, and that has nothing else.
func (t *turn) adoptMessages(ctx context.Context) error {
	if t.live.Doc.List(transcript.ListHistory).Records > 0 {
		return nil
	}
	const atOnce = 256 << 10
	var items []transcript.Record
	size := 0
	take := func() error {
		err := errors.Join(t.live.Append(transcript.ListHistory, items...), t.locked.Stow(ctx, t.live), ctx.Err())
		items, size = nil, 0
		return err
	}
	for item, err := range transcript.Told(&t.live.Doc, t.live.Load, t.live.Doc.List(transcript.ListMessages).Records) {
		if err != nil {
			return err
		}
		r, err := item.AppendJSON(nil)
		if err != nil {
			return err
		}
		items = append(items, r)
		if size += len(r); size < atOnce {
			continue
		}
		if err := take(); err != nil {
			return err
		}
	}
	return take()
}

// event adds an event to the turn's log, and tells who follows the turn.
func (t *turn) event(kind string, fields any) {
	t.logged(t.log.Append(kind, fields))
	t.told(kind, fields)
}

// told passes an event of the log on, whether it could be written or not.
func (t *turn) told(kind string, fields any) {
	if t.opts.Follow != nil {
		t.opts.Follow(kind, fields)
	}
}

// logged remembers the first failure to write the event log, which ends no turn.
func (t *turn) logged(err error) {
	if t.logError == nil {
		t.logError = err
	}
}
