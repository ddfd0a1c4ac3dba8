package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"sess/store/transcript"
)

// openClaw reads OpenClaw. Version 2026.7.1 keeps JSON Lines files of entries
// and an index of them, version 2026.9.6 keeps the entries in a database for each
// of its agents. What the user deletes or begins anew stays as an archive.
type openClaw struct{}

func (openClaw) ID() string   { return "openclaw" }
func (openClaw) Name() string { return "OpenClaw" }

func (openClaw) DefaultHome(env Env) string {
	expand := func(dir string) string {
		if rest, ok := strings.CutPrefix(dir, "~"); ok && env.UserHome != "" && (rest == "" || rest[0] == '/') {
			return filepath.Join(env.UserHome, rest)
		}
		return dir
	}
	if dir := env.get("OPENCLAW_STATE_DIR"); dir != "" {
		return expand(dir)
	}
	if home := cmp.Or(expand(env.get("OPENCLAW_HOME")), env.UserHome); home != "" {
		return filepath.Join(home, ".openclaw")
	}
	return ""
}

func (openClaw) Open(home string) (Store, error) {
	f, err := openFolder(home)
	if err != nil {
		return nil, err
	}
	return &clawStore{f}, nil
}

type clawStore struct{ *folder }

const (
	clawAgents   = "agents"
	clawSessions = "sessions"
	clawIndex    = "sessions.json"
	clawDatabase = "agent/openclaw-agent.sqlite"
	clawMain     = "main" // the agent that is always there
	// clawLock is how old a lock of a session can be, as OpenClaw itself has it.
	clawLock = 30 * time.Minute
	// clawIndexBytes bounds the index.
	clawIndexBytes = 256 << 20
)

// The members of a document's header that say where a conversation was.
const (
	headerClawAgent = "openclawAgent"
	headerClawKey   = "sessionKey"
)

// clawConversation is a conversation and where it is.
type clawConversation struct {
	Conversation
	agent string // of OpenClaw's own
	name  string // of the file; "": it is in the database
	zstd  bool   // the file is compressed
}

// file is the name of a file of an agent.
func clawFile(agent, name string) string { return path.Join(clawAgents, agent, name) }

// conversations calls f with all conversations that want says yes to by their
// ids and keys, of which the file's name tells the id only.
func (s *clawStore) conversations(ctx context.Context, want func(id, key string) bool, f func(clawConversation)) error {
	agents, err := s.entries(clawAgents)
	if err != nil {
		return err
	}
	for _, e := range agents {
		if !e.IsDir() {
			continue
		}
		if err := s.inFiles(ctx, e.Name(), want, f); err != nil {
			return err
		}
		if err := s.inDatabase(ctx, e.Name(), want, f); err != nil {
			return err
		}
	}
	return nil
}

// clawEntry is what of an entry of the index, or of a node of the database, is
// shown.
type clawEntry struct {
	SessionID   string `json:"sessionId"`
	UpdatedAt   int64  `json:"updatedAt"` // epoch milliseconds
	Label       string `json:"label"`
	DisplayName string `json:"displayName"`
	key         string
}

// index reads the index of the files of an agent: entries by the ids of their
// sessions.
func (s *clawStore) index(agent string) map[string]clawEntry {
	byID := map[string]clawEntry{}
	data, err := s.read(path.Join(clawFile(agent, clawSessions), clawIndex), clawIndexBytes)
	if err != nil {
		return byID // the files tell enough
	}
	var byKey map[string]json.RawMessage
	_ = json.Unmarshal(data, &byKey)
	for key, raw := range byKey {
		var e clawEntry
		decode(raw, &e)
		e.key = key
		if e.SessionID != "" {
			byID[e.SessionID] = e
		}
	}
	return byID
}

// clawFileID is the id of the session in a file, and what became of it; "" where
// the file holds no session's entries.
func clawFileID(name string) (id, archived string) {
	id, rest, ok := strings.Cut(name, piSuffix)
	switch {
	case !ok || id == "" || strings.Contains(id, "."):
		return "", "" // such as a trajectory
	case rest == "":
		return id, ""
	case strings.HasSuffix(rest, ".lock"):
		return "", ""
	}
	for _, archived := range []string{"deleted", "reset"} {
		if strings.HasPrefix(rest, "."+archived+".") {
			return id, archived
		}
	}
	return "", ""
}

func (s *clawStore) inFiles(ctx context.Context, agent string, want func(id, key string) bool, f func(clawConversation)) error {
	dir := clawFile(agent, clawSessions)
	entries, err := s.entries(dir)
	if err != nil {
		return nil //nolint:nilerr // a folder that is not ours to read has none to show
	}
	locks := map[string]bool{}
	for _, e := range entries {
		locks[e.Name()] = strings.HasSuffix(e.Name(), ".lock")
	}
	index := s.index(agent)
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, archived := clawFileID(e.Name())
		in := index[id]
		if id == "" || !want(id, in.key) {
			continue
		}
		c := clawConversation{agent: agent, name: path.Join(dir, e.Name()), zstd: strings.HasSuffix(e.Name(), ".zst")}
		c.Conversation = Conversation{ID: id, Key: in.key, File: s.path(c.name), Messages: -1, Archived: archived}
		s.head(&c)
		c.Title = cmp.Or(in.Label, in.DisplayName, c.Title)
		if archived == "" {
			if in.UpdatedAt > 0 {
				c.UpdatedAt = time.UnixMilli(in.UpdatedAt).UTC()
			}
			c.Live = locks[e.Name()+".lock"] && s.held(c.name+".lock")
		}
		f(c)
	}
	return nil
}

// held reports whether a lock is one of a process that runs.
func (s *clawStore) held(name string) bool {
	info, err := s.root.Stat(name)
	return err == nil && time.Since(info.ModTime()) < clawLock
}

// head reads the beginning and the end of a file.
func (s *clawStore) head(c *clawConversation) {
	file, info, err := s.open(c.name)
	if err != nil {
		c.Problem = problem(err)
		return
	}
	defer file.Close()
	c.Bytes, c.UpdatedAt = info.Size(), info.ModTime().UTC()
	id := c.ID
	if !c.zstd {
		headEntries(file, info.Size(), &c.Conversation)
		c.ID = id // the name of the file is what OpenClaw goes by
		return
	}
	data, err := unzstd(file, headBytes)
	if err != nil {
		c.Problem = problem(err)
		return
	}
	headEntries(data, data.Size(), &c.Conversation)
	if data.Size() == headBytes {
		c.Messages = -1
	}
	c.ID = id
}

// unzstd returns the first bytes of what a compressed file holds.
func unzstd(file io.Reader, most int64) (*strings.Reader, error) {
	in, err := newUnzstd(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var data strings.Builder
	_, err = io.Copy(&data, io.LimitReader(in, most))
	return strings.NewReader(data.String()), err
}

// newUnzstd reads what OpenClaw has compressed. It holds no more than a window
// of 32 MB.
func newUnzstd(file io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(32<<20))
}

func (s *clawStore) Conversations(ctx context.Context, folder string) iter.Seq2[Conversation, error] {
	return func(yield func(Conversation, error) bool) {
		seen := map[string]Conversation{}
		err := s.conversations(ctx, func(string, string) bool { return true }, func(c clawConversation) {
			if folder == "" || c.Folder == folder {
				keepClaw(seen, c.Conversation)
			}
		})
		if err != nil {
			yield(Conversation{}, err)
			return
		}
		for _, c := range seen {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// keepClaw is [keepNewer], but that an archive never stands for a conversation
// that is there.
func keepClaw(seen map[string]Conversation, c Conversation) {
	if o, twice := seen[c.ID]; twice && (o.Archived == "") != (c.Archived == "") {
		if o.Archived == "" {
			o, c = c, o
		}
		c.Also = append(append(c.Also, o.Also...), o.File)
		seen[c.ID] = c
		return
	}
	keepNewer(seen, c)
}

// find is a conversation by its id or its key, which is the address that people
// give OpenClaw.
func (s *clawStore) find(ctx context.Context, id string) (clawConversation, error) {
	seen, all := map[string]Conversation{}, map[string]clawConversation{}
	want := func(has, key string) bool { return has == id || key == id }
	err := s.conversations(ctx, want, func(c clawConversation) {
		all[c.ID+" "+c.File] = c
		keepClaw(seen, c.Conversation)
	})
	if err != nil {
		return clawConversation{}, err
	}
	var found Conversation
	for _, c := range seen { // by a key, also the windows before
		if found.ID == "" || found.Archived != "" && c.Archived == "" || found.Archived == c.Archived && c.UpdatedAt.After(found.UpdatedAt) {
			found = c
		}
	}
	if found.ID == "" {
		return clawConversation{}, ErrNotFound
	}
	c := all[found.ID+" "+found.File]
	c.Also = found.Also
	return c, nil
}

func (s *clawStore) Read(ctx context.Context, id string, w *Writer) (*transcript.Document, error) {
	c, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, other := range c.Also {
		w.Note("another copy of the conversation was left aside: %s", other)
	}
	if c.Archived != "" {
		w.Note("OpenClaw does not go on with this conversation: it was %s", c.Archived)
	}
	var t *entryTree
	switch {
	case c.name == "":
		t, err = s.readDatabase(ctx, &c, w)
	case c.zstd:
		t, err = s.readZstd(ctx, &c, w)
	default:
		t, err = s.readFile(ctx, &c, w)
	}
	if err != nil {
		return nil, err
	}
	if t.header.Version > clawVersion {
		w.Note("it was written in version %d of OpenClaw's format: here %d is known", t.header.Version, clawVersion)
	}
	c.Folder, c.Model = t.header.Folder, t.model
	for key, value := range map[string]string{headerClawAgent: c.agent, headerClawKey: c.Key} {
		if value == "" {
			continue
		}
		if err := w.Header(key, value); err != nil {
			return nil, err
		}
	}
	return w.Finish(openClaw{}.ID(), c.Conversation)
}

func (s *clawStore) readFile(ctx context.Context, c *clawConversation, w *Writer) (*entryTree, error) {
	file, info, err := s.open(c.name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readEntries(ctx, clawRules, func(half func(int)) entryLines { return Lines(section(file, info.Size()), half) }, w)
}

func (s *clawStore) readZstd(ctx context.Context, c *clawConversation, w *Writer) (*entryTree, error) {
	file, info, err := s.open(c.name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := readEntries(ctx, clawRules, func(half func(int)) entryLines {
		return func(yield func(Line, error) bool) {
			in, err := newUnzstd(section(file, info.Size()))
			if err != nil {
				yield(Line{}, err)
				return
			}
			defer in.Close()
			for line, err := range Lines(in, half) {
				if !yield(line, err) {
					return
				}
			}
		}
	}, w)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrRewritten) {
		err = fmt.Errorf("%s: %w", c.File, err)
	}
	return t, err
}

// clawVersion is the newest version of entries that OpenClaw writes.
const clawVersion = 4
