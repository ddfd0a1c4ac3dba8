package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sess/store/durable"
	"sess/store/transcript"
)

// Options configure a [Pool]. The zero value is ready to use.
type Options struct {
	// FS opens the folder; nil means the file system.
	FS durable.OpenFunc
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger gets what an operator may want to look at; nil means none.
	Logger *slog.Logger
	// TrashKeep is how long the caller keeps the trash; it only fills
	// [TrashEntry.Expires]. 0 means for ever.
	TrashKeep time.Duration
}

// Pool is a folder of named snapshots. It is safe for concurrent use, also by
// other processes on the same folder.
type Pool struct {
	fs   durable.FS
	opts Options
}

// State says whether a snapshot can be used.
type State string

// The states.
const (
	StateOK      State = "ok"
	StateDamaged State = "damaged" // does not parse, or cannot be read
	StateNewer   State = "newer"   // written by a newer version
)

// Entry is a snapshot in a list.
type Entry struct {
	Name Name
	// Meta is as stored; of a damaged file only UpdatedAt is set, from the
	// file's own time.
	Meta    transcript.Meta
	State   State
	Problem string // what is wrong; empty when State is StateOK
	File    string // whole path
	Future  bool   // dated later than the clock says
}

// Snapshot is a document that was read, without its chunks.
type Snapshot struct {
	Name Name
	Doc  *transcript.Document
	File string // whole path
}

// Link refers to a snapshot by its name and immutable id.
type Link struct {
	Name Name   `json:"name"`
	ID   string `json:"id"`
}

// Progress is told how much of the work is done; nil means nobody asks. It is
// called from the goroutine that does the work.
type Progress func(done, total int)

var errPending = errors.New("not there yet")

// Open makes the folder dir if needed and opens it; it reads nothing. The caller
// closes the pool. A pool whose folder was removed stays without one: open it
// again.
func Open(dir string, o Options) (*Pool, error) { return nil, errPending }

// OpenExisting is [Open] for a folder that must be there; its error is
// fs.ErrNotExist otherwise, and nothing is made.
func OpenExisting(dir string, o Options) (*Pool, error) { return nil, errPending }

// Close releases the folder. Operations that are under way fail.
func (p *Pool) Close() error { return errPending }

// Dir is the folder's path.
func (p *Pool) Dir() string { return p.fs.Dir() }

// List returns all snapshots, the one updated last first. It reads only the
// heads of the files. Damaged ones and those of a newer version are listed with
// their state.
func (p *Pool) List(ctx context.Context) ([]Entry, error) { return nil, errPending }

// Resolve finds the snapshot that text names exactly, or whose whole id it is.
// Its errors are *NotFoundError, with near names, and *NameError.
func (p *Pool) Resolve(ctx context.Context, text string) (Name, error) { return "", errPending }

// Read returns a snapshot's whole document without its chunks. Its errors are
// *NotFoundError, *DamagedError and *NewerError.
func (p *Pool) Read(ctx context.Context, name Name) (*Snapshot, error) { return nil, errPending }

// Check reads every chunk of a snapshot: each must be there and pass its fast
// checksum; those that have to be decoded on the way pass their SHA-256 too. The
// error is a *DamagedError.
func (p *Pool) Check(ctx context.Context, s *Snapshot, progress Progress) error { return errPending }

// Plain returns a chunk's plain bytes, checked by SHA-256.
func (p *Pool) Plain(id transcript.ID) ([]byte, error) { return nil, errPending }

// Frame returns a chunk as it is stored, checked by its fast checksum.
func (p *Pool) Frame(id transcript.ID) ([]byte, error) { return nil, errPending }
