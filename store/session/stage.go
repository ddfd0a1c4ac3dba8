package session

import (
	"context"
	"errors"
	"fmt"

	"sess/store/chunk"
	"sess/store/transcript"
)

// StageRequest proposes a new state for a session.
type StageRequest struct {
	Ref Ref // an empty ID: a session yet to be made by CommitNew
	// Doc is the state. It is not changed, and its Meta does not matter.
	Doc       *transcript.Document
	Normalise bool // a state that goes live again: nothing in it may look as if it ran
	Fresh     bool // drop the ids by which the provider continues; a copy must
}

// Stage is a proposed state. It keeps the chunks it needs from being swept until
// Commit or CommitNew succeeds, or Discard. It is not safe for concurrent use.
type Stage struct {
	Ref      Ref
	Missing  []transcript.ID // chunks to hand over with Write before Commit
	Revision int64           // of the session now; 0 also where there is none
	Differs  bool            // false: a Commit would change nothing
	// Notices say, after a Commit, what had to be mended in the state.
	Notices []string

	store     *Store
	doc       *transcript.Document
	normalise bool
	seen      image // the session's file
	unlock    func() error
	batch     *chunk.Batch
	lacking   []transcript.ID        // in the order they were found missing
	state     map[transcript.ID]bool // chunks once missing; true: handed over
}

// Stage proposes a state for a session, which need not exist. The errors are
// those of Read but for a *NotFoundError and a *DamagedError: a restore can make
// such a session again. The caller ends the stage with Discard, also after a
// Commit.
func (s *Store) Stage(ctx context.Context, req StageRequest) (st *Stage, err error) {
	if err := req.Doc.Validate(); err != nil {
		return nil, fmt.Errorf("stage for session %s: %w", req.Ref, err)
	}
	doc := req.Doc.Clone()
	if req.Fresh {
		doc = transcript.DropContinuation(doc)
	}
	if doc.Header, err = cleanHeader(doc.Header); err != nil {
		return nil, fmt.Errorf("stage for session %s: header: %w", req.Ref, err)
	}
	unlock, err := s.chunks.Shared(ctx)
	if err != nil {
		return nil, fmt.Errorf("stage for session %s: %w", req.Ref, err)
	}
	st = &Stage{
		Ref: req.Ref, Differs: true, store: s, doc: doc, normalise: req.Normalise,
		unlock: unlock, batch: s.chunks.NewBatch(), state: make(map[transcript.ID]bool),
	}
	if err := st.compare(ctx); err != nil {
		return nil, errors.Join(err, st.Discard())
	}
	return st, nil
}

// compare finds out what the stage lacks and whether it differs.
func (st *Stage) compare(ctx context.Context) error {
	if err := st.want(st.doc.InlineIDs()); err != nil {
		return err
	}
	st.Missing = st.StillMissing()
	if st.Ref.ID == "" {
		return nil
	}
	live, seen, err := st.store.read(ctx, st.Ref)
	st.seen = seen
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrDamaged):
		return nil
	case err != nil:
		return err
	}
	st.Revision = live.Revision
	if len(st.Missing) > 0 {
		return nil // a session has all its chunks
	}
	a, err := st.digest(st.doc)
	if err != nil {
		return err
	}
	b, err := st.digest(&live.Doc)
	if err != nil && !gone(err) {
		return err
	}
	st.Differs = err != nil || a != b // what has damaged chunks is to be replaced
	return nil
}

// digest is that of a document as it would go live.
func (st *Stage) digest(doc *transcript.Document) (string, error) {
	if st.normalise {
		scratch := &Live{Ref: st.Ref, store: st.store}
		var err error
		if doc, _, err = transcript.Normalise(doc, scratch.load, scratch.seal, newest(doc)); err != nil {
			return "", fmt.Errorf("session %s: %w", st.Ref, err)
		}
	}
	return doc.Digest(), nil
}

// want notes those of the chunks that are neither stored nor handed over. For a
// restore, one that is stored but fails its checksum counts as missing: whoever
// restores has a good one, which then takes its place.
func (st *Stage) want(ids []transcript.ID) error {
	for _, id := range ids {
		if _, known := st.state[id]; known {
			continue
		}
		has, err := st.store.chunks.Has(id)
		if err != nil {
			return err
		}
		if has && st.normalise {
			if _, err := st.store.Frame(id); err != nil && !gone(err) {
				return err
			} else if err != nil {
				has = false
			}
		}
		if !has {
			st.state[id] = false
			st.lacking = append(st.lacking, id)
		}
	}
	return nil
}

// gone reports whether an error is of a chunk that is not there as it was.
func gone(err error) bool {
	return errors.Is(err, chunk.ErrMissing) || errors.Is(err, transcript.ErrDamaged)
}

// Write hands over a missing chunk as it lies on disk; its content is checked
// against its id. A chunk that is part of the index may reveal that more are
// missing. One that was handed over before is ignored.
func (st *Stage) Write(id transcript.ID, frame []byte) error {
	if err := st.usable(); err != nil {
		return err
	}
	handed, known := st.state[id]
	if !known {
		return fmt.Errorf("stage for session %s: chunk %s was not asked for", st.Ref, id)
	}
	if handed {
		return nil
	}
	if err := st.batch.AddFrame(id, frame); err != nil {
		return fmt.Errorf("stage for session %s: %w", st.Ref, err)
	}
	st.state[id] = true
	kind, err := chunk.Check(frame)
	if err != nil || kind != transcript.KindIndex {
		return err
	}
	_, plain, err := chunk.Decode(id, frame)
	if err != nil {
		return err
	}
	refs, err := transcript.DecodeIndex(plain)
	if err != nil {
		return fmt.Errorf("stage for session %s: chunk %s: %w", st.Ref, id, err)
	}
	var children []transcript.ID
	for _, r := range refs {
		if r.ID != "" {
			children = append(children, r.ID)
		}
		children = append(children, r.IDs...)
	}
	return st.want(children)
}

// StillMissing lists the chunks to be handed over before the stage can be
// committed.
func (st *Stage) StillMissing() []transcript.ID {
	var list []transcript.ID
	for _, id := range st.lacking {
		if !st.state[id] {
			list = append(list, id)
		}
	}
	st.lacking = list
	return list
}

func (st *Stage) usable() error {
	if st.unlock == nil {
		return fmt.Errorf("stage for session %s: it was committed or given up already", st.Ref)
	}
	return nil
}

func (st *Stage) ready() error {
	if err := st.usable(); err != nil {
		return err
	}
	if missing := st.StillMissing(); len(missing) > 0 {
		return &MissingError{IDs: missing}
	}
	return nil
}

// Commit makes the stage the session's state, durably, and returns the new
// revision; the stage has then ended. Status, active run and error are cleared,
// the notifications stay those of the live session. op, if not empty, is
// remembered: a Commit of one that landed before changes nothing and returns the
// session's revision. note tells people what happened.
//
// Nothing is changed and the error is a *durable.LockedError if somebody holds
// the session, at once; a *ConflictError if its revision is not expect, or it
// has appeared or gone since the stage was made; a *VoidedError if op was given
// up; a *MissingError if chunks are missing. Nor is it after an error of the
// disk, unless that is ErrUndecided. With expect 0 a session that does
// not exist is made, and a damaged file is set aside first.
func (st *Stage) Commit(ctx context.Context, expect int64, op, note string) (revision int64, err error) {
	if err := st.ready(); err != nil {
		return 0, err
	}
	k, err := st.store.Lock(ctx, st.Ref, "replacing the session", false)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()

	stored, err := k.current(ctx)
	damaged := errors.Is(err, ErrDamaged)
	switch {
	case errors.Is(err, ErrNotFound) || damaged:
		if err := k.store.refuseVoid(st.Ref, op); err != nil {
			return 0, err
		}
		stored = k.store.New(st.Ref, "", "")
	case err != nil:
		return 0, err
	}
	if done, ok := stored.findOp(op); ok {
		if done.Void {
			return 0, &VoidedError{Ref: st.Ref, Op: op}
		}
		return stored.Revision, st.Discard()
	}
	if stored.Revision != expect || expect == 0 && !st.seen.equal(k.seen) {
		return 0, &ConflictError{Ref: st.Ref, Have: stored.Revision, Want: expect}
	}
	next := stored.clone()
	if err := st.fill(ctx, next); err != nil {
		return 0, err
	}
	next.Revision++
	next.addOp(OpRecord{ID: op})
	next.Note, next.NoteRevision = note, next.Revision
	if damaged {
		if _, err := k.setAside(ctx); err != nil {
			return 0, err
		}
	}
	if err := k.publish(ctx, next); err != nil {
		return 0, err
	}
	return next.Revision, st.Discard()
}

// commitChunks stores the stage's chunks.
func (st *Stage) commitChunks(ctx context.Context) error {
	if st.batch == nil {
		return nil
	}
	if err := st.batch.Commit(ctx); err != nil {
		return fmt.Errorf("session %s: store what is staged: %w", st.Ref, err)
	}
	st.batch = nil
	return nil
}

// fill stores the stage's chunks and gives l its state.
func (st *Stage) fill(ctx context.Context, l *Live) error {
	if err := st.commitChunks(ctx); err != nil {
		return err
	}
	doc := st.doc.Clone()
	if st.normalise {
		late := newest(doc)
		fresh := func(id transcript.ID) bool { return st.state[id] || late(id) }
		var err error
		if doc, st.Notices, err = transcript.Normalise(doc, l.load, l.seal, fresh); err != nil {
			return fmt.Errorf("session %s: %w", st.Ref, err)
		}
	}
	if err := l.adopt(doc); err != nil {
		return fmt.Errorf("session %s: %w", st.Ref, err)
	}
	l.Status, l.ActiveRun, l.Error = StatusIdle, nil, ""
	return nil
}

// CommitNew makes a new session of the stage and then makes it the active one;
// the manifest's write commits both, durably. An empty ref.ID is filled in; an
// empty title leaves the one the stage has. It returns the session. A session
// that op has made already is made active only. The errors are those of
// [Store.NewSession], and a *MissingError.
func (st *Stage) CommitNew(ctx context.Context, ref Ref, title, op string) (Ref, error) {
	if err := st.ready(); err != nil {
		return Ref{}, err
	}
	ref, err := st.store.makeNew(ctx, ref, op, func(l *Live) error {
		if err := st.fill(ctx, l); err != nil {
			return err
		}
		if title != "" {
			return l.Set("title", title)
		}
		return nil
	})
	if err != nil {
		return Ref{}, err
	}
	return ref, st.Discard()
}

// Keep stores the stage's chunks without making a session of it, and returns the
// state with what loads its chunks. They are kept until Discard. A *MissingError
// if chunks are missing.
func (st *Stage) Keep(ctx context.Context) (*transcript.Document, transcript.Loader, error) {
	if err := st.ready(); err != nil {
		return nil, nil, err
	}
	if err := st.commitChunks(ctx); err != nil {
		return nil, nil, err
	}
	return st.doc, st.store.chunks.Plain, nil
}

// Discard gives the stage up, if it was not committed. Further calls do nothing.
func (st *Stage) Discard() error {
	if st.unlock == nil {
		return nil
	}
	if st.batch != nil {
		st.batch.Discard()
	}
	unlock := st.unlock
	st.unlock, st.batch = nil, nil
	return unlock()
}
