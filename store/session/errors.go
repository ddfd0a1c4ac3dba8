package session

import (
	"errors"
	"fmt"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

// Sentinels for errors.Is; each is matched by the typed error of its kind.
var (
	ErrNotFound = errors.New("no such session")
	ErrExists   = errors.New("session exists")
	ErrConflict = errors.New("session changed meanwhile")
	ErrDamaged  = errors.New("session file is damaged")
	ErrNewer    = errors.New("session was written by a newer version")
	ErrVoid     = errors.New("operation is void")
	ErrDeleted  = errors.New("session was deleted")
	ErrReadOnly = errors.New("a snapshot is shown instead of the session")
)

// ErrUndecided is a change that failed so late that it may have happened all the
// same: [Store.OpState] tells. Every other error means that nothing was changed.
var ErrUndecided = errors.New("it may have happened all the same")

// What the layers below find, and a Store's methods pass on.
var (
	ErrLocked  = durable.ErrLocked // somebody holds the session; a *durable.LockedError
	ErrMissing = chunk.ErrMissing  // a chunk that a session refers to is gone
)

// NotFoundError says that a session has no file. It is ErrNotFound.
type NotFoundError struct{ Ref Ref }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("there is no session %s in project %s", e.Ref.ID, e.Ref.Project)
}

// Is makes errors.Is(err, ErrNotFound) true.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// ExistsError says that a session to be made is there already. It is ErrExists.
type ExistsError struct{ Ref Ref }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("session %s exists in project %s", e.Ref.ID, e.Ref.Project)
}

// Is makes errors.Is(err, ErrExists) true.
func (e *ExistsError) Is(target error) bool { return target == ErrExists }

// ConflictError says that the stored state is not the one that the change was
// based on. It is ErrConflict. Have and Want are equal where a program that
// counts no revisions wrote the file meanwhile.
type ConflictError struct {
	Ref  Ref
	Have int64 // stored
	Want int64 // what the caller saw, or NoRevision
}

// NoRevision is what a change was based on that named no revision.
const NoRevision = -1

func (e *ConflictError) Error() string {
	if e.Want == NoRevision {
		return fmt.Sprintf("session %s has revision %d, and what would replace part of it names none; read it again", e.Ref, e.Have)
	}
	if e.Have == e.Want {
		return fmt.Sprintf("session %s was changed by another program meanwhile; read it again", e.Ref)
	}
	return fmt.Sprintf("session %s changed meanwhile: it has revision %d, not %d; read it again", e.Ref, e.Have, e.Want)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// DeletedError says that a session was taken away, so that a late save may not
// bring it back. It is ErrDeleted, and ErrNotFound as well.
type DeletedError struct {
	Ref     Ref
	Trashed bool // it is in the trash
}

func (e *DeletedError) Error() string {
	return fmt.Sprintf("session %s was deleted", e.Ref)
}

// Is makes errors.Is(err, ErrDeleted) and errors.Is(err, ErrNotFound) true.
func (e *DeletedError) Is(target error) bool { return target == ErrDeleted || target == ErrNotFound }

// ReadOnlyError says that a session may not be changed while a snapshot is shown
// in its place. It is ErrReadOnly.
type ReadOnlyError struct {
	Ref      Ref
	Snapshot string // its id
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("session %s shows a snapshot, which cannot be changed", e.Ref)
}

// Is makes errors.Is(err, ErrReadOnly) true.
func (e *ReadOnlyError) Is(target error) bool { return target == ErrReadOnly }

// DamagedError says that a session's file is not what this store writes. The
// file stays where it is until a writer sets it aside. It is ErrDamaged.
type DamagedError struct {
	Ref    Ref
	File   string // whole path
	Reason string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("session %s: %s is damaged: %s", e.Ref, e.File, e.Reason)
}

// Is makes errors.Is(err, ErrDamaged) true.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// NewerError says that a session's file has a format this version does not
// know; it is left untouched. It is ErrNewer.
type NewerError struct {
	Ref    Ref
	File   string // whole path
	Format string
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("session %s was written by a newer version (format %q); update sess to open it", e.Ref, e.Format)
}

// Is makes errors.Is(err, ErrNewer) true.
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// VoidedError says that an operation was given up, so it may not land any more.
// It is ErrVoid.
type VoidedError struct {
	Ref Ref
	Op  string
}

func (e *VoidedError) Error() string {
	return fmt.Sprintf("session %s: operation %s was given up after an interruption; start it again", e.Ref, e.Op)
}

// Is makes errors.Is(err, ErrVoid) true.
func (e *VoidedError) Is(target error) bool { return target == ErrVoid }

// MissingError says that a stage still lacks chunks.
type MissingError struct{ IDs []transcript.ID }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%d parts of the conversation were not sent, the first is %s", len(e.IDs), e.IDs[0])
}
