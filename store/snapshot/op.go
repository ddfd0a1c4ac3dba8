package snapshot

import (
	"context"
	"time"
)

// OpKind is what an operation does.
type OpKind string

// The kinds. Those of names (overwrite, delete, rename, prune) are recorded and
// undone here; the others by who opens them.
const (
	OpLoad           OpKind = "load"
	OpNew            OpKind = "new"
	OpOverwrite      OpKind = "overwrite"
	OpDelete         OpKind = "delete"
	OpRename         OpKind = "rename"
	OpPrune          OpKind = "prune"
	OpDeleteMessages OpKind = "delete-messages"
	OpCompact        OpKind = "compact"
)

// Names reports whether operations of this kind change the pool's names and
// nothing else, so that they are undone by [Pool.UndoNames].
func (k OpKind) Names() bool {
	switch k {
	case OpOverwrite, OpDelete, OpRename, OpPrune:
		return true
	}
	return false
}

// OpInfo says what an operation is and who asked for it.
type OpInfo struct {
	Kind       OpKind `json:"kind"`
	Agent      string `json:"agent,omitempty"`
	Project    string `json:"project,omitempty"`
	Session    string `json:"session,omitempty"`
	NewSession string `json:"newSession,omitempty"` // the session that new made
	Caller     string `json:"caller,omitempty"`
	Name       string `json:"name,omitempty"`   // of the snapshot that is loaded
	NameID     string `json:"nameId,omitempty"` // its id
	RequestID  string `json:"requestId,omitempty"`
}

// OpState is how far an operation is.
type OpState string

// The states.
const (
	OpOpen    OpState = "open"    // begun; its owner is at work, or died
	OpClosed  OpState = "closed"  // done
	OpUndone  OpState = "undone"  // taken back
	OpUndoing OpState = "undoing" // being taken back
	OpRedoing OpState = "redoing" // being done again
)

// TrashItem is a document that an operation put into the trash.
type TrashItem struct {
	ID     string `json:"id"`   // of the snapshot; of a damaged one made up
	Name   Name   `json:"name"` // that it had
	File   string `json:"file"` // in the trash folder
	Reason string `json:"reason,omitempty"`
}

// Op is the record of an operation. Ids are UUIDv7, so they sort by time.
type Op struct {
	ID string `json:"id"`
	OpInfo
	State     OpState     `json:"state"`
	Time      time.Time   `json:"time"`
	Automatic bool        `json:"automatic,omitempty"` // nobody asked for it: undo passes over it
	Backup    *Link       `json:"backup,omitempty"`    // what brings back the state before it
	Redo      *Link       `json:"redo,omitempty"`      // what brings back the state before its undoing
	From      Name        `json:"from,omitempty"`      // of a rename
	To        Name        `json:"to,omitempty"`        // of a rename or overwrite
	Subject   string      `json:"subject,omitempty"`   // id of the snapshot that was renamed or put in place
	Trash     []TrashItem `json:"trash,omitempty"`     // what it took away
	Swapped   []TrashItem `json:"swapped,omitempty"`   // what its undoing took away
}

// OpenOp is an operation under way, owned by this process.
type OpenOp struct{}

// OpenOp writes the record of an operation that changes a live session, before
// its effect. The record is locked until Close or Withdraw; if the process dies,
// [Pool.Recover] decides.
func (p *Pool) OpenOp(ctx context.Context, info OpInfo) (*OpenOp, error) { return nil, errPending }

// ID is the operation's id.
func (o *OpenOp) ID() string { return "" }

// SetBackup records the snapshot that brings back the state before.
func (o *OpenOp) SetBackup(ctx context.Context, l Link) error { return errPending }

// SetNewSession records the session that the operation makes.
func (o *OpenOp) SetNewSession(ctx context.Context, session string) error { return errPending }

// Close records that the operation happened.
func (o *OpenOp) Close(ctx context.Context) error { return errPending }

// Withdraw removes the record and the backup of an operation that did not
// happen. It does nothing after Close.
func (o *OpenOp) Withdraw(ctx context.Context) error { return errPending }

// What became of an operation whose owner died, as the ask function of Recover
// answers.
const (
	Landed  = "landed"  // it happened
	Void    = "void"    // it did not, and never will
	Unknown = "unknown" // nobody can say now
)

// Recovered is an operation that Recover looked at.
type Recovered struct {
	Op      Op
	Outcome string // Landed, Void or Unknown
}

// Recover settles operations whose owner is gone. Of those that change names it
// looks at the disk; for the others it asks: landed ones are closed, of void
// ones the backup and the record are removed, unknown ones stay. A nil ask
// knows nothing. No lock of the pool is held while it asks but that of the
// record.
func (p *Pool) Recover(ctx context.Context, ask func(context.Context, Op) (string, error)) ([]Recovered, error) {
	return nil, errPending
}

// Undoable returns the newest operation that undo takes back: one of the pool's
// names, or of the session. It is nil when there is none.
func (p *Pool) Undoable(ctx context.Context, session string) (*Op, error) { return nil, errPending }

// Redoable returns the operation that redo does again: the one undone last, if
// no operation followed it. It is nil when there is none.
func (p *Pool) Redoable(ctx context.Context, session string) (*Op, error) { return nil, errPending }

// FindOp returns the record of an operation, or fs.ErrNotExist.
func (p *Pool) FindOp(id string) (*Op, error) { return nil, errPending }

// MarkUndone records that the effect of an operation on a live session was taken
// back; redo, which may be nil, is the backup made before that.
func (p *Pool) MarkUndone(ctx context.Context, id string, redo *Link) error { return errPending }

// MarkRedone records that an undone operation was done again; undo, which may be
// nil, is the backup made before that.
func (p *Pool) MarkRedone(ctx context.Context, id string, undo *Link) error { return errPending }

// LoadedLast returns the snapshot of the newest load that was not undone. The
// zero Link means none.
func (p *Pool) LoadedLast(ctx context.Context) (Link, error) { return Link{}, errPending }

// UndoResult is what an undo or redo did to the names.
type UndoResult struct {
	Op       Op
	Restored []Entry // what names hold again
	Removed  []Name  // names that are gone again
	Lost     []Name  // names whose document is no longer in the trash
}

// UndoNames takes back an overwrite, delete, rename or prune. A name that is
// taken meanwhile is an *ExistsError, and nothing is changed.
func (p *Pool) UndoNames(ctx context.Context, op *Op) (UndoResult, error) {
	return UndoResult{}, errPending
}

// RedoNames does an undone overwrite, delete, rename or prune again.
func (p *Pool) RedoNames(ctx context.Context, op *Op) (UndoResult, error) {
	return UndoResult{}, errPending
}
