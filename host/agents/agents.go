package agents

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"sess/host/agents/sqlitefile"
	"sess/plugin"
	"sess/store/transcript"
)

// Env is what of the user's environment says where agents keep their data.
type Env struct {
	UserHome string                  // the user's home folder
	Get      func(key string) string // an environment variable; nil: there are none
}

func (e Env) get(key string) string {
	if e.Get == nil {
		return ""
	}
	return e.Get(key)
}

// Agent is a program that keeps conversations. Safe for concurrent use.
type Agent interface {
	// ID is the name of the agent in commands: letters, digits and hyphens.
	ID() string
	// Name is what people call it.
	Name() string
	// DefaultHome is the folder where it keeps its data; "" where that is not
	// known.
	DefaultHome(env Env) string
	// Open opens such a folder. One that is not there is fs.ErrNotExist.
	Open(home string) (Store, error)
}

// All lists the agents whose conversations can be read, in order of their ids.
func All() []Agent {
	return []Agent{claudeCode{}, codex{}, openClaw{}, pi{}}
}

// Find is the agent of that id; nil where there is none.
func Find(id string) Agent {
	all := All()
	if at := slices.IndexFunc(all, func(a Agent) bool { return a.ID() == id }); at >= 0 {
		return all[at]
	}
	return nil
}

// ErrNotFound is returned for a conversation that the store does not have.
var ErrNotFound = errors.New("there is no such conversation")

// Store is the conversations of one agent on this machine. Safe for concurrent
// use. Close it.
type Store interface {
	// Conversations iterates over the conversations of a folder, in any order; ""
	// stands for all folders. It reads heads only. One that cannot be read comes
	// with its Problem; an error ends the iteration.
	Conversations(ctx context.Context, folder string) iter.Seq2[Conversation, error]
	// Read reads one conversation into w, as far as it is complete, and returns
	// what [Writer.Finish] makes of it. Of one that has only grown since, a later
	// Read gives the same records and more. A wrong id is ErrNotFound, one that lacks a part an *[UnreadableError].
	Read(ctx context.Context, id string, w *Writer) (*transcript.Document, error)
	// Restore makes a new conversation of a document that Read has made, durably
	// and without changing any other. What the agent would not accept is refused,
	// as a *[RefusedError], before anything is written. load gives the document's
	// chunks.
	Restore(ctx context.Context, doc *transcript.Document, load transcript.Loader, to Target) (Restored, error)
	// Close ends the use of the store.
	Close() error
}

// Conversation is what the head of a conversation tells. What is not known is
// zero.
type Conversation struct {
	ID string
	// Key is another name that the agent itself knows the conversation by. What it
	// was before it was reset or rewound can have the same. Mostly empty.
	Key    string
	Folder string // where it is held: the agent's working directory
	Title  string
	Model  string // provider/model, or what there is of it
	// Messages counts what people read; below 0: the head does not tell.
	Messages  int
	Bytes     int64 // of all its files
	CreatedAt time.Time
	UpdatedAt time.Time
	// Live says that a process of the agent holds the conversation right now, as
	// far as the agent lets others know.
	Live bool
	// File is the conversation's main file or the database that it is in.
	File string
	// Also are older copies of the same conversation that were left aside.
	Also []string
	// Archived is what the agent made of a conversation that it does not go on with
	// by itself, such as "deleted". Such a one is taken only if it is named.
	Archived string
	// Problem is why it cannot be read: "empty", "the first line is damaged".
	Problem string
}

// Target says what to make of a document.
type Target struct {
	// Folder is the working directory that the conversation is made for.
	Folder string
	// ID is the id to give it, where the agent lets one choose; empty: made here.
	ID string
	// Title is for lists of the agent, where those show one; may be empty.
	Title string
	// Now is the time of the restore.
	Now time.Time
}

// Restored is a conversation that was made.
type Restored struct {
	ID     string
	File   string   // that was written
	Resume []string // the command that goes on with it, as arguments
	Notes  []string // what was left out, for people
}

// UnreadableError is a conversation that cannot be read whole.
type UnreadableError struct{ Reason string }

func (e *UnreadableError) Error() string { return e.Reason }

// Advice tells the code of an error of a store that people can do something about,
// and what; known is false for others.
func Advice(a Agent, err error) (code plugin.Code, hint string, known bool) {
	switch {
	case errors.Is(err, ErrNotFound):
		return plugin.NotFound, "sess --agent=" + a.ID() + " sessions list shows those that there are", true
	case errors.Is(err, ErrRewritten), errors.Is(err, sqlitefile.ErrChanged):
		return plugin.Conflict, "repeat the command", true
	case errors.Is(err, sqlitefile.ErrBusy):
		return plugin.Busy, "close it, or repeat the command in a moment", true
	case errors.Is(err, sqlitefile.ErrUnfinished):
		return plugin.Unavailable, "start " + a.Name() + " once, then repeat the command", true
	case errors.Is(err, sqlitefile.ErrDamaged):
		return plugin.Corrupt, a.Name() + " itself may be able to mend it; sess agents list tells what else can be read", true
	}
	return "", "", false
}

// RefusedError is a document that the agent would not accept. Nothing was
// written.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }
