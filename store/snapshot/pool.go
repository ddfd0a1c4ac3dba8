package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

// What a pool's folder holds.
const (
	suffix    = ".sess.json"
	trashDir  = ".trash"
	opsDir    = ".ops"
	namesLock = ".lock"
	pruneFile = ".prune.json"
)

const (
	headBytes   = 4 << 10   // what a list reads of a file
	longHead    = 128 << 10 // what it reads of one whose meta is longer
	maxDocument = 256 << 20 // a longer file is no document
	lockWait    = 15 * time.Second
	maxRecent   = 1024 // sessions

	maxKept      = 8         // documents
	maxKeptBytes = 512 << 10 // of one
)

// Options configure a [Pool]. The zero value is ready to use.
type Options struct {
	// FS opens the folder; nil means the file system.
	FS durable.OpenFunc
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger gets what an operator may want to look at; nil means none.
	Logger *slog.Logger
	// TrashKeep is how long the caller keeps the trash; it only fills
	// [TrashEntry.Expires]. 0 means for ever.
	TrashKeep time.Duration
	// Chunks says how chunks are kept; the zero value is good.
	Chunks chunk.Options
}

// Pool is a folder of named snapshots. It is safe for concurrent use, also by
// other processes on the same folder.
type Pool struct {
	fs     durable.FS
	chunks *chunk.Store
	opts   Options

	buffers sync.Pool // of *[]byte, to read documents into

	mu     sync.Mutex      // guards what follows
	recent map[string]Name // by session: what Follow looks at
	kept   []slot          // what was saved or read last, the newest last
	listed map[Name]head   // what the last list read

	exactKnown, exactNames bool // see exact
}

// State says whether a snapshot can be used.
type State string

// The states.
const (
	StateOK      State = "ok"
	StateDamaged State = "damaged" // does not parse, or cannot be read
	StateNewer   State = "newer"   // written by a newer version
)

// Entry is a snapshot in a list.
type Entry struct {
	Name Name
	// Meta is as stored; of a damaged file only UpdatedAt is set, from the
	// file's own time.
	Meta    transcript.Meta
	State   State
	Problem string // what is wrong; empty when State is StateOK
	File    string // whole path
	Future  bool   // dated later than the clock says
	// Replaced is set by Save, Copy and Rename where the name held another
	// snapshot, which lies in the trash now.
	Replaced bool
}

// Snapshot is a document that was read, without its chunks.
type Snapshot struct {
	Name Name
	Doc  *transcript.Document
	File string // whole path
}

// Link refers to a snapshot by its name and immutable id.
type Link struct {
	Name Name   `json:"name"`
	ID   string `json:"id"`
}

// Progress is told how much of the work is done; nil means nobody asks. It is
// called from the goroutine that does the work.
type Progress func(done, total int)

// Open makes the folder dir if needed and opens it; it reads nothing. The caller
// closes the pool. A pool whose folder was removed stays without one: open it
// again.
func Open(dir string, o Options) (*Pool, error) {
	if o.FS == nil {
		o.FS = durable.OpenDir
	}
	return open(dir, o)
}

// OpenExisting is [Open] for a folder that must be there; its error is
// fs.ErrNotExist otherwise, and nothing is made.
func OpenExisting(dir string, o Options) (*Pool, error) {
	if o.FS == nil {
		o.FS = durable.OpenExisting
	} else if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("snapshot folder: %w", err)
	}
	return open(dir, o)
}

func open(dir string, o Options) (*Pool, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := durable.Tighten(dir, ours); err != nil {
		o.Logger.Warn("others may read snapshots", "dir", dir, "err", err)
	}
	fsys, err := o.FS(dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot folder: %w", err)
	}
	return &Pool{fs: fsys, chunks: chunk.Open(fsys, o.Chunks), opts: o}, nil
}

// ours reports whether an entry of the folder belongs to a pool, which may share
// its folder with anything.
func ours(name string) bool {
	switch name {
	case ".chunks", opsDir, trashDir, namesLock, namesLock + ".holder", pruneFile:
		return true
	}
	return strings.HasSuffix(name, suffix)
}

// Close releases the folder. Operations that are under way fail.
func (p *Pool) Close() error { return p.fs.Close() }

// Dir is the folder's path.
func (p *Pool) Dir() string { return p.fs.Dir() }

// saved notes under which name a session was saved last, for Follow. Nothing is
// decided by it.
func (p *Pool) saved(session string, name Name) {
	if session == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recent == nil || len(p.recent) >= maxRecent {
		p.recent = map[string]Name{}
	}
	p.recent[session] = name
}

// latest is what saved noted last; it may be gone by now.
func (p *Pool) latest(session string) Name {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent[session]
}

// keep remembers what a name holds, so that a file with the same bytes needs not
// be parsed when it is read the next time. Nothing else is decided by it.
func (p *Pool) keep(s slot) {
	if s.doc == nil || len(s.data) > maxKeptBytes {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = slices.DeleteFunc(p.kept, func(o slot) bool { return o.name == s.name })
	if len(p.kept) == maxKept {
		p.kept = slices.Delete(p.kept, 0, 1)
	}
	p.kept = append(p.kept, s)
}

// known is what keep remembered of a name.
func (p *Pool) known(name Name) slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.kept {
		if s.name == name {
			return s
		}
	}
	return slot{}
}

// now is the time as it is stored.
func (p *Pool) now() time.Time { return p.opts.Now().UTC().Truncate(time.Millisecond) }

// lock takes the names lock. Its holders are done in milliseconds; one that is
// not, as when its process was stopped, ends the wait with a
// *durable.LockedError that names it.
func (p *Pool) lock(ctx context.Context, operation string) (unlock func(), err error) {
	return p.lockFor(ctx, operation, lockWait)
}

// lockFor is lock for those with a patience of their own.
func (p *Pool) lockFor(ctx context.Context, operation string, patience time.Duration) (unlock func(), err error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	release, err := durable.LockAs(wait, p.fs, namesLock, operation, true)
	if held, ok := errors.AsType[*durable.LockedError](err); ok {
		return nil, &durable.LockedError{Path: "snapshot folder " + p.fs.Dir(), Holder: held.Holder}
	}
	if err != nil {
		return nil, err
	}
	return func() {
		if err := release(); err != nil {
			p.opts.Logger.Warn("names lock not released", "dir", p.fs.Dir(), "err", err)
		}
	}, nil
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func fileOf(n Name) string { return string(n) + suffix }

func (p *Pool) path(file string) string {
	return filepath.Join(p.fs.Dir(), filepath.FromSlash(file))
}

// names returns the names of all snapshots in the folder.
func (p *Pool) names() ([]Name, error) {
	entries, err := p.fs.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var names []Name
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || durable.Ignored(e.Name()) || !e.Type().IsRegular() || nameProblem(base) != "" {
			continue
		}
		names = append(names, Name(base))
	}
	return names, nil
}

// Count is the number of snapshots, damaged ones and those of a newer version
// included. It opens none of them.
func (p *Pool) Count() (int, error) {
	names, err := p.names()
	if err != nil {
		return 0, fmt.Errorf("count snapshots: %w", err)
	}
	return len(names), nil
}

// List returns all snapshots, the one updated last first. It reads only the
// heads of the files, and of those that look as they did when the list before
// read them nothing. Damaged ones and those of a newer version are listed with
// their state.
func (p *Pool) List(ctx context.Context) ([]Entry, error) {
	names, err := p.names()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	all := make([]Entry, len(names))
	gone := make([]bool, len(names)) // since the folder was read
	known, heads := p.heads(), make([]head, len(names))
	var readers sync.WaitGroup
	part := max(minPart, (len(names)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := 0; from < len(names); from += part {
		readers.Go(func() {
			for i := from; i < min(from+part, len(names)) && ctx.Err() == nil; i++ {
				var err error
				all[i], heads[i], err = p.describe(names[i], known)
				gone[i] = errors.Is(err, fs.ErrNotExist)
			}
		})
	}
	readers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	entries := make([]Entry, 0, len(all))
	known = make(map[Name]head, len(all))
	for i, e := range all {
		if !gone[i] {
			entries = append(entries, e)
		}
		if heads[i].info != nil {
			known[names[i]] = heads[i]
		}
	}
	p.setHeads(known)
	slices.SortFunc(entries, newestFirst)
	return entries, nil
}

// minPart is how many heads are worth a goroutine of their own.
const minPart = 64

func newestFirst(a, b Entry) int {
	return cmp.Or(b.Meta.UpdatedAt.Compare(a.Meta.UpdatedAt), cmp.Compare(b.Meta.ID, a.Meta.ID), cmp.Compare(a.Name, b.Name))
}

// entry describes the document in file. The only error is fs.ErrNotExist: what
// else is wrong with it is its state.
func (p *Pool) entry(name Name, file string) (Entry, error) {
	e, _, err := p.entryInfo(name, file)
	return e, err
}

// entryInfo is entry that says how the file looked when it was read, if it was.
func (p *Pool) entryInfo(name Name, file string) (Entry, fs.FileInfo, error) {
	e := Entry{Name: name, State: StateOK, File: p.path(file)}
	doc, info, err := p.head(file)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil, err
	}
	if err == nil {
		e.Meta = doc.Meta
		e.Future = e.Meta.UpdatedAt.After(p.opts.Now())
		return e, info, nil
	}
	e.State, e.Problem = StateDamaged, reason(err)
	if newer, ok := errors.AsType[*transcript.NewerError](err); ok {
		e.State, e.Problem = StateNewer, "written by a newer version (format "+newer.Format+")"
	}
	if info, err := p.fs.Stat(file); err == nil {
		e.Meta.UpdatedAt = info.ModTime().UTC().Truncate(time.Millisecond)
	}
	return e, nil, nil
}

// head reads as much of a document as its meta needs, and says how the file
// looked before.
func (p *Pool) head(file string) (*transcript.Document, fs.FileInfo, error) {
	var first fs.FileInfo
	for _, n := range []int{headBytes, longHead} {
		head, info, err := durable.ReadHead(p.fs, file, n)
		if err != nil {
			return nil, nil, err
		}
		if first == nil {
			first = info
		}
		if int64(len(head)) == info.Size() {
			doc, err := transcript.Decode(head)
			return doc, first, err
		}
		doc, complete, err := transcript.DecodeHead(head)
		if err != nil || complete {
			return doc, first, err
		}
	}
	data, err := durable.ReadFile(p.fs, file, maxDocument)
	if err != nil {
		return nil, nil, err
	}
	doc, err := transcript.Decode(data)
	return doc, first, err
}

// reason is an error's text without the path that the reader knows.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// slot is what a name holds. Nobody changes what it refers to.
type slot struct {
	name Name   // as it is stored: it may differ from what was asked for in case
	data []byte // the file's bytes; nil when the name is free
	doc  *transcript.Document
	err  error // *DamagedError or *NewerError; then doc is nil
}

// free reports whether nothing has the name, in whatever case.
func (s slot) free() bool { return s.name == "" }

// is reports whether the slot holds the snapshot of this id.
func (s slot) is(id string) bool { return s.doc != nil && s.doc.Meta.ID == id }

// look reads what a name holds.
func (p *Pool) look(name Name) (slot, error) {
	if p.exact() {
		if s, err := p.peek(name); err != nil || !s.free() {
			return s, err
		}
	}
	names, err := p.names()
	if err != nil {
		return slot{}, err
	}
	return p.lookIn(names, name)
}

// peek is look without reading the folder: a disk that ignores case gives it
// what lies there under another spelling of the name.
func (p *Pool) peek(name Name) (slot, error) { return p.lookIn([]Name{name}, name) }

// exact reports whether the folder tells names apart that differ in case alone, so
// that a file that opens has the very name: asked of a lock file, which is there
// while anything is changed, and true or false as long as the pool is open.
func (p *Pool) exact() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.exactKnown {
		if _, err := p.fs.Stat(namesLock); err != nil {
			return false
		}
		_, err := p.fs.Stat(strings.ToUpper(namesLock))
		p.exactNames, p.exactKnown = errors.Is(err, fs.ErrNotExist), err == nil || errors.Is(err, fs.ErrNotExist)
	}
	return p.exactNames
}

// lookIn is look where the names in the folder are known. On a disk that ignores
// case a file opens under any spelling, so the names decide.
func (p *Pool) lookIn(names []Name, name Name) (slot, error) {
	stored := spelling(names, name)
	buf := p.buffer()
	defer p.release(buf)
	data, err := durable.AppendFile((*buf)[:0], p.fs, fileOf(name), maxDocument)
	*buf = data[:0]
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if stored == name {
			stored = "" // it went since the folder was read
		}
		return slot{name: stored}, nil
	case errors.Is(err, durable.ErrNotRegular):
		return slot{}, &OccupiedError{Name: name, File: p.path(fileOf(name)), Err: err}
	case err != nil:
		return slot{}, err
	case stored != "" && stored != name:
		return slot{name: stored}, nil
	}
	if was := p.known(name); was.data != nil && bytes.Equal(data, was.data) {
		return was, nil
	}
	s := p.decode(name, bytes.Clone(data))
	p.keep(s)
	return s, nil
}

// buffer is one to read a document into; release gives it back.
func (p *Pool) buffer() *[]byte {
	if buf, ok := p.buffers.Get().(*[]byte); ok {
		return buf
	}
	return new([]byte)
}

func (p *Pool) release(buf *[]byte) {
	if cap(*buf) <= 2*maxKeptBytes {
		p.buffers.Put(buf)
	}
}

// spelling returns the name as it is stored: exactly, or else the same in
// another case, or else "".
func spelling(names []Name, name Name) Name {
	if slices.Contains(names, name) {
		return name
	}
	for _, n := range names {
		if strings.EqualFold(string(n), string(name)) {
			return n
		}
	}
	return ""
}

// decode makes a slot of a file's bytes.
func (p *Pool) decode(name Name, data []byte) slot {
	s := slot{name: name, data: data}
	doc, err := decodeChecked(data)
	if newer, ok := errors.AsType[*transcript.NewerError](err); ok {
		s.err = &NewerError{Name: name, File: p.path(fileOf(name)), Format: newer.Format}
		return s
	}
	if err != nil {
		s.err = &DamagedError{Name: name, File: p.path(fileOf(name)), Reason: err.Error(), Err: err}
		return s
	}
	s.doc = doc
	return s
}

// decodeChecked reads a document and holds it against its digest.
func decodeChecked(data []byte) (*transcript.Document, error) {
	doc, err := transcript.Decode(data)
	if err == nil && doc.Meta.Digest != "" && doc.Meta.Digest != doc.Digest() {
		err = errors.New("its content does not match its digest")
	}
	return doc, err
}

// Resolve finds the snapshot that text names exactly, or whose whole id it is.
// Its errors are *NotFoundError and *NameError, with near names, and
// *AmbiguousError.
func (p *Pool) Resolve(ctx context.Context, text string) (Name, error) {
	names, err := p.names()
	if err != nil {
		return "", fmt.Errorf("find snapshot %q: %w", text, err)
	}
	name, err := find(names, text)
	if _, missing := errors.AsType[*NotFoundError](err); !missing {
		return name, err
	}
	if id, bad := uuid.Parse(text); bad != nil || text != id.String() {
		return "", err
	}
	entries, listErr := p.List(ctx)
	if listErr != nil {
		return "", listErr
	}
	var found []Name
	for _, e := range entries {
		if e.Meta.ID == text {
			found = append(found, e.Name)
		}
	}
	switch len(found) {
	case 0:
		return "", err
	case 1:
		return found[0], nil
	}
	return "", &AmbiguousError{ID: text, Names: found}
}

// Find returns the error of looking for text where there are no snapshots.
func Find(text string) error {
	_, err := find(nil, text)
	return err
}

// find looks for a name among names.
func find(names []Name, text string) (Name, error) {
	name, err := ParseName(text) // ids are names too
	if bad, ok := errors.AsType[*NameError](err); ok {
		return "", &NameError{Text: text, Reason: bad.Reason, Near: near(bad.Suggestion, names)}
	}
	if slices.Contains(names, name) {
		return name, nil
	}
	return "", &NotFoundError{Text: text, Near: near(text, names)}
}

// Read returns a snapshot's whole document without its chunks. Its errors are
// *NotFoundError, *DamagedError and *NewerError; a file that cannot be read is a
// *DamagedError with the cause.
func (p *Pool) Read(ctx context.Context, name Name) (*Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if _, err := ParseName(string(name)); err != nil {
		return nil, err
	}
	file := fileOf(name)
	data, err := durable.ReadFile(p.fs, file, maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p.notFound(name)
	}
	if err != nil {
		return nil, &DamagedError{Name: name, File: p.path(file), Reason: reason(err), Err: err}
	}
	s := p.decode(name, data)
	if s.err != nil {
		return nil, s.err
	}
	return &Snapshot{Name: name, Doc: s.doc, File: p.path(file)}, nil
}

// notFound is the error for a name that is not there.
func (p *Pool) notFound(name Name) error {
	names, err := p.names()
	if err != nil {
		return fmt.Errorf("find snapshot %q: %w", string(name), err)
	}
	return &NotFoundError{Text: string(name), Near: near(string(name), names)}
}

// Check reads every chunk of a snapshot: each must be there and pass its fast
// checksum; those that have to be decoded on the way pass their SHA-256 too. The
// error is a *DamagedError.
func (p *Pool) Check(ctx context.Context, s *Snapshot, progress Progress) error {
	damaged := func(err error) error {
		return &DamagedError{Name: s.Name, File: s.File, Reason: err.Error(), Err: err}
	}
	var ids []transcript.ID
	seen := map[transcript.ID]bool{}
	for id, err := range s.Doc.ChunkIDs(p.chunks.Plain) {
		if err != nil {
			return damaged(err)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for i, id := range ids {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := p.chunks.Check(id); err != nil {
			return damaged(err)
		}
		if progress != nil {
			progress(i+1, len(ids))
		}
	}
	return nil
}

// Plain returns a chunk's plain bytes, checked by SHA-256.
func (p *Pool) Plain(id transcript.ID) ([]byte, error) { return p.chunks.Plain(id) }

// PlainFrame returns the plain bytes of a stored chunk, of this store or another
// one, checked by SHA-256.
func PlainFrame(id transcript.ID, frame []byte) ([]byte, error) {
	_, plain, err := chunk.Decode(id, frame)
	return plain, err
}

// Frame returns a chunk as it is stored, checked by its fast checksum.
func (p *Pool) Frame(id transcript.ID) ([]byte, error) { return p.chunks.Frame(id) }
