package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sess/store/durable"
	"sess/store/transcript"
)

// TrashEntry is a document in the trash. Its File is the one in the trash.
type TrashEntry struct {
	Entry        // the name that it had; empty when the record is gone
	Op        Op // what took it away; the zero value when its record is gone
	DeletedAt time.Time
	Reason    string    // "deleted", "overwritten", or why it was pruned
	Expires   time.Time // zero: never
}

// swappedMark ends the operation's id in the name of what an undo took away, so
// that it can be told from what the operation itself did.
const swappedMark = "-redo"

func trashName(id, op string) string { return id + "." + op + suffix }

// trashItem is what becomes of the document in a slot.
func (s slot) trashItem(op, reason string) TrashItem {
	id := newID() // a damaged document has none that can be read
	if s.doc != nil && s.doc.Meta.ID != "" && nameProblem(s.doc.Meta.ID) == "" {
		id = s.doc.Meta.ID
	}
	return TrashItem{ID: id, Name: s.name, File: trashName(id, op), Reason: reason}
}

// writeTrash puts what a slot holds into the trash as well. The names lock is
// held.
func (p *Pool) writeTrash(item TrashItem, s slot) error {
	if err := durable.MkdirAll(p.fs, trashDir); err != nil {
		return err
	}
	return durable.Keep(p.fs, fileOf(s.name), trashDir+"/"+item.File, s.data)
}

// replace publishes tmp under a name that holds old, as a recorded operation:
// a copy of old lies in the trash before it goes. The names lock is held.
func (p *Pool) replace(op Op, name Name, old slot, subject string, tmp *durable.Temp) error {
	op.Kind, op.To, op.Subject = OpOverwrite, name, subject
	rec, err := p.newOp(op)
	if err != nil {
		return err
	}
	rec.Trash, rec.dir = []TrashItem{old.trashItem(rec.ID, "overwritten")}, trashDir
	if err = p.stage(rec, old); err == nil {
		err = tmp.Publish(fileOf(name))
	}
	return p.finish(rec, err)
}

// discard moves what slots hold to the trash, as a recorded operation. The names
// lock is held.
func (p *Pool) discard(op Op, slots []slot, reasons []string) (*Op, error) {
	rec, err := p.newOp(op)
	if err != nil {
		return nil, err
	}
	for i, s := range slots {
		item := s.trashItem(rec.ID, reasons[i])
		if slices.ContainsFunc(rec.Trash, func(o TrashItem) bool { return o.File == item.File }) {
			item.File = trashName(newID(), rec.ID) // another version of the same snapshot
		}
		rec.Trash = append(rec.Trash, item)
	}
	return rec, p.run(rec, func() error {
		if err := durable.MkdirAll(p.fs, trashDir); err != nil {
			return err
		}
		for _, item := range rec.Trash {
			if err := p.fs.Rename(fileOf(item.Name), trashDir+"/"+item.File); err != nil {
				return err
			}
		}
		return errors.Join(p.fs.SyncDir(trashDir), p.fs.SyncDir("."))
	})
}

// trashFiles returns the names of the documents in the trash.
func (p *Pool) trashFiles() ([]fs.DirEntry, error) {
	entries, err := p.fs.ReadDir(trashDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return durable.Ignored(e.Name()) || !strings.HasSuffix(e.Name(), suffix) || !e.Type().IsRegular()
	}), err
}

// ListTrash returns the trash, what was taken away last first.
func (p *Pool) ListTrash(ctx context.Context) ([]TrashEntry, error) {
	all, err := p.listTrash(ctx)
	// What an undo put back, and a redo would take away again, has its name.
	return slices.DeleteFunc(all, func(t TrashEntry) bool { return t.spare() }), err
}

// spare reports whether the document is kept only so that undo and redo can go
// back and forth.
func (t TrashEntry) spare() bool {
	for _, item := range t.Op.Swapped {
		if filepath.Base(t.File) == item.File {
			return t.Op.done()
		}
	}
	return t.Op.undone()
}

func (p *Pool) listTrash(ctx context.Context) ([]TrashEntry, error) {
	files, err := p.trashFiles()
	if err != nil || len(files) == 0 {
		return nil, err
	}
	ops, err := p.ops(ctx)
	if err != nil {
		return nil, err
	}
	type source struct {
		op   *Op
		item TrashItem
	}
	sources := map[string]source{}
	for _, op := range ops {
		for _, item := range slices.Concat(op.Trash, op.Swapped) {
			sources[item.File] = source{op, item}
		}
	}
	var all []TrashEntry
	for _, f := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		from := sources[f.Name()]
		e, err := p.entry(from.item.Name, trashDir+"/"+f.Name())
		if err != nil {
			continue // it went since the folder was read
		}
		t := TrashEntry{Entry: e, DeletedAt: e.Meta.UpdatedAt, Reason: "unknown"}
		if from.op != nil {
			t.Op, t.DeletedAt, t.Reason = *from.op, from.op.Time, from.item.Reason
			if t.Meta.ID == "" {
				t.Meta.ID = from.item.ID
			}
		} else if info, err := f.Info(); err == nil {
			t.DeletedAt = info.ModTime().UTC()
		}
		if p.opts.TrashKeep > 0 {
			t.Expires = t.DeletedAt.Add(p.opts.TrashKeep)
		}
		all = append(all, t)
	}
	// The ids are in the order of the operations, whatever the clock said.
	slices.SortFunc(all, func(a, b TrashEntry) int {
		return cmp.Or(cmp.Compare(b.Op.ID, a.Op.ID), b.DeletedAt.Compare(a.DeletedAt),
			b.Meta.UpdatedAt.Compare(a.Meta.UpdatedAt), cmp.Compare(b.Meta.ID, a.Meta.ID), cmp.Compare(b.File, a.File))
	})
	return all, nil
}

// ReadTrash returns the whole document of the snapshot with this id, without its
// chunks, from the trash: of several versions the one taken away last. One that is
// not there is a *NotFoundError.
func (p *Pool) ReadTrash(ctx context.Context, id string) (*Snapshot, error) {
	all, err := p.listTrash(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the trash: %w", err)
	}
	i := slices.IndexFunc(all, func(t TrashEntry) bool { return t.State == StateOK && t.Meta.ID == id })
	if i < 0 {
		return nil, &NotFoundError{Text: id}
	}
	t := all[i]
	data, err := durable.ReadFile(p.fs, trashDir+"/"+filepath.Base(t.File), maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotFoundError{Text: id}
	}
	if err != nil {
		return nil, &DamagedError{Name: t.Name, File: t.File, Reason: reason(err), Err: err}
	}
	doc, err := decodeChecked(data)
	if err != nil {
		return nil, &DamagedError{Name: t.Name, File: t.File, Reason: err.Error(), Err: err}
	}
	return &Snapshot{Name: t.Name, Doc: doc, File: t.File}, nil
}

// RestoreTrash brings a document back from the trash: of several the one taken
// away last. What is none is a *NotFoundError or a *NameError, with near names. The
// name is its old one unless as is given; one that is taken is an *ExistsError. What was deleted or pruned leaves the trash; an older version of
// a snapshot that was overwritten comes back as a copy with an id of its own and
// stays in the trash, so that the overwrite can still be undone.
func (p *Pool) RestoreTrash(ctx context.Context, nameOrID string, as Name) (Entry, error) {
	e, err := p.restoreTrash(ctx, nameOrID, as)
	return e, during("restore", Name(nameOrID), err)
}

func (p *Pool) restoreTrash(ctx context.Context, nameOrID string, as Name) (Entry, error) {
	unlock, err := p.lock(ctx, "restore")
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	all, err := p.ListTrash(ctx)
	if err != nil {
		return Entry{}, err
	}
	i := slices.IndexFunc(all, func(t TrashEntry) bool {
		return nameOrID != "" && (string(t.Name) == nameOrID || t.Meta.ID == nameOrID)
	})
	if i < 0 {
		names := make([]Name, 0, len(all))
		for _, t := range all {
			names = append(names, t.Name)
		}
		slices.Sort(names)
		_, err := find(slices.Compact(names), nameOrID)
		return Entry{}, err
	}
	t := all[i]
	if as == "" {
		as = t.Name
	}
	if _, err := ParseName(string(as)); err != nil {
		return Entry{}, err
	}
	s, err := p.look(as)
	if err != nil {
		return Entry{}, err
	}
	if !s.free() {
		return Entry{}, &ExistsError{Name: s.name, Hint: "restore it under another name (as)"}
	}
	if err := p.fetch(t, as); err != nil {
		return Entry{}, err
	}
	return p.entry(as, fileOf(as))
}

// fetch gives a document in the trash a name. The names lock is held.
func (p *Pool) fetch(t TrashEntry, as Name) error {
	file := filepath.Base(t.File)
	if t.Op.Kind != OpOverwrite && t.Op.Kind != OpRename {
		if err := p.syncOps(); err != nil {
			return err
		}
		if err := durable.Move(p.fs, trashDir+"/"+file, fileOf(as)); err != nil {
			return err
		}
		if t.Op.ID == "" {
			return nil
		}
		// The operation can take back only what is left.
		op := t.Op
		op.Trash = slices.DeleteFunc(slices.Clone(op.Trash), func(i TrashItem) bool { return i.File == file })
		if len(op.Trash) == 0 {
			p.unsettled(&op, p.removeOp(&op))
		} else {
			p.unsettled(&op, p.writeOp(&op))
		}
		return nil
	}
	data, err := durable.ReadFile(p.fs, trashDir+"/"+file, maxDocument)
	if err != nil {
		return err
	}
	if doc, err := transcript.Decode(data); err == nil {
		doc.Meta.Parent, doc.Meta.ID = doc.Meta.ID, newID()
		data = doc.Encode()
	}
	return durable.Write(p.fs, fileOf(as), data)
}

// EmptyTrash removes for good what was taken away at least olderThan ago; 0
// means everything, also what is kept for undo and redo alone. It returns the
// number of documents that [Pool.ListTrash] shows, and the bytes of all; the
// chunks that only they referred to go with the next sweep. A dry run changes
// nothing.
func (p *Pool) EmptyTrash(ctx context.Context, olderThan time.Duration, dryRun bool) (n int, bytes int64, err error) {
	if !dryRun {
		unlock, err := p.lock(ctx, "empty trash")
		if err != nil {
			return 0, 0, fmt.Errorf("empty the trash: %w", err)
		}
		defer unlock()
		if err := p.syncOps(); err != nil {
			return 0, 0, fmt.Errorf("empty the trash: %w", err)
		}
	}
	all, err := p.listTrash(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("empty the trash: %w", err)
	}
	now := p.now()
	gone := map[string]*Op{}
	removed := false
	for _, t := range all {
		// What is dated in the future is as old as it can be known to be.
		if max(0, now.Sub(t.DeletedAt)) < olderThan {
			continue
		}
		file := trashDir + "/" + filepath.Base(t.File)
		info, err := p.fs.Stat(file)
		if err != nil {
			return n, bytes, err
		}
		if !dryRun {
			if err := p.fs.Remove(file); err != nil {
				return n, bytes, err
			}
			if t.Op.ID != "" {
				gone[t.Op.ID] = &t.Op
			}
		}
		if removed = true; !t.spare() {
			n++
		}
		bytes += info.Size()
	}
	if dryRun || !removed {
		return n, bytes, nil
	}
	if err := p.fs.SyncDir(trashDir); err != nil {
		return n, bytes, err
	}
	for _, op := range gone {
		if left, err := p.hasTrash(op); err != nil || left || op.Kind == OpRename {
			if err != nil {
				return n, bytes, err
			}
			continue
		}
		if err := p.removeOp(op); err != nil {
			return n, bytes, err
		}
	}
	return n, bytes, nil
}
