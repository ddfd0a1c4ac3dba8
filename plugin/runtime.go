package plugin

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"sess/store/transcript"
)

// Plugin is what a plugin's author implements. The host calls Configure once per
// process life, and then the rest, concurrently. Errors are [*Error] values.
type Plugin interface {
	Dispatcher
	// Describe answers without side effects, also before Configure. A host that
	// remembers what this build says of itself need not ask.
	Describe(ctx context.Context) (Description, error)
	// Configure hands over the validated configuration and the host's services.
	// The Runtime stays usable until the plugin ends.
	Configure(ctx context.Context, config Configuration, runtime Runtime) error
	// Notify tells that something happened, of what the manifest's events list.
	// What it answers are notices for the
	// people of that session. The host does not wait for it in a turn, but waits
	// for it before it closes.
	Notify(ctx context.Context, event Event) ([]string, error)
	// Complete proposes words for the shell.
	Complete(ctx context.Context, req CompleteRequest) ([]Candidate, error)
	// Status tells about the plugin's background services; it may be empty.
	Status(ctx context.Context) ([]ServiceStatus, error)
	// Drain finishes what runs and accepts no more background work. Dispatch
	// calls in flight are ended by their own contexts.
	Drain(ctx context.Context) error
}

// Description is what a plugin says about itself.
type Description struct {
	Spec Spec `json:"spec"`
	// Build identifies the executable; a bundled plugin has the host's own.
	Build string `json:"build"`
	// API lists the versions of this contract that the plugin speaks.
	API []string `json:"api"`
	// Abilities lists optional services: [AbilityProvider].
	Abilities []string `json:"abilities,omitempty"`
}

// APIVersion is the version of this contract.
const APIVersion = "1.0"

// Configuration is what a plugin runs with.
type Configuration struct {
	// Config is plugins.entries.<id>.config, validated against the manifest's
	// schema, with its defaults filled in.
	Config json.RawMessage `json:"config"`
	// AgentsDir is the folder with one folder per agent.
	AgentsDir string `json:"agentsDir"`
	// UserHome is what a leading ~ in a path of the configuration means.
	UserHome string `json:"userHome,omitempty"`
	// Background is false in a host that lives for one call only: no schedule
	// need be started.
	Background bool `json:"background"`
}

// EventKind is the kind of an [Event].
type EventKind string

// The events.
const (
	EventTurnEnded       EventKind = "turn_ended"
	EventSessionReplaced EventKind = "session_replaced"
	// EventTurnAnswered is a turn that has ended and whose model the plugin itself
	// talks to, as a [Provider]. It comes beside EventTurnEnded, to that plugin alone.
	EventTurnAnswered EventKind = "turn_answered"
	// EventPluginEnded tells that the process of another plugin ended, and so
	// whatever it was doing. Only plugins that run are told.
	EventPluginEnded EventKind = "plugin_ended"
)

// Event is something that happened in the host.
type Event struct {
	Kind     EventKind `json:"kind"`
	Agent    string    `json:"agent"`
	Project  string    `json:"project"`
	Session  string    `json:"session"`
	Turn     string    `json:"turn,omitempty"`
	Revision int64     `json:"revision"`
	Plugin   string    `json:"plugin,omitempty"` // the id of the one that ended
	Model    string    `json:"model,omitempty"`  // of a turn: the one that answered
}

// CompleteRequest asks for the possible values of the last word of Call.Argv,
// which may be empty. Kind is the Complete field of the argument or flag that
// stands there, or "".
type CompleteRequest struct {
	Call Call
	Kind string
}

// Candidate is one proposal for the shell.
type Candidate struct {
	Value string `json:"value"`
	Help  string `json:"help,omitempty"`
}

// ServiceStatus is the state of one background service of a plugin.
type ServiceStatus struct {
	Name     string    `json:"name"`
	Schedule string    `json:"schedule,omitempty"`
	Next     time.Time `json:"next,omitzero"` // zero: no run is planned
	Last     time.Time `json:"last,omitzero"` // zero: it never ran
	Result   string    `json:"result,omitempty"`
	Running  bool      `json:"running,omitempty"`
}

// SessionRef names a live session. An empty ID means the active session of the
// project, which is made on first use; an empty Project the default one.
type SessionRef struct {
	Project string `json:"project"`
	ID      string `json:"id"`
}

// Session is a live session as the host stores it, without its chunks.
type Session struct {
	Ref      SessionRef
	Revision int64
	// Document holds header and lists as stored. Its Meta has title, model,
	// messages and bytes filled in. Of a turn that runs it has what is complete,
	// of one that died all that had come.
	Document transcript.Document
	Status   string // idle, running, waiting-permission, error
	// Running says that somebody works on the session now, as a turn does.
	Running bool
	// Selected is the id of the snapshot shown instead of the session, or "".
	Selected string
}

// Chunk is a sealed chunk as it lies on disk: frame and checksum.
type Chunk struct {
	ID    transcript.ID
	Frame []byte
}

// Chunks is a stream of chunks; it ends at the first error.
type Chunks = iter.Seq2[Chunk, error]

// StageRequest proposes a new state for a session.
type StageRequest struct {
	// Session is the session to change. It need not exist (a restore then makes
	// it again). An empty ID means a session yet to be made by NewSession.
	Session  SessionRef
	Document transcript.Document
	// Restore asks for the state to be normalised, as everything is that goes
	// live: no dead run, no streaming message, no tool call without a result.
	Restore bool
	// Fresh drops the provider's continuation ids, as a copy must.
	Fresh bool
}

// Stage is a proposed state that the host keeps until Commit, the end of the
// call, or the plugin's death. It keeps the chunks it needs from being swept.
type Stage struct {
	ID string
	// Missing lists chunks to be sent with WriteChunks before Commit.
	Missing []transcript.ID
	// Revision is the session's present one; 0 when there is none yet.
	Revision int64
	// Differs is false when committing would change nothing.
	Differs bool
	// Ref is the session, resolved.
	Ref SessionRef
}

// CommitRequest makes a stage the session's state.
type CommitRequest struct {
	Stage string
	// Revision is the one that the caller saw; another one is a conflict.
	Revision int64
	// Op identifies the change; the session remembers its recent ones.
	Op string
	// Note is for people whose chat shows the session: "snapshot v1 was loaded".
	Note string
}

// OpState is what became of an op.
type OpState string

// The states of an op. Asking about one that has not landed makes it void: from
// then on a commit under its id is refused.
const (
	OpLanded  OpState = "landed"
	OpVoid    OpState = "void"
	OpUnknown OpState = "unknown"
)

// NewSessionRequest makes a session and makes it the active one.
type NewSessionRequest struct {
	Project string
	Title   string // empty: "New session", or what the stage says
	Stage   string // empty: a session without messages
	Op      string
	// ID is the session to make; it was given out by the caller so that the op's
	// record could name it before.
	ID string
}

// MadeSession is a session that [Runtime] has made. That of another program gets
// its id from that program's rules, whatever was asked for.
type MadeSession struct {
	Ref SessionRef
	// File and Resume are set where the session is another program's: what was
	// written, and the command that goes on with it, as arguments.
	File   string
	Resume []string
}

// Runtime is what the host offers to a plugin. A plugin gets only what its
// manifest's permissions ask for; the rest answers denied. Before Configure
// every call answers unavailable. Errors are [*Error] values. Safe for
// concurrent use.
type Runtime interface {
	// Session returns a session's last complete state.
	Session(ctx context.Context, ref SessionRef) (*Session, error)
	// ReadChunks streams the session store's chunks of these ids, in any order.
	// One that is gone (the session changed meanwhile) is not_found.
	ReadChunks(ctx context.Context, ids []transcript.ID) Chunks
	// Stage proposes a state; WriteChunks sends what it misses and returns what
	// it misses then (an index chunk may tell of more); Commit makes it real and
	// durable and returns the new revision; Unstage gives it up. A stage whose
	// session runs a turn, or has another revision by now, is refused by Commit
	// and nothing is changed. After an error of the code internal or unavailable
	// Commit and NewSession may have happened: OpState tells; after any other
	// they have not.
	Stage(ctx context.Context, req StageRequest) (*Stage, error)
	WriteChunks(ctx context.Context, stage string, chunks Chunks) ([]transcript.ID, error)
	Commit(ctx context.Context, req CommitRequest) (int64, error)
	Unstage(ctx context.Context, stage string) error
	// OpState tells whether an op has landed in a session, and voids it if not.
	OpState(ctx context.Context, ref SessionRef, op string) (OpState, error)
	// NewSession makes a session and makes it active, durably; the manifest's
	// write commits it.
	NewSession(ctx context.Context, req NewSessionRequest) (MadeSession, error)
	// Select shows a snapshot instead of the session (read-only), or with an
	// empty snapshot id the session again.
	Select(ctx context.Context, ref SessionRef, snapshot string) error
	// Call calls any gateway method: params and result are JSON.
	Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}
