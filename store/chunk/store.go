package chunk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/store/durable"
	"sess/store/transcript"
)

const (
	folder = ".chunks"
	suffix = ".zst"
	lock   = folder + "/.lock"
)

// ErrMissing is returned for a chunk that is not in the store.
var ErrMissing = errors.New("it is not in the store")

// DamagedError is a chunk that fails its check. It is transcript.ErrDamaged.
type DamagedError struct {
	ID     transcript.ID
	Path   string // of the file; empty for a frame that came from elsewhere
	Reason string
}

func (e *DamagedError) Error() string {
	name := "chunk " + string(e.ID)
	if e.Path != "" {
		name = "chunk " + e.Path
	}
	return name + " is damaged: " + e.Reason
}

// Is makes errors.Is(err, transcript.ErrDamaged) true.
func (e *DamagedError) Is(target error) bool { return target == transcript.ErrDamaged }

// damaged makes what is wrong with a frame an error of its chunk.
func damaged(id transcript.ID, path string, err error) error {
	if errors.Is(err, transcript.ErrNewer) {
		return fmt.Errorf("chunk %s: %w", id, err)
	}
	return &DamagedError{ID: id, Path: path, Reason: err.Error()}
}

// Options are settings of a store; the zero value is good.
type Options struct {
	// Writers is how many files of a batch are written at a time; 0 means 8.
	Writers int
	// Loose is how many chunks of a batch get a file each; those after them share
	// packs. 0 means 32, a negative number none.
	Loose int
}

// Store is the chunks of one folder. It holds nothing open. Safe for concurrent
// use, also across processes.
type Store struct {
	fs   durable.FS
	opts Options

	mu     sync.Mutex // guards what follows
	links  []string   // second names that go with the next sync
	packs  []*pack    // those that are known; replaced as a whole
	found  int        // counts packs that may not have lasted when they became known
	synced int        // how many of those do last: their folder was synced since
}

// Open returns the store of the folder that fsys stands for. The folder .chunks
// in it is made when first needed. The caller closes fsys when the store is no
// longer used.
func Open(fsys durable.FS, opts Options) *Store {
	if opts.Writers <= 0 {
		opts.Writers = 8
	}
	if opts.Loose == 0 {
		opts.Loose = 32
	}
	return &Store{fs: fsys, opts: opts}
}

// sweepTime is longer than any sweep takes.
const sweepTime = time.Minute

// Shared takes the lock of the store shared. It waits for the end of a sweep, at
// most a minute: then the error is a *durable.LockedError that names who sweeps.
// The lock is held from the first question for a chunk until the document that
// names it is published, and keeps the sweep away.
func (s *Store) Shared(ctx context.Context) (unlock func() error, err error) {
	unlock, err = durable.LockBriefly(ctx, s.fs, lock, durable.Shared, sweepTime)
	if errors.Is(err, fs.ErrNotExist) {
		if err := durable.MkdirAll(s.fs, folder); err != nil {
			return nil, err
		}
		unlock, err = durable.LockBriefly(ctx, s.fs, lock, durable.Shared, sweepTime)
	}
	if errors.Is(err, durable.ErrLocked) {
		return nil, &durable.LockedError{
			Path: "chunk folder " + filepath.Join(s.fs.Dir(), folder), Holder: durable.ReadHolder(s.fs, lock),
		}
	}
	return unlock, err
}

// TryExclusive takes the lock of the store exclusively if nobody holds it, and
// reports whether it did.
func (s *Store) TryExclusive() (unlock func() error, ok bool, err error) {
	if err := durable.MkdirAll(s.fs, folder); err != nil {
		return nil, false, err
	}
	unlock, err = durable.LockAs(context.Background(), s.fs, lock, "sweep", false)
	if errors.Is(err, durable.ErrLocked) {
		return nil, false, nil
	}
	return unlock, err == nil, err
}

// Sync makes durable which chunks are there. What was linked before needs its
// second name no longer.
func (s *Store) Sync() error {
	s.mu.Lock()
	links, found, synced := s.links, s.found, s.synced
	s.links = nil
	s.mu.Unlock()
	var err error
	if synced < found {
		if err = ignoreMissing(s.fs.SyncDir(packs)); err == nil {
			s.mu.Lock()
			s.synced = max(s.synced, found)
			s.mu.Unlock()
		}
	}
	if err == nil {
		err = s.fs.SyncDir(folder)
	}
	if err != nil {
		s.linked(links)
		return ignoreMissing(err) // none is there
	}
	s.unlink(links)
	return nil
}

// linked notes second names.
func (s *Store) linked(links []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, links...)
}

// unlink removes second names. One that cannot be removed does no harm, and is
// tried again.
func (s *Store) unlink(links []string) {
	for _, link := range links {
		if ignoreMissing(s.fs.Remove(link)) != nil {
			s.linked([]string{link})
		}
	}
}

// Relink brings back chunks that have a second name in the folder dir, see
// [Batch.CommitLinked], and are missing or damaged; then it syncs the store and
// removes the second names. All else in dir stays.
func (s *Store) Relink(dir string) error {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	var links []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		name, _, _ = strings.Cut(name, ".")
		id := transcript.ID(name)
		if !ok || !id.Valid() || !e.Type().IsRegular() {
			continue
		}
		link := path.Join(dir, e.Name())
		if err := s.restore(id, link); err != nil {
			return err
		}
		links = append(links, link)
	}
	if len(links) == 0 {
		return nil
	}
	if err := s.Sync(); err != nil {
		return err
	}
	s.unlink(links)
	return nil
}

// restore brings a chunk back by its second name, if it needs that.
func (s *Store) restore(id transcript.ID, link string) error {
	switch err := s.Check(id); {
	case err == nil, errors.Is(err, transcript.ErrNewer):
		return nil
	case !errors.Is(err, ErrMissing) && !errors.Is(err, transcript.ErrDamaged):
		return err
	}
	frame, err := durable.ReadFile(s.fs, link, maxFrame)
	if err != nil {
		return ignoreMissing(err) // somebody else was faster
	}
	if kind, err := verify(id, frame); err != nil || kind == transcript.KindIndex {
		return nil // this one is no better
	}
	if err := durable.MkdirAll(s.fs, folder); err != nil {
		return err
	}
	// It needs no space: the disk may be full.
	return ignoreMissing(durable.Move(s.fs, link, folder+"/"+string(id)+suffix))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// file is the name of a chunk's file.
func file(id transcript.ID) (string, error) {
	if !id.Valid() {
		return "", fmt.Errorf("%.70q is not a chunk id", string(id))
	}
	return folder + "/" + string(id) + suffix, nil
}

// Has reports whether the chunk is there. A file too short to be one, as a crash
// of other programs may leave, is not.
func (s *Store) Has(id transcript.ID) (bool, error) {
	missing, err := s.Missing([]transcript.ID{id})
	return err == nil && len(missing) == 0, err
}

// Missing returns those of the ids whose chunks are not there, each once. If
// an index chunk is there, so are the chunks that it names.
func (s *Store) Missing(ids []transcript.ID) ([]transcript.ID, error) {
	for known := s.known(); ; {
		missing, err := s.absent(known, ids)
		if err != nil || len(missing) == 0 {
			return nil, err
		}
		now, err := s.lookForPacks()
		if err != nil {
			return nil, err
		}
		if slices.Equal(now, known) {
			return missing, nil
		}
		ids, known = missing, now
	}
}

// absent is Missing by these packs.
func (s *Store) absent(known []*pack, ids []transcript.ID) ([]transcript.ID, error) {
	var missing []transcript.ID
	asked := make(map[transcript.ID]bool, len(ids))
	there := map[*pack]bool{}
	for _, id := range ids {
		if asked[id] {
			continue
		}
		asked[id] = true
		has, err := s.hasPacked(known, id, there)
		if err == nil && !has {
			has, err = s.hasLoose(id)
		}
		if err != nil {
			return nil, err
		}
		if !has {
			missing = append(missing, id)
		}
	}
	return missing, nil
}

func (s *Store) hasLoose(id transcript.ID) (bool, error) {
	name, err := file(id)
	if err != nil {
		return false, err
	}
	info, err := s.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Mode().IsRegular() && info.Size() > headerSize, err
}

// Plain returns a chunk's plain bytes, checked by SHA-256. It is a
// transcript.Loader. Errors: ErrMissing, *[DamagedError], transcript.ErrNewer.
func (s *Store) Plain(id transcript.ID) ([]byte, error) {
	buf := buffer()
	defer release(buf)
	frame, where, err := s.read(*buf, id)
	if err != nil {
		return nil, err
	}
	*buf = frame
	_, plain, err := decode(nil, id, frame)
	if err != nil {
		return nil, damaged(id, where, err)
	}
	return plain, nil
}

// Frame returns a chunk as it lies on the disk, checked by its fast checksum
// only. Errors are those of Plain.
func (s *Store) Frame(id transcript.ID) ([]byte, error) {
	frame, where, err := s.read(nil, id)
	if err != nil {
		return nil, err
	}
	if _, err := Check(frame); err != nil {
		return nil, damaged(id, where, err)
	}
	return frame, nil
}

// Check reads a chunk and checks it by its fast checksum. Errors are those of
// Plain.
func (s *Store) Check(id transcript.ID) error { return s.check(id, s.read) }

// checkKnown is Check by the packs that are known.
func (s *Store) checkKnown(id transcript.ID) error {
	known := s.known()
	return s.check(id, func(buf []byte, id transcript.ID) ([]byte, string, error) { return s.readFrom(buf, known, id) })
}

func (s *Store) check(id transcript.ID, read func([]byte, transcript.ID) ([]byte, string, error)) error {
	buf := buffer()
	defer release(buf)
	frame, where, err := read(*buf, id)
	if err != nil {
		return err
	}
	*buf = frame
	if _, err := Check(frame); err != nil {
		return damaged(id, where, err)
	}
	return nil
}

// read appends a chunk's frame to buf, which is empty, and says where it lies.
func (s *Store) read(buf []byte, id transcript.ID) (frame []byte, where string, err error) {
	for known := s.known(); ; {
		frame, where, err = s.readFrom(buf, known, id)
		if !errors.Is(err, ErrMissing) {
			return frame, where, err
		}
		// Others look for packs as well, so what counts is which ones were looked into.
		now, lookErr := s.lookForPacks()
		if lookErr != nil {
			return nil, where, lookErr
		}
		if slices.Equal(now, known) {
			return nil, where, err
		}
		known = now
	}
}

// readFrom is read by these packs. One that is damaged in a pack may be there once
// more: that is how it is replaced.
func (s *Store) readFrom(buf []byte, known []*pack, id transcript.ID) (frame []byte, where string, err error) {
	name, err := file(id)
	if err != nil {
		return nil, "", err
	}
	bad, badWhere, err := s.readPacked(buf, known, id)
	if err != nil {
		return nil, badWhere, err
	}
	if bad != nil {
		if _, err := Check(bad); err == nil || errors.Is(err, transcript.ErrNewer) {
			return bad, badWhere, nil
		}
		bad, buf = slices.Clone(bad), bad[:0]
	}
	where = s.path(name)
	frame, err = durable.AppendFile(buf, s.fs, name, maxFrame)
	if err == nil {
		return frame, where, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if bad != nil {
			return bad, badWhere, nil
		}
		return nil, where, fmt.Errorf("chunk %s: %w", where, ErrMissing)
	}
	if info, statErr := s.fs.Stat(name); statErr == nil && info.Size() > maxFrame {
		return nil, where, &DamagedError{ID: id, Path: where, Reason: fmt.Sprintf("it has %d bytes, more than the limit of %d", info.Size(), maxFrame)}
	}
	return nil, where, err
}

func (s *Store) path(name string) string {
	return filepath.Join(s.fs.Dir(), filepath.FromSlash(name))
}

// kind returns what a chunk holds, by its header alone.
func (s *Store) kind(id transcript.ID) (transcript.Kind, error) {
	name, err := file(id)
	if err != nil {
		return 0, err
	}
	where := s.path(name)
	head, _, err := durable.ReadHead(s.fs, name, headerSize)
	if errors.Is(err, fs.ErrNotExist) {
		// No pack has index chunks, and a frame in one is read whole as fast.
		head, where, err = s.read(nil, id)
	}
	if err != nil {
		return 0, err
	}
	kind, _, err := header(head)
	if err != nil {
		return 0, damaged(id, where, err)
	}
	return kind, nil
}

// IDs iterates over the chunks that are there, in order of their ids; at the
// first error it ends. What else lies in the folder is passed over.
func (s *Store) IDs() iter.Seq2[transcript.ID, error] {
	return func(yield func(transcript.ID, error) bool) {
		var known []*pack
		entries, err := s.entries()
		if err == nil {
			known, err = s.lookForPacks()
		}
		if err != nil {
			yield("", err)
			return
		}
		var ids []transcript.ID
		for _, e := range entries {
			if id, ok := idOf(e); ok {
				ids = append(ids, id)
			}
		}
		for _, p := range known {
			for i := range p.len() {
				k, _, _ := p.at(i)
				ids = append(ids, k.id())
			}
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if !yield(id, nil) {
				return
			}
		}
	}
}

func (s *Store) entries() ([]fs.DirEntry, error) {
	entries, err := s.fs.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

func idOf(e fs.DirEntry) (transcript.ID, bool) {
	name, ok := strings.CutSuffix(e.Name(), suffix)
	id := transcript.ID(name)
	return id, ok && id.Valid() && e.Type().IsRegular()
}

func entryFile(e fs.DirEntry) string { return path.Join(folder, e.Name()) }
