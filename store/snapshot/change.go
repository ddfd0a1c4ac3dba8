package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"sess/store/durable"
	"sess/store/transcript"
)

// CopyOptions configure [Pool.Copy].
type CopyOptions struct {
	Overwrite bool    // as in SaveRequest
	Note      *string // nil keeps the source's note
	Op        *OpInfo // who asked, for the record of an overwrite
}

// Copy makes a snapshot under another name that shares the chunks of its source
// and is independent of it. It has its own id and times, and the source's id as
// its parent; title, note and tags are the source's. What only the source is, a
// backup before something or pinned, the copy is not.
func (p *Pool) Copy(ctx context.Context, from, to Name, o CopyOptions) (Entry, error) {
	if err := givable(to); err != nil {
		return Entry{}, err
	}
	if from == to {
		return Entry{}, &ExistsError{Name: to, Hint: "a copy needs a name of its own"}
	}
	w, err := p.Begin(ctx) // the source's chunks stay until the copy is there
	if err != nil {
		return Entry{}, during("copy", from, err)
	}
	defer func() { _ = w.Close() }()
	src, err := p.Read(ctx, from)
	if err != nil {
		return Entry{}, err
	}
	missing, err := w.Missing(src.Doc.InlineIDs())
	if err != nil {
		return Entry{}, during("copy", from, err)
	}
	if len(missing) > 0 {
		return Entry{}, &DamagedError{Name: from, File: src.File, Reason: fmt.Sprintf("chunk %s is missing", missing[0])}
	}
	w.trust(src.Doc, 0)
	doc := src.Doc.Clone()
	m := &doc.Meta
	m.Parent = m.ID
	m.Pinned, m.Automatic, m.Trigger = false, false, transcript.TriggerManual
	m.Reason, m.Plugin, m.Action, m.Indices, m.Range = "", "", "", nil, nil
	if o.Note != nil {
		m.Note = *o.Note
	}
	return w.Save(ctx, SaveRequest{
		Name: to, Doc: doc, Overwrite: o.Overwrite, Op: o.Op,
		// The name gets the source's note and tags also where it has none.
		MergeMeta: func(_, meta *transcript.Meta) { meta.Note, meta.Tags = m.Note, maps.Clone(m.Tags) },
	})
}

// givable says why a person may not give a snapshot this name.
func givable(name Name) error {
	if _, err := ParseName(string(name)); err != nil {
		return err
	}
	if ReservedPrefix(name) {
		return &NameError{Text: string(name), Reason: "this prefix is for automatic backups", Suggestion: suggest("my-" + string(name))}
	}
	return nil
}

// RenameOptions configure [Pool.Rename].
type RenameOptions struct {
	Overwrite bool    // the snapshot that had the name goes to the trash
	Op        *OpInfo // who asked
}

// Rename gives a snapshot another name; all else stays. It reports false when it
// has that name already.
func (p *Pool) Rename(ctx context.Context, from, to Name, o RenameOptions) (Entry, bool, error) {
	e, changed, err := p.rename(ctx, from, to, o)
	return e, changed, during("rename", from, err)
}

func (p *Pool) rename(ctx context.Context, from, to Name, o RenameOptions) (Entry, bool, error) {
	if from != to {
		if err := givable(to); err != nil {
			return Entry{}, false, err
		}
	}
	if _, err := ParseName(string(from)); err != nil {
		return Entry{}, false, err
	}
	unlock, err := p.lock(ctx, "rename")
	if err != nil {
		return Entry{}, false, err
	}
	defer unlock()
	names, err := p.names()
	if err != nil {
		return Entry{}, false, err
	}
	src, err := p.usable(names, from)
	if err != nil {
		return Entry{}, false, err
	}
	e := Entry{Name: to, Meta: src.doc.Meta.Clone(), State: StateOK, File: p.path(fileOf(to)), Future: src.doc.Meta.UpdatedAt.After(p.now())}
	if from == to {
		return e, false, nil
	}
	dst, err := p.lookIn(names, to)
	if err != nil {
		return Entry{}, false, err
	}
	if dst.name == from {
		dst = slot{} // only the case changes
	}
	if err := dst.replaceable(to, o.Overwrite); err != nil {
		return Entry{}, false, err
	}
	var op Op
	if o.Op != nil {
		op.OpInfo = *o.Op
	}
	op.Kind, op.From, op.To, op.Subject = OpRename, from, to, src.doc.Meta.ID
	rec, err := p.newOp(op)
	if err != nil {
		return Entry{}, false, err
	}
	if !dst.free() {
		rec.Trash = []TrashItem{dst.trashItem(rec.ID, "overwritten")}
		e.Replaced = true
	}
	return e, true, p.run(rec, func() error {
		if !dst.free() {
			if err := p.writeTrash(rec.Trash[0], dst); err != nil {
				return err
			}
		}
		return durable.Move(p.fs, fileOf(from), fileOf(to))
	})
}

// usable returns what a name holds, or why it cannot be used.
func (p *Pool) usable(names []Name, name Name) (slot, error) {
	s, err := p.lookIn(names, name)
	if err != nil {
		return slot{}, err
	}
	if s.name != name {
		return slot{}, &NotFoundError{Text: string(name), Near: near(string(name), names)}
	}
	return s, s.err
}

// SetMeta changes a snapshot's note, tags, pin and the like. Id, times and
// digest cannot be changed, and unknown keys are kept. With bump the snapshot
// counts as updated now. An error of edit is returned as it is, and nothing is
// changed.
func (p *Pool) SetMeta(ctx context.Context, name Name, edit func(*transcript.Meta) error, bump bool) (Entry, error) {
	if _, err := ParseName(string(name)); err != nil {
		return Entry{}, err
	}
	unlock, err := p.lock(ctx, "change")
	if err != nil {
		return Entry{}, during("change", name, err)
	}
	defer unlock()
	names, err := p.names()
	if err != nil {
		return Entry{}, during("change", name, err)
	}
	s, err := p.usable(names, name)
	if err != nil {
		return Entry{}, during("change", name, err)
	}
	doc := s.doc.Clone()
	m := &doc.Meta
	if err := edit(m); err != nil {
		return Entry{}, err
	}
	was := s.doc.Meta
	m.ID, m.CreatedAt, m.UpdatedAt, m.Digest = was.ID, was.CreatedAt, was.UpdatedAt, was.Digest
	if bump {
		m.UpdatedAt = p.now()
	}
	if err := checkLimits(*m); err != nil {
		return Entry{}, err
	}
	if data := doc.Encode(); !bytes.Equal(data, s.data) {
		if err := durable.Write(p.fs, fileOf(name), data); err != nil {
			return Entry{}, during("change", name, err)
		}
	}
	return p.entry(name, fileOf(name))
}

// Delete moves snapshots to the trash as one operation and returns what they
// were and the operation's id. When one of the names is not there it returns a
// *NotFoundError and nothing is moved. Damaged snapshots, and those of a newer
// version, can be deleted too: they go to the trash as they are.
func (p *Pool) Delete(ctx context.Context, names []Name, o OpInfo) (deleted []Entry, op string, err error) {
	unlock, err := p.lock(ctx, "delete")
	if err != nil {
		return nil, "", fmt.Errorf("delete: %w", err)
	}
	defer unlock()
	all, err := p.names()
	if err != nil {
		return nil, "", fmt.Errorf("delete: %w", err)
	}
	var slots []slot
	var reasons []string
	seen := map[Name]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if _, err := ParseName(string(name)); err != nil {
			return nil, "", err
		}
		s, err := p.usable(all, name)
		_, damaged := errors.AsType[*DamagedError](err)
		_, newer := errors.AsType[*NewerError](err)
		if err != nil && !damaged && !newer {
			return nil, "", during("delete", name, err)
		}
		e, err := p.entry(name, fileOf(name))
		if err != nil {
			return nil, "", during("delete", name, err)
		}
		slots, reasons, deleted = append(slots, s), append(reasons, "deleted"), append(deleted, e)
	}
	if len(slots) == 0 {
		return nil, "", nil
	}
	o.Kind = OpDelete
	rec, err := p.discard(Op{OpInfo: o}, slots, reasons)
	if err != nil {
		return nil, "", during("delete", slots[0].name, err)
	}
	return deleted, rec.ID, nil
}
