package chat

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/surfaces"
)

// ErrExit is what Send returns for a command that leaves the chat.
var ErrExit = errors.New("the chat was left")

// Command is one plugin's command as a chat offers it.
type Command struct {
	Spec       plugin.Spec
	Dispatcher plugin.Dispatcher
	// Plugin is the id of the plugin that brings it.
	Plugin string
	// Tool says that the model may call it, too.
	Tool bool
}

// Options is what a chat may have beside a session and a model. The zero value
// works.
type Options struct {
	// Commands lists the commands of the plugins that are there now; it is asked
	// anew for each line.
	Commands func() []Command
	// Absent says why a command that is not among Commands is not there now; nil
	// where nobody knows it. It may be nil itself.
	Absent func(command string) error
	// Notify tells the plugins that a turn has ended, and returns their notices
	// for people. It is called in the background, for one event after the other.
	Notify func(ctx context.Context, e plugin.Event) ([]string, error)
	// Agent is the agent whose pool commands use; empty means "main".
	Agent string
	// Cwd is where the person works; it is stored with a session that has none.
	Cwd string
	// OpenModel is the model with a name, as it is configured now, "" being the
	// configured default; it is asked for each turn. nil leaves a chat with the model
	// that it was opened with.
	OpenModel func(name string) (models.Model, error)
	// Models lists the models that are known by name. It may be nil.
	Models func() []plugin.Candidate
	// Complete proposes values for an argument of a command, or for one of the
	// chat's own where command is "". It may be nil.
	Complete func(ctx context.Context, command string, req plugin.CompleteRequest) ([]plugin.Candidate, error)
	// Confirm lists what the model may do only if a person allows it: a verb
	// ("delete"), a command's verb ("sess delete"), or an effect ("destroy"). It is
	// asked anew for each call; nil lists nothing.
	Confirm func() []string
	// Select shows a snapshot in place of a session, or with an empty id the session
	// itself. nil notes it in the store, and tells nobody.
	Select func(ctx context.Context, ref session.Ref, snapshot string) error
	// System is the instruction that the model gets before the conversation.
	System string
	// Follow is told of everything that goes into the event logs of the turns, in
	// order and with the same fields. It may be nil, and must not block.
	Follow func(kind string, fields any)
	Now    func() time.Time // nil means time.Now
}

// Line is a line for a chat, with what its sender says about it. Without the
// rest, Text alone is what a person types.
type Line struct {
	Text string
	// Revision is that of the session as the sender knows it. Where the session
	// has another by now, nothing is sent, and the error is a conflict. Nil goes
	// on from any.
	Revision *int64
	// Model names the model that answers this line and those after it; "" leaves
	// it to the chat.
	Model string
	// System stands for this turn in place of the chat's instruction.
	System string
}

// expected refuses a line for a state of the session that is no more.
func (l *Line) expected(live *session.Live) error {
	if l.Revision == nil || *l.Revision == live.Revision {
		return nil
	}
	what := "changed elsewhere"
	if live.NoteRevision > *l.Revision && live.Note != "" {
		what = "replaced: " + live.Note
	}
	return plugin.Errorf(plugin.Conflict, "session %s: this conversation was %s; it has revision %d and %d messages now, not revision %d",
		live.Ref.ID, what, live.Revision, live.Doc.Meta.Messages, *l.Revision).
		WithHint("read it anew, then send the message again").WithDetail("revision", strconv.FormatInt(live.Revision, 10))
}

// Chat runs turns and commands on the session that it shows. Send may be called
// from any goroutine, but only one line runs at a time; the other methods are
// safe for concurrent use.
type Chat struct {
	store *session.Store
	out   Sink
	opts  Options

	sending  chan struct{} // holds a value while a line runs: then out belongs to it
	question chan string   // holds the id of the call that a person is asked about last

	mu       sync.Mutex // guards what follows
	ref      session.Ref
	revision int64        // of ref, as people last saw it
	switched *session.Ref // another session to show, not yet told
	chosen   models.Model // the one for the next turn, or nil: the session says

	asked  string       // the id of the call that waits for a person, or ""
	answer chan verdict // takes the person's answer; it has room for it

	notices    []string       // of the background, not yet shown
	events     []plugin.Event // not yet told to the plugins
	telling    bool
	background sync.WaitGroup

	// life is that of the background: a turn's context ends with the turn.
	life    context.Context
	endLife context.CancelCauseFunc
}

// Open makes a chat that shows an existing session. It takes no lock and writes
// nothing. The model is the one that the session goes on with; nil is the one that
// the session names, or else the default of o.OpenModel. The caller closes it.
func Open(ctx context.Context, store *session.Store, ref session.Ref, model models.Model, out Sink, o Options) (*Chat, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Commands == nil {
		o.Commands = func() []Command { return nil }
	}
	if o.Select == nil {
		o.Select = store.Select
	}
	c := &Chat{
		store: store, chosen: model, out: hinting{out, o.Commands}, opts: o, ref: ref,
		sending: make(chan struct{}, 1), question: make(chan string, 1),
	}
	live, err := store.Outline(ctx, ref)
	if err != nil {
		return nil, StoreError(err)
	}
	if _, _, err := c.modelFor(live); err != nil {
		return nil, err
	}
	c.revision = live.Revision
	c.life, c.endLife = context.WithCancelCause(context.WithoutCancel(ctx))
	return c, nil
}

// Ref is the session that the chat shows.
func (c *Chat) Ref() session.Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ref
}

// Switch makes the chat show another session, from its next line on or, when it
// is called while a command of this chat runs, right after that command. The
// host calls it when a call made from this chat made another session the active
// one.
func (c *Chat) Switch(ref session.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.switched = &ref
}

// Send takes one line: a command, or a message that the model answers. What
// comes of it goes to the sink, errors included; the error is returned so that
// a program can tell. When ctx ends during a turn, what came until then is kept
// and durable before Send returns the context's error.
func (c *Chat) Send(ctx context.Context, line string) error {
	return c.SendLine(ctx, Line{Text: line})
}

// SendLine is [Chat.Send] for a line about which more is said.
func (c *Chat) SendLine(ctx context.Context, line Line) error {
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	default:
		return plugin.Errorf(plugin.Busy, "session %s: this chat is still answering the line before", c.Ref().ID).
			WithHint("wait for its end, or interrupt it")
	}
	c.showNotices()
	c.follow(ctx)
	var err error
	inJSON := false
	line.Text = strings.TrimSpace(line.Text)
	switch {
	case line.Text == "":
	case strings.HasPrefix(line.Text, "//"):
		line.Text = line.Text[1:]
		err = c.turn(ctx, line)
	case surfaces.IsSlash(line.Text):
		inJSON, err = c.command(ctx, line)
	default:
		c.doubt(line.Text)
		err = c.turn(ctx, line)
	}
	c.showNotices()
	_, coded := errors.AsType[*plugin.Error](err)
	if err == nil || errors.Is(err, ErrExit) || ctx.Err() != nil && !coded {
		return err // an interrupted turn has told so
	}
	e := plugin.AsError(err)
	c.out.Event(Event{Kind: EventError, Err: e, JSON: inJSON})
	return e
}

// command answers a line that is a command; see slash for what it returns.
func (c *Chat) command(ctx context.Context, line Line) (inJSON bool, err error) {
	if line.Revision != nil {
		live, err := c.store.Outline(ctx, c.Ref())
		if err != nil {
			return false, StoreError(err)
		}
		if err := line.expected(live); err != nil {
			return false, err
		}
	}
	return c.slash(ctx, line.Text)
}

// Close waits until the plugins have been told of all turns, or ctx ends, and
// shows what they answered. The session stays as it is.
func (c *Chat) Close(ctx context.Context) error {
	told := make(chan struct{})
	go func() {
		c.background.Wait()
		close(told)
	}()
	var err error
	select {
	case <-told:
	case <-ctx.Done():
		err = context.Cause(ctx)
		c.endLife(err)
		<-told
	}
	c.endLife(nil)
	c.flush()
	return err
}

// emit shows an event when no line runs; a line shows its own.
func (c *Chat) emit(e Event) {
	c.sending <- struct{}{}
	defer func() { <-c.sending }()
	c.out.Event(e)
}

// flush shows the notices of the background when no line runs.
func (c *Chat) flush() {
	c.sending <- struct{}{}
	defer func() { <-c.sending }()
	c.showNotices()
}

func (c *Chat) notice(text string) { c.out.Event(Event{Kind: EventNotice, Text: text}) }

func (c *Chat) showNotices() {
	c.mu.Lock()
	notices := c.notices
	c.notices = nil
	c.mu.Unlock()
	for _, n := range notices {
		c.notice(n)
	}
}

// tellTimeout bounds one call of Notify, in which a plugin may ask a model.
const tellTimeout = 2 * time.Minute

// tell queues an event for the plugins.
func (c *Chat) tell(e plugin.Event) {
	if c.opts.Notify == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	if !c.telling {
		c.telling = true
		c.background.Go(c.tellAll)
	}
}

// tellAll tells the plugins, one event after the other. After the end of the
// background's life the rest counts as failed, so that people hear of it.
func (c *Chat) tellAll() {
	for {
		c.mu.Lock()
		if len(c.events) == 0 {
			c.telling = false
			c.mu.Unlock()
			return
		}
		e := c.events[0]
		c.events = c.events[1:]
		c.mu.Unlock()

		var notices []string
		err := context.Cause(c.life)
		if err == nil {
			ctx, cancel := context.WithTimeout(c.life, tellTimeout)
			notices, err = c.opts.Notify(ctx, e)
			cancel()
		}
		if err != nil {
			notices = append(notices, "after the turn: "+plugin.AsError(err).Text())
		}
		c.mu.Lock()
		c.notices = append(c.notices, notices...)
		c.mu.Unlock()
	}
}

// see tells if the session was changed by somebody else since people last saw
// it here.
func (c *Chat) see(live *session.Live) {
	c.mu.Lock()
	before := c.revision
	c.revision = live.Revision
	c.mu.Unlock()
	if live.Revision == before {
		return
	}
	what := "changed elsewhere"
	if live.NoteRevision > before && live.Note != "" {
		what = "replaced: " + live.Note
	}
	c.notice(fmt.Sprintf("this conversation was %s; it has %d messages now", what, live.Doc.Meta.Messages))
}

// saw notes a revision that people know of.
func (c *Chat) saw(revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = revision
}

// settle goes on from what commands of this chat did to its session, or with
// the session that they made active.
func (c *Chat) settle(ctx context.Context) {
	if c.follow(ctx) {
		return
	}
	if live, err := c.store.Outline(ctx, c.Ref()); err == nil { // else the next line tells
		c.saw(live.Revision)
	}
}

// follow shows another session if [Chat.Switch] asked for one.
func (c *Chat) follow(ctx context.Context) bool {
	c.mu.Lock()
	next := c.switched
	c.switched = nil
	if next == nil || *next == c.ref {
		c.mu.Unlock()
		return false
	}
	c.ref, c.revision = *next, 0
	c.mu.Unlock()
	text := fmt.Sprintf("this chat now shows session %s of project %s", next.ID, next.Project)
	if live, err := c.store.Outline(ctx, *next); err == nil {
		c.saw(live.Revision)
		text += fmt.Sprintf(": %q, %d messages", live.Doc.Meta.Title, live.Doc.Meta.Messages)
	}
	c.notice(text)
	return true
}

// call is a call about the session that the chat shows.
func (c *Chat) call(caller plugin.Caller, argv []string) plugin.Call {
	ref := c.Ref()
	return plugin.Call{
		Argv: argv, Agent: c.opts.Agent, Project: ref.Project, Session: ref.ID,
		Caller: caller, Cwd: c.opts.Cwd, RequestID: uuid.NewString(),
	}
}
