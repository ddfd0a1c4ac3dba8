package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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

// Live is a session as stored. Its exported fields may be changed freely; Write
// stores them. It is not safe for concurrent use.
type Live struct {
	Ref       Ref
	Revision  int64 // 0: no program that counts revisions has written it
	Status    string
	ActiveRun json.RawMessage // nil when no turn runs
	Error     string
	CreatedAt int64 // epoch milliseconds
	UpdatedAt int64 // epoch milliseconds; Write sets it
	// Doc is the conversation: the header (title, cwd, artifacts, model,
	// providerState, keys not known here) and the lists messages, activities and
	// history, which are never nil. Its Meta has Title, Model, Messages and
	// Bytes.
	Doc transcript.Document
	// Notifications is the file's key of that name. It belongs to the live
	// session alone: no load brings back an older one, and it is in no digest.
	// Nil when there is none.
	Notifications json.RawMessage
	// Ops are the operations that landed or became void lately, newest last, at
	// most 64. They are the store's own: Write keeps those in the file.
	Ops []OpRecord
	// Note tells people what the last Commit was, and NoteRevision which revision
	// it made. Write keeps them as they are in the file.
	Note         string
	NoteRevision int64
	// Interrupted is set by Locked.Read when the session's last turn had not
	// ended; Notices then say what was mended.
	Interrupted bool
	Notices     []string

	store   *Store
	layout  []string            // the file's keys in their order, without sess
	extra   []member            // keys of sess that this version does not know
	sealed  map[string]int64    // plain bytes of each list that are in chunks
	pending []transcript.Sealed // chunks that Write has to store first
	// updatedAt is the UpdatedAt that the next Write stores; 0: the present time.
	updatedAt int64
}

// OpRecord is what a session remembers of an operation.
type OpRecord struct {
	ID   string `json:"id"`
	Void bool   `json:"void,omitempty"` // given up: it must not land any more
	New  bool   `json:"new,omitempty"`  // it made the session
}

// Append adds records to the end of a list. What that seals is kept in memory
// until Write stores it. The records are kept and must not change any more.
func (l *Live) Append(list string, records ...transcript.Record) error {
	return l.append(list, records, l.seal)
}

// append is Append; emit takes what is sealed.
func (l *Live) append(list string, records []transcript.Record, emit transcript.Sealer) error {
	part := l.Doc.List(list)
	total := l.sealed[list] + tailBytes(part)
	for _, r := range records {
		total += int64(len(r)) + 1
	}
	if err := part.Append(records, emit); err != nil {
		return fmt.Errorf("session %s: %s: %w", l.Ref, list, err)
	}
	l.setSealed(list, total-tailBytes(part))
	l.describe()
	return nil
}

// Splice replaces the records [from,to) of a list by others. It loads and seals
// anew the chunks near the change only.
func (l *Live) Splice(list string, from, to int, with ...transcript.Record) error {
	part := l.Doc.List(list)
	before := part.Clone()
	if err := part.Splice(from, to, with, l.load, l.seal); err != nil {
		return fmt.Errorf("session %s: %s: %w", l.Ref, list, err)
	}
	size, err := sealedBytes(part, before, l.sealed[list], l.load)
	if err != nil {
		*part = *before
		return fmt.Errorf("session %s: %s: %w", l.Ref, list, err)
	}
	l.setSealed(list, size)
	l.describe()
	return nil
}

// Load returns the plain bytes of a chunk of the session, stored or not yet. It
// is a [transcript.Loader].
func (l *Live) Load(id transcript.ID) ([]byte, error) { return l.load(id) }

func (l *Live) load(id transcript.ID) ([]byte, error) {
	for _, s := range l.pending {
		if s.ID == id {
			return s.Plain, nil
		}
	}
	if l.store == nil {
		return nil, fmt.Errorf("chunk %s: session %s is not stored yet", id, l.Ref)
	}
	return l.store.Plain(id)
}

func (l *Live) seal(s transcript.Sealed) error {
	s.Plain = bytes.Clone(s.Plain)
	l.pending = append(l.pending, s)
	return nil
}

func (l *Live) setSealed(list string, size int64) {
	if l.sealed == nil {
		l.sealed = make(map[string]int64)
	}
	l.sealed[list] = size
}

// sealedBytes counts the plain bytes of what is sealed of a list. It loads index
// chunks only where they are not those of known, whose count is given.
func sealedBytes(list, known *transcript.List, size int64, load transcript.Loader) (int64, error) {
	if known == nil {
		known, size = &transcript.List{}, 0
	}
	if slices.Equal(list.Index, known.Index) {
		return size - chunkBytes(known) + chunkBytes(list), nil
	}
	total, err := list.Bytes(load)
	return total - tailBytes(list), err
}

// Get returns the value of a header key, or nil.
func (l *Live) Get(key string) json.RawMessage { return headerValue(l.Doc.Header, key) }

func headerValue(header json.RawMessage, key string) json.RawMessage {
	if len(header) == 0 {
		return nil
	}
	list, err := members(header)
	if err != nil {
		return nil
	}
	for _, m := range list {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// Set sets a header key to the JSON of value; a nil value removes it. The other
// keys keep their bytes and places. A key that is not part of the header (id,
// status, messages and the like) is refused.
func (l *Live) Set(key string, value any) error {
	if !inHeader(key) {
		return fmt.Errorf("session %s: %q is not a key of the header", l.Ref, key)
	}
	var raw json.RawMessage
	if value != nil {
		var err error
		if raw, err = transcript.EncodeJSON(value); err != nil {
			return fmt.Errorf("session %s: header key %s: %w", l.Ref, key, err)
		}
	}
	header, err := setMember(l.Doc.Header, key, raw)
	if err != nil {
		return fmt.Errorf("session %s: header: %w", l.Ref, err)
	}
	l.Doc.Header = header
	l.describe()
	return nil
}

// describe fills in what Meta says of the conversation.
func (l *Live) describe() {
	l.Doc.Meta.Title, l.Doc.Meta.Model = l.Ref.ID, ""
	if list, err := members(l.headerOrEmpty()); err == nil {
		for _, m := range list {
			switch m.key {
			case "title":
				if t := text(m.value); t != "" {
					l.Doc.Meta.Title = t
				}
			case "model":
				l.Doc.Meta.Model = text(m.value)
			}
		}
	}
	l.Doc.Meta.Messages, l.Doc.Meta.Bytes = 0, 0
	for name, list := range l.Doc.Lists {
		l.Doc.Meta.Bytes += l.sealed[name] + tailBytes(list)
		if name == transcript.ListMessages {
			l.Doc.Meta.Messages = list.Records
		}
	}
}

func (l *Live) headerOrEmpty() json.RawMessage {
	if len(l.Doc.Header) == 0 {
		return json.RawMessage("{}")
	}
	return l.Doc.Header
}

// clone copies the session so that changing the copy leaves l as it is.
func (l *Live) clone() *Live {
	c := *l
	c.Doc = *l.Doc.Clone()
	c.Ops = slices.Clone(l.Ops)
	c.pending = slices.Clone(l.pending)
	c.sealed = make(map[string]int64, len(l.sealed))
	maps.Copy(c.sealed, l.sealed)
	return &c
}

// findOp returns what is remembered of an operation.
func (l *Live) findOp(op string) (OpRecord, bool) {
	i := slices.IndexFunc(l.Ops, func(o OpRecord) bool { return o.ID == op })
	if i < 0 {
		return OpRecord{}, false
	}
	return l.Ops[i], true
}

func (l *Live) addOp(op OpRecord) {
	if op.ID == "" {
		return
	}
	l.Ops = append(slices.Clip(l.Ops), op)
	if extra := len(l.Ops) - maxOps; extra > 0 {
		l.Ops = l.Ops[extra:]
	}
}
