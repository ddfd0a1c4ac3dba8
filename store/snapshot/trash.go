package snapshot

import (
	"context"
	"time"
)

// TrashEntry is a document in the trash. Its File is the one in the trash.
type TrashEntry struct {
	Entry
	Op        Op // what took it away; the zero value when its record is gone
	DeletedAt time.Time
	Reason    string    // "deleted", "overwritten", or why it was pruned
	Expires   time.Time // zero: never
}

// ListTrash returns the trash, what was taken away last first.
func (p *Pool) ListTrash(ctx context.Context) ([]TrashEntry, error) { return nil, errPending }

// RestoreTrash brings a document back from the trash: of several the one taken
// away last. The name is its old one unless as is given; one that is taken is an
// *ExistsError. An older version of a snapshot that still exists comes back as a
// copy with an id of its own.
func (p *Pool) RestoreTrash(ctx context.Context, nameOrID string, as Name) (Entry, error) {
	return Entry{}, errPending
}

// EmptyTrash removes for good what was taken away at least olderThan ago; 0
// means everything. It returns the number of documents and their bytes; the
// chunks that only they referred to go with the next sweep. A dry run changes
// nothing.
func (p *Pool) EmptyTrash(ctx context.Context, olderThan time.Duration, dryRun bool) (n int, bytes int64, err error) {
	return 0, 0, errPending
}
