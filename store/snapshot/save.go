package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

// Limits of what describes a snapshot.
const (
	MaxNote   = 4000     // characters
	MaxReason = 1000     // characters
	MaxTags   = 64       // tags
	MaxMeta   = 64 << 10 // bytes of the encoded metadata
)

// Writer puts chunks and documents into a pool. From Begin to Close no chunk is
// swept, so that the answer of Missing holds until the save. It is not safe for
// concurrent use; any number of writers may be open at once.
type Writer struct {
	pool     *Pool
	unlock   func() error           // the chunk lock
	batch    *chunk.Batch           // what was added and is not yet part of the pool
	base     slot                   // what Follow found
	named    map[transcript.ID]bool // in the pool, durably: base refers to them
	there    map[transcript.ID]bool // known to be in the pool
	added    map[transcript.ID]bool
	children map[transcript.ID][]transcript.ID
}

// Begin opens a writer. It waits, until ctx ends, for a sweep that is under way.
// The caller closes it.
func (p *Pool) Begin(ctx context.Context) (*Writer, error) {
	unlock, err := p.chunks.Shared(ctx)
	if err != nil {
		return nil, err
	}
	return &Writer{
		pool:     p,
		unlock:   unlock,
		batch:    p.chunks.NewBatch(),
		named:    map[transcript.ID]bool{},
		there:    map[transcript.ID]bool{},
		added:    map[transcript.ID]bool{},
		children: map[transcript.ID][]transcript.ID{},
	}, nil
}

// followSample is how many chunks of a snapshot that is followed are looked at.
const followSample = 4

// Follow tells which snapshot the next save is likely to go on from: the one of
// this name or, if there is none, the one that this process saved last of the
// session. A document becomes visible after its chunks are durable, and they stay
// as long as it does, so what it refers to counts as there: a save asks as much
// of the disk after a long conversation as after a short one. A sample is looked
// at all the same, and where one of it is not there nothing counts. To follow a
// snapshot that is not there, or cannot be read, does nothing: Save says why.
func (w *Writer) Follow(name Name, session string) {
	for _, n := range []Name{name, w.pool.latest(session)} {
		if nameProblem(string(n)) != "" {
			continue
		}
		base, err := w.pool.peek(n)
		if err != nil || base.doc == nil {
			continue
		}
		w.base = base
		w.trust(base.doc, followSample)
		return
	}
}

// trust takes what the document refers to as there, if that holds for a sample.
func (w *Writer) trust(doc *transcript.Document, sample int) {
	ids := doc.InlineIDs()
	sample = min(sample, len(ids))
	for i := range sample { // one of each part of equal length
		from, to := i*len(ids)/sample, (i+1)*len(ids)/sample
		if has, err := w.pool.chunks.Has(ids[from+rand.IntN(to-from)]); err != nil || !has {
			return
		}
	}
	w.named = make(map[transcript.ID]bool, len(ids))
	for _, id := range ids {
		w.named[id] = true
	}
}

// Missing returns those of ids that the pool does not have and that were not
// added, each once, in their order. Where an index chunk is there, so are its children.
func (w *Writer) Missing(ids []transcript.ID) ([]transcript.ID, error) {
	var ask []transcript.ID
	for _, id := range ids {
		if !w.added[id] && !w.there[id] && !w.named[id] {
			ask = append(ask, id)
		}
	}
	missing, err := w.pool.chunks.Missing(ask)
	if err != nil {
		return nil, err
	}
	for _, id := range ask {
		w.there[id] = true
	}
	for _, id := range missing {
		delete(w.there, id)
	}
	return missing, nil
}

// Add takes a stored chunk, checked by SHA-256. It becomes part of the pool with
// the next Save.
func (w *Writer) Add(id transcript.ID, frame []byte) error {
	if w.added[id] {
		return nil
	}
	kind, err := chunk.Check(frame)
	if err != nil {
		return fmt.Errorf("chunk %s: %w", id, err)
	}
	if kind == transcript.KindIndex {
		_, plain, err := chunk.Decode(id, frame)
		if err != nil {
			return err
		}
		if err := w.adopt(id, plain); err != nil {
			return err
		}
	}
	if err := w.batch.AddFrame(id, frame); err != nil {
		return err
	}
	w.added[id] = true
	return nil
}

// adopt notes the children of an index chunk.
func (w *Writer) adopt(id transcript.ID, plain []byte) error {
	refs, err := transcript.DecodeIndex(plain)
	if err != nil {
		return fmt.Errorf("index chunk %s: %w", id, err)
	}
	for _, r := range refs {
		if r.ID != "" {
			w.children[id] = append(w.children[id], r.ID)
		}
		w.children[id] = append(w.children[id], r.IDs...)
	}
	return nil
}

// Seal takes a chunk of a list that is being made; it is a transcript.Sealer. The
// chunk becomes part of the pool with the next Save.
func (w *Writer) Seal(c transcript.Sealed) error {
	if w.added[c.ID] {
		return nil
	}
	if c.Kind == transcript.KindIndex {
		if err := w.adopt(c.ID, c.Plain); err != nil {
			return err
		}
	}
	if err := w.batch.Seal(c); err != nil {
		return err
	}
	w.added[c.ID] = true
	return nil
}

// Children returns the ids that an index chunk added here refers to, to be asked
// for with Missing; it is empty for other chunks.
func (w *Writer) Children(id transcript.ID) []transcript.ID { return w.children[id] }

// SaveRequest is a document to be saved. Exactly one of Name and AutoPrefix is
// set.
type SaveRequest struct {
	Name Name
	// AutoPrefix asks for a name that [AutoName] makes of it, free at the time.
	AutoPrefix string
	// Doc is not changed. Of its Meta the id, the times and the digest are set
	// here.
	Doc *transcript.Document
	// Overwrite allows to replace a snapshot of this name. The new one keeps its
	// id, its creation time, its pin and, where the new Meta gives none, its
	// note, tags and unknown keys; the old document goes to the trash.
	Overwrite bool
	// Rolling replaces the snapshot without a record that can be undone. The old
	// document goes to the trash unless the new one extends it and is of the same
	// session; where it is the same, it stays as it is.
	Rolling bool
	// MergeMeta, if set, adjusts the new Meta after the rules of Overwrite; old is
	// nil when the name is free or its file damaged.
	MergeMeta func(old, new *transcript.Meta)
	// Patience is how long Save waits for somebody who holds the names lock; 0 is
	// as long as every other change does, 15 seconds.
	Patience time.Duration
	// Imported marks a snapshot that was made elsewhere: it keeps its times and,
	// unless it replaces another one, its id.
	Imported bool
	// Op says who asked, for the record of an overwrite.
	Op *OpInfo
	// BackupFor makes the snapshot the backup of an open operation: the record
	// names it before it is visible, so that no crash leaves it behind.
	BackupFor *OpenOp
}

// Save publishes the document with all chunks added so far. Its errors are
// *ExistsError, *NameError, *LimitError, *NewerError for a file that is not
// replaced, *DamagedError when a chunk it refers to is not there, and those of
// the disk. Before the document is visible a failure leaves the name as it was;
// chunks that nothing refers to are swept later.
func (w *Writer) Save(ctx context.Context, r SaveRequest) (Entry, error) {
	e, err := w.save(ctx, r)
	if err == nil {
		w.pool.saved(r.Doc.Meta.SessionID, e.Name)
	}
	return e, during("save", cmp.Or(r.Name, Name(r.AutoPrefix)), err)
}

// during says what was being done when the disk failed; the errors of this
// package say it themselves.
func during(verb string, name Name, err error) error {
	if err == nil || typed(err) {
		return err
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}

// typed reports whether an error is one of this package's that name the
// snapshot.
func typed(err error) bool {
	switch err.(type) {
	case *NameError, *NotFoundError, *ExistsError, *DamagedError, *NewerError, *LimitError:
		return true
	}
	return false
}

func (w *Writer) save(ctx context.Context, r SaveRequest) (Entry, error) {
	p := w.pool
	if (r.Name == "") == (r.AutoPrefix == "") {
		return Entry{}, errors.New("a save takes a name or a prefix")
	}
	likely := r.Name
	if r.AutoPrefix != "" {
		likely = AutoName(r.AutoPrefix, p.now(), func(Name) bool { return false })
	}
	if _, err := ParseName(string(likely)); err != nil {
		return Entry{}, err
	}
	var old slot
	if r.AutoPrefix == "" {
		var err error
		replace := r.Overwrite || r.Rolling
		if old = w.base; old.name != r.Name || !replace { // it is looked at again under the lock
			if old, err = p.peek(r.Name); err == nil && !old.free() {
				old, err = p.look(r.Name)
			}
			if err != nil {
				return Entry{}, err
			}
		}
		if err := old.replaceable(r.Name, replace); err != nil {
			return Entry{}, err
		}
	}
	fresh, err := p.compose(r, old)
	if err != nil {
		return Entry{}, err
	}
	if r.Rolling && len(w.added) == 0 && fresh.repeats(old) {
		if same, err := p.unchanged(ctx, r, old); err != nil || same {
			return Entry{Name: old.name, Meta: old.doc.Meta.Clone(), State: StateOK, File: p.path(fileOf(old.name))}, err
		}
	}
	// What goes on below in the trash makes the chunks durable as well.
	linked, err := w.commit(ctx, likely, r.Doc, old.data != nil && r.Overwrite && !r.Rolling)
	if err != nil {
		return Entry{}, err
	}
	tmp, err := durable.WriteTemp(p.fs, fileOf(likely), fresh.data)
	if err != nil {
		return Entry{}, err
	}
	defer func() { _ = tmp.Discard() }()

	unlock, err := p.lockFor(ctx, "save", cmp.Or(r.Patience, lockWait))
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	name := r.Name
	if r.AutoPrefix != "" {
		if name, err = p.autoName(r.AutoPrefix); err != nil {
			return Entry{}, err
		}
	} else {
		now, err := p.look(name)
		if err != nil {
			return Entry{}, err
		}
		if err := now.replaceable(name, r.Overwrite || r.Rolling); err != nil {
			return Entry{}, err
		}
		if now.name != old.name || !bytes.Equal(now.data, old.data) {
			// Somebody was faster: what is written must follow from what is there.
			if err := tmp.Discard(); err != nil {
				return Entry{}, err
			}
			if fresh, err = p.compose(r, now); err != nil {
				return Entry{}, err
			}
			if tmp, err = durable.WriteTemp(p.fs, fileOf(name), fresh.data); err != nil {
				return Entry{}, err
			}
			old = now
		}
	}
	fresh.name = name
	meta := fresh.doc.Meta.Clone() // the caller's
	if r.BackupFor != nil {
		if err := r.BackupFor.put(func(op *Op) { op.Backup = &Link{Name: name, ID: meta.ID} }); err != nil {
			return Entry{}, err
		}
	}
	e := Entry{Name: name, Meta: meta, State: StateOK, File: p.path(fileOf(name))}
	if old.data == nil || r.Rolling && p.extends(r.Doc, old.doc) {
		if linked { // the name got free meanwhile
			err = p.chunks.Sync()
		}
		if err == nil {
			err = tmp.Publish(fileOf(name))
		}
	} else {
		op := Op{Automatic: r.Rolling}
		if r.Op != nil {
			op.OpInfo = *r.Op
		}
		e.Replaced = true
		err = p.replace(op, name, old, meta.ID, tmp)
	}
	if err == nil {
		p.keep(fresh)
	}
	return e, err
}

// repeats reports whether a document says of the same session what an old one
// says.
func (s slot) repeats(old slot) bool {
	if old.doc == nil {
		return false
	}
	m, was := s.doc.Meta, old.doc.Meta
	return m.Digest == was.Digest && m.Trigger == was.Trigger && m.Agent == was.Agent && m.ProjectID == was.ProjectID && m.SessionID == was.SessionID
}

// unchanged reports whether a name still holds what it held, and makes sure that it
// lasts: whoever put it there may not have come as far.
func (p *Pool) unchanged(ctx context.Context, r SaveRequest, old slot) (bool, error) {
	unlock, err := p.lockFor(ctx, "save", cmp.Or(r.Patience, lockWait))
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := p.look(r.Name)
	if err != nil || now.name != old.name || !bytes.Equal(now.data, old.data) {
		return false, err
	}
	return true, p.fs.SyncDir(".")
}

// replaceable says why what the slot holds cannot be replaced under this name.
func (s slot) replaceable(name Name, overwrite bool) error {
	if _, newer := s.err.(*NewerError); newer && overwrite {
		return s.err
	}
	if !s.free() && (!overwrite || s.name != name) {
		return &ExistsError{Name: s.name}
	}
	return nil
}

// autoName finds a free automatic name. The names lock is held.
func (p *Pool) autoName(prefix string) (Name, error) {
	names, err := p.names()
	if err != nil {
		return "", err
	}
	taken := make(map[string]bool, len(names))
	for _, n := range names {
		taken[strings.ToLower(string(n))] = true
	}
	name := AutoName(prefix, p.now(), func(n Name) bool { return taken[strings.ToLower(string(n))] })
	return ParseName(string(name))
}

// compose makes the document as it is stored in place of what old holds.
func (p *Pool) compose(r SaveRequest, old slot) (slot, error) {
	d := r.Doc.Clone()
	m := &d.Meta
	var was *transcript.Meta
	if old.doc != nil {
		was = &old.doc.Meta
		inherit(m, was)
	}
	if r.MergeMeta != nil {
		r.MergeMeta(was, m)
		*m = m.Clone() // what it put there may be somebody's
	}
	if !r.Imported || m.ID == "" {
		m.ID = newID()
	}
	if !r.Imported || m.UpdatedAt.IsZero() {
		m.UpdatedAt = p.now()
	}
	if !r.Imported || m.CreatedAt.IsZero() {
		m.CreatedAt = m.UpdatedAt
	}
	if was != nil {
		if !r.Imported {
			m.CreatedAt = was.CreatedAt
		}
		if was.ID != "" {
			m.ID = was.ID
		}
	}
	d.Format = transcript.Format
	m.Digest = d.Digest()
	if err := checkLimits(*m); err != nil {
		return slot{}, err
	}
	return slot{name: r.Name, data: d.Encode(), doc: d}, nil
}

// inherit keeps what people gave the old version.
func inherit(m, was *transcript.Meta) {
	if m.Note == "" {
		m.Note = was.Note
	}
	if len(m.Tags) == 0 {
		m.Tags = maps.Clone(was.Tags)
	}
	m.Pinned = m.Pinned || was.Pinned
	if len(was.Extra) > 0 {
		extra := maps.Clone(was.Extra)
		maps.Copy(extra, m.Extra)
		m.Extra = extra
	}
}

func checkLimits(m transcript.Meta) error {
	if n := utf8.RuneCountInString(m.Note); n > MaxNote {
		return &LimitError{Field: "note", Unit: "characters", Limit: MaxNote, Got: n}
	}
	if n := utf8.RuneCountInString(m.Reason); n > MaxReason {
		return &LimitError{Field: "reason", Unit: "characters", Limit: MaxReason, Got: n}
	}
	if n := len(m.Tags); n > MaxTags {
		return &LimitError{Field: "tags", Unit: "tags", Limit: MaxTags, Got: n}
	}
	size := len(m.AppendJSON(nil))
	if size > MaxMeta {
		return &LimitError{Field: "metadata", Unit: "bytes", Limit: MaxMeta, Got: size}
	}
	return nil
}

// commit makes the added chunks part of the pool, and then knows that everything
// the document refers to is there, durably. With link it may be durable only when
// the trash was synced, which it reports. A batch that failed is spent: the writer
// can only be closed then.
func (w *Writer) commit(ctx context.Context, name Name, doc *transcript.Document, link bool) (linked bool, err error) {
	need := doc.InlineIDs()
	for _, children := range w.children {
		need = append(need, children...)
	}
	missing, err := w.Missing(need)
	if err != nil {
		return false, err
	}
	if len(missing) > 0 {
		err := fmt.Errorf("chunk %s is missing", missing[0])
		return false, &DamagedError{Name: name, File: w.pool.path(fileOf(name)), Reason: err.Error(), Err: err}
	}
	if len(w.added) == 0 && !slices.ContainsFunc(need, func(id transcript.ID) bool { return !w.named[id] }) {
		return false, nil // all is durable
	}
	if link && !slices.ContainsFunc(need, func(id transcript.ID) bool { return !w.named[id] && !w.added[id] }) {
		linked, err = w.batch.CommitLinked(ctx, trashDir)
	} else {
		err = w.batch.Commit(ctx)
	}
	if err != nil {
		return false, err
	}
	w.batch = w.pool.chunks.NewBatch()
	clear(w.added)
	clear(w.children)
	return linked, nil
}

// extends reports whether doc goes on where old ends, in the same session: then
// nothing of old is lost with it. What cannot be told counts as no.
func (p *Pool) extends(doc, old *transcript.Document) bool {
	if old == nil || old.Meta.SessionID != doc.Meta.SessionID {
		return false
	}
	for name, was := range old.Lists {
		is := doc.Lists[name]
		if is == nil {
			is = &transcript.List{}
		}
		if ok, err := is.Extends(was, p.chunks.Plain); err != nil || !ok {
			return false
		}
	}
	return true
}

// Close ends the writer and drops what was added and not saved.
func (w *Writer) Close() error {
	if w.unlock == nil {
		return nil
	}
	w.batch.Discard()
	err := w.unlock()
	w.unlock = nil
	return err
}
