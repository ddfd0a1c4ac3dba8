package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"sess/store/durable"
	"sess/store/transcript"
)

// maxHeld is how large a session's file may be to be read as a whole. A file that
// this program wrote is smaller, unless its header is large; another program may
// have written a whole conversation into one. Such a file is read part by part,
// and what can be sealed of it is, so that the memory it takes does not depend on
// its size.
const maxHeld = 4 << 20

// image is the content of a session's file, for telling whether it has changed.
type image struct {
	data []byte // of a file that is held; nil: there is none, or it is too large
	sum  [sha256.Size]byte
	size int64 // of one that is too large; otherwise 0
}

func (i image) known() bool { return i.data != nil || i.size > 0 }

func (i image) equal(o image) bool {
	return i.size == o.size && i.sum == o.sum && bytes.Equal(i.data, o.data)
}

// held reads a session's file if it may be held. The image has no data if not.
func (s *Store) held(ref Ref) (image, error) {
	fi, err := s.fs.Stat(ref.file())
	if err != nil || fi.Size() > maxHeld {
		return image{}, err
	}
	data, err := durable.ReadFile(s.fs, ref.file(), 0)
	return image{data: data}, err
}

// image reads a session's file for what it is compared with.
func (s *Store) image(ctx context.Context, ref Ref) (image, error) {
	i, err := s.held(ref)
	if err != nil || i.known() {
		return i, err
	}
	f, err := s.fs.Open(ref.file())
	if err != nil {
		return image{}, err
	}
	defer f.Close()
	sum := sha256.New()
	if i.size, err = io.Copy(sum, reader{ctx, f}); err != nil {
		return image{}, err
	}
	sum.Sum(i.sum[:0])
	return i, nil
}

// reader reads until ctx ends.
type reader struct {
	ctx context.Context // it lasts as long as one call
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// arrays takes the records of a session's file as they come.
type arrays struct {
	begin  func(list string) error                      // also where an array comes twice: the last one counts
	record func(list string, r transcript.Record) error // r is lent
}

// scan reads a session's file part by part: its records go to take, all else is
// returned, with empty arrays where the records were.
func (s *Store) scan(ctx context.Context, ref Ref, sum hash.Hash, take arrays) (list []member, size int64, err error) {
	f, err := s.fs.Open(ref.file())
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	from := io.Reader(reader{ctx, f})
	if sum != nil {
		from = io.TeeReader(from, sum)
	}
	in := &jsonReader{r: from}
	list, err = in.session(take)
	return list, in.read, err
}

// outline reads a session's file for what it says beside the conversation. Where
// the file is too large to be held, the lists of the result lack the records that
// are not sealed, and whole is false; its Meta counts them.
func (s *Store) outline(ctx context.Context, ref Ref) (l *Live, seen image, whole bool, err error) {
	if err := errors.Join(ref.check(), ctx.Err()); err != nil {
		return nil, image{}, false, err
	}
	seen, err = s.held(ref)
	if err == nil && seen.known() {
		l, err := s.decode(ref, seen.data)
		return l, seen, true, err
	}
	var list []member
	type count struct {
		records int
		bytes   int64
	}
	counts := map[string]count{}
	if err == nil {
		sum := sha256.New()
		list, seen.size, err = s.scan(ctx, ref, sum, arrays{
			begin: func(name string) error {
				counts[name] = count{}
				return nil
			},
			record: func(name string, r transcript.Record) error {
				c := counts[name]
				counts[name] = count{c.records + 1, c.bytes + int64(len(r)) + 1}
				return nil
			},
		})
		sum.Sum(seen.sum[:0])
	}
	if err != nil {
		return nil, seen, false, s.unreadable(ref, err)
	}
	l, err = decodeMembers(ref, list)
	if l, err = s.decoded(ref, l, err); err != nil {
		return nil, seen, false, err
	}
	l.Doc.Meta.Messages += counts[keyMessages].records
	for _, c := range counts {
		l.Doc.Meta.Bytes += c.bytes
	}
	return l, seen, false, nil
}

// Outline is [Store.Read] for who wants to know of a session and not what was said
// in it: of its Doc only Header and Meta are to be looked at.
func (s *Store) Outline(ctx context.Context, ref Ref) (*Live, error) {
	l, _, _, err := s.outline(ctx, ref)
	return l, err
}

// unreadable is the error of a session whose file cannot be read, or parsed.
func (s *Store) unreadable(ref Ref, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &NotFoundError{Ref: ref}
	}
	if bad, ok := errors.AsType[*syntaxError](err); ok {
		return &DamagedError{Ref: ref, File: s.path(ref.file()), Reason: bad.Error()}
	}
	return fmt.Errorf("read session %s: %w", ref, err)
}

// sealError is what kept the records of a session's file from being sealed. It
// says nothing of that file: a chunk's folder that is gone is no session that is.
type sealError struct{ err error }

func (e *sealError) Error() string { return "seal its messages: " + e.err.Error() }

func (e *sealError) Unwrap() error {
	if errors.Is(e.err, fs.ErrNotExist) {
		return nil
	}
	return e.err
}

// ChangingError is a session whose file another program writes again and again.
type ChangingError struct {
	Ref  Ref
	File string
}

func (e *ChangingError) Error() string {
	return fmt.Sprintf("session %s: another program goes on writing its file %s", e.Ref, e.File)
}

// cut reads a session whose file is too large to be held, and seals what can be:
// those chunks are in the store, durably, and nothing refers to them. unlock
// releases the lock that keeps them there.
func (s *Store) cut(ctx context.Context, ref Ref) (l *Live, seen image, unlock func() error, err error) {
	release, err := s.chunks.Shared(ctx)
	if err != nil {
		return nil, image{}, nil, fmt.Errorf("read session %s: %w", ref, &sealError{err})
	}
	defer func() {
		if err != nil {
			l, unlock, err = nil, nil, errors.Join(err, release())
		}
	}()
	const tries = 3
	for range tries {
		var whole bool
		if l, seen, whole, err = s.outline(ctx, ref); err != nil || whole {
			return l, seen, release, err
		}
		again, err := s.cutInto(ctx, l)
		if bad, ok := errors.AsType[*sealError](err); ok {
			return nil, seen, nil, fmt.Errorf("read session %s: %w", ref, bad)
		}
		if err != nil {
			return nil, seen, nil, s.unreadable(ref, err)
		}
		if again.equal(seen) {
			return l, seen, release, nil
		}
	}
	return nil, seen, nil, &ChangingError{Ref: ref, File: s.path(ref.file())}
}

// whole reads a session without sealing anything, for who only looks at one where
// nothing can be stored. It takes as much memory as the file has.
func (s *Store) whole(ctx context.Context, ref Ref) (*Live, image, error) {
	if err := ctx.Err(); err != nil {
		return nil, image{}, err
	}
	data, err := durable.ReadFile(s.fs, ref.file(), 0)
	if err != nil {
		return nil, image{}, s.unreadable(ref, err)
	}
	l, err := s.decode(ref, data)
	return l, image{sum: sha256.Sum256(data), size: int64(len(data))}, err
}

// cutInto adds the records of the session's file to l, which lacks them.
func (s *Store) cutInto(ctx context.Context, l *Live) (image, error) {
	const atOnce = 1 << 20
	batch := s.chunks.NewBatch()
	defer batch.Discard()
	sealed := map[string]*transcript.List{} // what is sealed already, for an array that comes twice
	sizes := map[string]int64{}
	var records []transcript.Record
	name, size := keyMessages, 0
	flush := func() error {
		err := l.append(name, records, batch.Seal)
		records, size = nil, 0
		if err != nil {
			return &sealError{err}
		}
		return nil
	}
	sum := sha256.New()
	_, read, err := s.scan(ctx, l.Ref, sum, arrays{
		begin: func(list string) error {
			if err := flush(); err != nil {
				return err
			}
			if name = list; sealed[list] == nil {
				sealed[list], sizes[list] = l.Doc.List(list).Clone(), l.sealed[list]
			}
			l.Doc.Lists[list] = sealed[list].Clone()
			l.setSealed(list, sizes[list])
			return nil
		},
		record: func(_ string, r transcript.Record) error {
			records = append(records, bytes.Clone(r))
			if size += len(r); size < atOnce {
				return nil
			}
			return flush()
		},
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		if err = batch.Commit(ctx); err != nil {
			err = &sealError{err}
		}
	}
	i := image{size: read}
	sum.Sum(i.sum[:0])
	return i, err
}
