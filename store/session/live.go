package session

import (
	"encoding/json"

	"sess/store/transcript"
)

// The states of a session.
const (
	StatusIdle       = "idle"
	StatusRunning    = "running"
	StatusPermission = "waiting-permission"
	StatusError      = "error"
)

// InterruptedText is the error of a session whose turn did not end.
const InterruptedText = "Session was interrupted before the app closed."

// Live is a session as stored. It is not safe for concurrent use.
type Live struct {
	Ref       Ref
	Revision  int64 // 0: no program that counts revisions has written it
	Status    string
	ActiveRun json.RawMessage // nil when no turn runs
	Error     string
	CreatedAt int64 // epoch milliseconds
	UpdatedAt int64 // epoch milliseconds
	// Doc is the conversation: the header (title, cwd, artifacts, model,
	// providerState, keys not known here) and the lists messages, activities and
	// history. Its Meta has Title, Model, Messages and Bytes.
	Doc transcript.Document
	// Notifications is the header key of that name. It belongs to the live
	// session alone: no load brings back an older one. Nil when there is none.
	Notifications json.RawMessage
	// Ops are the operations that landed or became void lately, newest last, at
	// most 64. They are the store's own: Write takes them from the file.
	Ops []OpRecord
	// Note says what the last Commit was, for people, and NoteRevision which
	// revision it made.
	Note         string
	NoteRevision int64
	// Interrupted is set by Locked.Read when the session's last turn had not
	// ended, and Notices then say what was mended.
	Interrupted bool
	Notices     []string
}

// OpRecord is what a session remembers of an operation.
type OpRecord struct {
	ID   string `json:"id"`
	Void bool   `json:"void,omitempty"`
	New  bool   `json:"new,omitempty"` // it made the session
}

// Append adds records to the end of a list. What it seals is kept in memory
// until Write stores it.
func (l *Live) Append(list string, records ...transcript.Record) error { return errTodo }

// Splice replaces the records [from,to) of a list.
func (l *Live) Splice(list string, from, to int, with ...transcript.Record) error { return errTodo }

// Get returns the value of a header key, or nil.
func (l *Live) Get(key string) json.RawMessage { return nil }

// Set sets a header key to the JSON of value; a nil value removes it. The other
// keys keep their bytes and places. Keys that are not part of the header (id,
// status, messages, …) are refused.
func (l *Live) Set(key string, value any) error { return errTodo }
