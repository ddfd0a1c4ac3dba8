package snapshot

import (
	"fmt"
	"strings"
)

// NameError is a text that is no name.
type NameError struct {
	Text       string
	Reason     string // "a name has no spaces"
	Suggestion string // a valid name close to it
}

func (e *NameError) Error() string {
	text := e.Text
	if len(text) > 2*MaxName {
		text = strings.ToValidUTF8(text[:2*MaxName], "") + "…"
	}
	return fmt.Sprintf("%q: %s; try %s", text, e.Reason, e.Suggestion)
}

// NotFoundError is a name or id that the pool does not have.
type NotFoundError struct {
	Text string
	Near []Name // names that may have been meant, the nearest first
}

func (e *NotFoundError) Error() string {
	if len(e.Near) == 0 {
		return fmt.Sprintf("no snapshot %q", e.Text)
	}
	near := make([]string, len(e.Near))
	for i, n := range e.Near {
		near[i] = string(n)
	}
	return fmt.Sprintf("no snapshot %q; near: %s", e.Text, strings.Join(near, ", "))
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
