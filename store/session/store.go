package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"sess/store/durable"
	"sess/store/transcript"
)

var errTodo = errors.ErrUnsupported

// Options configure a Store. The zero value works.
type Options struct {
	FS     durable.OpenFunc // default durable.OpenDir
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: discard
}

// Store is a folder of live sessions. It is safe for concurrent use, also by
// several processes.
type Store struct{}

// Info is one line of a list of sessions.
type Info struct {
	Ref       Ref
	Title     string
	Status    string // a turn that nobody runs any more shows as StatusError
	Messages  int
	Bytes     int64 // plain bytes of the whole conversation
	Revision  int64
	CreatedAt int64  // epoch milliseconds
	UpdatedAt int64  // epoch milliseconds
	Problem   string // why it cannot be read; empty: it can
}

// Manifest says which session was open last.
type Manifest struct {
	Version       int    `json:"version"` // 1
	LastProjectID string `json:"lastProjectId,omitempty"`
	LastSessionID string `json:"lastSessionId,omitempty"`
}

// Open opens the folder dir, which is made if absent. The caller closes it.
func Open(dir string, o Options) (*Store, error) { return nil, errTodo }

// Close releases the folder. Locks and stages must have ended.
func (s *Store) Close() error { return errTodo }

// New returns a session that is not stored yet, for Create.
func (s *Store) New(ref Ref, title, cwd string) *Live { return nil }

// Create stores a new session; *ExistsError if there is one. Durable.
func (s *Store) Create(ctx context.Context, l *Live) error { return errTodo }

// Read returns a session as stored.
func (s *Store) Read(ctx context.Context, ref Ref) (*Live, error) { return nil, errTodo }

// View returns the whole session as clients see it.
func (s *Store) View(ctx context.Context, ref Ref) (json.RawMessage, error) { return nil, errTodo }

// List lists the sessions of every project, newest first.
func (s *Store) List(ctx context.Context) ([]Info, error) { return nil, errTodo }

// Exists reports whether a session has a file.
func (s *Store) Exists(ref Ref) (bool, error) { return false, errTodo }

// InUse reports whether somebody holds the session's lock, and who.
func (s *Store) InUse(ref Ref) (durable.Holder, bool, error) { return durable.Holder{}, false, errTodo }

// SetAside renames a damaged session file to <id>.json.invalid-<ms> and returns
// its new path.
func (s *Store) SetAside(ctx context.Context, ref Ref) (string, error) { return "", errTodo }

// Lock takes a session's exclusive lock.
func (s *Store) Lock(ctx context.Context, ref Ref, operation string, wait bool) (*Locked, error) {
	return nil, errTodo
}

// Locked is a session whose lock is held.
type Locked struct{}

// Read is Store.Read, mended for going on.
func (k *Locked) Read(ctx context.Context) (*Live, error) { return nil, errTodo }

// Write stores the session, durably, and returns its new revision.
func (k *Locked) Write(ctx context.Context, l *Live, expect int64) (int64, error) { return 0, errTodo }

// Unlock releases the lock.
func (k *Locked) Unlock() error { return errTodo }

// StageRequest proposes a new state for a session.
type StageRequest struct {
	Ref       Ref // an empty ID: a session yet to be made by CommitNew
	Doc       *transcript.Document
	Normalise bool // the state goes live: nothing in it may look as if it ran
	Fresh     bool // drop the provider's continuation ids
}

// Stage is a proposed state.
type Stage struct {
	Ref      Ref
	Missing  []transcript.ID
	Revision int64
	Differs  bool
}

// Stage proposes a state.
func (s *Store) Stage(ctx context.Context, req StageRequest) (*Stage, error) { return nil, errTodo }

// Write hands over a missing chunk as it lies on disk.
func (st *Stage) Write(id transcript.ID, frame []byte) error { return errTodo }

// StillMissing lists the chunks that are still to be sent.
func (st *Stage) StillMissing() []transcript.ID { return nil }

// Commit makes the stage the session's state.
func (st *Stage) Commit(ctx context.Context, expect int64, op, note string) (int64, error) {
	return 0, errTodo
}

// CommitNew makes a new session of the stage and makes it the active one.
func (st *Stage) CommitNew(ctx context.Context, ref Ref, title, op string) (Ref, error) {
	return Ref{}, errTodo
}

// Discard gives the stage up.
func (st *Stage) Discard() error { return errTodo }

// NewSession makes a session without messages and makes it the active one.
func (s *Store) NewSession(ctx context.Context, ref Ref, title, cwd, op string) (Ref, error) {
	return Ref{}, errTodo
}

// The answers of OpState.
const (
	OpLanded  = "landed"
	OpVoid    = "void"
	OpUnknown = "unknown"
)

// OpState tells what became of an operation.
func (s *Store) OpState(ctx context.Context, ref Ref, op string) (string, error) { return "", errTodo }

// Frame returns a chunk as it lies on disk.
func (s *Store) Frame(id transcript.ID) ([]byte, error) { return nil, errTodo }

// Plain returns a chunk's plain bytes.
func (s *Store) Plain(id transcript.ID) ([]byte, error) { return nil, errTodo }

// Manifest returns the manifest.
func (s *Store) Manifest(ctx context.Context) (Manifest, error) { return Manifest{}, errTodo }

// SaveManifest replaces the manifest.
func (s *Store) SaveManifest(ctx context.Context, m Manifest) error { return errTodo }

// Activate makes a session the one that is open.
func (s *Store) Activate(ctx context.Context, ref Ref) error { return errTodo }

// Selected returns the id of the snapshot that is shown instead of a session.
func (s *Store) Selected(ref Ref) (string, error) { return "", errTodo }

// Select sets it; empty: the session itself is shown.
func (s *Store) Select(ctx context.Context, ref Ref, snapshotID string) error { return errTodo }

// Sweep removes chunks that nothing refers to, and leftover temp files.
func (s *Store) Sweep(ctx context.Context) error { return errTodo }
