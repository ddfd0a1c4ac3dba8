package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"sess/store/durable"
	"sess/store/transcript"
)

// OpKind is what an operation does.
type OpKind string

// The kinds. Those of names (overwrite, delete, rename, prune) are recorded and
// undone here; the others by who opens them.
const (
	OpLoad           OpKind = "load"
	OpNew            OpKind = "new"
	OpOverwrite      OpKind = "overwrite"
	OpDelete         OpKind = "delete"
	OpRename         OpKind = "rename"
	OpPrune          OpKind = "prune"
	OpDeleteMessages OpKind = "delete-messages"
	OpCompact        OpKind = "compact"
)

// Names reports whether operations of this kind change the pool's names and
// nothing else, so that they are undone by [Pool.UndoNames].
func (k OpKind) Names() bool {
	switch k {
	case OpOverwrite, OpDelete, OpRename, OpPrune:
		return true
	}
	return false
}

// OpInfo says what an operation is and who asked for it.
type OpInfo struct {
	Kind       OpKind `json:"kind"`
	Agent      string `json:"agent,omitempty"`
	Project    string `json:"project,omitempty"`
	Session    string `json:"session,omitempty"`
	NewSession string `json:"newSession,omitempty"` // the session that new made
	Caller     string `json:"caller,omitempty"`
	Name       string `json:"name,omitempty"`   // of the snapshot that is loaded
	NameID     string `json:"nameId,omitempty"` // its id
	// Empty is the header of a session without records that the operation
	// changed: all there was to keep of it, so no backup was made.
	Empty     json.RawMessage `json:"empty,omitempty"`
	RequestID string          `json:"requestId,omitempty"`
}

// Kept is what brings back a state of a session: a snapshot, or the header that
// was all of it. The zero value means that nothing was kept.
type Kept struct {
	Link  *Link
	Empty json.RawMessage
}

// Before is what undo brings back of an operation on a session.
func (op *Op) Before() Kept { return Kept{op.Backup, op.Empty} }

// After is what redo brings back.
func (op *Op) After() Kept { return Kept{op.Redo, op.RedoEmpty} }

// OpState is how far an operation is.
type OpState string

// The states.
const (
	OpOpen    OpState = "open"    // begun; its owner is at work, or died
	OpClosed  OpState = "closed"  // done
	OpUndone  OpState = "undone"  // taken back
	OpUndoing OpState = "undoing" // being taken back
	OpRedoing OpState = "redoing" // being done again
)

// TrashItem is a document that an operation put into the trash.
type TrashItem struct {
	ID     string `json:"id"`   // of the snapshot; of a damaged one made up
	Name   Name   `json:"name"` // that it had
	File   string `json:"file"` // in the trash folder
	Reason string `json:"reason,omitempty"`
}

// Op is the record of an operation. Ids are UUIDv7, so they sort by time.
type Op struct {
	ID string `json:"id"`
	OpInfo
	State     OpState   `json:"state"`
	Time      time.Time `json:"time"`
	Automatic bool      `json:"automatic,omitempty"` // nobody asked for it: undo passes over it
	Backup    *Link     `json:"backup,omitempty"`    // what brings back the state before it
	Redo      *Link     `json:"redo,omitempty"`      // what brings back the state before its undoing
	// RedoEmpty is Empty for the undoing: there was no more to keep before it.
	RedoEmpty json.RawMessage `json:"redoEmpty,omitempty"`
	From      Name            `json:"from,omitempty"`    // of a rename
	To        Name            `json:"to,omitempty"`      // of a rename or overwrite
	Subject   string          `json:"subject,omitempty"` // id of the snapshot that was renamed or put in place
	Trash     []TrashItem     `json:"trash,omitempty"`   // what it took away
	Swapped   []TrashItem     `json:"swapped,omitempty"` // what its undoing took away
	Newest    string          `json:"newest,omitempty"`  // id of the newest operation when it was undone: a newer one ends redo

	dir string // where the record lies; empty is opsDir
}

// folder is where the record lies. That of an overwrite lies in the trash with
// the copy of what was there: one sync of the folder makes both durable.
func (op *Op) folder() string { return cmp.Or(op.dir, opsDir) }

func (op *Op) file() string { return op.folder() + "/" + op.ID + ".json" }

// openFile is the record of an operation on names until that is done. It says
// what the operation will be then: giving it the name of file closes it.
func (op *Op) openFile() string { return op.folder() + "/" + op.ID + openSuffix + ".json" }

const openSuffix = ".open"

// lockFile is the lock of its owner. Operations on names have none: they begin
// and end under the names lock.
func (op *Op) lockFile() string { return opsDir + "/" + op.ID + ".lock" }

// concerns reports whether undo in a session is about this operation.
func (op *Op) concerns(session string) bool {
	return op.Kind.Names() || op.foreign() || session != "" && (op.Session == session || op.NewSession == session)
}

// foreign reports whether the operation made a conversation of another agent:
// such a pool is one folder's, and no session of it is the active one.
func (op *Op) foreign() bool { return op.Kind == OpNew && op.Session == "" && op.NewSession != "" }

// done and undone count an undo or redo that did not get to its end as not done.
func (op *Op) done() bool   { return op.State == OpClosed || op.State == OpUndoing }
func (op *Op) undone() bool { return op.State == OpUndone || op.State == OpRedoing }

// opDirs are the folders in which records lie.
func opDirs() [2]string { return [2]string{opsDir, trashDir} }

// opIDs returns the ids of all records, the oldest first.
func (p *Pool) opIDs() ([]string, error) {
	var ids []string
	for _, dir := range opDirs() {
		entries, err := p.fs.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			id, ok := strings.CutSuffix(e.Name(), ".json")
			id = strings.TrimSuffix(id, openSuffix)
			if ok && e.Type().IsRegular() && uuid.Validate(id) == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil // one that is just being closed may be seen twice
}

// ops returns all records that can be read, the oldest first.
func (p *Pool) ops(ctx context.Context) ([]*Op, error) {
	ids, err := p.opIDs()
	if err != nil {
		return nil, err
	}
	var ops []*Op
	for _, id := range ids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if op := p.findOp(id); op != nil {
			ops = append(ops, op)
		}
	}
	return ops, nil
}

// findOp returns a record, or nil if it is gone or cannot be read.
func (p *Pool) findOp(id string) *Op {
	op, err := p.FindOp(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.opts.Logger.Warn("record of an operation cannot be read", "op", id, "err", err)
	}
	return op
}

// FindOp returns the record of an operation; one that is not there is
// fs.ErrNotExist.
func (p *Pool) FindOp(id string) (*Op, error) {
	if err := uuid.Validate(id); err != nil {
		return nil, fmt.Errorf("operation %q: %w", id, fs.ErrNotExist)
	}
	op := &Op{ID: id}
	data, open, err := p.readOp(op)
	if errors.Is(err, fs.ErrNotExist) { // it may have been closed between two looks
		data, open, err = p.readOp(op)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, op); err != nil {
		return nil, fmt.Errorf("record of operation %s: %w", id, err)
	}
	op.ID = id
	if open {
		op.State = OpOpen
	}
	if problem := op.problem(); problem != "" {
		return nil, fmt.Errorf("record of operation %s: %s", id, problem)
	}
	return op, nil
}

// readOp reads the record of an operation wherever it lies, and says whether the
// operation is yet to be done.
func (p *Pool) readOp(op *Op) (data []byte, open bool, err error) {
	for _, open := range []bool{false, true} {
		for _, op.dir = range opDirs() {
			file := op.file()
			if open {
				file = op.openFile()
			}
			data, err := durable.ReadFile(p.fs, file, maxRecord)
			if !errors.Is(err, fs.ErrNotExist) {
				return data, open, err
			}
		}
	}
	return nil, false, &fs.PathError{Op: "open", Path: p.path(opsDir + "/" + op.ID + ".json"), Err: fs.ErrNotExist}
}

// problem says what keeps a record from being followed, as where it was damaged
// or a newer version wrote it; "" means nothing. All else here relies on it: no
// name or file of a record leads out of the pool.
func (op *Op) problem() string {
	switch op.Kind {
	case OpLoad, OpNew, OpDelete, OpPrune, OpDeleteMessages, OpCompact:
	case OpOverwrite:
		if len(op.Trash) == 0 {
			return "it does not say what was overwritten"
		}
		if op.To == "" {
			return "it does not say what name was overwritten"
		}
	case OpRename:
		if op.From == "" || op.To == "" {
			return "it does not say what was renamed"
		}
	default:
		return fmt.Sprintf("%q is no kind of operation", op.Kind)
	}
	switch op.State {
	case OpOpen, OpClosed, OpUndone, OpUndoing, OpRedoing:
	default:
		return fmt.Sprintf("%q is no state of an operation", op.State)
	}
	var names []Name
	for _, name := range []Name{op.From, op.To} {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, link := range []*Link{op.Backup, op.Redo} {
		if link != nil {
			names = append(names, link.Name)
		}
	}
	for _, header := range []json.RawMessage{op.Empty, op.RedoEmpty} {
		if plain, err := transcript.Canonical(header); header != nil && (err != nil || plain[0] != '{') {
			return "it does not say what a session without records was"
		}
	}
	if problem := op.trashProblem(); problem != "" {
		return problem
	}
	for _, item := range slices.Concat(op.Trash, op.Swapped) {
		names = append(names, item.Name)
	}
	for _, name := range names {
		if nameProblem(string(name)) != "" {
			return fmt.Sprintf("%q is no name", string(name))
		}
	}
	return ""
}

// trashProblem is problem for what the record says of the trash. Each document
// there is that of one record, which may move, replace and remove it: so none may
// claim another's, and none the same one twice.
func (op *Op) trashProblem() string {
	most := len(op.Trash)
	if op.Kind == OpOverwrite || op.Kind == OpRename {
		most = 1
	}
	if len(op.Trash) > most || len(op.Swapped) > 1 {
		return "it says more than once what was overwritten"
	}
	files, names := map[string]bool{}, map[Name]bool{}
	for _, item := range slices.Concat(op.Trash, op.Swapped) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(item.File, suffix), swappedMark), "."+op.ID)
		if item.File != trashName(base, op.ID) && item.File != trashName(base, op.ID+swappedMark) ||
			strings.ContainsAny(base, `/\`) || durable.Ignored(item.File) {
			return fmt.Sprintf("%q is no file that it put into the trash", item.File)
		}
		if files[item.File] {
			return fmt.Sprintf("%q is there twice", item.File)
		}
		files[item.File] = true
	}
	for _, item := range op.Trash {
		if names[item.Name] {
			return fmt.Sprintf("%q was taken away twice", string(item.Name))
		}
		names[item.Name] = true
	}
	return ""
}

// maxRecord bounds the bytes of a record.
const maxRecord = 64 << 20

// stage puts an overwrite into the trash that is yet to be done: its record and a
// copy of what the slot holds, both durable with one sync of the folder. The names
// lock is held.
func (p *Pool) stage(op *Op, old slot) error {
	if err := durable.MkdirAll(p.fs, op.folder()); err != nil {
		return err
	}
	data, err := op.closed()
	if err != nil {
		return err
	}
	record, err := durable.WriteTemp(p.fs, op.openFile(), data)
	if err != nil {
		return err
	}
	if err := record.Rename(op.openFile()); err != nil {
		return err
	}
	return p.writeTrash(op.Trash[0], old) // which syncs the folder
}

// closed is the record of an operation as it will be when that is done.
func (op *Op) closed() ([]byte, error) {
	closed := *op
	closed.State = OpClosed
	return closed.encode()
}

func (op *Op) encode() ([]byte, error) {
	data, err := json.Marshal(op)
	return append(data, '\n'), err
}

// writeOp stores a record. The names lock is held.
func (p *Pool) writeOp(op *Op) error {
	data, err := op.encode()
	if err != nil {
		return err
	}
	return p.putOp(op, op.file(), data)
}

// writeOpen stores the record of an operation on names that is yet to be done.
func (p *Pool) writeOpen(op *Op) error {
	data, err := op.closed()
	if err != nil {
		return err
	}
	return p.putOp(op, op.openFile(), data)
}

func (p *Pool) putOp(op *Op, file string, data []byte) error {
	if err := durable.MkdirAll(p.fs, op.folder()); err != nil {
		return err
	}
	return durable.Write(p.fs, file, data)
}

// removeOp removes a record, durably. The names lock is held.
func (p *Pool) removeOp(op *Op) error {
	return errors.Join(durable.Remove(p.fs, op.openFile()), durable.Remove(p.fs, op.file()))
}

// syncOps makes durable which operations are closed: before what their records
// would be settled by is taken from the trash. The names lock is held.
func (p *Pool) syncOps() error {
	for _, dir := range opDirs() {
		if err := p.fs.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// newOp completes a new record. Its id sorts after those of all others, also
// when the clock was set back. The names lock is held.
func (p *Pool) newOp(op Op) (*Op, error) {
	ids, err := p.opIDs()
	if err != nil {
		return nil, err
	}
	id := uuid.Must(uuid.NewV7())
	if len(ids) > 0 && ids[len(ids)-1] >= id.String() {
		last := uuid.MustParse(ids[len(ids)-1])
		copy(id[:6], last[:6])
		for i := 5; i >= 0; i-- { // the next millisecond
			if id[i]++; id[i] != 0 {
				break
			}
		}
	}
	op.ID, op.State, op.Time = id.String(), OpOpen, p.now()
	return &op, nil
}

// newest is the id of the newest operation that is not open. The names lock is
// held.
func (p *Pool) newest() (string, error) {
	ids, err := p.opIDs()
	for _, id := range slices.Backward(ids) {
		if op := p.findOp(id); op != nil && op.State != OpOpen {
			return id, nil
		}
	}
	return "", err
}

// OpenOp is an operation under way, owned by this process. It is not safe for
// concurrent use. Close or Withdraw ends it; one that is left to the end of the
// process is settled by [Pool.Recover].
type OpenOp struct {
	pool   *Pool
	op     *Op
	unlock func() error // nil when it has ended
}

// OpenOp writes the record of an operation that changes a live session, before
// its effect. The record is locked until Close or Withdraw; if the process dies,
// [Pool.Recover] decides.
func (p *Pool) OpenOp(ctx context.Context, info OpInfo) (*OpenOp, error) {
	unlock, err := p.lock(ctx, string(info.Kind))
	if err != nil {
		return nil, err
	}
	defer unlock()
	op, err := p.newOp(Op{OpInfo: info})
	if err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(p.fs, opsDir); err != nil {
		return nil, err
	}
	release, err := p.fs.Lock(ctx, op.lockFile(), durable.Exclusive, false)
	if err != nil {
		return nil, err
	}
	if err := p.writeOp(op); err != nil {
		p.unsettled(op, errors.Join(durable.Remove(p.fs, op.file()), release(), p.removeLockFile(op)))
		return nil, err
	}
	return &OpenOp{pool: p, op: op, unlock: release}, nil
}

// ID is the operation's id.
func (o *OpenOp) ID() string { return o.op.ID }

// Backup is the id of the snapshot that brings back the state before; empty where
// there is none.
func (o *OpenOp) Backup() string {
	if o.op.Backup == nil {
		return ""
	}
	return o.op.Backup.ID
}

// put changes the record. The names lock is held.
func (o *OpenOp) put(change func(*Op)) error {
	if o.unlock == nil {
		return fmt.Errorf("operation %s has ended", o.op.ID)
	}
	next := *o.op
	change(&next)
	if err := o.pool.writeOp(&next); err != nil {
		return err
	}
	o.op = &next
	return nil
}

func (o *OpenOp) update(ctx context.Context, change func(*Op)) error {
	unlock, err := o.pool.lock(ctx, string(o.op.Kind))
	if err != nil {
		return err
	}
	defer unlock()
	return o.put(change)
}

// SetBackup records the snapshot that brings back the state before. The zero Link
// forgets it, so that Withdraw leaves the snapshot alone.
func (o *OpenOp) SetBackup(ctx context.Context, l Link) error {
	return o.update(ctx, func(op *Op) {
		op.Backup = nil
		if l != (Link{}) {
			op.Backup = &l
		}
	})
}

// SetNewSession records the session that the operation makes.
func (o *OpenOp) SetNewSession(ctx context.Context, session string) error {
	return o.update(ctx, func(op *Op) { op.NewSession = session })
}

// Close records that the operation happened. After an error it is still open.
func (o *OpenOp) Close(ctx context.Context) error {
	if o.unlock == nil {
		return nil
	}
	unlock, err := o.pool.lock(ctx, string(o.op.Kind))
	if err != nil {
		return err
	}
	defer unlock()
	if err := o.put(func(op *Op) { op.State = OpClosed }); err != nil {
		return err
	}
	return o.end()
}

// Withdraw removes the record and the backup of an operation that did not
// happen. It does nothing after Close.
func (o *OpenOp) Withdraw(ctx context.Context) error {
	if o.unlock == nil {
		return nil
	}
	unlock, err := o.pool.lock(ctx, string(o.op.Kind))
	if err != nil {
		return err
	}
	defer unlock()
	if err := o.pool.forget(o.op); err != nil {
		return err
	}
	return o.end()
}

// end lets go of the record. The names lock is held.
func (o *OpenOp) end() error {
	err := errors.Join(o.unlock(), o.pool.removeLockFile(o.op))
	o.unlock = nil
	return err
}

// removeLockFile removes the lock file of a record that is settled or gone. Lock
// files come and go under the names lock only, so nobody waits on a removed one.
func (p *Pool) removeLockFile(op *Op) error {
	if err := p.fs.Remove(op.lockFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// forget removes the backup and then the record of an operation that did not
// happen. The names lock is held.
func (p *Pool) forget(op *Op) error {
	if b := op.Backup; b != nil {
		s, err := p.look(b.Name)
		if err != nil {
			return err
		}
		// What a person saved is never a backup that may go for good.
		if s.doc != nil && s.doc.Meta.ID == b.ID && (s.doc.Meta.Automatic || ReservedPrefix(b.Name)) {
			if err := durable.Remove(p.fs, fileOf(b.Name)); err != nil {
				return err
			}
		}
	}
	return durable.Remove(p.fs, op.file())
}

// What became of an operation whose owner died, as the ask function of Recover
// answers.
const (
	Landed  = "landed"  // it happened
	Void    = "void"    // it did not, and never will
	Unknown = "unknown" // nobody can say now
)

// Recovered is an operation that Recover looked at.
type Recovered struct {
	Op      Op
	Outcome string // Landed, Void or Unknown
}

// Recover settles operations whose owner is gone. Of those that change names it
// looks at the disk; for the others it asks: landed ones are closed, of void
// ones the backup and the record are removed, unknown ones stay. A nil ask
// knows nothing. While it asks it holds no lock of the pool but that of the
// record. It goes on after an error and returns all of them joined.
func (p *Pool) Recover(ctx context.Context, ask func(context.Context, Op) (string, error)) ([]Recovered, error) {
	ops, err := p.ops(ctx)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	var all []Recovered
	var errs []error
	if err := p.chunks.Relink(trashDir); err != nil {
		errs = append(errs, fmt.Errorf("recover chunks: %w", err))
	}
	for _, op := range ops {
		if op.State == OpClosed || op.State == OpUndone {
			continue
		}
		var r *Recovered
		if op.Kind.Names() {
			r, err = p.recoverNames(ctx, op.ID)
		} else {
			r, err = p.recoverSession(ctx, op, ask)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("recover %s %s: %w", op.Kind, op.ID, err))
		}
		if r != nil {
			all = append(all, *r)
		}
	}
	if err := p.dropCopies(ctx); err != nil {
		errs = append(errs, fmt.Errorf("recover the trash: %w", err))
	}
	return all, errors.Join(errs...)
}

// dropCopies removes from the trash what an overwrite put there whose record did
// not last: it became no more than a copy, of a document that has its name still.
// Record and copy become durable together, so a power cut may leave the copy
// alone.
func (p *Pool) dropCopies(ctx context.Context) error {
	alone, err := p.unrecorded()
	if err != nil || len(alone) == 0 {
		return err
	}
	unlock, err := p.lock(ctx, "recover")
	if err != nil {
		return err
	}
	defer unlock()
	if alone, err = p.unrecorded(); err != nil || len(alone) == 0 { // nobody is at work on them
		return err
	}
	names, err := p.names()
	if err != nil {
		return err
	}
	if err := p.steady(); err != nil {
		return err
	}
	for _, file := range alone {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		copied, err := p.isCopy(file, names)
		if err == nil && copied {
			err = durable.Remove(p.fs, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unrecorded returns the files in the trash whose operation has no record.
func (p *Pool) unrecorded() ([]string, error) {
	files, err := p.trashFiles() // before the records: theirs come first
	if err != nil || len(files) == 0 {
		return nil, err
	}
	ids, err := p.opIDs()
	if err != nil {
		return nil, err
	}
	var alone []string
	for _, f := range files {
		id := strings.TrimSuffix(path.Ext(strings.TrimSuffix(f.Name(), suffix)), swappedMark)
		id = strings.TrimPrefix(id, ".")
		if _, recorded := slices.BinarySearch(ids, id); !recorded && uuid.Validate(id) == nil {
			alone = append(alone, trashDir+"/"+f.Name())
		}
	}
	return alone, nil
}

// isCopy reports whether one of the names holds the same bytes as a file.
func (p *Pool) isCopy(file string, names []Name) (bool, error) {
	data, err := durable.ReadFile(p.fs, file, maxDocument)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		info, err := p.fs.Stat(fileOf(name))
		if err != nil || info.Size() != int64(len(data)) {
			continue // it went, or is another
		}
		if s, err := p.peek(name); err == nil && bytes.Equal(s.data, data) {
			return true, nil
		}
	}
	return false, nil
}

// recoverSession settles an operation on a live session if its owner is gone.
func (p *Pool) recoverSession(ctx context.Context, op *Op, ask func(context.Context, Op) (string, error)) (*Recovered, error) {
	release, err := p.fs.Lock(ctx, op.lockFile(), durable.Exclusive, false)
	if errors.Is(err, durable.ErrLocked) {
		return nil, nil // its owner is at work
	}
	if err != nil {
		return nil, err
	}
	held := &OpenOp{pool: p, op: op, unlock: release}
	if op, err = p.FindOp(op.ID); err != nil || op.State != OpOpen {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, errors.Join(err, held.drop(ctx)) // settled since it was read
	}
	held.op = op
	r := &Recovered{Op: *op, Outcome: Unknown}
	if ask != nil {
		r.Outcome, err = ask(ctx, *op)
	}
	switch {
	case err != nil:
		r.Outcome = Unknown
		return r, errors.Join(err, release())
	case r.Outcome == Landed:
		return r, held.Close(ctx)
	case r.Outcome == Void:
		return r, held.Withdraw(ctx)
	}
	r.Outcome = Unknown
	return r, release()
}

// drop lets go of a record that somebody else settled.
func (o *OpenOp) drop(ctx context.Context) error {
	unlock, err := o.pool.lock(ctx, "recover")
	if err != nil {
		return errors.Join(err, o.unlock())
	}
	defer unlock()
	return o.end()
}

// newestOps yields records that undo knows, the newest first.
func (p *Pool) newestOps(ctx context.Context, yield func(*Op) bool) error {
	ids, err := p.opIDs()
	if err != nil {
		return err
	}
	for _, id := range slices.Backward(ids) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if op := p.findOp(id); op != nil && !op.Automatic && !yield(op) {
			break
		}
	}
	return nil
}

// Undoable returns the newest operation that undo takes back: one of the pool's
// names, or of the session. It is nil when there is none.
func (p *Pool) Undoable(ctx context.Context, session string) (*Op, error) {
	var found *Op
	err := p.newestOps(ctx, func(op *Op) bool {
		if op.done() && op.concerns(session) {
			found = op
		}
		return found == nil
	})
	return found, err
}

// Redoable returns the operation that redo does again: the one undone last, if
// no operation followed it, not even one that was undone itself. It is nil when
// there is none.
func (p *Pool) Redoable(ctx context.Context, session string) (*Op, error) {
	var found *Op
	var newest string // operation of all
	err := p.newestOps(ctx, func(op *Op) bool {
		if !op.concerns(session) || op.State == OpOpen {
			return true
		}
		newest = cmp.Or(newest, op.ID)
		if op.undone() && newest <= cmp.Or(op.Newest, newest) {
			found = op // undo goes from the newest back: the oldest went last
		}
		return !op.done()
	})
	return found, err
}

// LoadedLast returns the snapshot of the newest load that was not undone. The
// zero Link means none.
func (p *Pool) LoadedLast(ctx context.Context) (Link, error) {
	var l Link
	err := p.newestOps(ctx, func(op *Op) bool {
		if op.Kind != OpLoad || !op.done() {
			return true
		}
		l = Link{Name: Name(op.Name), ID: op.NameID}
		return false
	})
	return l, err
}

// MarkUndone records that the effect of an operation on a live session was taken
// back; redo is what was kept before that. An operation that is not closed is
// ErrStale.
func (p *Pool) MarkUndone(ctx context.Context, id string, redo Kept) error {
	return p.mark(ctx, id, OpClosed, func(op *Op) (err error) {
		op.State, op.Redo, op.RedoEmpty = OpUndone, redo.Link, redo.Empty
		op.Newest, err = p.newest()
		return err
	})
}

// MarkRedone records that an undone operation was done again; undo is
// what was kept before that. An operation that is not undone is ErrStale.
func (p *Pool) MarkRedone(ctx context.Context, id string, undo Kept) error {
	return p.mark(ctx, id, OpUndone, func(op *Op) error {
		op.State, op.Backup, op.Empty = OpClosed, undo.Link, undo.Empty
		op.Redo, op.RedoEmpty = nil, nil
		return nil
	})
}

func (p *Pool) mark(ctx context.Context, id string, from OpState, change func(*Op) error) error {
	unlock, err := p.lock(ctx, "undo")
	if err != nil {
		return err
	}
	defer unlock()
	op, err := p.FindOp(id)
	if err != nil {
		return err
	}
	if op.State != from {
		return fmt.Errorf("operation %s is %s: %w", id, op.State, ErrStale)
	}
	if err := change(op); err != nil {
		return err
	}
	return p.writeOp(op)
}

// keepRecords is how many records stay that nothing in the trash needs.
const keepRecords = 200

// steady makes what the names and the trash show durable. Whoever decides by that
// what a record still means needs it first: who changed them may not have come as
// far as the sync. The names lock is held.
func (p *Pool) steady() error {
	err := p.fs.SyncDir(trashDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.fs.SyncDir("."))
}

// sweepOps removes records that serve nothing any more: what they could bring
// back is gone, or they are old. alive are the ids of all documents, also those
// in the trash. The names lock is held.
func (p *Pool) sweepOps(ctx context.Context, alive func(id string) bool) (int, error) {
	ops, err := p.ops(ctx)
	if err != nil {
		return 0, err
	}
	open := map[string]bool{}
	var lastLoad string
	for _, op := range ops {
		open[path.Base(op.lockFile())] = op.State == OpOpen
		if op.Kind == OpLoad && op.done() {
			lastLoad = op.ID
		}
	}
	removed := 0
	for i, op := range ops {
		trash, err := p.hasTrash(op)
		if err != nil {
			return removed, err
		}
		links := op.Backup != nil && alive(op.Backup.ID) || op.Redo != nil && alive(op.Redo.ID)
		old := i < len(ops)-keepRecords
		var keep bool
		switch {
		case op.State != OpClosed && op.State != OpUndone, op.ID == lastLoad, trash:
			keep = true
		case op.State == OpUndone && op.Kind.Names():
			keep = !old // redo goes by the record: the documents are back under their names
		case len(op.Trash) > 0:
			keep = op.Kind == OpRename && !old
		case op.Backup != nil:
			keep = links && !old
		default:
			keep = !old
		}
		if keep {
			continue
		}
		if err := durable.Remove(p.fs, op.file()); err != nil {
			return removed, err
		}
		removed++
	}
	entries, err := p.fs.ReadDir(opsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return removed, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".lock") && !open[e.Name()] {
			if err := p.fs.Remove(opsDir + "/" + e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return removed, err
			}
		}
	}
	return removed, nil
}

// hasTrash reports whether one of the record's documents is in the trash.
func (p *Pool) hasTrash(op *Op) (bool, error) {
	for _, item := range slices.Concat(op.Trash, op.Swapped) {
		if ok, err := durable.Exists(p.fs, trashDir+"/"+item.File); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}
