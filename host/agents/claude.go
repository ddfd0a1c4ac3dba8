package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/google/uuid"

	"sess/store/transcript"
)

// claudeCode reads Claude Code, as versions 2.1.197 and 2.1.332 write it: one
// JSON Lines file for each conversation, in a folder for each working directory.
type claudeCode struct{}

func (claudeCode) ID() string   { return "claude-code" }
func (claudeCode) Name() string { return "Claude Code" }

func (claudeCode) DefaultHome(env Env) string {
	if dir := env.get("CLAUDE_CONFIG_DIR"); dir != "" {
		return dir
	}
	if env.UserHome == "" {
		return ""
	}
	return filepath.Join(env.UserHome, ".claude")
}

func (claudeCode) Open(home string) (Store, error) {
	f, err := openFolder(home)
	if err != nil {
		return nil, err
	}
	return &claudeStore{f}, nil
}

type claudeStore struct{ *folder }

const claudeProjects = "projects"

// claudeFolder is the name of the folder for a working directory: what is no
// ASCII letter or digit becomes a hyphen, and a long name ends in a hash. Two
// directories can have the same.
func claudeFolder(cwd string) string {
	units := utf16.Encode([]rune(cwd))
	name := make([]byte, 0, len(units))
	var hash int32
	for _, u := range units {
		hash = hash*31 + int32(u)
		c := byte('-')
		if u < 0x80 && (u-'0' <= 9 || u-'a' < 26 || u-'A' < 26) {
			c = byte(u)
		}
		name = append(name, c)
	}
	const most = 200
	if len(name) <= most {
		return string(name)
	}
	return string(name[:most]) + "-" + strconv.FormatInt(max(int64(hash), -int64(hash)), 36)
}

// claudeRecord is what is read of a line. What has another shape is zero.
type claudeRecord struct {
	Type             string                `json:"type"`
	Subtype          string                `json:"subtype"`
	UUID             string                `json:"uuid"`
	Parent           string                `json:"parentUuid"`
	LogicalParent    string                `json:"logicalParentUuid"`
	Cwd              string                `json:"cwd"`
	Timestamp        string                `json:"timestamp"`
	IsMeta           bool                  `json:"isMeta"`
	IsSidechain      bool                  `json:"isSidechain"`
	IsCompactSummary bool                  `json:"isCompactSummary"`
	Origin           struct{ Kind string } `json:"origin"`
	Content          json.RawMessage       `json:"content"`
	CustomTitle      string                `json:"customTitle"`
	Leaf             string                `json:"leafUuid"`
	Message          struct {
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"`
	} `json:"message"`
}

// claudeBlock is a part of a message's content.
type claudeBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	ID      string          `json:"id"`
	Input   json.RawMessage `json:"input"`
	Result  string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
}

// inChain reports whether a record is part of the conversation's tree.
func (r *claudeRecord) inChain() bool {
	switch r.Type {
	case "user", "assistant", "system", "attachment":
		return r.UUID != ""
	}
	return false
}

// blocks are the parts of a content, which may be a string instead.
func claudeBlocks(content json.RawMessage) []claudeBlock {
	var blocks []claudeBlock
	var s string
	switch {
	case len(content) == 0:
	case content[0] == '"' && json.Unmarshal(content, &s) == nil:
		return []claudeBlock{{Type: "text", Text: s}}
	case content[0] == '[':
		var parts []json.RawMessage
		_ = json.Unmarshal(content, &parts)
		for _, part := range parts {
			var b claudeBlock
			_ = json.Unmarshal(part, &b)
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// prompt is what a person wrote, if the record is the beginning of a turn.
func (r *claudeRecord) prompt() (string, bool) {
	if r.Type != "user" || r.IsMeta || r.IsSidechain || r.IsCompactSummary || r.Origin.Kind != "" && r.Origin.Kind != "human" {
		return "", false
	}
	var texts []string
	for _, b := range claudeBlocks(r.Message.Content) {
		switch b.Type {
		case "tool_result":
			return "", false
		case "text":
			texts = append(texts, b.Text)
		case "image":
			texts = append(texts, "[image]")
		}
	}
	text := strings.TrimSpace(strings.Join(texts, "\n"))
	for _, prefix := range []string{"<command-name>", "<local-command-", "<task-notification>", "<system-reminder>", "[Request interrupted"} {
		if strings.HasPrefix(text, prefix) {
			return "", false
		}
	}
	return text, text != ""
}

// messages are what people read of the record.
func (r *claudeRecord) messages() []Message {
	var all []Message
	add := func(role transcript.Role, text string) {
		m := Message{ID: r.UUID, Role: role, Text: text, Time: when(r.Timestamp)}
		if len(all) > 0 {
			m.ID += "-" + strconv.Itoa(len(all))
		}
		all = append(all, m)
	}
	if r.IsMeta {
		return nil
	}
	switch r.Type {
	case "user", "assistant":
	case "system":
		if r.Subtype == "compact_boundary" {
			add(transcript.RoleSystem, "the conversation was compacted here")
		}
		return all
	default:
		return nil
	}
	speaker := transcript.RoleAgent
	if r.Type == "user" {
		speaker = transcript.RoleUser
		if _, person := r.prompt(); !person {
			speaker = transcript.RoleSystem
		}
	}
	for _, b := range claudeBlocks(r.Message.Content) {
		switch b.Type {
		case "text":
			add(speaker, b.Text)
		case "image", "document":
			add(speaker, "["+b.Type+"]")
		case "tool_use", "server_tool_use":
			add(transcript.RoleTool, b.Name+" "+string(b.Input))
		case "tool_result":
			var parts []string
			for _, part := range claudeBlocks(b.Content) {
				if part.Type == "text" {
					parts = append(parts, part.Text)
				} else {
					parts = append(parts, "["+part.Type+"]")
				}
			}
			add(transcript.RoleTool, strings.Join(parts, "\n"))
		}
	}
	return all
}

// claudeKnows reports whether messages knows a type of blocks.
func claudeKnows(block string) bool {
	switch block {
	case "text", "image", "document", "tool_use", "server_tool_use", "tool_result", "thinking", "redacted_thinking":
		return true
	}
	return false
}

// name is the file of a conversation in its folder; ok is false for a name that
// is no conversation's.
func claudeID(name string) (string, bool) {
	id, ok := strings.CutSuffix(name, ".jsonl")
	return id, ok && uuid.Validate(id) == nil && len(id) == 36
}

func (s *claudeStore) Conversations(ctx context.Context, folder string) iter.Seq2[Conversation, error] {
	return func(yield func(Conversation, error) bool) {
		dirs := []string{}
		if folder != "" {
			dirs = append(dirs, claudeFolder(folder))
		} else {
			entries, err := s.entries(claudeProjects)
			if err != nil {
				yield(Conversation{}, err)
				return
			}
			for _, e := range entries {
				dirs = append(dirs, e.Name())
			}
		}
		live := s.live()
		seen := map[string]Conversation{}
		for _, dir := range dirs {
			entries, err := s.entries(path.Join(claudeProjects, dir))
			if err != nil {
				if folder == "" {
					continue // a file, or a folder that is not ours to read
				}
				yield(Conversation{}, err)
				return
			}
			for _, e := range entries {
				if ctx.Err() != nil {
					yield(Conversation{}, context.Cause(ctx))
					return
				}
				id, ok := claudeID(e.Name())
				if !ok {
					continue
				}
				c, ok := s.head(path.Join(claudeProjects, dir, e.Name()), id)
				if !ok || folder != "" && c.Folder != folder && claudeFolder(c.Folder) == dir {
					continue // another working directory, of the same name
				}
				if folder != "" {
					c.Folder = folder
				}
				c.Live = live[id]
				keepNewer(seen, c)
			}
		}
		for _, c := range seen {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// keepNewer files a conversation under its id; of two copies the one written
// last stays, and names the other.
func keepNewer(seen map[string]Conversation, c Conversation) {
	if o, twice := seen[c.ID]; twice {
		if o.UpdatedAt.After(c.UpdatedAt) {
			o, c = c, o
		}
		c.Also = append(append(c.Also, o.Also...), o.File)
		slices.Sort(c.Also)
	}
	seen[c.ID] = c
}

// head is what the beginning and the end of a file tell; ok is false where the
// file holds no conversation of its own.
func (s *claudeStore) head(name, id string) (c Conversation, ok bool) {
	c = Conversation{ID: id, File: s.path(name), Messages: -1}
	file, info, err := s.open(name)
	if err != nil {
		c.Problem = problem(err)
		return c, true
	}
	defer file.Close()
	c.Bytes, c.UpdatedAt = info.Size(), info.ModTime().UTC()
	dir := path.Base(path.Dir(name))
	chain, side := false, false
	for line, err := range Lines(io.LimitReader(section(file, info.Size()), headBytes), nil) {
		if err != nil {
			c.Problem = problem(err)
			return c, true
		}
		objects, _ := Objects(line.Bytes)
		for _, o := range objects {
			var r claudeRecord
			decode(o, &r)
			if c.CreatedAt.IsZero() {
				c.CreatedAt = when(r.Timestamp)
			}
			if r.Cwd != "" && (c.Folder == "" || claudeFolder(c.Folder) != dir) {
				c.Folder = r.Cwd
			}
			if r.inChain() {
				chain, side = true, side || r.IsSidechain
			}
			if prompt, ok := r.prompt(); ok && c.Title == "" {
				c.Title = titleOf(prompt)
			}
		}
		if c.Title != "" && c.Folder != "" && claudeFolder(c.Folder) == dir {
			break
		}
	}
	for line, err := range Lines(tailOf(file, info.Size()), nil) {
		if err != nil {
			break // what the head told will do
		}
		objects, _ := Objects(line.Bytes)
		for _, o := range objects {
			var r claudeRecord
			decode(o, &r)
			if r.Type == "custom-title" && r.CustomTitle != "" {
				c.Title = r.CustomTitle
			}
			if r.Type == "assistant" && r.Message.Model != "" {
				c.Model = r.Message.Model
			}
			if r.Cwd != "" && claudeFolder(c.Folder) != dir {
				c.Folder = r.Cwd
			}
			if r.inChain() {
				chain = true
			}
		}
	}
	if title := s.customTitle(name); title != "" {
		c.Title = title
	}
	if info.Size() == 0 || !chain && info.Size() < headBytes {
		c.Problem = "empty"
	}
	return c, !side
}

// customTitle is the title that a person gave, where it is in a file of its own.
func (s *claudeStore) customTitle(name string) string {
	data, err := s.read(path.Join(strings.TrimSuffix(name, ".jsonl"), "custom-title.json"), 64<<10)
	if err != nil {
		return ""
	}
	var t struct {
		CustomTitle string `json:"customTitle"`
	}
	_ = json.Unmarshal(data, &t)
	return t.CustomTitle
}

// titleLength bounds a title that is made of what was said, in characters.
const titleLength = 80

// titleOf makes a title of a message.
func titleOf(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > titleLength {
		text = strings.TrimSpace(string(runes[:titleLength-1])) + "…"
	}
	return text
}

// problem is why a file cannot be read, without its path.
func problem(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return err.Error()
}

// live are the ids of the conversations that processes hold. The agent notes
// them in files that a killed process leaves behind; the start time of the
// process tells those apart, where the system tells it.
func (s *claudeStore) live() map[string]bool {
	entries, err := s.entries("sessions")
	if err != nil {
		return nil
	}
	ids := map[string]bool{}
	for _, e := range entries {
		if path.Ext(e.Name()) != ".json" {
			continue // such as a key, which is nobody's business
		}
		data, err := s.read(path.Join("sessions", e.Name()), 64<<10)
		if err != nil {
			continue
		}
		var p struct {
			PID       int             `json:"pid"`
			SessionID string          `json:"sessionId"`
			Start     json.RawMessage `json:"procStart"`
		}
		if json.Unmarshal(data, &p) == nil && p.SessionID != "" && startTime(p.PID) == strings.Trim(string(p.Start), `"`) {
			ids[p.SessionID] = true
		}
	}
	return ids
}

// startTime is when a process was started, in ticks since the system was; "-"
// where there is no such process or the system does not tell.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "-"
	}
	// The program's name is in brackets and may have blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const field = 22 - 3
	if len(fields) <= field {
		return "-"
	}
	return fields[field]
}

// find is the file of a conversation: of several copies, the one written last.
func (s *claudeStore) find(ctx context.Context, id string) (Conversation, string, error) {
	if _, ok := claudeID(id + ".jsonl"); !ok {
		return Conversation{}, "", ErrNotFound
	}
	dirs, err := s.entries(claudeProjects)
	if err != nil {
		return Conversation{}, "", err
	}
	seen := map[string]Conversation{}
	names := map[string]string{}
	for _, d := range dirs {
		name := path.Join(claudeProjects, d.Name(), id+".jsonl")
		if _, err := s.root.Stat(name); err != nil {
			continue
		}
		c, _ := s.head(name, id)
		names[c.File] = name
		keepNewer(seen, c)
	}
	c, ok := seen[id]
	if !ok {
		return c, "", ErrNotFound
	}
	return c, names[c.File], ctx.Err()
}

func (s *claudeStore) Read(ctx context.Context, id string, w *Writer) (*transcript.Document, error) {
	c, name, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	file, info, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for _, other := range c.Also {
		w.Note("an older copy of the conversation was left aside: %s", other)
	}
	var tree claudeTree
	for line, err := range Lines(section(file, info.Size()), nil) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		objects, _ := Objects(line.Bytes)
		for _, o := range objects {
			tree.add(o)
		}
	}
	tree.settle()
	if err := s.readLines(ctx, section(file, info.Size()), &tree, w, &c); err != nil {
		return nil, err
	}
	if err := s.readSide(strings.TrimSuffix(name, ".jsonl"), "", w); err != nil {
		return nil, err
	}
	return w.Finish(claudeCode{}.ID(), c)
}

// readLines reads the conversation itself.
func (s *claudeStore) readLines(ctx context.Context, r io.Reader, tree *claudeTree, w *Writer, c *Conversation) error {
	half := func(number int) {
		w.Note("line %d, the last one, is not complete yet: it was left out", number)
	}
	shown := map[claudeKey]bool{}
	for line, err := range Lines(r, half) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = w.Record(transcript.ListLines, line.Bytes)
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
			var rec claudeRecord
			decode(o, &rec)
			if rec.Type == "custom-title" && rec.CustomTitle != "" {
				c.Title = rec.CustomTitle
			}
			if !rec.inChain() || rec.IsSidechain || tree.dropped(rec.UUID) {
				continue
			}
			if key := keyOf(rec.UUID); shown[key] {
				w.Repeated()
				continue
			} else {
				shown[key] = true
			}
			if rec.Type == "assistant" && rec.Message.Model != "" {
				c.Model = rec.Message.Model
			}
			for _, b := range claudeBlocks(rec.Message.Content) {
				if !claudeKnows(b.Type) {
					w.Note("content of the type %q is kept, but not shown", b.Type)
				}
			}
			for _, m := range rec.messages() {
				if err := w.Message(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sideBytes bounds a file beside a conversation.
const sideBytes = 64 << 20

// readSide reads the files that belong to a conversation: those of sub-agents,
// long tool results, the title.
func (s *claudeStore) readSide(dir, below string, w *Writer) error {
	entries, err := s.entries(path.Join(dir, below))
	if err != nil {
		return nil // no folder: there are none
	}
	for _, e := range entries {
		name := path.Join(below, e.Name())
		if e.IsDir() {
			if err := s.readSide(dir, name, w); err != nil {
				return err
			}
			continue
		}
		data, err := s.read(path.Join(dir, name), sideBytes)
		if err != nil {
			w.Note("the file %s beside the conversation was left out: %s", name, problem(err))
			continue
		}
		if err := w.File(name, data); err != nil {
			return err
		}
	}
	return nil
}
