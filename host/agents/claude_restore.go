package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"unicode/utf8"

	"github.com/google/uuid"

	"sess/store/transcript"
)

// Restore writes the turns of the live branch as a new conversation, as the
// agent's own fork does: the records of the chain under a new session id, all
// else of them as it was; then a line that names the last one.
func (s *claudeStore) Restore(ctx context.Context, doc *transcript.Document, load transcript.Loader, to Target) (Restored, error) {
	id := cmp.Or(to.ID, uuid.NewString())
	c := claudeCopy{id: id, done: map[claudeKey]bool{}, calls: map[string]bool{}}
	if err := eachObject(ctx, doc, load, func(o json.RawMessage) error { c.tree.add(o); return nil }); err != nil {
		return Restored{}, err
	}
	c.tree.settle()
	if err := c.write(ctx, io.Discard, doc, load); err != nil { // to know that it can be, before anything is made
		return Restored{}, err
	}
	if c.spoken == 0 {
		return Restored{}, &RefusedError{"it has no messages that Claude Code would go on with"}
	}
	notes := c.notes()
	dir := s.path(filepath.Join(claudeProjects, claudeFolder(to.Folder)))
	c = claudeCopy{id: id, tree: c.tree, done: map[claudeKey]bool{}, calls: map[string]bool{}}
	err := writeNew(dir, id+".jsonl", func(w io.Writer) error {
		if err := c.write(ctx, w, doc, load); err != nil {
			return err
		}
		return c.end(w, cmp.Or(to.Title, c.title))
	})
	if err != nil {
		return Restored{}, err
	}
	return Restored{ID: id, File: filepath.Join(dir, id+".jsonl"), Resume: []string{"claude", "--resume", id}, Notes: notes}, nil
}

// eachObject goes through the readable records of a document's lines.
func eachObject(ctx context.Context, doc *transcript.Document, load transcript.Loader, f func(json.RawMessage) error) error {
	l := doc.Lists[transcript.ListLines]
	if l == nil {
		return nil
	}
	for r, err := range l.All(load, 0, l.Records) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		objects, _ := Objects(r)
		for _, o := range objects {
			if err := f(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// claudeCopy writes a conversation anew.
type claudeCopy struct {
	id    string
	title string // the last one that was given
	tree  claudeTree

	done   map[claudeKey]bool
	last   string          // uuid
	prompt string          // the last one
	spoken int             // messages of people and of the agent
	joined int             // records whose parent is lost
	calls  map[string]bool // of tools, by id; true: answered
}

func (c *claudeCopy) write(ctx context.Context, w io.Writer, doc *transcript.Document, load transcript.Loader) error {
	return eachObject(ctx, doc, load, func(o json.RawMessage) error {
		var r claudeRecord
		decode(o, &r)
		if r.Type == "custom-title" && r.CustomTitle != "" {
			c.title = r.CustomTitle
		}
		key := keyOf(r.UUID)
		if !r.inChain() || r.IsSidechain || c.tree.dropped(r.UUID) || c.done[key] {
			return nil
		}
		c.done[key] = true
		parent := json.RawMessage(nil)
		if _, lost := c.tree.up(c.tree.nodes[key]); lost && r.Parent != "" {
			c.joined++
			parent = json.RawMessage("null")
			if c.last != "" {
				parent = text(c.last)
			}
		}
		line, err := edit(o, func(name string, value json.RawMessage) json.RawMessage {
			switch {
			case name == "sessionId" || name == "session_id":
				return text(c.id)
			case name == "parentUuid" && parent != nil:
				return parent
			}
			return value
		})
		if err != nil {
			return err
		}
		if !utf8.Valid(line) {
			line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
		}
		c.note(&r)
		_, err = w.Write(append(line, '\n'))
		return err
	})
}

// note remembers what the records that follow, and the checks, need.
func (c *claudeCopy) note(r *claudeRecord) {
	c.last = r.UUID
	if r.Type == "user" || r.Type == "assistant" {
		c.spoken++
	}
	if prompt, ok := r.prompt(); ok {
		c.prompt = prompt
	}
	for _, b := range claudeBlocks(r.Message.Content) {
		switch b.Type {
		case "tool_use":
			c.calls[b.ID] = false
		case "tool_result":
			c.calls[b.Result] = true
		}
	}
}

// end writes the lines behind the records: the title, and which record is the
// last one.
func (c *claudeCopy) end(w io.Writer, title string) error {
	var lines []any
	if title != "" {
		lines = append(lines, struct {
			Type  string `json:"type"`
			Title string `json:"customTitle"`
			ID    string `json:"sessionId"`
		}{"custom-title", title, c.id})
	}
	lines = append(lines, struct {
		Type   string `json:"type"`
		Prompt string `json:"lastPrompt"`
		Leaf   string `json:"leafUuid"`
		ID     string `json:"sessionId"`
	}{"last-prompt", titleOf(c.prompt), c.last, c.id})
	for _, v := range lines {
		line, err := transcript.EncodeJSON(v)
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *claudeCopy) notes() []string {
	var notes []string
	if c.joined > 0 {
		notes = append(notes, fmt.Sprintf("records whose predecessor is lost were joined to the one before: %d", c.joined))
	}
	open := 0
	for _, answered := range c.calls {
		if !answered {
			open++
		}
	}
	if open > 0 {
		notes = append(notes, fmt.Sprintf("tool calls without a result, for which Claude Code makes one up: %d", open))
	}
	return notes
}
