package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"sess/store/durable"
	"sess/store/transcript"
)

// ErrStale is an undo or redo of an operation that is no longer in the state for
// it: somebody else was faster.
var ErrStale = errors.New("the operation was undone or redone meanwhile")

// ErrGone is an operation whose documents are no longer in the trash.
var ErrGone = errors.New("the trash no longer holds it")

// UndoResult is what an undo or redo did to the names.
type UndoResult struct {
	Op       Op
	Restored []Entry // what names hold again
	Removed  []Name  // names that are gone again
	Lost     []Name  // names whose document is no longer in the trash
}

// UndoNames takes back an overwrite, delete, rename or prune. A name that is
// taken meanwhile is an *ExistsError, documents that are gone from the trash are
// ErrGone, an operation that is undone already is ErrStale, and nothing is
// changed. After a failure of the disk what was done is
// taken back as far as the disk allows, and the rest by [Pool.Recover].
func (p *Pool) UndoNames(ctx context.Context, op *Op) (UndoResult, error) {
	return p.turn(ctx, op, OpUndone)
}

// RedoNames does an undone overwrite, delete, rename or prune again, under the
// same conditions as [Pool.UndoNames].
func (p *Pool) RedoNames(ctx context.Context, op *Op) (UndoResult, error) {
	return p.turn(ctx, op, OpClosed)
}

// turn brings an operation on names to the state undone or closed.
func (p *Pool) turn(ctx context.Context, asked *Op, to OpState) (UndoResult, error) {
	if !asked.Kind.Names() {
		return UndoResult{}, fmt.Errorf("operation %s is a %s: it changes a session, not names", asked.ID, asked.Kind)
	}
	verb := "undo"
	if to == OpClosed {
		verb = "redo"
	}
	unlock, err := p.lock(ctx, verb)
	if err != nil {
		return UndoResult{}, err
	}
	defer unlock()
	op, err := p.FindOp(asked.ID)
	if errors.Is(err, fs.ErrNotExist) { // it went with what it was about
		err = fmt.Errorf("%s %s: %w", verb, asked.ID, ErrGone)
	}
	if err != nil {
		return UndoResult{}, err
	}
	if op.done() != (to == OpUndone) || op.State == OpOpen {
		return UndoResult{}, fmt.Errorf("%s %s, which is %s: %w", verb, op.ID, op.State, ErrStale)
	}
	r, err := p.apply(op, to)
	if err != nil && !typed(err) {
		err = fmt.Errorf("%s %s: %w", verb, op.Kind, err)
	}
	return r, err
}

// apply is turn under the names lock. The intention is recorded first; each step
// looks at what is there, so that it can be repeated from any point.
func (p *Pool) apply(op *Op, to OpState) (UndoResult, error) {
	step, under, settled := p.takeBack, OpUndoing, OpClosed
	if to == OpClosed {
		step, under, settled = p.doAgain, OpRedoing, OpUndone
	}
	if err := step(op, new(UndoResult), true); err != nil {
		return UndoResult{}, err
	}
	if op.State == OpClosed {
		if err := p.prepareUndo(op); err != nil {
			return UndoResult{}, err
		}
	}
	was := op.State // under, where it is taken up again: some of it may be done
	op.State = under
	if err := p.writeOp(op); err != nil {
		op.State = was // a failed sync may have left the intention behind
		p.unsettled(op, p.writeOp(op))
		return UndoResult{}, err
	}
	var r UndoResult
	if err := step(op, &r, false); err != nil {
		failed := p.reverse(op)
		if failed == nil {
			op.State = settled
			failed = p.writeOp(op)
		}
		p.unsettled(op, failed)
		return UndoResult{}, err
	}
	op.State = to
	p.unsettled(op, p.writeOp(op))
	r.Op = *op
	return r, nil
}

// prepareUndo completes a record with what redo will need.
func (p *Pool) prepareUndo(op *Op) (err error) {
	if op.Newest, err = p.newest(); err != nil {
		return err
	}
	switch op.Kind {
	case OpDelete, OpPrune:
		return p.leaveRestored(op)
	case OpRename:
		return p.leaveRenamed(op)
	case OpOverwrite:
		s, err := p.look(op.To)
		if err != nil {
			return err
		}
		op.Swapped = nil
		if !s.free() {
			was := op.Trash[0]
			was.File = trashName(was.ID, op.ID+swappedMark)
			was.Reason = "undone"
			op.Swapped = []TrashItem{was}
		}
	}
	return nil
}

// leaveRestored forgets of what an operation took away that which was brought
// back from the trash since, where a crash kept that from being recorded: a redo
// is not to take it away.
func (p *Pool) leaveRestored(op *Op) error {
	there, err := p.inTrash(op.Trash)
	if err != nil {
		return err
	}
	names, err := p.names()
	if err != nil {
		return err
	}
	var left []TrashItem
	for _, item := range op.Trash {
		s, err := p.lookIn(names, item.Name)
		if err != nil {
			return err
		}
		if slices.Contains(there, item) || !s.stands(item) {
			left = append(left, item)
		}
	}
	if len(left) == 0 {
		return errors.Join(ErrStale, durable.Remove(p.fs, op.file()))
	}
	op.Trash = left
	return nil
}

// leaveRenamed is leaveRestored for a rename whose snapshot has its old name
// already, since it was deleted and restored under that. What the rename replaced
// is then left like something that was deleted.
func (p *Pool) leaveRenamed(op *Op) error {
	from, err := p.look(op.From)
	if err != nil || from.name != op.From || !from.is(op.Subject) {
		return err
	}
	if len(op.Trash) == 0 {
		return errors.Join(ErrStale, durable.Remove(p.fs, op.file()))
	}
	op.Kind, op.From, op.To = OpDelete, "", ""
	return errors.Join(ErrStale, p.writeOp(op))
}

// recoverNames settles an operation on names that did not get to its end.
func (p *Pool) recoverNames(ctx context.Context, id string) (*Recovered, error) {
	unlock, err := p.lock(ctx, "recover")
	if err != nil {
		return nil, err
	}
	defer unlock()
	op, err := p.FindOp(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := p.steady(); err != nil {
		return nil, err
	}
	// Under the names lock nobody is at work on it.
	r := &Recovered{Op: *op, Outcome: Landed}
	switch op.State {
	case OpOpen:
		r.Outcome, err = p.settle(op, false)
	case OpUndoing, OpRedoing:
		to, settled := OpUndone, OpClosed
		if op.State == OpRedoing {
			to, settled = OpClosed, OpUndone
		}
		_, err = p.apply(op, to)
		if typed(err) || errors.Is(err, ErrGone) {
			// Something stands in the way by now: it stays as it was.
			r.Outcome = Void
			op.State = settled
			err = p.writeOp(op)
		}
	default:
		return nil, nil
	}
	return r, err
}

// run does an operation on names: the record first, then the effect. When the
// effect fails it is taken back. The names lock is held.
//
// That the operation happened is told by the name of the record, and nobody
// waits until the new name is durable: a record that has the old one after a
// power cut is settled by what is there.
func (p *Pool) run(op *Op, effect func() error) error {
	if err := p.writeOpen(op); err != nil {
		p.unsettled(op, p.removeOp(op)) // a failed sync may leave it behind
		return err
	}
	return p.finish(op, effect())
}

// finish closes the record of an operation on names, or takes back what is left
// of one that failed.
func (p *Pool) finish(op *Op, err error) error {
	if err != nil {
		_, failed := p.settle(op, true)
		p.unsettled(op, failed)
		return err
	}
	op.State = OpClosed
	p.unsettled(op, p.fs.Rename(op.openFile(), op.file()))
	return nil
}

// unsettled notes that a record does not say yet what became of its operation:
// that can wait for Recover.
func (p *Pool) unsettled(op *Op, err error) {
	if err != nil {
		p.opts.Logger.Warn("operation not settled", "op", op.ID, "kind", op.Kind, "err", err)
	}
}

// settle finds out what became of an operation on names, and closes its record
// or takes back what is left of it; a delete that failed, as told by its owner,
// is taken back also when everything was moved. The names lock is held.
func (p *Pool) settle(op *Op, failed bool) (outcome string, err error) {
	var landed bool
	switch op.Kind {
	case OpDelete:
		var moved []TrashItem
		if moved, err = p.inTrash(op.Trash); err != nil {
			return Unknown, err
		}
		if landed = len(moved) == len(op.Trash) && !failed; !landed {
			op.Trash = moved
			landed, err = p.putBack(op)
		}
	case OpPrune:
		op.Trash, err = p.inTrash(op.Trash)
		landed = len(op.Trash) > 0
	case OpRename:
		var s slot
		s, err = p.look(op.From)
		landed = s.name != op.From || !s.is(op.Subject) // its old name may have been given anew since
		if err == nil && !landed && len(op.Trash) > 0 {
			landed, err = p.replaced(op)
		}
	default:
		landed, err = p.replaced(op)
	}
	if err != nil {
		return Unknown, err
	}
	if landed {
		op.State = OpClosed
		if err := p.writeOpen(op); err != nil {
			return Landed, err
		}
		return Landed, durable.Move(p.fs, op.openFile(), op.file())
	}
	// What lies in the trash is a copy of what still has its name.
	if op.Kind != OpDelete {
		for _, item := range op.Trash {
			if err := durable.Remove(p.fs, trashDir+"/"+item.File); err != nil {
				return Unknown, err
			}
		}
	}
	return Void, p.removeOp(op)
}

// replaced reports whether a document was replaced: its copy is in the trash, and
// the name holds something else.
func (p *Pool) replaced(op *Op) (bool, error) {
	old, err := p.readTrash(op.Trash[0])
	if err != nil || old == nil {
		return false, err
	}
	s, err := p.look(op.To)
	return !bytes.Equal(old, s.data), err
}

// putBack moves what a delete took away back to its names. It reports whether
// some has to stay in the trash because its name is taken.
func (p *Pool) putBack(op *Op) (rest bool, err error) {
	names, err := p.names()
	if err != nil {
		return false, err
	}
	items := op.Trash
	op.Trash = nil
	moved := false
	for _, item := range items {
		s, err := p.lookIn(names, item.Name)
		if err != nil {
			return false, err
		}
		if !s.free() {
			op.Trash = append(op.Trash, item)
			continue
		}
		if err := p.fs.Rename(trashDir+"/"+item.File, fileOf(item.Name)); err != nil {
			return false, err
		}
		moved = true
	}
	if moved {
		err = errors.Join(p.fs.SyncDir("."), p.fs.SyncDir(trashDir))
	}
	return len(op.Trash) > 0, err
}

// inTrash returns those of the items whose file is in the trash.
func (p *Pool) inTrash(items []TrashItem) ([]TrashItem, error) {
	var there []TrashItem
	for _, item := range items {
		ok, err := durable.Exists(p.fs, trashDir+"/"+item.File)
		if err != nil {
			return nil, err
		}
		if ok {
			there = append(there, item)
		}
	}
	return there, nil
}

// readTrash returns a document in the trash, or nil.
func (p *Pool) readTrash(item TrashItem) ([]byte, error) {
	data, err := durable.ReadFile(p.fs, trashDir+"/"+item.File, maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// takeBack undoes an operation on names. With dry it only looks for what stands
// in the way.
func (p *Pool) takeBack(op *Op, r *UndoResult, dry bool) error {
	switch op.Kind {
	case OpDelete, OpPrune:
		return p.bringBack(op, r, dry)
	case OpRename:
		return p.renameBack(op, r, dry)
	}
	old, err := p.readTrash(op.Trash[0])
	if err != nil {
		return err
	}
	return p.swap(op.To, old, op.Swapped, r, dry)
}

// doAgain is takeBack in the other direction.
func (p *Pool) doAgain(op *Op, r *UndoResult, dry bool) error {
	switch op.Kind {
	case OpDelete, OpPrune:
		return p.takeAway(op, r, dry)
	case OpRename:
		return p.renameAgain(op, r, dry)
	}
	if len(op.Swapped) == 0 {
		return p.emptyAgain(op, r, dry)
	}
	next, err := p.readTrash(op.Swapped[0])
	if err != nil {
		return err
	}
	return p.swap(op.To, next, op.Trash, r, dry)
}

// reverse takes back what an undo or redo that failed has done until then.
func (p *Pool) reverse(op *Op) error {
	if op.Kind == OpOverwrite {
		return p.swapBack(op)
	}
	if op.State == OpRedoing {
		return p.takeBack(op, new(UndoResult), false)
	}
	return p.doAgain(op, new(UndoResult), false)
}

// swapBack takes back a swap that failed, if it got as far as the name. What the
// name holds otherwise was never away, and what the trash holds in place of it
// may be the only copy.
func (p *Pool) swapBack(op *Op) error {
	put, had := op.Trash, op.Swapped
	if op.State == OpRedoing {
		put, had = had, put
	}
	s, err := p.look(op.To)
	if err != nil {
		return err
	}
	if done, err := p.holds(s, put); err != nil || !done {
		return err
	}
	if len(had) == 0 {
		return durable.Remove(p.fs, fileOf(op.To))
	}
	data, err := p.readTrash(had[0])
	if err != nil || data == nil {
		return err
	}
	return durable.Write(p.fs, fileOf(op.To), data)
}

// holds reports whether a slot holds the document of an item; of none, whether
// it is free.
func (p *Pool) holds(s slot, items []TrashItem) (bool, error) {
	if len(items) == 0 {
		return s.free(), nil
	}
	data, err := p.readTrash(items[0])
	return data != nil && s.data != nil && bytes.Equal(s.data, data), err
}

// emptyAgain takes away what the undoing of an overwrite gave a name that was
// free by then.
func (p *Pool) emptyAgain(op *Op, r *UndoResult, dry bool) error {
	there, err := durable.Exists(p.fs, trashDir+"/"+op.Trash[0].File)
	if err != nil {
		return err
	}
	s, err := p.look(op.To)
	switch {
	case err != nil:
		return err
	case !there, s.free() && op.State != OpRedoing:
		return ErrGone
	case !s.free() && s.name != op.To:
		return taken(s.name)
	}
	if err := p.room(op.Trash[0], s); err != nil || dry {
		return err
	}
	if !s.free() {
		if err := p.writeTrash(op.Trash[0], s); err != nil {
			return err
		}
		if err := durable.Remove(p.fs, fileOf(op.To)); err != nil {
			return err
		}
	}
	r.Removed = append(r.Removed, op.To)
	return nil
}

// swap gives a name the document data, after what it holds went to the trash as
// into, if that is given.
func (p *Pool) swap(name Name, data []byte, into []TrashItem, r *UndoResult, dry bool) error {
	if data == nil {
		return ErrGone
	}
	s, err := p.look(name)
	if err != nil {
		return err
	}
	if !s.free() && s.name != name {
		return taken(s.name)
	}
	if len(into) > 0 && !bytes.Equal(s.data, data) {
		if err := p.room(into[0], s); err != nil {
			return err
		}
	}
	if dry {
		return nil
	}
	if !bytes.Equal(s.data, data) {
		if s.data != nil && len(into) > 0 {
			if err := p.writeTrash(into[0], s); err != nil {
				return err
			}
		}
		if err := durable.Write(p.fs, fileOf(name), data); err != nil {
			return err
		}
	}
	return p.restored(r, name)
}

// room is an error where what a slot holds would take the place of another
// snapshot in the trash. One version of a snapshot may take that of another.
func (p *Pool) room(item TrashItem, s slot) error {
	if s.data == nil {
		return nil
	}
	there, err := p.readTrash(item)
	if err != nil || there == nil || bytes.Equal(there, s.data) {
		return err
	}
	doc, err := transcript.Decode(there)
	if err != nil || s.doc == nil || doc.Meta.ID != s.doc.Meta.ID {
		return taken(s.name)
	}
	return nil
}

// stands reports whether the slot holds what the item was. A document without
// an id, or one that does not parse, is told by its place alone.
func (s slot) stands(item TrashItem) bool {
	return s.data != nil && (s.doc == nil || s.doc.Meta.ID == "" || s.doc.Meta.ID == item.ID)
}

// bringBack moves what was deleted back to its names.
func (p *Pool) bringBack(op *Op, r *UndoResult, dry bool) error {
	names, err := p.names()
	if err != nil {
		return err
	}
	moved := false
	for _, item := range op.Trash {
		there, err := durable.Exists(p.fs, trashDir+"/"+item.File)
		if err != nil {
			return err
		}
		s, err := p.lookIn(names, item.Name)
		if err != nil {
			return err
		}
		switch {
		case there && !s.free():
			return taken(s.name)
		case !there && !s.stands(item):
			r.Lost = append(r.Lost, item.Name)
			continue
		case dry:
			continue
		case there:
			if err := p.fs.Rename(trashDir+"/"+item.File, fileOf(item.Name)); err != nil {
				return err
			}
			moved = true
		}
		if err := p.restored(r, item.Name); err != nil {
			return err
		}
	}
	if len(r.Lost) == len(op.Trash) {
		return ErrGone
	}
	if moved {
		return errors.Join(p.fs.SyncDir("."), p.fs.SyncDir(trashDir))
	}
	return nil
}

// takeAway moves what was brought back to the trash again.
func (p *Pool) takeAway(op *Op, r *UndoResult, dry bool) error {
	names, err := p.names()
	if err != nil {
		return err
	}
	moved := false
	for _, item := range op.Trash {
		there, err := durable.Exists(p.fs, trashDir+"/"+item.File)
		if err != nil {
			return err
		}
		s, err := p.lookIn(names, item.Name)
		if err != nil {
			return err
		}
		if there || !s.stands(item) {
			continue
		}
		r.Removed = append(r.Removed, item.Name)
		if dry {
			continue
		}
		if err := p.fs.Rename(fileOf(item.Name), trashDir+"/"+item.File); err != nil {
			return err
		}
		moved = true
	}
	if moved {
		return errors.Join(p.fs.SyncDir(trashDir), p.fs.SyncDir("."))
	}
	return nil
}

// renameBack gives the renamed snapshot its old name, and what it replaced its
// name again. Where something was replaced no name is without a document on the
// way.
func (p *Pool) renameBack(op *Op, r *UndoResult, dry bool) error {
	from, to, err := p.both(op)
	if err != nil {
		return err
	}
	same := from.name == to.name // a change of case on a disk that ignores it
	if !from.free() && !from.is(op.Subject) && !same {
		return taken(from.name)
	}
	back := from.name == op.From && from.is(op.Subject)
	if !back && !to.is(op.Subject) {
		return &NotFoundError{Text: string(op.To)}
	}
	var old []byte
	if len(op.Trash) > 0 {
		if old, err = p.readTrash(op.Trash[0]); err != nil {
			return err
		}
		if old == nil {
			return ErrGone
		}
	}
	switch {
	case dry:
		return nil
	case old == nil:
		if !back {
			if err := durable.Move(p.fs, fileOf(op.To), fileOf(op.From)); err != nil {
				return err
			}
		}
		r.Removed = append(r.Removed, op.To)
		return p.restored(r, op.From)
	}
	if !back {
		if err := durable.Write(p.fs, fileOf(op.From), to.data); err != nil {
			return err
		}
	}
	if to.is(op.Subject) || to.free() { // else it has been given back already
		if err := durable.Write(p.fs, fileOf(op.To), old); err != nil {
			return err
		}
	}
	return errors.Join(p.restored(r, op.From), p.restored(r, op.To))
}

// renameAgain is the rename once more.
func (p *Pool) renameAgain(op *Op, r *UndoResult, dry bool) error {
	from, to, err := p.both(op)
	if err != nil {
		return err
	}
	there := to.name == op.To && to.is(op.Subject)
	if !there && to.name != from.name && len(op.Trash) > 0 {
		if err := p.room(op.Trash[0], to); err != nil {
			return err
		}
	}
	switch {
	case !there && !from.is(op.Subject):
		return &NotFoundError{Text: string(op.From)}
	case !there && !to.free() && to.name != from.name && len(op.Trash) == 0:
		return taken(to.name)
	case dry:
		return nil
	case there && from.name == op.From && from.is(op.Subject):
		// An undo went half the way: both names hold it.
		if err := durable.Remove(p.fs, fileOf(op.From)); err != nil {
			return err
		}
	case !there:
		if to.data != nil && to.name != from.name {
			if err := p.writeTrash(op.Trash[0], to); err != nil {
				return err
			}
		}
		if err := durable.Move(p.fs, fileOf(op.From), fileOf(op.To)); err != nil {
			return err
		}
	}
	r.Removed = append(r.Removed, op.From)
	return p.restored(r, op.To)
}

func (p *Pool) both(op *Op) (from, to slot, err error) {
	if from, err = p.look(op.From); err == nil {
		to, err = p.look(op.To)
	}
	return from, to, err
}

// restored notes what a name holds now.
func (p *Pool) restored(r *UndoResult, name Name) error {
	e, err := p.entry(name, fileOf(name))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Restored, func(o Entry) bool { return o.Name == name }) {
		r.Restored = append(r.Restored, e)
	}
	return nil
}

// taken is the error for a name that an undo needs.
func taken(name Name) error {
	return &ExistsError{Name: name, Hint: "rename or delete it, then try again"}
}
