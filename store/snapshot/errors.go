package snapshot

import (
	"fmt"
	"strings"

	"sess/store/durable"
)

// ErrLocked is a lock that somebody else held for longer than its holders need.
var ErrLocked = durable.ErrLocked

// NameError is a text that is no name.
type NameError struct {
	Text   string
	Reason string // "a name has no spaces"
	// Suggestion is a valid name close to it; empty where one was looked for,
	// since none of that name need exist.
	Suggestion string
	Near       []Name // where one was looked for: names that may have been meant
}

func (e *NameError) Error() string {
	text := e.Text
	if len(text) > 2*MaxName {
		text = strings.ToValidUTF8(text[:2*MaxName], "") + "…"
	}
	s := fmt.Sprintf("%q: %s", text, e.Reason)
	if e.Suggestion != "" {
		s += "; try " + e.Suggestion
	}
	return s + nearText(e.Near)
}

// NotFoundError is a name or id that the pool does not have.
type NotFoundError struct {
	Text string
	Near []Name // names that may have been meant, the nearest first
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no snapshot %q", e.Text) + nearText(e.Near)
}

// nearText ends a message with names that may have been meant.
func nearText(names []Name) string {
	if len(names) == 0 {
		return ""
	}
	return "; near: " + joined(names)
}

func joined(names []Name) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(n))
	}
	return b.String()
}

// AmbiguousError is an id that several snapshots have, as when a file was copied
// by hand.
type AmbiguousError struct {
	ID    string
	Names []Name // the newest first
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("several snapshots have the id %s: %s", e.ID, joined(e.Names))
}

// ExistsError is a name that is taken, perhaps in another case.
type ExistsError struct {
	Name Name // as it is stored
	Hint string
}

func (e *ExistsError) Error() string {
	s := fmt.Sprintf("snapshot %q exists", string(e.Name))
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// OccupiedError is a name whose file cannot be a snapshot: in its place is a
// folder, a link or another kind of file, which is left alone.
type OccupiedError struct {
	Name Name
	File string // whole path
	Err  error
}

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%q cannot be a snapshot: %v", string(e.Name), e.Err)
}

func (e *OccupiedError) Unwrap() error { return e.Err }

// DamagedError is a snapshot that cannot be used: its file does not parse or
// does not match its digest, or a chunk is missing or damaged.
type DamagedError struct {
	Name   Name
	File   string // whole path
	Reason string
	Err    error // may be nil
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("snapshot %q is damaged: %s (%s)", string(e.Name), e.Reason, e.File)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// NewerError is a snapshot that a newer version wrote; it is left untouched.
type NewerError struct {
	Name   Name
	File   string // whole path
	Format string
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("snapshot %q was written by a newer version (format %s); update sess to use it (%s)", string(e.Name), e.Format, e.File)
}

// LimitError is a value of a snapshot's metadata that is too large.
type LimitError struct {
	Field string // note, reason, tags, meta
	Unit  string // characters, tags, bytes
	Limit int
	Got   int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d %s, at most %d are allowed", e.Field, e.Got, e.Unit, e.Limit)
}
