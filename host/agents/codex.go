package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"sess/store/transcript"
)

// codex reads Codex CLI, as versions 0.98.0 and 0.171.0 write it: one JSON Lines
// file, a rollout, for each conversation, below a folder for each day. After a
// fork or a rewind a rollout begins where another one was left, and names it.
type codex struct{}

func (codex) ID() string   { return "codex" }
func (codex) Name() string { return "Codex CLI" }

func (codex) DefaultHome(env Env) string {
	if dir := env.get("CODEX_HOME"); dir != "" {
		return dir
	}
	if env.UserHome == "" {
		return ""
	}
	return filepath.Join(env.UserHome, ".codex")
}

func (codex) Open(home string) (Store, error) {
	f, err := openFolder(home)
	if err != nil {
		return nil, err
	}
	return &codexStore{f}, nil
}

type codexStore struct{ *folder }

const codexSessions = "sessions"

// codexName are the parts of a rollout's file name:
// rollout-<local time>-<thread>[_<segment>].jsonl[.zst].
type codexName struct {
	file    string // below the home
	stamp   string // the local time, which sorts
	thread  string
	segment string // the last id in the name, by which other files refer to this one
}

func parseCodexName(file string) (n codexName, ok bool) {
	base := strings.TrimSuffix(path.Base(file), ".zst")
	base, jsonl := strings.CutSuffix(base, ".jsonl")
	base, rollout := strings.CutPrefix(base, "rollout-")
	const stamp, id = len("2026-11-29T15-53-59"), 36
	if !jsonl || !rollout || len(base) < stamp+1+id || base[stamp] != '-' {
		return n, false
	}
	n = codexName{file: file, stamp: base[:stamp], thread: base[stamp+1:][:id]}
	rest := base[stamp+1+id:]
	n.segment = n.thread
	if rest != "" {
		n.segment = strings.TrimPrefix(rest, "_")
	}
	return n, uuid.Validate(n.thread) == nil && uuid.Validate(n.segment) == nil && len(n.segment) == id
}

// rollouts lists the files of all conversations.
func (s *codexStore) rollouts(ctx context.Context) ([]codexName, error) {
	var all []codexName
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		entries, err := s.entries(dir)
		if err != nil && dir == codexSessions {
			return err
		}
		for _, e := range entries { // one that is not ours to read has none
			if err := ctx.Err(); err != nil {
				return err
			}
			name := path.Join(dir, e.Name())
			if e.IsDir() && depth > 0 {
				if err := walk(name, depth-1); err != nil {
					return err
				}
			} else if n, ok := parseCodexName(name); ok {
				all = append(all, n)
			}
		}
		return nil
	}
	const deep = 6 // year, month and day, and some more: any folder will do
	err := walk(codexSessions, deep)
	return all, err
}

// current are the files by conversation: of each the one it goes on in, which is
// the last that was begun.
func current(all []codexName) map[string]codexName {
	threads := map[string]codexName{}
	for _, n := range all {
		o, there := threads[n.thread]
		if !there || n.newer(o) {
			threads[n.thread] = n
		}
	}
	return threads
}

// newer orders the files of one thread; a packed one is older than what it was
// unpacked to.
func (n codexName) newer(o codexName) bool {
	if c := cmp.Or(cmp.Compare(n.stamp, o.stamp), cmp.Compare(n.segment, o.segment)); c != 0 {
		return c > 0
	}
	return !n.packed()
}

func (n codexName) packed() bool { return strings.HasSuffix(n.file, ".zst") }

// codexRecord is what is read of a line. What has another shape is zero.
type codexRecord struct {
	Timestamp string `json:"timestamp"`
	Ordinal   *int64 `json:"ordinal"`
	Type      string `json:"type"`
	Payload   struct {
		Type      string          `json:"type"`
		ID        string          `json:"id"`
		Role      string          `json:"role"`
		Cwd       string          `json:"cwd"`
		Model     string          `json:"model"`
		Provider  string          `json:"model_provider"`
		Content   json.RawMessage `json:"content"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Input     json.RawMessage `json:"input"`
		Action    json.RawMessage `json:"action"`
		CallID    string          `json:"call_id"`
		Output    json.RawMessage `json:"output"`
		Message   json.RawMessage `json:"message"`
		Base      *codexBase      `json:"history_base"`
		Passed    struct {
			Kinds []string `json:"content_item_kinds"`
		} `json:"internal_chat_message_metadata_passthrough"`
	} `json:"payload"`
}

// codexBase says where a rollout goes on from.
type codexBase struct {
	Segment string `json:"thread_id"`
	End     int64  `json:"end_ordinal_exclusive"`
	Bytes   int64  `json:"end_byte_offset"`
}

// content is the text of a message's parts.
func (r *codexRecord) content() string {
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	_ = json.Unmarshal(r.Payload.Content, &parts)
	var texts []string
	for _, p := range parts {
		switch {
		case p.Text != "":
			texts = append(texts, p.Text)
		case p.Type == "input_image":
			texts = append(texts, "[image]")
		}
	}
	return strings.Join(texts, "\n")
}

// prompt is what a person wrote, if the record is that.
func (r *codexRecord) prompt() (string, bool) {
	if r.Type != "response_item" || r.Payload.Type != "message" || r.Payload.Role != "user" {
		return "", false
	}
	text := strings.TrimSpace(r.content())
	if kinds := r.Payload.Passed.Kinds; len(kinds) > 0 {
		return text, slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(k, "user.") })
	}
	for _, prefix := range []string{"<environment_context>", "# AGENTS.md instructions", "<user_instructions>", "<INSTRUCTIONS>", "<turn_aborted>", "<skill>"} {
		if strings.HasPrefix(text, prefix) {
			return "", false
		}
	}
	return text, text != ""
}

// message is what people read of the record.
func (r *codexRecord) message() (Message, bool) {
	m := Message{ID: cmp.Or(r.Payload.ID, r.Payload.CallID), Time: when(r.Timestamp)}
	if r.Type == "compacted" {
		m.Role, m.Text = transcript.RoleSystem, "the conversation was compacted here"
		return m, true
	}
	if r.Type != "response_item" {
		return m, false
	}
	switch r.Payload.Type {
	case "message":
		if text, ok := r.prompt(); ok {
			m.Role, m.Text = transcript.RoleUser, text
			return m, true
		}
		m.Role, m.Text = transcript.RoleAgent, r.content()
		return m, r.Payload.Role == "assistant"
	case "function_call", "custom_tool_call", "local_shell_call":
		m.Role, m.Text = transcript.RoleTool, strings.TrimSpace(r.Payload.Name+" "+plain(r.Payload.Arguments)+plain(r.Payload.Input)+plain(r.Payload.Action))
		return m, true
	case "function_call_output", "custom_tool_call_output":
		m.ID += "-output"
		m.Role, m.Text = transcript.RoleTool, plain(r.Payload.Output)
		return m, true
	}
	return m, false
}

// codexKnows reports whether message knows a type of items.
func codexKnows(item string) bool {
	switch item {
	case "message", "function_call", "custom_tool_call", "local_shell_call", "function_call_output", "custom_tool_call_output", "reasoning":
		return true
	}
	return false
}

// plain is a JSON value for people: a string as what it says.
func plain(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	var o struct {
		Output  string `json:"output"`
		Content string `json:"content"`
	}
	if json.Unmarshal(v, &o) == nil && o.Output+o.Content != "" {
		return o.Output + o.Content
	}
	return string(v)
}

func (s *codexStore) Conversations(ctx context.Context, folder string) iter.Seq2[Conversation, error] {
	return func(yield func(Conversation, error) bool) {
		all, err := s.rollouts(ctx)
		if err != nil {
			yield(Conversation{}, err)
			return
		}
		titles := s.titles()
		for thread, n := range current(all) {
			if ctx.Err() != nil {
				yield(Conversation{}, context.Cause(ctx))
				return
			}
			c := s.head(n)
			if folder != "" && c.Folder != folder {
				continue // or one of which nobody can tell whose it is
			}
			c.Title = cmp.Or(titles[thread], c.Title)
			c.Live = s.live(thread)
			if !yield(c, nil) {
				return
			}
		}
	}
}

// live reports whether a process writes to a conversation. A process in the
// background may do so long after the person has left.
func (s *codexStore) live(thread string) bool {
	info, err := s.root.Stat(path.Join("thread-writer-locks", thread+".lock"))
	return err == nil && locked(info)
}

// titles are the names that people gave, by conversation.
func (s *codexStore) titles() map[string]string {
	file, info, err := s.open("session_index.jsonl")
	if err != nil {
		return nil
	}
	defer file.Close()
	titles := map[string]string{}
	for line, err := range Lines(section(file, info.Size()), nil) {
		if err != nil {
			break // a title is for people: what is there will do
		}
		objects, _ := Objects(line.Bytes)
		for _, o := range objects {
			var t struct {
				ID   string `json:"id"`
				Name string `json:"thread_name"`
			}
			if decode(o, &t) && t.Name != "" {
				titles[t.ID] = t.Name
			}
		}
	}
	return titles
}

// unpack opens a rollout; close ends it.
func (s *codexStore) unpack(n codexName) (r io.Reader, info fs.FileInfo, closing func(), err error) {
	file, info, err := s.open(n.file)
	if err != nil {
		return nil, nil, nil, err
	}
	r = section(file, info.Size())
	if !n.packed() {
		return r, info, func() { _ = file.Close() }, nil // it was only read
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(128<<20))
	if err != nil {
		return nil, nil, nil, errors.Join(err, file.Close())
	}
	return z, info, func() { z.Close(); _ = file.Close() }, nil
}

func (s *codexStore) head(n codexName) Conversation {
	c := Conversation{ID: n.thread, File: s.path(n.file), Messages: -1}
	r, info, closing, err := s.unpack(n)
	if err != nil {
		c.Problem = problem(err)
		return c
	}
	defer closing()
	c.Bytes, c.UpdatedAt = info.Size(), info.ModTime().UTC()
	meta := false
	for line, err := range Lines(io.LimitReader(r, headBytes), nil) {
		if err != nil {
			c.Problem = problem(err)
			return c
		}
		objects, _ := Objects(line.Bytes)
		for _, o := range objects {
			var rec codexRecord
			decode(o, &rec)
			switch rec.Type {
			case "session_meta":
				if !meta {
					c.Folder, c.CreatedAt, meta = rec.Payload.Cwd, when(rec.Timestamp), true
				}
			case "turn_context":
				c.Model = cmp.Or(rec.Payload.Model, c.Model)
			}
			if prompt, ok := rec.prompt(); ok && c.Title == "" {
				c.Title = titleOf(prompt)
			}
		}
		if meta && c.Title != "" && c.Model != "" {
			break
		}
	}
	switch {
	case info.Size() == 0:
		c.Problem = "empty"
	case !meta:
		c.Problem = "it does not begin with a session_meta"
	}
	return c
}

// codexPart is one file of a conversation's lineage, with how much of it counts.
type codexPart struct {
	codexName
	end int64 // records from this ordinal on were left; below 0: none
}

// lineage are the files that a conversation is made of, the first one first. The
// last is its own.
func (s *codexStore) lineage(all []codexName, own codexName) ([]codexPart, error) {
	parts := []codexPart{{own, -1}}
	seen := map[string]bool{own.segment: true}
	for at := own; ; {
		base, err := s.base(at)
		if err != nil || base == nil {
			slices.Reverse(parts)
			return parts, err
		}
		var found *codexName
		for i, n := range all {
			if n.segment == base.Segment && (found == nil || n.newer(*found)) {
				found = &all[i]
			}
		}
		if found == nil || seen[base.Segment] {
			return nil, &UnreadableError{fmt.Sprintf("it goes on from another file, rollout-…-%s.jsonl, which is not there", base.Segment)}
		}
		seen[base.Segment] = true
		at = *found
		parts = append(parts, codexPart{at, base.End})
	}
}

// base is what a rollout goes on from; nil: from nothing.
func (s *codexStore) base(n codexName) (*codexBase, error) {
	r, _, closing, err := s.unpack(n)
	if err != nil {
		return nil, err
	}
	defer closing()
	for line, err := range Lines(r, nil) {
		if err != nil {
			return nil, err
		}
		objects, _ := Objects(line.Bytes)
		for _, o := range objects {
			var rec codexRecord
			decode(o, &rec)
			if rec.Type == "session_meta" {
				return rec.Payload.Base, nil
			}
		}
	}
	return nil, nil
}

func (s *codexStore) Read(ctx context.Context, id string, w *Writer) (*transcript.Document, error) {
	all, err := s.rollouts(ctx)
	if err != nil {
		return nil, err
	}
	own, ok := current(all)[id]
	if !ok {
		return nil, ErrNotFound
	}
	parts, err := s.lineage(all, own)
	if err != nil {
		return nil, err
	}
	c := s.head(own)
	c.Title, c.Model = "", ""
	c.Title = s.titles()[id]
	for i, part := range parts {
		list := transcript.ListLines
		if i < len(parts)-1 {
			list = FileList(path.Base(part.file))
		}
		if err := s.readPart(ctx, part, list, w, &c); err != nil {
			return nil, err
		}
	}
	if err := w.Header("lineage", lineageNames(parts)); err != nil {
		return nil, err
	}
	return w.Finish(codex{}.ID(), c)
}

// codexLink is a file of a lineage in a document's header, but for the last one,
// which is the list of lines.
type codexLink struct {
	File string `json:"file"`
	End  int64  `json:"end"` // the ordinal of the first record that does not count
}

func lineageNames(parts []codexPart) []codexLink {
	links := []codexLink{}
	for _, p := range parts[:len(parts)-1] {
		links = append(links, codexLink{path.Base(p.file), p.end})
	}
	return links
}

func (s *codexStore) readPart(ctx context.Context, part codexPart, list string, w *Writer, c *Conversation) error {
	r, _, closing, err := s.unpack(part.codexName)
	if err != nil {
		return err
	}
	defer closing()
	half := func(number int) {
		if list == transcript.ListLines {
			w.Note("line %d, the last one, is not complete yet: it was left out", number)
		}
	}
	order := codexOrder{end: part.end}
	for line, err := range Lines(r, half) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = w.Record(list, line.Bytes)
		}
		if err != nil {
			return err
		}
		if line.TooLong > 0 {
			if err := w.TooLong(line); err != nil {
				return err
			}
			continue
		}
		objects, ok := Objects(line.Bytes)
		if !ok {
			w.Skip(line.Number)
		}
		for _, o := range objects {
			var rec codexRecord
			decode(o, &rec)
			switch order.next(&rec, o) {
			case codexBeyond:
				continue
			case codexTwice:
				w.Repeated()
				continue
			}
			if rec.Type == "turn_context" {
				c.Model = cmp.Or(rec.Payload.Model, c.Model)
			}
			if prompt, ok := rec.prompt(); ok && c.Title == "" {
				c.Title = titleOf(prompt)
			}
			if rec.Type == "response_item" && !codexKnows(rec.Payload.Type) {
				w.Note("content of the type %q is kept, but not shown", rec.Payload.Type)
			}
			if m, ok := rec.message(); ok {
				if err := w.Message(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// codexOrder tells which records of a file count: those before its end, and none
// twice, since the agent would send it twice.
type codexOrder struct {
	end  int64 // below 0: all
	last int64 // the ordinal before, plus one
	line string
}

type codexPlace byte

const (
	codexCounts codexPlace = iota
	codexBeyond
	codexTwice
)

func (c *codexOrder) next(r *codexRecord, object json.RawMessage) codexPlace {
	if r.Ordinal == nil {
		if r.Type == "response_item" {
			if c.line == string(object) {
				return codexTwice
			}
			c.line = string(object)
		}
		return codexCounts
	}
	switch n := *r.Ordinal; {
	case c.end >= 0 && n >= c.end:
		return codexBeyond
	case n < c.last:
		return codexTwice
	default:
		c.last = n + 1
	}
	return codexCounts
}

// Restore writes the whole lineage as one new conversation.
func (s *codexStore) Restore(ctx context.Context, doc *transcript.Document, load transcript.Loader, to Target) (Restored, error) {
	id := to.ID
	if id == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return Restored{}, err
		}
		id = made.String()
	}
	local := to.Now.Local()
	check := codexCopy{id: id, folder: to.Folder, now: to.Now}
	if err := check.write(ctx, io.Discard, doc, load); err != nil { // to know that it can be, before anything is made
		return Restored{}, err
	}
	if check.items == 0 {
		return Restored{}, &RefusedError{"it has no messages that Codex CLI would go on with"}
	}
	dir := s.path(path.Join(codexSessions, local.Format("2006/01/02")))
	name := fmt.Sprintf("rollout-%s-%s.jsonl", local.Format("2006-01-02T15-04-05"), id)
	c := codexCopy{id: id, folder: to.Folder, now: to.Now}
	if err := writeNew(dir, name, func(w io.Writer) error { return c.write(ctx, w, doc, load) }); err != nil {
		return Restored{}, err
	}
	return Restored{ID: id, File: filepath.Join(dir, name), Resume: []string{"codex", "resume", id}, Notes: c.notes}, nil
}

// codexCopy writes a conversation anew.
type codexCopy struct {
	id     string
	folder string
	now    time.Time

	meta    bool  // the session_meta is written
	ordinal int64 // of the next record
	items   int   // that are sent to the model
	notes   []string
}

func (c *codexCopy) write(ctx context.Context, w io.Writer, doc *transcript.Document, load transcript.Loader) error {
	var header struct {
		Lineage []codexLink `json:"lineage"`
	}
	_ = json.Unmarshal(doc.Header, &header)
	// The conversation's own meta goes first; those of the files before it do not
	// count.
	err := eachObject(ctx, doc, load, func(o json.RawMessage) error {
		var r codexRecord
		decode(o, &r)
		if c.meta || r.Type != "session_meta" {
			return nil
		}
		c.meta = true
		return c.record(w, o)
	})
	if err != nil {
		return err
	}
	if !c.meta {
		return &RefusedError{"its session_meta is lost, without which Codex CLI reads nothing"}
	}
	for _, link := range append(header.Lineage, codexLink{"", -1}) {
		l := doc.Lists[transcript.ListLines]
		if link.File != "" {
			l = doc.Lists[FileList(link.File)]
		}
		if l == nil {
			return &RefusedError{fmt.Sprintf("the file %s that it goes on from is not in the snapshot", link.File)}
		}
		if err := c.part(ctx, w, l, load, link.End); err != nil {
			return err
		}
	}
	return nil
}

func (c *codexCopy) part(ctx context.Context, w io.Writer, l *transcript.List, load transcript.Loader, end int64) error {
	order := codexOrder{end: end}
	for rec, err := range l.All(load, 0, l.Records) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if n := TooLong(rec); n > 0 {
			c.note(fmt.Sprintf("a record of %d bytes is not in the snapshot, and so not in the new conversation", n))
			continue
		}
		objects, _ := Objects(rec)
		for _, o := range objects {
			var r codexRecord
			decode(o, &r)
			if r.Type == "" || r.Type == "session_meta" || order.next(&r, o) != codexCounts {
				continue
			}
			if r.Type == "response_item" || r.Type == "compacted" {
				c.items++
			}
			if err := c.record(w, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// record writes one record, as the new conversation's.
func (c *codexCopy) record(w io.Writer, o json.RawMessage) error {
	first := c.ordinal == 0
	line, err := edit(o, func(key string, value json.RawMessage) json.RawMessage {
		switch {
		case key == "ordinal":
			return fmt.Appendf(nil, "%d", c.ordinal)
		case key == "timestamp" && first:
			return text(c.now.UTC().Format("2006-01-02T15:04:05.000Z"))
		case key != "payload":
			return value
		}
		payload, err := edit(value, func(key string, value json.RawMessage) json.RawMessage {
			switch {
			case first && (key == "id" || key == "session_id"), !first && (key == "thread_id" || key == "session_id"):
				return text(c.id)
			case first && (key == "history_base" || strings.HasPrefix(key, "forked_from_")):
				return nil
			case first && key == "timestamp":
				return text(c.now.UTC().Format("2006-01-02T15:04:05.000Z"))
			case first && key == "cwd":
				return text(c.folder)
			}
			return value
		})
		if err != nil {
			return value
		}
		return payload
	})
	if err != nil {
		return err
	}
	c.ordinal++
	// The agent refuses the whole file where there is anything but UTF-8.
	_, err = w.Write(append(bytes.ToValidUTF8(line, []byte("\uFFFD")), '\n'))
	return err
}

func (c *codexCopy) note(text string) {
	if !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}
