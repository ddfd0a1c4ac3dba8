package transcript

import (
	"encoding/json"
	"time"
)

// Format is the format of documents that this version writes.
const Format = "sess/1"

// The lists of a chat session. A foreign agent's conversation has "lines", and
// one list for each attachment ("file:<path>") or table ("table:<name>").
const (
	ListMessages   = "messages"   // what people see
	ListActivities = "activities" // tool calls that people see
	ListHistory    = "history"    // what the model sees, in its provider's own items
	ListLines      = "lines"
)

// ID is a chunk's name: the SHA-256 of its plain bytes, 64 lower-case hex digits.
type ID string

// Record is one line of bytes without its newline. It is immutable by
// convention: nothing writes into a record it did not make.
type Record []byte

// Ref refers to a sealed chunk of a list: to one chunk of whole records (ID), or
// to one record longer than [GiantRecord] in pieces (IDs, in order).
type Ref struct {
	ID      ID    `json:"id,omitempty"`
	IDs     []ID  `json:"ids,omitempty"`
	Records int   `json:"records"`
	Bytes   int64 `json:"bytes"` // plain bytes, newlines included
}

// List is a named sequence of records: the records in the chunks of Index
// (each index chunk holds references), then those in Chunks, then Tail.
type List struct {
	Records int // all of them
	Index   []ID
	Chunks  []Ref
	Tail    []Record
}

// Document is a conversation without its chunks. The zero value is an empty
// conversation. A Document is not safe for concurrent writing; copy it with
// Clone before changing what another goroutine may read.
type Document struct {
	Meta Meta
	// Header holds everything a load restores that is in no list: title, cwd,
	// model, artifacts, provider state and keys that this version does not
	// know. One JSON object; nil means {}.
	Header json.RawMessage
	Lists  map[string]*List
	// Format is as read; empty means [Format].
	Format string
	// Extra holds top-level keys that this version does not know.
	Extra map[string]json.RawMessage
}

// Trigger says what made a snapshot.
type Trigger string

// The triggers.
const (
	TriggerManual         Trigger = "manual"
	TriggerAutosave       Trigger = "autosave"
	TriggerLoad           Trigger = "load"
	TriggerNew            Trigger = "new"
	TriggerDeleteMessages Trigger = "delete-messages"
	TriggerCompact        Trigger = "compact"
	TriggerImport         Trigger = "import"
)

// Meta describes a snapshot; it stands first in its file, so that a list reads
// only the head. Times are UTC with milliseconds.
type Meta struct {
	ID        string            `json:"id"` // UUIDv7, immutable
	Agent     string            `json:"agent,omitempty"`
	SessionID string            `json:"sessionId,omitempty"`
	ProjectID string            `json:"projectId,omitempty"`
	Title     string            `json:"title,omitempty"`
	Model     string            `json:"model,omitempty"` // provider/model
	Messages  int               `json:"messages"`
	Bytes     int64             `json:"bytes"` // plain bytes of the whole conversation
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
	Note      string            `json:"note,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	Pinned    bool              `json:"pinned,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Automatic bool              `json:"automatic,omitempty"`
	Trigger   Trigger           `json:"trigger,omitempty"`
	Plugin    string            `json:"plugin,omitempty"`
	Action    string            `json:"action,omitempty"`
	Indices   []int             `json:"indices,omitempty"`
	Range     *Range            `json:"range,omitempty"`
	Parent    string            `json:"parent,omitempty"` // id of what it was copied or started from
	Digest    string            `json:"digest,omitempty"`
	// Extra holds keys that this version does not know.
	Extra map[string]json.RawMessage `json:"-"`
}

// Range is a half-open range of message indices; a nil End means "to the end".
type Range struct {
	Start int  `json:"start"`
	End   *int `json:"end"`
}
