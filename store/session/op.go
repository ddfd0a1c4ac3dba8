package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"sess/store/durable"
)

// What OpState answers.
const (
	OpLanded  = "landed"
	OpVoid    = "void"
	OpUnknown = "unknown"
)

// DefaultTitle is the title of a new session that is given none.
const DefaultTitle = "New session"

// NewSession makes a session without messages and then makes it the active one;
// the manifest's write commits both, durably. An empty ref.ID is filled in. It
// returns the session. A session that op has made already is made active only.
// A taken id is an *ExistsError, an op that was given up a *VoidedError, an id
// of another kind than is made here an *IDError. Where it fails the session is
// not there, unless the error is ErrUndecided.
func (s *Store) NewSession(ctx context.Context, ref Ref, title, cwd, op string) (Ref, error) {
	if title == "" {
		title = DefaultTitle
	}
	return s.makeNew(ctx, ref, op, func(l *Live) error {
		return errors.Join(l.Set("title", title), l.Set("cwd", cwd))
	})
}

// makeNew makes a session as fill has it and activates it, under its lock all
// the while: whoever gets the lock and finds a session that was never active
// knows that its making was interrupted.
func (s *Store) makeNew(ctx context.Context, ref Ref, op string, fill func(*Live) error) (made Ref, err error) {
	if ref.ID == "" {
		ref.ID = NewID(s.now())
	}
	if err := ParseID(ref.ID); err != nil {
		return Ref{}, err
	}
	k, err := s.Lock(ctx, ref, "new session", false)
	if err != nil {
		return Ref{}, err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()
	if err := s.refuseVoid(ref, op); err != nil {
		return Ref{}, err
	}
	stored, err := k.current(ctx)
	switch {
	case err == nil:
		if done, ok := stored.findOp(op); !ok || !done.New {
			return Ref{}, &ExistsError{Ref: ref}
		}
	case errors.Is(err, ErrNotFound):
		l := s.New(ref, "", "")
		if err := fill(l); err != nil {
			return Ref{}, err
		}
		l.addOp(OpRecord{ID: op, New: true})
		if _, err := k.create(ctx, l); err != nil {
			return Ref{}, err
		}
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer):
		return Ref{}, &ExistsError{Ref: ref}
	default:
		return Ref{}, err
	}
	if err := s.Activate(ctx, ref); err != nil {
		return Ref{}, k.unmake(context.WithoutCancel(ctx), err)
	}
	return ref, nil
}

// unmake takes away a session that could not be made the active one. It returns
// why it could not, as ErrUndecided if the session is there all the same.
func (k *Locked) unmake(ctx context.Context, cause error) error {
	active, err := k.store.activated(ctx, k.ref)
	if err == nil && !active {
		k.seen = image{}
		if err = durable.Remove(k.store.fs, k.ref.file()); err == nil {
			return cause
		}
	}
	return errors.Join(fmt.Errorf("%w: %w", ErrUndecided, cause), err)
}

// OpState tells whether an operation has landed in a session (OpLanded), which
// is durable then. One that has not is void from now on, durably, without a change of the revision
// (OpVoid): a Commit or NewSession under its id is refused. While somebody holds
// the session, or its file cannot be read, the answer may be OpUnknown.
//
// A new session whose making was interrupted before it became the active one is
// moved to the trash, and its operation is void.
//
// What is void is remembered in the session's file; where there is none, by an
// empty file in the folder of locks, which is kept for a month.
func (s *Store) OpState(ctx context.Context, ref Ref, op string) (state string, err error) {
	if op == "" {
		return OpUnknown, errors.New("an operation without an id is not remembered")
	}
	k, err := s.Lock(ctx, ref, "recovery", false)
	if errors.Is(err, durable.ErrLocked) {
		return s.opStateHeld(ctx, ref, op)
	}
	if err != nil {
		return OpUnknown, err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()

	l, err := k.current(ctx)
	switch {
	case errors.Is(err, ErrNotFound):
		return voided(s.markVoid(op))
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer):
		return OpUnknown, nil
	case err != nil:
		return OpUnknown, err
	}
	done, ok := l.findOp(op)
	switch {
	case !ok:
		l.addOp(OpRecord{ID: op, Void: true})
		return voided(k.replace(ctx, l))
	case done.Void:
		return s.lasts(ref, done, OpVoid)
	case !done.New || l.Revision > 1:
		return s.lasts(ref, done, OpLanded)
	}
	active, err := s.activated(ctx, ref)
	if err != nil {
		return OpUnknown, err
	}
	if active {
		return s.lasts(ref, done, OpLanded)
	}
	if err := s.markVoid(op); err != nil {
		return OpUnknown, err
	}
	if err := k.toTrash(nil, whyInterrupted); err != nil {
		return OpUnknown, fmt.Errorf("take session %s away: %w", ref, err)
	}
	return OpVoid, nil
}

// lasts answers with a state once the files that tell of it are there for good:
// whoever wrote them may not have come as far as the sync of their folders.
func (s *Store) lasts(ref Ref, done OpRecord, state string) (string, error) {
	folders := []string{ref.Project}
	if done.New { // the manifest or the session's own folder has the rest
		folders = append(folders, ref.folder(), ".")
	}
	for _, folder := range folders {
		if err := s.fs.SyncDir(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return OpUnknown, err
		}
	}
	return state, nil
}

func voided(err error) (string, error) {
	if err != nil {
		return OpUnknown, err
	}
	return OpVoid, nil
}

// opStateHeld answers what can be told of a session that somebody holds.
func (s *Store) opStateHeld(ctx context.Context, ref Ref, op string) (string, error) {
	l, err := s.Outline(ctx, ref)
	if err != nil {
		return OpUnknown, nil
	}
	switch done, ok := l.findOp(op); {
	case ok && done.Void:
		return s.lasts(ref, done, OpVoid)
	case ok && (!done.New || l.Revision > 1):
		return s.lasts(ref, done, OpLanded)
	}
	return OpUnknown, nil
}

const voidPrefix = "void."

func voidName(op string) string { return locksDir + "/" + voidPrefix + shortHash(op) }

// markVoid makes the mark of a void operation. The file's existence is all that
// counts, so it needs no rename: there is none or one.
func (s *Store) markVoid(op string) error {
	f, err := s.fs.Create(voidName(op))
	if errors.Is(err, fs.ErrExist) {
		return s.fs.SyncDir(locksDir) // whoever made it may not have come this far
	}
	if err != nil {
		return fmt.Errorf("give operation %s up: %w", op, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("give operation %s up: %w", op, err)
	}
	return s.fs.SyncDir(locksDir)
}

// refuseVoid is a *VoidedError if op is marked void.
func (s *Store) refuseVoid(ref Ref, op string) error {
	void, err := durable.Exists(s.fs, voidName(op))
	if err != nil {
		return err
	}
	if void {
		return &VoidedError{Ref: ref, Op: op}
	}
	return nil
}
