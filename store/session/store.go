package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

// Options configure a Store. The zero value works.
type Options struct {
	FS     durable.OpenFunc // default durable.OpenDir
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: discard
	// Chunks says how chunks are kept; the zero value is good.
	Chunks chunk.Options
	// Made is told of each session that was made here; nil is nobody. It must not
	// wait for the session.
	Made func(Ref)
}

// Store is a folder of live sessions. It is safe for concurrent use, also by
// several processes. Its methods check a Ref and return an *IDError for one
// that cannot name a session.
type Store struct {
	fs     durable.FS
	chunks *chunk.Store
	now    func() time.Time
	log    *slog.Logger
	made   func(Ref)
	queue  queue
}

// The folders of a store that hold no sessions.
const (
	locksDir = ".locks"
	trashDir = ".trash"
)

// Open opens the folder dir, which is made if absent; nothing in it is read yet.
// The caller closes the store.
func Open(dir string, o Options) (*Store, error) {
	open := o.FS
	if open == nil {
		open = durable.OpenDir
	}
	s := &Store{now: o.Now, log: o.Logger}
	if s.now == nil {
		s.now = time.Now
	}
	if s.made = o.Made; s.made == nil {
		s.made = func(Ref) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := durable.Tighten(dir, func(string) bool { return true }); err != nil {
		s.log.Warn("others may read sessions", "dir", dir, "err", err)
	}
	fsys, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of sessions: %w", err)
	}
	s.fs = fsys
	s.chunks = chunk.Open(fsys, o.Chunks)
	return s, nil
}

// Dir is the store's folder, for messages.
func (s *Store) Dir() string { return s.fs.Dir() }

// Flush waits until the calls of clients that were made have ended, or ctx ends.
func (s *Store) Flush(ctx context.Context) error { return s.queue.flush(ctx) }

// Close releases the folder. Locks and stages have to end before.
func (s *Store) Close() error { return s.fs.Close() }

// file is the name of a session's file in the store.
func (r Ref) file() string { return r.Project + "/" + r.ID + fileSuffix }

// folder is where a session's event logs are.
func (r Ref) folder() string { return r.Project + "/" + r.ID }

// hash names a session where its own names would not do, as in one folder for
// all projects.
func (r Ref) hash() string { return shortHash(r.Project, r.ID) }

func shortHash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00"))) // no part has a NUL
	return hex.EncodeToString(sum[:16])
}

func (s *Store) path(name string) string {
	return filepath.Join(s.fs.Dir(), filepath.FromSlash(name))
}

// New returns a session that is not stored yet, for Create.
func (s *Store) New(ref Ref, title, cwd string) *Live {
	l := &Live{Ref: ref, Status: StatusIdle, store: s}
	l.Doc.Header = joinMembers([]member{
		{rawKey: []byte(`"title"`), value: encode(title)},
		{rawKey: []byte(`"cwd"`), value: encode(cwd)},
		{rawKey: []byte(`"artifacts"`), value: []byte("[]")},
	})
	for _, name := range []string{transcript.ListMessages, transcript.ListActivities, transcript.ListHistory} {
		l.Doc.List(name)
	}
	l.describe()
	return l
}

// Create stores a session that is not there yet, durably, with revision 1. It
// returns an *ExistsError if there is one, whatever state its file is in, and a
// *durable.LockedError if somebody is about to make it. An id that is not of the
// kind made here is an *IDError.
func (s *Store) Create(ctx context.Context, l *Live) error {
	if err := ParseID(l.Ref.ID); err != nil {
		return err
	}
	k, err := s.Lock(ctx, l.Ref, "create", false)
	if err != nil {
		return err
	}
	_, err = k.create(ctx, l)
	return errors.Join(err, k.Unlock())
}

// Read returns a session as stored, without a lock: a state that was committed
// as a whole. The error is a *NotFoundError, *DamagedError or *NewerError, or
// that of the file system.
func (s *Store) Read(ctx context.Context, ref Ref) (*Live, error) {
	l, _, err := s.read(ctx, ref)
	return l, err
}

// read returns the session and the content of its file.
func (s *Store) read(ctx context.Context, ref Ref) (*Live, image, error) {
	l, seen, unlock, err := s.readHeld(ctx, ref)
	if unlock != nil {
		err = errors.Join(err, unlock())
	}
	if _, ok := errors.AsType[*sealError](err); ok && ctx.Err() == nil {
		return s.whole(ctx, ref)
	}
	return l, seen, err
}

// readHeld is read. Where chunks of the session are in the store that its file
// does not refer to, unlock, which is nil otherwise, releases the lock that keeps
// them there.
func (s *Store) readHeld(ctx context.Context, ref Ref) (l *Live, seen image, unlock func() error, err error) {
	if err := errors.Join(ref.check(), ctx.Err()); err != nil {
		return nil, image{}, nil, err
	}
	seen, err = s.held(ref)
	switch {
	case err != nil:
		return nil, seen, nil, s.unreadable(ref, err)
	case !seen.known():
		return s.cut(ctx, ref)
	}
	l, err = s.decode(ref, seen.data)
	return l, seen, nil, err
}

func (s *Store) decode(ref Ref, data []byte) (*Live, error) {
	l, err := decode(ref, data)
	return s.decoded(ref, l, err)
}

// decoded is a session as it was decoded; what is wrong with its file becomes an
// error of the session.
func (s *Store) decoded(ref Ref, l *Live, err error) (*Live, error) {
	if newer, ok := errors.AsType[newerFormat](err); ok {
		return nil, &NewerError{Ref: ref, File: s.path(ref.file()), Format: string(newer)}
	}
	if err != nil {
		return nil, &DamagedError{Ref: ref, File: s.path(ref.file()), Reason: err.Error()}
	}
	l.store = s
	return l, nil
}

// readRunning is Read, and reports whether the turn that the session says runs
// does run.
func (s *Store) readRunning(ctx context.Context, ref Ref) (l *Live, running bool, err error) {
	return s.whileRunning(ctx, ref, s.read)
}

// outlineRunning is readRunning of an [Store.Outline].
func (s *Store) outlineRunning(ctx context.Context, ref Ref) (l *Live, running bool, err error) {
	return s.whileRunning(ctx, ref, func(ctx context.Context, ref Ref) (*Live, image, error) {
		l, seen, _, err := s.outline(ctx, ref)
		return l, seen, err
	})
}

func (s *Store) whileRunning(ctx context.Context, ref Ref, read func(context.Context, Ref) (*Live, image, error)) (l *Live, running bool, err error) {
	for {
		l, seen, err := read(ctx, ref)
		if err != nil || !interruptible(l.Status) {
			return l, false, err
		}
		if _, running, err = s.InUse(ref); err != nil || running {
			return l, running, err
		}
		// A turn that ended between the two questions has written the file.
		again, err := s.image(ctx, ref)
		if err == nil && again.equal(seen) {
			return l, false, nil
		}
	}
}

// Exists reports whether a session has a file, readable or not.
func (s *Store) Exists(ref Ref) (bool, error) {
	if err := ref.check(); err != nil {
		return false, err
	}
	return durable.Exists(s.fs, ref.file())
}

// Info is one line of a list of sessions.
type Info struct {
	Ref       Ref
	Title     string
	Status    string // one that nobody works on is never running
	Messages  int
	Bytes     int64 // plain bytes of the whole conversation
	Revision  int64
	CreatedAt int64  // epoch milliseconds
	UpdatedAt int64  // epoch milliseconds
	Problem   string // why the session cannot be read; empty: it can
}

// List lists the sessions of every project, newest first (by UpdatedAt, then by
// project and id). One that cannot be read is listed with its Problem, at the
// time its file was last written. Files that are not a session's are passed
// over.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	refs, err := s.refs(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Info, 0, len(refs))
	for _, ref := range refs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, running, err := s.outlineRunning(ctx, ref)
		if errors.Is(err, ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			info := Info{Ref: ref, Title: ref.ID, Status: StatusError, Problem: err.Error()}
			if fi, err := s.fs.Stat(ref.file()); err == nil {
				info.UpdatedAt = fi.ModTime().UnixMilli()
			}
			list = append(list, info)
			continue
		}
		status := l.Status
		if interruptible(status) && !running {
			status = StatusError
		}
		list = append(list, Info{
			Ref: ref, Title: l.Doc.Meta.Title, Status: status, Messages: l.Doc.Meta.Messages, Bytes: l.Doc.Meta.Bytes,
			Revision: l.Revision, CreatedAt: l.CreatedAt, UpdatedAt: l.UpdatedAt,
		})
	}
	slices.SortStableFunc(list, func(a, b Info) int {
		switch {
		case a.UpdatedAt > b.UpdatedAt:
			return -1
		case a.UpdatedAt < b.UpdatedAt:
			return 1
		}
		return strings.Compare(a.Ref.String(), b.Ref.String())
	})
	return list, nil
}

// Find returns the sessions of that id, in order of their projects. It reads no
// session, so a damaged one is found as well.
func (s *Store) Find(ctx context.Context, id string) ([]Ref, error) {
	refs, err := s.refs(ctx)
	return slices.DeleteFunc(refs, func(ref Ref) bool { return ref.ID != id }), err
}

// refs are the sessions that have a file, in order of project and id.
func (s *Store) refs(ctx context.Context) ([]Ref, error) {
	var refs []Ref
	projects, err := s.projects()
	if err != nil {
		return nil, err
	}
	for _, project := range projects {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found, err := s.refsOf(project)
		if err != nil {
			return nil, err
		}
		refs = append(refs, found...)
	}
	return refs, nil
}

// refsOf are the sessions of a project that have a file, in order of id.
func (s *Store) refsOf(project string) ([]Ref, error) {
	files, err := s.fs.ReadDir(project)
	if err != nil {
		return nil, fmt.Errorf("list the sessions of project %s: %w", project, err)
	}
	var refs []Ref
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), fileSuffix)
		ref := Ref{Project: project, ID: id}
		if ok && f.Type().IsRegular() && ref.check() == nil {
			refs = append(refs, ref)
		}
	}
	return refs, nil
}

func (s *Store) projects() ([]string, error) {
	entries, err := s.fs.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the projects: %w", err)
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() && checkSegment(e.Name(), projectID) == nil {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// SetAside renames a session file that is damaged to <id>.json.invalid-<ms> and
// returns its new path, so that the id can be used again and nothing is lost. It
// looks at the file again under the session's lock: one that is readable by
// then, or of a newer format, stays, and the path is empty.
func (s *Store) SetAside(ctx context.Context, ref Ref) (string, error) {
	k, err := s.Lock(ctx, ref, "set aside", false)
	if err != nil {
		return "", err
	}
	aside, err := k.setAside(ctx)
	return aside, errors.Join(err, k.Unlock())
}

// Frame returns a chunk as it lies on disk; only its fast checksum was checked.
func (s *Store) Frame(id transcript.ID) ([]byte, error) { return s.chunks.Frame(id) }

// Plain returns a chunk's plain bytes, checked by SHA-256. It is a
// [transcript.Loader].
func (s *Store) Plain(id transcript.ID) ([]byte, error) { return s.chunks.Plain(id) }

// nowMillis is the present time as sessions carry it.
func (s *Store) nowMillis() int64 { return s.now().UnixMilli() }

// freeName returns base, or base-2, base-3 … if that is taken.
func (s *Store) freeName(base string) (string, error) {
	name := base
	for n := 2; ; n++ {
		taken, err := durable.Exists(s.fs, name)
		if err != nil || !taken {
			return name, err
		}
		name = base + "-" + strconv.Itoa(n)
	}
}
