package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sess/store/durable"
)

// Why a session was taken away.
const (
	WhyDeleted     = "deleted"
	WhyProject     = "deleted with its project"
	WhyTooMany     = "more sessions than sessions.max"
	WhyOld         = "not used for longer than sessions.maxAgeDays"
	whyUnknown     = "unknown"
	whyInterrupted = "its making was interrupted" // nobody has known it, so it is not told of
)

// A session in the trash is a folder there, <hash of its ref>.<ms>. The record
// is made first; the session is in the trash once its own file is.
const (
	trashRecord  = "trashed.json"
	trashSession = "session.json"
	trashLogs    = "logs" // the folder of its event logs
)

// Trashed is a session in the trash.
type Trashed struct {
	Ref       Ref
	Title     string
	Messages  int
	Bytes     int64 // plain bytes of the whole conversation
	UpdatedAt int64 // epoch milliseconds
	DeletedAt int64 // epoch milliseconds
	Why       string
	Problem   string // why it cannot be read; empty: it can

	// Entry names this one of several of the same session; a later one has a larger
	// name.
	Entry string
}

// trashedJSON is the record of a session in the trash.
type trashedJSON struct {
	ProjectID string `json:"projectId"`
	ID        string `json:"id"`
	Title     string `json:"title,omitempty"`
	Messages  int    `json:"messages"`
	Bytes     int64  `json:"bytes"`
	UpdatedAt int64  `json:"updatedAt"`
	DeletedAt int64  `json:"deletedAt"`
	Why       string `json:"why"`
	Problem   string `json:"problem,omitempty"`
}

// Delete moves a session to the trash, durably, with its event logs: what cannot
// be read as well. It is a *NotFoundError if there is none, and a
// *durable.LockedError if somebody works on it. Of calls about one session it
// runs in the order in which they were made.
func (s *Store) Delete(ctx context.Context, ref Ref) error {
	if err := errors.Join(ref.check(), ctx.Err()); err != nil {
		return err
	}
	made := time.Now()
	defer s.queue.enter(ref)()
	return s.take(context.WithoutCancel(ctx), ref, WhyDeleted, made.Add(clientWait))
}

// take moves a session to the trash.
func (s *Store) take(ctx context.Context, ref Ref, why string, until time.Time) (err error) {
	k, err := s.lockUntil(ctx, ref, "delete", until)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()
	l, err := k.outline(ctx)
	if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
		return err
	}
	return s.small(ctx, func() error { return k.toTrash(l, why) })
}

// DeleteProject moves all sessions of a project to the trash, durably, and tells
// how many. It waits for the calls about them that were made before; those made
// after it wait. While somebody works on one of them it is a *durable.LockedError,
// and nothing is moved. After another error some may have been.
func (s *Store) DeleteProject(ctx context.Context, project string) (n int, err error) {
	if err := errors.Join(checkSegment(project, projectID), ctx.Err()); err != nil {
		return 0, err
	}
	made := time.Now()
	defer s.queue.enter(Ref{Project: project})()
	refs, err := s.refsOf(project)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, ref := range refs {
		holder, held, err := s.InUse(ref)
		if err != nil {
			return 0, err
		}
		if held {
			return 0, &durable.LockedError{Path: "session " + ref.String(), Holder: holder}
		}
	}
	ctx = context.WithoutCancel(ctx)
	for _, ref := range refs {
		err := s.take(ctx, ref, WhyProject, made.Add(clientWait))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// toTrash moves the session's file and its folder to the trash. l is nil where the
// file cannot be read.
func (k *Locked) toTrash(l *Live, why string) error {
	s := k.store
	entry, err := s.freeName(path.Join(trashDir, k.ref.hash()+"."+strconv.FormatInt(s.nowMillis(), 10)))
	if err != nil {
		return err
	}
	record := trashedJSON{ProjectID: k.ref.Project, ID: k.ref.ID, DeletedAt: s.nowMillis(), Why: why}
	if l != nil {
		record.Title, record.Messages, record.Bytes, record.UpdatedAt = l.Doc.Meta.Title, l.Doc.Meta.Messages, l.Doc.Meta.Bytes, l.UpdatedAt
	} else {
		record.Problem = "its file is damaged or of a newer version"
	}
	err = durable.MkdirAll(s.fs, entry)
	if err == nil {
		err = durable.Write(s.fs, entry+"/"+trashRecord, append(encode(record), '\n'))
	}
	if err != nil {
		return fmt.Errorf("delete session %s: %w", k.ref, err)
	}
	k.seen = image{}
	err = durable.Move(s.fs, k.ref.file(), entry+"/"+trashSession)
	if errors.Is(err, fs.ErrNotExist) {
		return s.tidyEntry(entry)
	}
	if err != nil {
		if gone, existsErr := durable.Exists(s.fs, entry+"/"+trashSession); existsErr == nil && !gone {
			return fmt.Errorf("delete session %s: %w", k.ref, err)
		}
		err = fmt.Errorf("delete session %s: %w: %w", k.ref, ErrUndecided, err)
	}
	// From here on it is deleted. What fails now, the next sweep does.
	if err := k.logsToTrash(entry); err != nil {
		s.log.Warn("event logs of a deleted session left behind", "session_id", k.ref.ID, "project", k.ref.Project, "err", err)
	}
	return err
}

// logsToTrash moves the folder of a session that is in the trash after it.
func (k *Locked) logsToTrash(entry string) error {
	return k.store.moveFolder(k.ref.folder(), entry+"/"+trashLogs)
}

// Trashed lists the sessions in the trash, those deleted last first.
func (s *Store) Trashed(ctx context.Context) ([]Trashed, error) {
	entries, err := s.trashEntries(ctx, "")
	return slices.DeleteFunc(entries, func(t Trashed) bool { return t.Ref == (Ref{}) || !s.inTrash(t) || t.Why == whyInterrupted }), err
}

// trashed are the entries of one session, the one deleted last first.
func (s *Store) trashed(ref Ref) ([]Trashed, error) {
	entries, err := s.trashEntries(context.Background(), ref.hash()+".")
	return slices.DeleteFunc(entries, func(t Trashed) bool { return t.Ref != ref || !s.inTrash(t) || t.Why == whyInterrupted }), err
}

// inTrash reports whether the file of an entry is in the trash.
func (s *Store) inTrash(t Trashed) bool {
	there, err := durable.Exists(s.fs, t.Entry+"/"+trashSession)
	return there || err != nil
}

// trashEntries reads the records of the trash, also those of deletions that have
// not come to pass.
func (s *Store) trashEntries(ctx context.Context, prefix string) ([]Trashed, error) {
	folders, err := s.fs.ReadDir(trashDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the trash: %w", err)
	}
	var list []Trashed
	for _, f := range folders {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !f.IsDir() || !strings.HasPrefix(f.Name(), prefix) {
			continue
		}
		r, err := s.trashedRecord(path.Join(trashDir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("list the trash: %w", err)
		}
		ref := Ref{Project: r.ProjectID, ID: r.ID}
		entry := path.Join(trashDir, f.Name())
		if ref.check() != nil {
			ref = Ref{} // it names none: what is there is of no session, or cannot be told whose
		}
		list = append(list, Trashed{
			Ref: ref, Title: r.Title, Messages: r.Messages, Bytes: r.Bytes,
			UpdatedAt: r.UpdatedAt, DeletedAt: r.DeletedAt, Why: r.Why, Problem: r.Problem, Entry: entry,
		})
	}
	slices.SortFunc(list, func(a, b Trashed) int {
		return cmp.Or(cmp.Compare(b.DeletedAt, a.DeletedAt), cmp.Compare(b.Entry, a.Entry))
	})
	return list, nil
}

// trashedRecord reads the record of an entry. Where it is damaged, the session's own
// file says whose it is.
func (s *Store) trashedRecord(entry string) (trashedJSON, error) {
	var r trashedJSON
	err := s.readSmall(entry+"/"+trashRecord, &r)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errUnreadable) {
		return r, err
	}
	data, err := durable.ReadFile(s.fs, entry+"/"+trashSession, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return trashedJSON{}, nil
	}
	if err != nil {
		return trashedJSON{}, err
	}
	ref := Ref{Project: memberText(data, keyProjectID), ID: memberText(data, keyID)}
	l, err := decode(ref, data)
	if err != nil {
		return trashedJSON{}, nil
	}
	ms, _ := strconv.ParseInt(strings.TrimPrefix(path.Ext(entry), "."), 10, 64)
	return trashedJSON{
		ProjectID: ref.Project, ID: ref.ID, Title: l.Doc.Meta.Title, Messages: l.Doc.Meta.Messages, Bytes: l.Doc.Meta.Bytes,
		UpdatedAt: l.UpdatedAt, DeletedAt: ms, Why: whyUnknown,
	}, nil
}

// Restore brings a session back from the trash, durably: of several of that name
// the one deleted last. It counts as active from now on, so that it is not the
// first to expire. A name that is taken is an *ExistsError, one that is not in the
// trash a *NotFoundError.
func (s *Store) Restore(ctx context.Context, ref Ref) (err error) {
	if err := errors.Join(ref.check(), ctx.Err()); err != nil {
		return err
	}
	defer s.queue.enter(ref)()
	// Who moves a session out of the trash holds the chunk lock, so that no sweep
	// misses it in both places.
	unlock, err := s.chunks.Shared(ctx)
	if err != nil {
		return fmt.Errorf("restore session %s: %w", ref, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	k, err := s.Lock(ctx, ref, "restore", false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()
	if there, err := s.Exists(ref); err != nil || there {
		return cmp.Or(err, error(&ExistsError{Ref: ref}))
	}
	found, err := s.trashed(ref)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &NotFoundError{Ref: ref}
	}
	if err := k.fromTrash(context.WithoutCancel(ctx), found[0].Entry); err != nil {
		return fmt.Errorf("restore session %s: %w", ref, err)
	}
	return nil
}

// fromTrash moves what an entry of the trash has back: the logs first, so that the
// session is there as a whole once its file is.
func (k *Locked) fromTrash(ctx context.Context, entry string) error {
	s := k.store
	if err := durable.MkdirAll(s.fs, k.ref.Project); err != nil {
		return err
	}
	err := s.moveFolder(entry+"/"+trashLogs, k.ref.folder())
	if err == nil {
		err = s.small(ctx, func() error { return s.touchMeta(k.ref, true) })
	}
	if err == nil {
		err = durable.Move(s.fs, entry+"/"+trashSession, k.ref.file())
	}
	if err != nil {
		if there, existsErr := durable.Exists(s.fs, k.ref.file()); there || existsErr != nil {
			return fmt.Errorf("%w: %w", ErrUndecided, err)
		}
		return errors.Join(err, k.logsToTrash(entry))
	}
	k.seen = image{}
	if err := s.tidyEntry(entry); err != nil {
		s.log.Warn("record of a restored session left behind", "session_id", k.ref.ID, "project", k.ref.Project, "err", err)
	}
	return nil
}

// moveFolder moves a folder, which need not be there, durably. Where the other one
// is there already, it takes the files that it lacks.
func (s *Store) moveFolder(from, to string) error {
	there, err := durable.Exists(s.fs, to)
	if err != nil {
		return err
	}
	if !there {
		if err := durable.Move(s.fs, from, to); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	files, err := s.fs.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if taken, takenErr := durable.Exists(s.fs, path.Join(to, f.Name())); taken || takenErr != nil {
			err = errors.Join(err, takenErr)
			continue
		}
		err = errors.Join(err, durable.Move(s.fs, path.Join(from, f.Name()), path.Join(to, f.Name())))
	}
	return err
}

// tidyEntry removes an entry of the trash whose session is not in it. Logs that are
// there all the same stay.
func (s *Store) tidyEntry(entry string) error {
	files, err := s.fs.ReadDir(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else did it
	}
	if err != nil {
		return err
	}
	left := false
	for _, f := range files {
		switch name := path.Join(entry, f.Name()); {
		case f.Name() == trashRecord, strings.HasSuffix(f.Name(), durable.TempSuffix):
			err = errors.Join(err, durable.Remove(s.fs, name))
		case f.IsDir():
			inside, insideErr := s.fs.ReadDir(name)
			if err = errors.Join(err, insideErr); insideErr == nil && len(inside) == 0 {
				err = errors.Join(err, durable.Remove(s.fs, name))
				continue
			}
			left = true
		default:
			left = true
		}
	}
	if left || err != nil {
		return err
	}
	return durable.Remove(s.fs, entry)
}

// dropEntry removes an entry of the trash for good, the session first: what is
// left of it then is of no session.
func (s *Store) dropEntry(entry string) error {
	if err := durable.Remove(s.fs, entry+"/"+trashSession); err != nil {
		return err
	}
	return s.removeAll(entry)
}

// removeAll removes a folder of the trash with what is in it.
func (s *Store) removeAll(dir string) error {
	entries, err := s.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			err = s.removeAll(name)
		} else {
			err = s.fs.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return durable.Remove(s.fs, dir)
}

// EmptyTrash removes the sessions for good that went to the trash before a time,
// and tells how many.
func (s *Store) EmptyTrash(ctx context.Context, before time.Time) (n int, err error) {
	entries, err := s.trashEntries(ctx, "")
	if err != nil {
		return 0, err
	}
	for _, t := range entries {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if t.DeletedAt >= before.UnixMilli() || t.Ref == (Ref{}) || !s.inTrash(t) {
			continue
		}
		err := s.ifFree(ctx, t.Ref, func() error { // whoever restores it holds the lock
			n++
			return s.dropEntry(t.Entry)
		})
		if err != nil {
			return n, fmt.Errorf("empty the trash: session %s: %w", t.Ref, err)
		}
	}
	return n, nil
}

// sweepTrash ends what was begun: it removes the records of deletions that have
// not come to pass, and moves logs after the sessions that they belong to.
func (s *Store) sweepTrash(ctx context.Context) error {
	entries, err := s.trashEntries(ctx, "")
	for _, t := range entries {
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		err = errors.Join(err, s.sweepEntry(ctx, t))
	}
	return err
}

func (s *Store) sweepEntry(ctx context.Context, t Trashed) error {
	if t.Ref == (Ref{}) {
		// What was begun last may be about to get its record.
		info, err := s.fs.Stat(t.Entry)
		if err != nil || s.inTrash(t) || s.now().Sub(info.ModTime()) < tempAge {
			return nil
		}
		return s.tidyEntry(t.Entry)
	}
	logs, err := durable.Exists(s.fs, t.Entry+"/"+trashLogs)
	if err != nil {
		return err
	}
	if logs && s.inTrash(t) {
		// A power cut can take back the move out of the trash, but not what was
		// written there since.
		left, err := s.hasTemps(t.Entry + "/" + trashLogs)
		if err != nil || !left {
			return err
		}
		return s.sweepLogs(ctx, t.Entry+"/"+trashLogs)
	}
	if s.inTrash(t) {
		if left, err := durable.Exists(s.fs, t.Ref.folder()); err != nil || !left {
			return err
		}
	}
	k, err := s.Lock(ctx, t.Ref, "sweep", false)
	if errors.Is(err, durable.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	session, err := s.Exists(t.Ref)
	switch {
	case err != nil:
	case !s.inTrash(t):
		err = s.tidyEntry(t.Entry)
	case !session:
		err = k.logsToTrash(t.Entry)
	}
	return errors.Join(err, k.Unlock())
}
