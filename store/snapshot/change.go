package snapshot

import (
	"context"

	"sess/store/transcript"
)

// CopyOptions configure [Pool.Copy].
type CopyOptions struct {
	Overwrite bool    // as in SaveRequest
	Note      *string // nil keeps the source's note
	Op        *OpInfo // who asked, for the record of an overwrite
}

// Copy makes a snapshot under another name that shares the chunks of its source
// and is independent of it. It has its own id and times, and the source's id as
// its parent; title, note and tags are the source's, a pin is not copied.
func (p *Pool) Copy(ctx context.Context, from, to Name, o CopyOptions) (Entry, error) {
	return Entry{}, errPending
}

// RenameOptions configure [Pool.Rename].
type RenameOptions struct {
	Overwrite bool    // the snapshot that had the name goes to the trash
	Op        *OpInfo // who asked
}

// Rename gives a snapshot another name; all else stays. It reports false when it
// has that name already.
func (p *Pool) Rename(ctx context.Context, from, to Name, o RenameOptions) (Entry, bool, error) {
	return Entry{}, false, errPending
}

// SetMeta changes a snapshot's note, tags, pin and the like. Id, creation time
// and digest cannot be changed, and unknown keys are kept. With bump the
// snapshot counts as updated now. An error of edit is returned as it is, and
// nothing is changed.
func (p *Pool) SetMeta(ctx context.Context, name Name, edit func(*transcript.Meta) error, bump bool) (Entry, error) {
	return Entry{}, errPending
}

// Delete moves snapshots to the trash as one operation and returns what they
// were and the operation's id. When one of the names is not there it returns a
// *NotFoundError and nothing is moved.
func (p *Pool) Delete(ctx context.Context, names []Name, o OpInfo) (deleted []Entry, op string, err error) {
	return nil, "", errPending
}
