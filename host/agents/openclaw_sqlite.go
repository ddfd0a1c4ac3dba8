package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"sess/host/agents/sqlitefile"
)

// clawQuery lists the windows of a database, each of which is one conversation,
// with the sessions that they belong to and their first entries.
const clawQuery = `SELECT w.session_id, w.session_key, coalesce(n.current_session_id = w.session_id, 0),
	coalesce(n.label, n.display_name, w.display_name, ''), coalesce(w.model_provider, ''), coalesce(w.model, ''),
	w.created_at, max(w.updated_at, coalesce(w.transcript_updated_at, 0)), coalesce(w.status = 'running', 0),
	(SELECT active_message_count FROM session_transcript_index_state i WHERE i.session_id = w.session_id AND i.needs_rebuild = 0),
	EXISTS (SELECT 1 FROM transcript_events e WHERE e.session_id = w.session_id),
	EXISTS (SELECT 1 FROM session_transcript_cold_archives a WHERE a.session_id = w.session_id)
	FROM session_windows w LEFT JOIN session_nodes n ON n.session_key = w.session_key`

// clawHeadEvents is how many of a conversation's first entries are looked at for
// the first thing that was said.
const clawHeadEvents = 20

// database is where an agent's database is; "" where it has none.
func (s *clawStore) database(agent string) string {
	name := clawFile(agent, clawDatabase)
	if info, err := s.root.Stat(name); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return s.path(name)
}

func (s *clawStore) inDatabase(ctx context.Context, agent string, want func(id, key string) bool, f func(clawConversation)) error {
	file := s.database(agent)
	if file == "" {
		return nil
	}
	var found []clawConversation
	err := sqlitefile.Read(ctx, file, func(db *sqlitefile.DB) error {
		found = nil
		for row, err := range db.Rows(clawQuery) {
			if err != nil {
				return err
			}
			c := clawConversation{agent: agent}
			if !want(row.Text(0), row.Text(1)) {
				continue
			}
			c.Conversation = Conversation{
				ID: row.Text(0), Key: row.Text(1), File: file, Title: row.Text(3), Model: entryModel(row.Text(4), row.Text(5)), Messages: -1,
				CreatedAt: time.UnixMilli(row.Int(6)).UTC(), UpdatedAt: time.UnixMilli(row.Int(7)).UTC(), Live: row.Int(8) != 0,
			}
			if row.Int(2) == 0 {
				c.Archived = "rewound"
			}
			if !row.Null(9) {
				c.Messages = int(row.Int(9))
			}
			switch {
			case row.Int(11) != 0:
				c.Problem = "it is in cold storage; open it in OpenClaw"
			case row.Int(10) == 0:
				c.Problem = "empty"
			}
			found = append(found, c)
		}
		for i := range found {
			if err := clawHead(db, &found[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The conversations in files can be shown all the same.
		f(clawConversation{Conversation: Conversation{ID: agent, File: file, Messages: -1, Problem: problem(err)}, agent: agent})
		return nil
	}
	for _, c := range found {
		f(c)
	}
	return nil
}

// clawHead reads the first entries of a conversation.
func clawHead(db *sqlitefile.DB, c *clawConversation) error {
	for line, err := range clawLines(db, c.ID, clawHeadEvents) {
		if err != nil {
			return err
		}
		objects, _, _ := entryObjects(line.Bytes)
		for _, o := range objects {
			var h entryHead
			decode(o, &h)
			if header, ok := h.header(); ok && line.Number == 1 {
				c.Folder = header.Folder
				if !header.CreatedAt.IsZero() {
					c.CreatedAt = header.CreatedAt
				}
			}
			if h.Type == entryMessage && h.Message.Role == "user" && c.Title == "" {
				if item, ok := parseEntryItem(o); ok {
					c.Title = titleOf(item.text)
				}
			}
		}
		if c.Title != "" {
			return nil
		}
	}
	return nil
}

// clawEvent bounds an entry, which OpenClaw does at 4 MB.
const clawEvent = 64 << 20

// clawLines are the first entries of a conversation in a database as lines; with
// most 0, all. An entry is kept as a text, or compressed.
func clawLines(db *sqlitefile.DB, id string, most int) entryLines {
	return func(yield func(Line, error) bool) {
		if most == 0 {
			most = -1
		}
		in, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(clawEvent))
		if err != nil {
			yield(Line{}, err)
			return
		}
		defer in.Close()
		var plain []byte
		number := 0
		query := "SELECT event_json, event_zstd FROM transcript_events WHERE session_id = ? ORDER BY seq LIMIT ?"
		for row, err := range db.Rows(query, id, most) {
			number++
			line := Line{Number: number}
			if err != nil {
				yield(line, err)
				return
			}
			line.Bytes = []byte(row.Text(0))
			if row.Null(0) {
				if plain, err = in.DecodeAll([]byte(row.Text(1)), plain[:0]); err != nil {
					// One entry that cannot be read is no reason to lose the others.
					plain = fmt.Appendf(plain[:0], "entry %d: %v", number, err)
				}
				line.Bytes = plain
			}
			for i, c := range line.Bytes { // between two tokens, as a line has none in a text
				if c == '\n' {
					line.Bytes[i] = ' '
				}
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// readDatabase reads a conversation from the database.
func (s *clawStore) readDatabase(ctx context.Context, c *clawConversation, w *Writer) (t *entryTree, err error) {
	if c.Problem != "" {
		return nil, &UnreadableError{c.Problem}
	}
	begun := false
	err = sqlitefile.Read(ctx, c.File, func(db *sqlitefile.DB) error {
		if begun {
			return ErrRewritten // what is in w already cannot be taken back
		}
		begun = true
		t, err = readEntries(ctx, clawRules, func(func(int)) entryLines { return clawLines(db, c.ID, 0) }, w)
		return err
	})
	return t, err
}
