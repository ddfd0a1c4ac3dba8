package snapshot

import (
	"context"

	"sess/store/transcript"
)

// Writer puts chunks and documents into a pool. From Begin to Close no chunk is
// swept, so that the answer of Missing holds until the save. It is not safe for
// concurrent use; any number of writers may be open at once.
type Writer struct{}

// Begin opens a writer. It waits, until ctx ends, for a sweep that is under way.
// The caller closes it.
func (p *Pool) Begin(ctx context.Context) (*Writer, error) { return nil, errPending }

// Missing returns those of ids that the pool does not have and that were not
// added, in their order. Where an index chunk is there, so are its children.
func (w *Writer) Missing(ids []transcript.ID) ([]transcript.ID, error) { return nil, errPending }

// Add takes a stored chunk, checked by SHA-256. It becomes part of the pool with
// the next Save.
func (w *Writer) Add(id transcript.ID, frame []byte) error { return errPending }

// Children returns the ids that an index chunk added here refers to, to be asked
// for with Missing; it is empty for other chunks.
func (w *Writer) Children(id transcript.ID) []transcript.ID { return nil }

// SaveRequest is a document to be saved. Exactly one of Name and AutoPrefix is
// set.
type SaveRequest struct {
	Name Name
	// AutoPrefix asks for a name that [AutoName] makes of it, free at the time.
	AutoPrefix string
	// Doc is not changed. Of its Meta the id, the times and the digest are set
	// here.
	Doc *transcript.Document
	// Overwrite allows to replace a snapshot of this name. The new one keeps its
	// id, its creation time, its pin and, where the new Meta gives none, its
	// note, tags and unknown keys; the old document goes to the trash.
	Overwrite bool
	// Rolling replaces the snapshot without a record that can be undone. The old
	// document goes to the trash unless the new one extends it and is of the same
	// session.
	Rolling bool
	// MergeMeta, if set, adjusts the new Meta after the rules of Overwrite; old is
	// nil when the name is free or its file damaged.
	MergeMeta func(old, new *transcript.Meta)
	// Op says who asked, for the record of an overwrite.
	Op *OpInfo
	// BackupFor makes the snapshot the backup of an open operation: the record
	// names it before it is visible, so that no crash leaves it behind.
	BackupFor *OpenOp
}

// Save publishes the document with all chunks added so far. Its errors are
// *ExistsError, *NameError, *LimitError, *NewerError for a file that is not
// replaced, *DamagedError when a chunk it refers to is not there, and those of
// the disk.
func (w *Writer) Save(ctx context.Context, r SaveRequest) (Entry, error) {
	return Entry{}, errPending
}

// Close ends the writer and drops what was added and not saved.
func (w *Writer) Close() error { return errPending }
