package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"sess/plugin"
)

// Host is what a server needs of the host that it belongs to. It is safe for
// concurrent use. Errors are [*plugin.Error] values.
type Host interface {
	// Dispatch answers a call whose first word is a command.
	plugin.Dispatcher
	// Commands lists what the surfaces offer now: the host's own commands, and
	// those of the plugins that can be asked what they bring.
	Commands(ctx context.Context) []Command
	// Absent says why the command of a plugin is not there now; nil where it is, or
	// where no plugin has it.
	Absent(ctx context.Context, command string) error
	// Call answers a gateway method, the same ones on every transport and for
	// plugins too. progress may be nil.
	Call(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error)
	// LoadAll writes what the method sessions.loadAll answers: every live session,
	// as they are read. After an error a part may have been written.
	LoadAll(ctx context.Context, w io.Writer) error
	// Methods lists the names that Call knows, sorted.
	Methods(ctx context.Context) []string
	// Subscribe begins to gather what happens in the host. Close what it returns.
	Subscribe(filter EventFilter) Subscription
	// Converse sends a line to a live conversation. What comes of it goes on when
	// ctx ends, or the exchange is closed: [Exchange.Next] and its Result tell of it.
	// An error means that nothing was sent.
	Converse(ctx context.Context, line ChatLine) (Exchange, error)
	// Watch follows a live conversation: from after the event of that id, where it
	// is known still, else from the beginning of what runs there now.
	Watch(ctx context.Context, ref plugin.SessionRef, after string) (ChatStream, error)
	// Ready is nil when calls can be answered, and otherwise says what is missing.
	Ready(ctx context.Context) error
}

// Command is a command, and on which of the optional surfaces it is offered.
type Command struct {
	Spec   plugin.Spec
	Plugin string // id of the plugin that brings it; "" is the host itself
	HTTP   bool   // has routes
	Tool   bool   // is offered to models
}

// Event is something that happened in the host, for whoever follows it.
type Event struct {
	// Seq grows by one with each event of one host, so that a gap shows.
	Seq int64 `json:"seq"`
	// Kind is "turn.started", "turn.ended", "session.replaced", "session.selected",
	// "<command>.changed" after a verb that is not read only, "plugins.changed",
	// or "events.dropped".
	Kind    string    `json:"kind"`
	Time    time.Time `json:"time"` // UTC
	Agent   string    `json:"agent,omitempty"`
	Project string    `json:"project,omitempty"`
	Session string    `json:"session,omitempty"`
	// Verb is that of a change. Data says what an event is about, by names, ids and
	// the session's revision, never by content.
	Verb string          `json:"verb,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Dropped is how many events a slow reader missed, in "events.dropped" only.
	Dropped int64 `json:"dropped,omitempty"`
}

// EventFilter chooses events; an empty field chooses all.
type EventFilter struct {
	Kinds   []string // a kind, or the part of it before the dot
	Project string
	Session string
}

// Subscription is a bounded queue of events. When its reader is too slow the
// oldest are dropped, and an event of the kind "events.dropped" stands in their
// place. It may be used by one reader and closed by anyone.
type Subscription interface {
	// Next waits for the next event. After Close it answers io.EOF.
	Next(ctx context.Context) (Event, error)
	Close()
}

// ErrUnknownMethod is the cause of the error that [Host].Call answers for a
// method that there is not.
var ErrUnknownMethod = errors.New("unknown method")

type noticesKey struct{}

// withNotices lets what answers a method hand over warnings; tell may be called
// by several at a time.
func withNotices(ctx context.Context, tell func(notices []string)) context.Context {
	return context.WithValue(ctx, noticesKey{}, tell)
}

// TellNotices passes on warnings for which the answer to a method has no room, as
// it is bare data. It reports whether somebody takes them.
func TellNotices(ctx context.Context, notices []string) bool {
	tell, ok := ctx.Value(noticesKey{}).(func([]string))
	if ok {
		tell(notices)
	}
	return ok
}

type atSocketKey struct{}

// atSocket marks the calls that come over the unix socket.
func atSocket(ctx context.Context) context.Context {
	return context.WithValue(ctx, atSocketKey{}, true)
}

// AtSocket reports whether a call came over the unix socket, which only programs
// of this user reach.
func AtSocket(ctx context.Context) bool {
	at, _ := ctx.Value(atSocketKey{}).(bool)
	return at
}

// ChatLine is a line for a live conversation: a message for the model, or a slash
// command.
type ChatLine struct {
	// Session is resolved like that of a call, and made where none is named and
	// there is none yet. One that is named has to exist.
	Session plugin.SessionRef
	Text    string
	// Model names the model that answers, from now on; "" leaves it as it is.
	Model string
	// System is an instruction for this turn.
	System string
	// Revision is that of the session as the sender knows it: where it has another,
	// the line is refused as a conflict. Nil goes on from any.
	Revision *int64
	// Alone says that the sender cannot answer questions: what a person has to
	// allow is refused, unless somebody else follows the conversation.
	Alone bool
}

// ChatEvent is one event of a live conversation. Kinds are those of the event log,
// "turn_start" to "turn_end", and beside them
//
//   - "answer": what a slash command answered
//   - "notice": a sentence for people
//   - "session_replaced": the conversation is another one now, as after a load
//   - "session_changed": a turn has run in another process
//   - "session_deleted": it is in the trash
//   - "session_moved": it goes on in another session
//   - "events_dropped": the reader was too slow, and so many events are missing
type ChatEvent struct {
	ID   string // what Watch goes on after; empty where it cannot
	Kind string
	Data json.RawMessage // one object
}

// ChatStream gives the events of a live conversation. It is for one reader, and
// may be closed by anyone. It holds up nobody: who reads too slowly misses events.
type ChatStream interface {
	// Next waits for the next event. At the end it answers io.EOF.
	Next(ctx context.Context) (ChatEvent, error)
	Close()
}

// Exchange is what comes of one line. Its stream ends with it.
type Exchange interface {
	ChatStream
	// Session is where the line went.
	Session() plugin.SessionRef
	// Result waits for the end. Where a turn failed, what came until then is kept,
	// and there is both an answer and the error.
	Result(ctx context.Context) (*ChatAnswer, error)
}

// ChatAnswer is the outcome of a line.
type ChatAnswer struct {
	Session string `json:"sessionId"`
	Project string `json:"projectId"`
	// Of a turn: its id, how it ended ("complete", "cancelled" or "error"), the
	// model's message with what it did, and what that took.
	Turn       string            `json:"turn,omitempty"`
	Status     string            `json:"status,omitempty"`
	Model      string            `json:"model,omitempty"` // that answered
	Message    json.RawMessage   `json:"message,omitempty"`
	Activities []json.RawMessage `json:"activities,omitempty"`
	Usage      json.RawMessage   `json:"usage,omitempty"`
	// Answer is that of a slash command.
	Answer *CommandAnswer `json:"answer,omitempty"`
	// Moved is the session in which the conversation goes on, where that is
	// another one now.
	Moved    *SessionName `json:"moved,omitempty"`
	Revision int64        `json:"revision"`
	Notices  []string     `json:"notices,omitempty"`
}

// CommandAnswer is what a slash command answered.
type CommandAnswer struct {
	Text string          `json:"text"`
	Data json.RawMessage `json:"data,omitempty"`
}

// SessionName names a session, as answers do.
type SessionName struct {
	Session string `json:"sessionId"`
	Project string `json:"projectId"`
}
