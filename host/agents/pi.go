package agents

import (
	"cmp"
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
	"strings"

	"github.com/google/uuid"

	"sess/store/transcript"
)

// pi reads the coding agent pi, as version 0.73.1 writes it: one JSON Lines file
// of entries for each conversation, in a folder for each working directory.
type pi struct{}

func (pi) ID() string   { return "pi" }
func (pi) Name() string { return "pi" }

func (pi) DefaultHome(env Env) string {
	if dir := cmp.Or(env.get("PI_CODING_AGENT_SESSION_DIR"), env.get("PI_CODING_AGENT_DIR")); dir != "" {
		if rest, ok := strings.CutPrefix(dir, "~"); ok && env.UserHome != "" && (rest == "" || rest[0] == '/') {
			return filepath.Join(env.UserHome, rest)
		}
		return dir
	}
	if env.UserHome == "" {
		return ""
	}
	return filepath.Join(env.UserHome, ".pi", "agent")
}

// Open opens pi's folder, or one that a user told pi to keep sessions in: that
// one has them all side by side.
func (pi) Open(home string) (Store, error) {
	f, err := openFolder(home)
	if err != nil {
		return nil, err
	}
	s := &piStore{folder: f}
	if info, err := f.root.Stat(piSessions); err == nil && info.IsDir() || !s.holds(".") {
		s.byFolder = true
	}
	return s, nil
}

type piStore struct {
	*folder
	byFolder bool // sessions lie in a folder for each working directory
}

const (
	piSessions = "sessions"
	piSuffix   = ".jsonl"
	// piVersion is the newest version of entries that pi writes.
	piVersion = 3
	// piHeader is how much of a file pi reads to find the header of the most recent
	// session, in bytes.
	piHeader = 512
)

// holds reports whether sessions lie in a folder.
func (s *piStore) holds(dir string) bool {
	entries, _ := s.entries(dir)
	return slices.ContainsFunc(entries, piFile)
}

func piFile(e fs.DirEntry) bool {
	return strings.HasSuffix(e.Name(), piSuffix) && !strings.HasPrefix(e.Name(), ".") && !e.IsDir()
}

// piFolder is the name of the folder for a working directory. Two directories
// can have the same.
func piFolder(cwd string) string {
	if cwd != "" && (cwd[0] == '/' || cwd[0] == '\\') {
		cwd = cwd[1:]
	}
	return "--" + strings.NewReplacer("/", "-", `\`, "-", ":", "-").Replace(cwd) + "--"
}

// dir is where the sessions of a working directory lie.
func (s *piStore) dir(cwd string) string {
	if !s.byFolder {
		return "."
	}
	return path.Join(piSessions, piFolder(cwd))
}

// dirs are all folders that sessions lie in.
func (s *piStore) dirs() ([]string, error) {
	if !s.byFolder {
		return []string{"."}, nil
	}
	entries, err := s.entries(piSessions)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, path.Join(piSessions, e.Name()))
		}
	}
	return dirs, nil
}

func (s *piStore) Conversations(ctx context.Context, folder string) iter.Seq2[Conversation, error] {
	return func(yield func(Conversation, error) bool) {
		dirs := []string{s.dir(folder)}
		if folder == "" {
			var err error
			if dirs, err = s.dirs(); err != nil {
				yield(Conversation{}, err)
				return
			}
		}
		seen := map[string]Conversation{}
		for _, dir := range dirs {
			entries, err := s.entries(dir)
			if err != nil {
				if folder == "" {
					continue // a folder that is not ours to read
				}
				yield(Conversation{}, err)
				return
			}
			for _, e := range entries {
				if ctx.Err() != nil {
					yield(Conversation{}, context.Cause(ctx))
					return
				}
				if !piFile(e) {
					continue
				}
				c := s.head(path.Join(dir, e.Name()))
				if folder != "" && c.Folder != folder && (c.Folder != "" || !s.byFolder) {
					continue // another working directory, of the same name
				}
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

// piID is the id that a file's name has.
func piID(name string) string {
	id := strings.TrimSuffix(name, piSuffix)
	return id[strings.LastIndexByte(id, '_')+1:]
}

// head is what the beginning and the end of a file tell.
func (s *piStore) head(name string) Conversation {
	c := Conversation{ID: piID(path.Base(name)), File: s.path(name), Messages: -1}
	file, info, err := s.open(name)
	if err != nil {
		c.Problem = problem(err)
		return c
	}
	defer file.Close()
	c.Bytes, c.UpdatedAt = info.Size(), info.ModTime().UTC()
	headEntries(file, info.Size(), &c)
	return c
}

// headEntries reads the beginning and the end of a file of entries, or all of a
// small one.
func headEntries(file io.ReaderAt, size int64, c *Conversation) {
	if size == 0 {
		c.Problem = "empty"
		return
	}
	first, messages := true, 0
	name := ""
	read := func(r io.Reader, whole bool) error {
		for line, err := range Lines(r, nil) {
			if err != nil {
				return err
			}
			objects, _, _ := entryObjects(line.Bytes)
			for _, o := range objects {
				var h entryHead
				decode(o, &h)
				if first {
					first = false
					header, ok := h.header()
					if !ok {
						return errNoHeader
					}
					c.ID, c.Folder, c.CreatedAt = header.ID, header.Folder, header.CreatedAt
				}
				if model := h.model(); model != "" {
					c.Model = model
				}
				switch h.Type {
				case entrySessionInfo:
					name = h.Name
				case entryMessage:
					messages++
					if c.Title == "" && h.Message.Role == "user" {
						if item, ok := parseEntryItem(o); ok {
							c.Title = titleOf(item.text)
						}
					}
				}
			}
			if !whole && c.Title != "" {
				return nil
			}
		}
		return nil
	}
	whole := size <= headBytes
	err := read(io.NewSectionReader(file, 0, min(size, headBytes)), whole)
	if err == nil && first {
		err = errNoHeader
	}
	if err == nil && !whole {
		err = read(tailOf(file, size), true)
	}
	if err != nil {
		c.Problem = problem(err)
		return
	}
	if whole {
		c.Messages = messages
		if messages == 0 {
			c.Problem = "empty"
		}
	}
	c.Title = cmp.Or(titleOf(name), c.Title)
}

var errNoHeader = errors.New("its first line is no header of a session")

// find is the file of a conversation: of several copies, the one written last.
func (s *piStore) find(ctx context.Context, id string) (Conversation, string, error) {
	dirs, err := s.dirs()
	if err != nil {
		return Conversation{}, "", err
	}
	seen, names := map[string]Conversation{}, map[string]string{}
	look := func(named bool) error {
		for _, dir := range dirs {
			entries, err := s.entries(dir)
			if err != nil {
				continue // a folder that is not ours to read
			}
			for _, e := range entries {
				if err := ctx.Err(); err != nil {
					return err
				}
				if !piFile(e) || named != (piID(e.Name()) == id) {
					continue
				}
				name := path.Join(dir, e.Name())
				if c := s.head(name); c.ID == id {
					names[c.File] = name
					keepNewer(seen, c)
				}
			}
		}
		return nil
	}
	err = look(true)
	if err == nil && len(seen) == 0 {
		err = look(false) // pi does not mind a file of another name
	}
	if err != nil {
		return Conversation{}, "", err
	}
	c, ok := seen[id]
	if !ok {
		return c, "", ErrNotFound
	}
	return c, names[c.File], nil
}

func (s *piStore) Read(ctx context.Context, id string, w *Writer) (*transcript.Document, error) {
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
	t, err := readEntries(ctx, piRules, func(half func(int)) entryLines { return Lines(section(file, info.Size()), half) }, w)
	if err != nil {
		return nil, err
	}
	if t.header.ID == "" {
		w.Note("%s", errNoHeader)
	}
	if t.header.Version > piVersion {
		w.Note("it was written in version %d of pi's format: here %d is known", t.header.Version, piVersion)
	}
	c.Folder, c.Title, c.Model = t.header.Folder, cmp.Or(titleOf(t.name), c.Title), t.model
	return w.Finish(pi{}.ID(), c)
}

// Restore writes all entries with a new header, as pi's own --fork does. The
// branches stay, and the last line, which is the one that pi goes on from.
func (s *piStore) Restore(ctx context.Context, doc *transcript.Document, load transcript.Loader, to Target) (Restored, error) {
	c, err := copyEntries(ctx, piRules, doc, load)
	if err != nil {
		return Restored{}, err
	}
	t := c.tree
	switch {
	case t.header.Version > piVersion:
		return Restored{}, &RefusedError{fmt.Sprintf("it is in version %d of pi's format; the newest that is known here is %d", t.header.Version, piVersion)}
	case t.answers == 0:
		// It would write all of it once more with the first answer.
		return Restored{}, &RefusedError{"pi keeps no conversation that has no answer yet"}
	}
	if info, err := os.Stat(to.Folder); err != nil || !info.IsDir() {
		return Restored{}, &RefusedError{fmt.Sprintf("pi opens no conversation of a folder that is not there: %s", to.Folder)}
	}
	id := to.ID
	if id == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return Restored{}, err
		}
		id = made.String()
	}
	stamp := to.Now.UTC().Format("2006-01-02T15:04:05.000Z")
	header, err := transcript.EncodeJSON(struct {
		Type      string `json:"type"`
		Version   int    `json:"version,omitempty"`
		ID        string `json:"id"`
		Timestamp string `json:"timestamp"`
		CWD       string `json:"cwd"`
	}{entrySession, cmp.Or(t.header.Version, piVersion), id, stamp, to.Folder})
	if err != nil {
		return Restored{}, err
	}
	dir := s.path(s.dir(to.Folder))
	name := strings.NewReplacer(":", "-", ".", "-").Replace(stamp) + "_" + id + piSuffix
	err = writeNew(dir, name, func(w io.Writer) error {
		if err := writeLine(w, header); err != nil {
			return err
		}
		last := ""
		err := c.each(ctx, doc, load, func(object json.RawMessage, n *entryNode) error {
			last = n.id
			return writeLine(w, object)
		})
		if err != nil || to.Title == "" || to.Title == t.name || t.header.Version == 1 {
			return err
		}
		line, err := transcript.EncodeJSON(struct {
			Type      string `json:"type"`
			ID        string `json:"id"`
			Parent    string `json:"parentId"`
			Timestamp string `json:"timestamp"`
			Name      string `json:"name"`
		}{entrySessionInfo, t.freeID(), last, stamp, to.Title})
		if err != nil {
			return err
		}
		return writeLine(w, line)
	})
	if err != nil {
		return Restored{}, err
	}
	if len(header) >= piHeader {
		c.notes = append(c.notes, "the folder's name is so long that pi --continue does not find the conversation")
	}
	file := filepath.Join(dir, name)
	return Restored{ID: id, File: file, Resume: []string{"pi", "--session", file}, Notes: c.notes}, nil
}
