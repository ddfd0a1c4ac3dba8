package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"sess/host/agents/sqlitefile"
	"sess/store/transcript"
)

// clawSchema is the version of the database that can be written to. In another
// one the same rows may mean something else.
const clawSchema = 23

// clawHeader is the first entry of a conversation.
type clawHeader struct {
	Type      string `json:"type"`
	Version   int    `json:"version"`
	ID        string `json:"id"`
	Timestamp string `json:"timestamp"`
	CWD       string `json:"cwd"`
}

// Restore makes a new session of the active branch, as OpenClaw's own fork does:
// where it keeps a database, in that, in one transaction that only adds rows; else
// as a file, which needs no place in the index to be gone on with.
func (s *clawStore) Restore(ctx context.Context, doc *transcript.Document, load transcript.Loader, to Target) (Restored, error) {
	c, err := copyEntries(ctx, clawRules, doc, load)
	if err != nil {
		return Restored{}, err
	}
	version := c.tree.header.Version
	switch {
	case version < 3 && version != 0 || version > clawVersion:
		return Restored{}, &RefusedError{fmt.Sprintf("it is in version %d of OpenClaw's format; those known here are 3 and 4", version)}
	case c.tree.leaf == 0:
		return Restored{}, &RefusedError{"it has no entries that OpenClaw would go on with"}
	}
	c.straighten()
	agent := clawMain
	_ = json.Unmarshal(headerValue(doc, headerClawAgent), &agent)
	if info, err := s.root.Stat(clawFile(agent, ".")); err != nil || !info.IsDir() {
		return Restored{}, &RefusedError{fmt.Sprintf("OpenClaw has no agent %s here: add it with \"openclaw agents add %s\"", agent, agent)}
	}
	header := clawHeader{entrySession, cmp.Or(version, 3), cmp.Or(to.ID, uuid.NewString()), to.Now.UTC().Format("2006-01-02T15:04:05.000Z"), to.Folder}
	if file := s.database(agent); file != "" {
		return s.restoreRows(ctx, doc, load, c, file, agent, header, cmp.Or(to.Title, doc.Meta.Title))
	}
	if version == clawVersion {
		return Restored{}, &RefusedError{"it comes from an OpenClaw that keeps a database, and the one here keeps files, which is older: update OpenClaw first"}
	}
	return s.restoreFile(ctx, doc, load, c, agent, header)
}

// headerValue is a member of a document's header.
func headerValue(doc *transcript.Document, key string) json.RawMessage {
	var h map[string]json.RawMessage
	_ = json.Unmarshal(doc.Header, &h)
	return h[key]
}

func (s *clawStore) restoreFile(ctx context.Context, doc *transcript.Document, load transcript.Loader, c *entryCopy, agent string, header clawHeader) (Restored, error) {
	first, err := transcript.EncodeJSON(header)
	if err != nil {
		return Restored{}, err
	}
	dir := s.path(clawFile(agent, clawSessions))
	name := header.ID + piSuffix
	err = writeNew(dir, name, func(w io.Writer) error {
		if err := writeLine(w, first); err != nil {
			return err
		}
		return c.each(ctx, doc, load, func(object json.RawMessage, _ *entryNode) error { return writeLine(w, object) })
	})
	if err != nil {
		return Restored{}, err
	}
	resume := []string{"openclaw", "agent"}
	if agent != clawMain {
		resume = append(resume, "--agent", agent)
	}
	return Restored{
		ID: header.ID, File: filepath.Join(dir, name), Notes: c.notes,
		Resume: append(resume, "--session-id", header.ID, "--message", "go on"),
	}, nil
}

// clawNode is what OpenClaw keeps of a session that nobody has used yet.
type clawNode struct {
	SessionID   string            `json:"sessionId"`
	Lifecycle   string            `json:"lifecycleRevision"`
	UpdatedAt   int64             `json:"updatedAt"`
	SystemSent  bool              `json:"systemSent"`
	Aborted     bool              `json:"abortedLastRun"`
	CreatedVia  string            `json:"createdVia"`
	CreatedAt   int64             `json:"createdAt"`
	Delivery    map[string]string `json:"delivery"`
	DisplayName string            `json:"displayName,omitempty"`
}

// restoreRows adds the rows of a session. The order and the two steps of the
// node are those that OpenClaw 2026.9.6 takes itself: a trigger says of each new
// node that nobody has checked it, and a store with such a one does not start.
// The projection is written as well, as a first turn on a session without it
// fails while the gateway makes it.
func (s *clawStore) restoreRows(ctx context.Context, doc *transcript.Document, load transcript.Loader, c *entryCopy, file, agent string, header clawHeader, title string) (Restored, error) {
	key := "agent:" + agent + ":sess-" + header.ID[:min(8, len(header.ID))]
	err := sqlitefile.Add(ctx, file, func(tx *sqlitefile.Tx) error {
		if version, err := tx.Int("SELECT max((SELECT user_version FROM pragma_user_version), (SELECT schema_version FROM schema_meta WHERE role = 'agent'))"); err != nil {
			return err
		} else if version != clawSchema {
			return &RefusedError{fmt.Sprintf("OpenClaw's database has the schema %d, and only %d is known here", version, clawSchema)}
		}
		w := clawRows{tx: tx, session: header.ID, now: clawMillis(header.Timestamp), keys: map[string]bool{}}
		if err := w.open(key, title); err != nil {
			return err
		}
		first, err := transcript.EncodeJSON(header)
		if err != nil {
			return err
		}
		if err := w.event(first, ""); err != nil {
			return err
		}
		if err := c.each(ctx, doc, load, func(object json.RawMessage, n *entryNode) error { return w.event(object, n.id) }); err != nil {
			return err
		}
		return w.end()
	})
	if err != nil {
		return Restored{}, err
	}
	return Restored{
		ID: header.ID, File: file, Resume: []string{"openclaw", "tui", "--session", key},
		Notes: append(c.notes, "OpenClaw's own search does not find what was said before in it"),
	}, nil
}

func clawMillis(stamp string) int64 { return when(stamp).UnixMilli() }

// clawRows writes the rows of one session.
type clawRows struct {
	tx       *sqlitefile.Tx
	session  string
	now      int64 // epoch milliseconds
	seq      int
	messages int
	parent   string // the event before
	keys     map[string]bool
}

func (w *clawRows) open(key, title string) error {
	entry, err := transcript.EncodeJSON(clawNode{
		SessionID: w.session, Lifecycle: uuid.NewString(), UpdatedAt: w.now, CreatedVia: "operator", CreatedAt: w.now,
		Delivery: map[string]string{"kind": "none"}, DisplayName: title,
	})
	if err != nil {
		return err
	}
	for _, row := range []struct {
		sql  string
		args []any
	}{
		{
			"INSERT INTO session_nodes (session_key, current_session_id, entry_json, entry_valid, updated_at, created_at, created_via, display_name) VALUES (?, ?, ?, 0, ?, ?, 'operator', nullif(?, ''))",
			[]any{key, w.session, string(entry), w.now, w.now, title},
		},
		{
			"INSERT INTO session_windows (session_id, session_key, session_scope, created_at, updated_at, transcript_updated_at, transcript_observed_at, session_entry_provenance, display_name) VALUES (?, ?, 'conversation', ?, ?, ?, ?, 0, nullif(?, ''))",
			[]any{w.session, key, w.now, w.now, w.now, w.now, title},
		},
		{"UPDATE session_nodes SET entry_valid = 1 WHERE session_key = ?", []any{key}},
		{"INSERT INTO transcript_rewrite_watermarks (session_id, generation, updated_at) VALUES (?, ?, ?)", []any{w.session, strings.ReplaceAll(uuid.NewString(), "-", ""), w.now}},
	} {
		if err := w.tx.Exec(row.sql, row.args...); err != nil {
			return err
		}
	}
	return nil
}

// event writes an entry; the header has no id of its own.
func (w *clawRows) event(object json.RawMessage, id string) error {
	var e struct {
		Type      string          `json:"type"`
		Timestamp string          `json:"timestamp"`
		Message   json.RawMessage `json:"message"`
	}
	decode(object, &e)
	var m struct {
		Key     string `json:"idempotencyKey"`
		Exclude bool   `json:"excludeFromContext"`
	}
	decode(e.Message, &m)
	if w.keys[m.Key] {
		m.Key = "" // the first one has it
	}
	w.keys[m.Key] = true
	at := w.now
	if t := when(e.Timestamp); !t.IsZero() && id != "" {
		at = t.UnixMilli()
	}
	seq := w.seq
	w.seq++
	if err := w.tx.Exec("INSERT INTO transcript_events (session_id, seq, event_json, created_at, event_utf8_bytes) VALUES (?, ?, ?, ?, ?)",
		w.session, seq, string(object), at, len(object)); err != nil {
		return err
	}
	if err := w.tx.Exec("INSERT INTO transcript_event_identities (session_id, event_id, seq, event_type, parent_id, message_idempotency_key, created_at) VALUES (?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?)",
		w.session, cmp.Or(id, w.session), seq, e.Type, w.parent, m.Key, at); err != nil || id == "" {
		return err
	}
	w.parent = id
	var position any
	if e.Message != nil {
		position = w.messages
		w.messages++
	}
	seen := 1
	if m.Exclude {
		seen = 0
	}
	return w.tx.Exec("INSERT INTO session_transcript_active_events (session_id, active_position, event_seq, message_position, context_eligible) VALUES (?, ?, ?, ?, ?)",
		w.session, seq-1, seq, position, seen)
}

func (w *clawRows) end() error {
	return w.tx.Exec("INSERT INTO session_transcript_index_state (session_id, indexed_seq, leaf_event_id, needs_rebuild, active_event_count, active_message_count, updated_at) VALUES (?, ?, ?, 0, ?, ?, ?)",
		w.session, w.seq-1, w.parent, w.seq-1, w.messages, w.now)
}
