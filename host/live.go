package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"sess/host/chat"
	"sess/host/server"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
)

const (
	// maxConversations is how many conversations may be open.
	maxConversations = 64
	// idleConversation is how long a conversation that nobody uses stays open.
	idleConversation = 10 * time.Minute
	// turnGrace is how long turns may still run when the host stops, so that short
	// ones come to their end.
	turnGrace = time.Second
	// endTime is how long a line waits for the end of the one before, of which all is
	// told already. It may be a plugin that sends it and that this end waits for.
	endTime = 3 * time.Second
)

// Why a turn is ended before its time.
var (
	errTurnCancelled = errors.New("somebody cancelled the turn")
	errHostStops     = errors.New("the gateway is stopping")
)

// conversations are the live conversations of a host: one for each session that
// somebody talks in or follows, opened when it is needed and closed when it has
// been idle. Their turns belong to the host, not to who sent the message, and go on
// without them. Safe for concurrent use.
type conversations struct {
	host *Host
	life context.Context // of the chats
	end  context.CancelFunc
	runs sync.WaitGroup // turns and commands

	mu      sync.Mutex // guards what follows, and uses and idle of each conversation
	open    map[session.Ref]*conversation
	closing bool
	timer   *time.Timer // ends the turns that still run, when closing
}

// conversation is a session that is open in this host.
type conversation struct {
	all  *conversations
	ref  session.Ref
	chat *chat.Chat
	feed *feed

	uses int // readers and runs; those of conversations.mu
	idle time.Time
	shut *time.Timer // ends it when it is idle; nil while it is used

	mu        sync.Mutex // guards what follows
	run       *run       // the line that is answered; nil when idle
	followers int
	asked     *approval // what a person is asked to allow; nil when nothing waits
}

// approval is a question that waits for a person.
type approval struct {
	CallID    string          `json:"callId"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Text      string          `json:"text"`
	timer     *time.Timer     // nil: it waits without end
}

// run is one line while it is answered.
type run struct {
	cancel context.CancelCauseFunc
	alone  bool
	start  int64 // the number of its first event
	done   chan struct{}
	over   bool // its clients take it for ended; guarded by conversation.mu

	// What follows belongs to the goroutine that runs it, until done is closed.
	end    int64 // the number after its last event
	begun  bool  // a turn was begun
	told   bool  // of an error, by an event
	answer server.ChatAnswer
	err    error
}

func newConversations(h *Host) *conversations {
	l := &conversations{host: h, open: map[session.Ref]*conversation{}}
	l.life, l.end = context.WithCancel(h.life)
	return l
}

// get returns the conversation of a session that exists, and opens it where it is
// not open. The caller releases it.
func (l *conversations) get(ctx context.Context, ref session.Ref) (*conversation, error) {
	switch ok, err := l.host.sessions.Exists(ref); {
	case err != nil:
		return nil, chat.StoreError(err)
	case !ok:
		return nil, l.host.noSession(ctx, ref)
	}
	if v, err := l.use(ref); v != nil || err != nil {
		return v, err
	}
	v := &conversation{all: l, ref: ref, feed: newFeed()}
	var err error
	v.chat, err = l.host.newChat(l.life, ref, nil, v, chatSetup{
		ChatOptions: ChatOptions{Agent: DefaultAgent, Cwd: l.host.opts.Cwd},
		moved:       v.moved,
		follow:      v.follow,
		notify: func(ctx context.Context, e plugin.Event) ([]string, error) {
			for _, n := range l.host.Notify(ctx, e) {
				v.notice(n) // now, and not with the next line
			}
			return nil, nil
		},
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return nil, stopping()
	}
	if other := l.open[ref]; other != nil { // it was opened meanwhile; v holds nothing
		other.hold()
		return other, nil
	}
	if err := l.makeRoom(); err != nil {
		return nil, err
	}
	l.open[ref] = v
	v.hold()
	return v, nil
}

func stopping() error {
	return plugin.Errorf(plugin.Unavailable, "%w", errHostStops).WithHint("try again when it has been started again")
}

// use returns the conversation if it is open.
func (l *conversations) use(ref session.Ref) (*conversation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return nil, stopping()
	}
	v := l.open[ref]
	if v != nil {
		v.hold()
	}
	return v, nil
}

// hold keeps a conversation open. The caller holds conversations.mu.
func (v *conversation) hold() {
	v.uses++
	v.unshut()
}

// unshut stops the timer that would end the conversation. The caller holds
// conversations.mu.
func (v *conversation) unshut() {
	if v.shut != nil {
		v.shut.Stop()
		v.shut = nil
	}
}

// release gives up what get, use or hold gave.
func (v *conversation) release() {
	l := v.all
	l.mu.Lock()
	defer l.mu.Unlock()
	v.uses--
	if v.uses > 0 {
		return
	}
	if l.closing {
		return // close ends it
	}
	v.idle = time.Now()
	v.shut = time.AfterFunc(idleConversation, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drop(v)
	})
}

// makeRoom closes the conversation that has been idle for longest, if there are
// as many as may be. The caller holds mu.
func (l *conversations) makeRoom() error {
	if len(l.open) < maxConversations {
		return nil
	}
	var oldest *conversation
	for _, v := range l.open {
		if v.uses == 0 && (oldest == nil || v.idle.Before(oldest.idle)) {
			oldest = v
		}
	}
	if oldest == nil {
		return plugin.Errorf(plugin.Unavailable, "%d conversations are in use, and more may not be", maxConversations).
			WithHint("wait for one of their turns to end, or close a client")
	}
	l.drop(oldest)
	return nil
}

// drop closes a conversation unless it is used, or close does. The caller holds mu.
func (l *conversations) drop(v *conversation) {
	if l.closing || v.uses > 0 || l.open[v.ref] != v {
		return
	}
	delete(l.open, v.ref)
	v.feed.close()
	v.unshut()
	l.runs.Go(func() { l.closeChat(l.life, v) })
}

func (l *conversations) closeChat(ctx context.Context, v *conversation) {
	if err := v.chat.Close(ctx); err != nil {
		l.host.log.Warn("a chat was not closed in time", "session_id", v.ref.ID, "err", err)
	}
}

// drain refuses new lines, and ends the turns that still run after a moment. It
// does not wait for them.
func (l *conversations) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return
	}
	l.closing = true
	for _, v := range l.open {
		v.unshut()
	}
	l.timer = time.AfterFunc(turnGrace, l.cancelAll)
}

func (l *conversations) cancelAll() {
	for _, v := range l.all() {
		v.cancel(errHostStops)
	}
}

func (l *conversations) all() []*conversation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*conversation
	for _, v := range l.open {
		all = append(all, v)
	}
	return all
}

// close ends everything: turns are stored as far as they came, and the plugins
// told of them, as far as ctx allows.
func (l *conversations) close(ctx context.Context) {
	l.drain()
	defer context.AfterFunc(ctx, func() {
		l.cancelAll()
		l.end()
	})()
	l.runs.Wait()
	l.timer.Stop()
	var closed sync.WaitGroup
	for _, v := range l.all() {
		closed.Go(func() {
			l.closeChat(ctx, v)
			v.feed.close()
		})
	}
	closed.Wait()
	l.end()
}

// told passes on what happened to a session elsewhere to who follows it here.
func (l *conversations) told(e server.Event) {
	kind, ref := "", session.Ref{Project: projectOr(e.Project), ID: e.Session}
	if e.Kind == sessionsChanged { // by a call that may have been made from another session
		var about struct{ ID, ProjectID string }
		if json.Unmarshal(e.Data, &about) == nil && about.ID != "" {
			ref = session.Ref{Project: about.ProjectID, ID: about.ID}
		}
	}
	switch {
	case e.Kind == sessionReplaced, e.Kind == sessionsChanged && e.Verb == verbSaveSession:
		kind = chatReplaced
	case e.Kind == sessionsChanged && e.Verb == verbDeleteProject:
		l.toldGone(ref.Project)
		return
	case e.Kind == sessionsChanged && (e.Verb == verbDeleteSession || e.Verb == "delete" || e.Verb == verbExpire):
		kind = chatDeleted
	case e.Kind == turnEnded, e.Kind == sessionSelected, e.Kind == sessionsChanged && e.Verb == "restore":
		kind = chatChanged
	default:
		return
	}
	l.mu.Lock()
	v := l.open[ref]
	l.mu.Unlock()
	if v == nil || e.Kind == turnEnded && v.running() != nil { // its own turns are told of as they go
		return
	}
	data := e.Data
	if len(data) == 0 {
		data = json.RawMessage(noFields)
	}
	v.feed.add(kind, data)
}

// toldGone tells who follows a session of a project that is there no more: which
// ones went with the project, nobody says.
func (l *conversations) toldGone(project string) {
	for _, v := range l.all() {
		if v.ref.Project != project {
			continue
		}
		if there, err := l.host.sessions.Exists(v.ref); err == nil && !there {
			v.feed.add(chatDeleted, json.RawMessage(noFields))
		}
	}
}

// send begins to answer a line. One that comes while another is answered is busy;
// where all that there is to see of that one is told already, its end is waited for.
func (v *conversation) send(waiting context.Context, line server.ChatLine) (*run, error) {
	waiting, stop := context.WithTimeout(waiting, endTime)
	defer stop()
	ctx, cancel := context.WithCancelCause(v.all.life)
	r := &run{cancel: cancel, alone: line.Alone, done: make(chan struct{})}
	v.mu.Lock()
	for v.run != nil {
		before := v.run
		over := before.over
		v.mu.Unlock()
		if over {
			select {
			case <-before.done:
				v.mu.Lock()
				continue
			case <-waiting.Done():
			}
		}
		cancel(nil)
		return nil, plugin.Errorf(plugin.Busy, "session %s: a turn is running", v.ref.ID).
			WithHint("wait for its end, or cancel it").WithDetail("session", v.ref.ID)
	}
	v.run, r.start = r, v.feed.end()
	v.mu.Unlock()

	l := v.all
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		v.ended(r, stopping())
		cancel(nil)
		return nil, stopping()
	}
	v.hold()
	l.runs.Go(func() {
		defer v.release()
		defer cancel(nil)
		v.ended(r, v.outcome(ctx, r, v.answerLine(ctx, line)))
	})
	l.mu.Unlock()
	return r, nil
}

// answerLine has a line answered. A panic becomes an error: the other
// conversations go on.
func (v *conversation) answerLine(ctx context.Context, line server.ChatLine) (err error) {
	defer func() {
		if p := recover(); p != nil {
			id := uuid.NewString()
			v.all.host.log.Error("turn failed", "incident", id, "session_id", v.ref.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = plugin.Errorf(plugin.Internal, "the turn failed because of a bug").
				WithHint("look for incident %s in the log", id).WithDetail("incident", id)
		}
	}()
	if !line.Alone {
		v.all.host.announce(ctx, v)
	}
	return v.chat.SendLine(ctx, chat.Line{Text: line.Text, Model: line.Model, System: line.System, Revision: line.Revision})
}

// outcome is the error of a run, for who sent the line.
func (v *conversation) outcome(ctx context.Context, r *run, err error) error {
	r.answer.Session, r.answer.Project = v.ref.ID, v.ref.Project
	if r.answer.Revision == 0 {
		if live, err := v.all.host.sessions.Outline(context.WithoutCancel(ctx), v.ref); err == nil {
			r.answer.Revision = live.Revision
		}
	}
	switch {
	case errors.Is(err, chat.ErrExit): // a client leaves by going
		r.answer.Answer = &server.CommandAnswer{Text: "the session stays"}
		v.event(chatAnswer, r.answer.Answer)
		return nil
	case err == nil || !errors.Is(err, context.Canceled):
	case errors.Is(context.Cause(ctx), errTurnCancelled):
		r.answer.Status = "cancelled"
		return nil
	default:
		err = plugin.Errorf(plugin.Unavailable, "%w; what came of the answer is kept", errHostStops).
			WithHint("look at the session when it has been started again")
	}
	if err == nil {
		return nil
	}
	e := plugin.AsError(err)
	if r.begun {
		e = e.WithDetail("turn", r.answer.Turn).WithDetail("revision", fmt.Sprint(r.answer.Revision))
	}
	return e
}

// ended is the end of a run.
func (v *conversation) ended(r *run, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unask()
	r.err, r.end = err, v.feed.end()
	v.run = nil
	close(r.done)
}

// cancel ends what runs, and returns it; nil where nothing does.
func (v *conversation) cancel(cause error) *run {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.run != nil {
		v.run.cancel(cause)
	}
	return v.run
}

// event tells who follows the conversation.
func (v *conversation) event(kind string, data any) {
	if data == nil {
		data = struct{}{}
	}
	raw, err := transcript.EncodeJSON(data)
	if err != nil {
		v.all.host.log.Error("event without JSON", "kind", kind, "err", err)
		return
	}
	v.feed.add(kind, raw)
}

func (v *conversation) notice(text string) { v.event(chatNotice, map[string]string{"text": text}) }

// running is the run that the chat's events belong to; nil between two.
func (v *conversation) running() *run {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.run
}

// isOver notes that the event which follows is the end for those who see it.
func (v *conversation) isOver() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.run != nil {
		v.run.over = true
	}
}

// follow passes on what the event log of a turn has.
func (v *conversation) follow(kind string, fields any) {
	if kind == session.EventTurnEnd {
		v.isOver()
	}
	if r := v.running(); r != nil {
		r.told = r.told || kind == session.EventError
		if about, ok := fields.(map[string]any); ok && kind == session.EventTurnStart {
			r.answer.Model, _ = about["model"].(string)
		}
	}
	v.event(kind, fields)
}

var _ chat.Sink = (*conversation)(nil)

// Event takes what the chat shows, beside what follow is told of.
func (v *conversation) Event(e chat.Event) {
	r := v.running()
	if r == nil {
		if e.Kind == chat.EventNotice {
			v.notice(e.Text)
		}
		return
	}
	switch e.Kind {
	case chat.EventTurnStarted:
		r.begun, r.answer.Turn = true, e.Turn
	case chat.EventTurnEnded:
		r.answer.Status, r.answer.Revision = string(e.Message.Status), e.Revision
		r.answer.Message, r.answer.Usage = session.ShownMessages([]json.RawMessage{rawJSON(e.Message)})[0], rawJSON(e.Usage)
		for _, a := range e.Activities {
			r.answer.Activities = append(r.answer.Activities, rawJSON(a))
		}
	case chat.EventQuestion:
		v.ask(r, e)
	case chat.EventToolFinished:
		v.settled(e.Tool.ID)
	case chat.EventAnswer:
		r.answer.Answer = &server.CommandAnswer{Text: e.Result.Text, Data: e.Result.Data}
		r.answer.Notices = append(r.answer.Notices, e.Result.Notices...)
		v.isOver()
		v.event(chatAnswer, r.answer.Answer)
		for _, n := range e.Result.Notices {
			v.notice(n)
		}
	case chat.EventNotice:
		r.answer.Notices = append(r.answer.Notices, e.Text)
		v.notice(e.Text)
	case chat.EventError:
		if r.begun && !r.told { // of what the model queued
			v.event(session.EventError, map[string]any{"code": e.Err.Code, "text": e.Err.Text()})
		}
	}
}

// rawJSON is the JSON of what has one.
func rawJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return data
}

// moved notes that the conversation goes on in another session: this one stays
// what it is, and so do its clients until they follow.
func (v *conversation) moved(call plugin.Call, ref session.Ref) {
	if own := (session.Ref{Project: projectOr(call.Project), ID: call.Session}); own != v.ref {
		return
	}
	to := &server.SessionName{Session: ref.ID, Project: ref.Project}
	if r := v.running(); r != nil {
		r.answer.Moved = to
	}
	v.event(chatMoved, to)
}

// ask waits for a person, or declines where there is none to wait for.
func (v *conversation) ask(r *run, e chat.Event) {
	v.mu.Lock()
	attended := !r.alone || v.followers > 0
	if attended {
		v.asked = &approval{CallID: e.Tool.ID, Name: e.Tool.Name, Arguments: e.Tool.Arguments, Text: e.Text}
		if within := time.Duration(v.all.host.Config().Chat.ApprovalSeconds) * time.Second; within > 0 {
			v.asked.timer = time.AfterFunc(within, func() { _ = v.chat.Decline(e.Tool.ID) }) // if it waits no more, all is well
		}
	}
	v.mu.Unlock()
	if !attended {
		_ = v.chat.Decline(e.Tool.ID) // it waits: its turn tells of it right now
	}
}

// settled takes back a question.
func (v *conversation) settled(call string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asked != nil && v.asked.CallID == call {
		v.unask()
	}
}

// unask ends the waiting for a person. The caller holds mu.
func (v *conversation) unask() {
	if v.asked != nil && v.asked.timer != nil {
		v.asked.timer.Stop()
	}
	v.asked = nil
}

// watch reads the conversation's events; see [server.Host].
func (v *conversation) watch(after string) *feedReader {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.followers++
	from := v.feed.end()
	n, known := v.feed.parse(after)
	switch {
	case known:
		from = n + 1
	case v.run != nil:
		from = v.run.start
	}
	reader := v.feed.reader(from)
	if after != "" && !known { // it is of a feed that is no more: what came since can be read only
		reader.ahead = &server.ChatEvent{Kind: chatChanged, Data: json.RawMessage(noFields)}
	}
	reader.left = func() {
		v.mu.Lock()
		v.followers--
		v.mu.Unlock()
		v.release()
	}
	return reader
}

// exchange is a run, as who sent the line sees it.
type exchange struct {
	*feedReader
	v   *conversation
	run *run
}

var _ server.Exchange = (*exchange)(nil)

func (x *exchange) Session() plugin.SessionRef { return refOut(x.v.ref) }

func (x *exchange) Result(ctx context.Context) (*server.ChatAnswer, error) {
	select {
	case <-x.run.done:
		answer := x.run.answer
		return &answer, x.run.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Converse sends a line to a live conversation; see [server.Host].
func (h *Host) Converse(ctx context.Context, line server.ChatLine) (server.Exchange, error) {
	ref, err := h.ensure(ctx, line.Session)
	if err != nil {
		return nil, err
	}
	v, err := h.live.get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := h.activate(ctx, ref, line); err != nil {
		v.release()
		return nil, err
	}
	r, err := v.send(ctx, line)
	if err != nil {
		v.release()
		return nil, err
	}
	reader := v.feed.reader(r.start)
	reader.until, reader.stop, reader.left = r.done, func() int64 { return r.end }, v.release
	return &exchange{reader, v, r}, nil
}

// activate makes the session that somebody talks in the active one, as a chat does
// at a terminal. A program that talks on its own does not change what people are
// at.
func (h *Host) activate(ctx context.Context, ref session.Ref, line server.ChatLine) error {
	if line.Alone {
		return nil
	}
	m, err := h.sessions.Manifest(ctx)
	if err == nil && (m.LastProjectID != ref.Project || m.LastSessionID != ref.ID) {
		err = h.sessions.Activate(ctx, ref)
	}
	return chat.StoreError(err)
}

// Watch follows a live conversation; see [server.Host].
func (h *Host) Watch(ctx context.Context, ref plugin.SessionRef, after string) (server.ChatStream, error) {
	at, err := h.Resolve(ctx, ref.Project, ref.ID)
	if err != nil {
		return nil, err
	}
	v, err := h.live.get(ctx, at)
	if err != nil {
		return nil, err
	}
	return v.watch(after), nil
}
