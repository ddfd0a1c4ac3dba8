package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"sess/store/durable"
	"sess/store/transcript"
)

// Locked is a session whose lock is held: nobody else changes it. It is not safe
// for concurrent use; Unlock ends it.
type Locked struct {
	store   *Store
	ref     Ref
	unlocks []func() error // nil after Unlock
	seen    image          // the file as it was read or written last
	kept    kept           // what seen says, where it could be read
	chunks  []func() error // release the chunks that no file refers to yet
	log     *TurnLog       // of the turn begun last, to be closed
}

// kept is what a write of the session takes over from the file.
type kept struct {
	revision     int64
	ops          []OpRecord
	note         string
	noteRevision int64
}

func (l *Live) kept() kept {
	return kept{revision: l.Revision, ops: slices.Clone(l.Ops), note: l.Note, noteRevision: l.NoteRevision}
}

// aliveSuffix names a second lock beside a session's. Whoever holds the session
// holds it too, so a reader can find out whether that is so without ever
// standing in the way of somebody who takes the session's lock.
const aliveSuffix = ".alive"

func (s *Store) lockName(ref Ref) string { return locksDir + "/" + ref.hash() }

// Lock takes the session's exclusive lock, which ends with the process at the
// latest; operation says what for, for others to be told. The session need not
// exist. A lock that is not free (at once; if wait, before ctx ends) is a
// *durable.LockedError that names the session and who holds it.
func (s *Store) Lock(ctx context.Context, ref Ref, operation string, wait bool) (*Locked, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(s.fs, locksDir); err != nil {
		return nil, fmt.Errorf("lock session %s: %w", ref, err)
	}
	name := s.lockName(ref)
	unlock, err := durable.LockAs(ctx, s.fs, name, operation, wait)
	if held, ok := errors.AsType[*durable.LockedError](err); ok {
		return nil, &durable.LockedError{Path: "session " + ref.String(), Holder: held.Holder}
	}
	if err != nil {
		return nil, fmt.Errorf("lock session %s: %w", ref, err)
	}
	// Only those who ask hold this one, for no longer than it takes to ask.
	alive, err := durable.LockBriefly(ctx, s.fs, name+aliveSuffix, durable.Exclusive, lockWait)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock session %s: %w", ref, err), unlock())
	}
	return &Locked{store: s, ref: ref, unlocks: []func() error{alive, unlock}}, nil
}

// clientWait is how long a client's call waits for whoever changes the session,
// which takes milliseconds unless it is a turn.
const clientWait = time.Second

// lockUntil is Lock that waits until then for a lock that is not free.
func (s *Store) lockUntil(ctx context.Context, ref Ref, operation string, until time.Time) (*Locked, error) {
	k, err := s.Lock(ctx, ref, operation, false)
	if wait := time.Until(until); errors.Is(err, durable.ErrLocked) && wait > 0 {
		brief, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		k, err = s.Lock(brief, ref, operation, true)
	}
	return k, err
}

// InUse reports whether somebody, in this process or another, holds the
// session's lock, and who. The answer may be outdated when it arrives.
func (s *Store) InUse(ref Ref) (durable.Holder, bool, error) {
	if err := ref.check(); err != nil {
		return durable.Holder{}, false, err
	}
	name := s.lockName(ref)
	if there, err := durable.Exists(s.fs, name+aliveSuffix); err != nil || !there {
		return durable.Holder{}, false, err
	}
	unlock, err := s.fs.Lock(context.Background(), name+aliveSuffix, durable.Looking, false)
	if errors.Is(err, durable.ErrLocked) {
		return durable.ReadHolder(s.fs, name), true, nil
	}
	if err != nil {
		return durable.Holder{}, false, err
	}
	return durable.Holder{}, false, unlock()
}

// Unlock releases the lock and closes a turn's log that was left open. Further
// calls do nothing.
func (k *Locked) Unlock() error {
	var err error
	if k.log != nil {
		err = k.log.close()
		k.log = nil
	}
	for _, unlock := range slices.Concat(k.chunks, k.unlocks) {
		err = errors.Join(err, unlock())
	}
	k.chunks, k.unlocks = nil, nil
	return err
}

func (k *Locked) held() error {
	if k.unlocks == nil {
		return fmt.Errorf("session %s: its lock was released already", k.ref)
	}
	return nil
}

// current reads the session as stored.
func (k *Locked) current(ctx context.Context) (*Live, error) {
	if err := k.held(); err != nil {
		return nil, err
	}
	l, seen, unlock, err := k.store.readHeld(ctx, k.ref)
	k.seen = seen
	if unlock != nil {
		k.chunks = append(k.chunks, unlock)
	}
	if err == nil {
		k.kept = l.kept()
	}
	return l, err
}

// outline is current for who need not know what was said in the session.
func (k *Locked) outline(ctx context.Context) (*Live, error) {
	if err := k.held(); err != nil {
		return nil, err
	}
	l, seen, _, err := k.store.outline(ctx, k.ref)
	k.seen = seen
	if err == nil {
		k.kept = l.kept()
	}
	return l, err
}

// unchanged reports whether the file is byte for byte what was read or written
// last: then there is no need to parse it once more.
func (k *Locked) unchanged(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil || !k.seen.known() {
		return false, err
	}
	now, err := k.store.image(ctx, k.ref)
	return err == nil && now.equal(k.seen), ctx.Err() // what is wrong with it, current says
}

// Read returns the session for going on with it. It is Store.Read, and what a
// turn that was interrupted has left is mended in memory: the status is error,
// no run is active, a message that was being written is completed from the
// turn's event log as far as that goes, open activities have failed, and every
// tool call has a result. Interrupted and Notices tell of it; the next Write
// stores it.
func (k *Locked) Read(ctx context.Context) (*Live, error) {
	l, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.mend(ctx); err != nil {
		return nil, fmt.Errorf("session %s: %w", k.ref, err)
	}
	return l, nil
}

// Write stores the session, durably, and returns its new revision, which it also
// sets in l. Records that can be sealed go into chunks first. If the file's
// revision is not expect, or its content is not what was read or written last
// under this lock, nothing is changed and the error is a *ConflictError. A
// session whose file is gone is a *NotFoundError: a late write brings nothing
// back. After ErrUndecided either state may be stored; Read tells.
// A ctx that ends before the rename ends the call.
func (k *Locked) Write(ctx context.Context, l *Live, expect int64) (int64, error) {
	if err := k.held(); err != nil {
		return 0, err
	}
	if l.Ref != k.ref {
		return 0, fmt.Errorf("session %s: its lock does not cover session %s", k.ref, l.Ref)
	}
	same, err := k.unchanged(ctx)
	if err != nil {
		return 0, err
	}
	first := !k.seen.known()
	if !same {
		if _, err := k.outline(ctx); err != nil {
			return 0, err
		}
	}
	stored := k.kept
	if stored.revision != expect || !same && !first {
		return 0, &ConflictError{Ref: k.ref, Have: stored.revision, Want: expect}
	}
	next := l.clone()
	next.Ops, next.Note, next.NoteRevision = slices.Clone(stored.ops), stored.note, stored.noteRevision
	next.Revision = stored.revision + 1
	if err := k.publish(ctx, next); err != nil {
		return 0, err
	}
	next.Interrupted, next.Notices = false, nil
	*l = *next
	return l.Revision, nil
}

// maxPending is how much that was sealed waits in memory.
const maxPending = 2 << 20

// Stow stores the chunks that wait in memory for the next Write, durably, if they
// are many: for who adds more than is to be held. It changes nothing that is
// seen; of a session that is not written then, a sweep takes them away.
func (k *Locked) Stow(ctx context.Context, l *Live) error {
	size := 0
	for _, c := range l.pending {
		size += len(c.Plain)
	}
	if size < maxPending {
		return nil
	}
	if err := k.held(); err != nil {
		return err
	}
	if len(k.chunks) == 0 {
		unlock, err := k.store.chunks.Shared(ctx)
		if err != nil {
			return fmt.Errorf("session %s: %w", l.Ref, err)
		}
		k.chunks = append(k.chunks, unlock)
	}
	if err := k.store.storeChunks(ctx, l.pending); err != nil {
		return fmt.Errorf("session %s: %w", l.Ref, err)
	}
	l.pending = nil
	return nil
}

// create stores a session that has no file. If there is one, it returns an
// *ExistsError and what is stored, where that can be read.
func (k *Locked) create(ctx context.Context, l *Live) (*Live, error) {
	stored, err := k.current(ctx)
	switch {
	case err == nil, errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer):
		return stored, &ExistsError{Ref: k.ref}
	case !errors.Is(err, ErrNotFound):
		return nil, err
	}
	next := l.clone()
	next.Revision = 1
	if err := k.publish(ctx, next); err != nil {
		return nil, err
	}
	*l = *next
	k.store.made(k.ref)
	return l, nil
}

// publish seals what can be sealed, stores the new chunks, and replaces the
// session's file: the same few file operations whatever the session's size.
func (k *Locked) publish(ctx context.Context, l *Live) (err error) {
	s := k.store
	l.store = s
	for name, list := range l.Doc.Lists {
		total := l.sealed[name] + tailBytes(list)
		if err := list.Append(nil, l.seal); err != nil {
			return fmt.Errorf("session %s: %s: %w", l.Ref, name, err)
		}
		l.setSealed(name, total-tailBytes(list))
	}
	l.UpdatedAt, l.updatedAt = cmp.Or(l.updatedAt, s.nowMillis()), 0
	if l.CreatedAt == 0 {
		l.CreatedAt = l.UpdatedAt
	}
	l.describe()
	if len(l.pending) > 0 {
		// Until the file refers to them, only the lock keeps new chunks.
		unlock, err := s.chunks.Shared(ctx)
		if err != nil {
			return fmt.Errorf("session %s: %w", l.Ref, err)
		}
		defer func() { err = errors.Join(err, unlock()) }()
		if err := s.storeChunks(ctx, l.pending); err != nil {
			return fmt.Errorf("session %s: %w", l.Ref, err)
		}
		l.pending = nil
	}
	return k.replace(ctx, l)
}

// replace writes the session's file as l is.
func (k *Locked) replace(ctx context.Context, l *Live) error {
	data, err := l.encode()
	if err != nil {
		return fmt.Errorf("session %s: %w", l.Ref, err)
	}
	if err := durable.MkdirAll(k.store.fs, k.ref.Project); err != nil {
		return fmt.Errorf("write session %s: %w", l.Ref, err)
	}
	temp, err := durable.WriteTemp(k.store.fs, k.ref.file(), data)
	if err != nil {
		return fmt.Errorf("write session %s: %w", l.Ref, err)
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, temp.Discard())
	}
	k.seen = image{} // until it is known which state is stored
	if err := temp.Publish(k.ref.file()); err != nil {
		if errors.Is(err, durable.ErrUnsynced) {
			err = fmt.Errorf("%w: %w", ErrUndecided, err)
		}
		return fmt.Errorf("write session %s: %w", l.Ref, err)
	}
	k.seen, k.kept = image{data: data}, l.kept()
	return nil
}

func (s *Store) storeChunks(ctx context.Context, list []transcript.Sealed) error {
	batch := s.chunks.NewBatch()
	for _, c := range list {
		if err := batch.Seal(c); err != nil {
			batch.Discard()
			return err
		}
	}
	return batch.Commit(ctx)
}

// setAside renames the session's file if it is damaged.
func (k *Locked) setAside(ctx context.Context) (string, error) {
	_, err := k.outline(ctx)
	if !errors.Is(err, ErrDamaged) {
		if err == nil || errors.Is(err, ErrNewer) {
			return "", nil
		}
		return "", err
	}
	s := k.store
	name, err := s.freeName(k.ref.file() + invalidMark + strconv.FormatInt(s.nowMillis(), 10))
	if err != nil {
		return "", err
	}
	if err := durable.Move(s.fs, k.ref.file(), name); err != nil {
		return "", fmt.Errorf("set session %s aside: %w", k.ref, err)
	}
	s.log.Warn("damaged session file set aside", "session_id", k.ref.ID, "project", k.ref.Project, "file", name)
	return s.path(name), nil
}
