package sess

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func undoVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "undo",
			Summary: "Take back the last load, new, deletion, overwrite or rename",
			Help: "Repeated, it goes further back; sess redo goes forward again. It looks at this session and at the names of its " +
				"pool. Saves under a new name, autosaves and automatic clean-ups are not taken back.",
			Examples:  []string{"undo"},
			Effect:    plugin.EffectWrite,
			AfterTurn: true,
		},
		run: func(ctx context.Context, r *request) (plugin.Result, error) { return r.turnBack(ctx, undoing()) },
	}
}

func redoVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:      "redo",
			Summary:   "Do again what undo took back",
			Help:      "It works until something else is done that undo could take back.",
			Examples:  []string{"redo"},
			Effect:    plugin.EffectWrite,
			AfterTurn: true,
		},
		run: func(ctx context.Context, r *request) (plugin.Result, error) { return r.turnBack(ctx, redoing()) },
	}
}

// direction is undo or redo: the two differ in what they look for only.
type direction struct {
	verb, counter string
	find          func(*snapshot.Pool, context.Context, string) (*snapshot.Op, error)
	kept          func(*snapshot.Op) snapshot.Kept
	session       func(*snapshot.Op) string // of a new
	names         func(*snapshot.Pool, context.Context, *snapshot.Op) (snapshot.UndoResult, error)
	mark          func(*snapshot.Pool, context.Context, string, snapshot.Kept) error
}

func undoing() direction {
	return direction{
		verb: "undo", counter: "redo",
		find:    (*snapshot.Pool).Undoable,
		kept:    (*snapshot.Op).Before,
		session: func(op *snapshot.Op) string { return op.Session },
		names:   (*snapshot.Pool).UndoNames,
		mark:    (*snapshot.Pool).MarkUndone,
	}
}

func redoing() direction {
	return direction{
		verb: "redo", counter: "undo",
		find:    (*snapshot.Pool).Redoable,
		kept:    (*snapshot.Op).After,
		session: func(op *snapshot.Op) string { return op.NewSession },
		names:   (*snapshot.Pool).RedoNames,
		mark:    (*snapshot.Pool).MarkRedone,
	}
}

// turnBack undoes or redoes one operation.
func (r *request) turnBack(ctx context.Context, d direction) (plugin.Result, error) {
	r.settleUndecided(ctx)
	pool, err := r.pools.existing(ctx, r.key)
	if err != nil {
		return plugin.Result{}, err
	}
	var op *snapshot.Op
	if pool != nil {
		if op, err = d.find(pool, ctx, r.ref.ID); err != nil {
			return plugin.Result{}, err
		}
	}
	switch {
	case op == nil:
		return plugin.Result{}, plugin.Errorf(plugin.NotFound, "there is nothing to %s for this session and its snapshots", d.verb).
			WithHint("look for backups with: %s", command("list", "--include-auto"))
	case op.Kind.Names():
		return r.turnNames(ctx, pool, op, d)
	case op.Kind == snapshot.OpNew:
		return r.turnNew(ctx, pool, op, d)
	}
	return r.turnSession(ctx, pool, op, d)
}

func (r *request) turnNames(ctx context.Context, pool *snapshot.Pool, op *snapshot.Op, d direction) (plugin.Result, error) {
	result, err := d.names(pool, ctx, op)
	r.whenTaken = func(stored string) string { return wayAround(op, stored) }
	if err != nil {
		return plugin.Result{}, err
	}
	var did []string
	restored := []snapshot.Name{}
	for _, e := range result.Restored {
		restored = append(restored, e.Name)
	}
	if len(restored) > 0 {
		did = append(did, "brought back "+enumerate(result.Restored))
	}
	if len(result.Removed) > 0 {
		did = append(did, "took away "+namesText(result.Removed, ", "))
	}
	if len(result.Lost) > 0 {
		did = append(did, "no longer in the trash: "+namesText(result.Lost, ", "))
	}
	if op.Kind == snapshot.OpRename && len(restored) == 1 {
		did = []string{fmt.Sprintf("%s is %s again", namesText(result.Removed, ", "), restored[0])}
	}
	removed := append([]snapshot.Name{}, result.Removed...)
	lost := append([]snapshot.Name{}, result.Lost...)
	return answer(fmt.Sprintf("%s of the %s: %s (%s turns it round)", d.verb, op.Kind, strings.Join(did, "; "), r.typed(d.counter)),
		pair{"op", op.ID}, pair{"kind", op.Kind}, pair{"restored", restored}, pair{"removed", removed}, pair{"lost", lost})
}

// wayAround is the command that brings back under another name what cannot have
// its old name again, because that is taken.
func wayAround(op *snapshot.Op, taken string) string {
	other := suffixed(taken, "-restored")
	switch {
	case op.Kind != snapshot.OpRename:
		return command("trash", "restore", taken, "--as="+other)
	case sameName(snapshot.Name(taken), op.From):
		return command("rename", string(op.To), other)
	}
	return command("rename", string(op.From), other)
}

// turnNew goes back to the session that was active before a new, or forward to
// the one that it made. Neither session is changed.
func (r *request) turnNew(ctx context.Context, pool *snapshot.Pool, op *snapshot.Op, d direction) (plugin.Result, error) {
	id := d.session(op)
	if r.Call.Foreign != "" {
		return r.turnForeign(ctx, pool, op, d)
	}
	if err := r.useSession(ctx, id); err != nil {
		return plugin.Result{}, err
	}
	if err := d.mark(pool, ctx, op.ID, snapshot.Kept{}); err != nil {
		return plugin.Result{}, err
	}
	return answer(fmt.Sprintf("%s of the new: session %s is active again (sess %s turns it round)", d.verb, id, d.counter),
		pair{"op", op.ID}, pair{"kind", op.Kind}, pair{"session", id})
}

// turnSession puts a kept state back into the session, on the same way as a
// load; what the session held before makes the way back.
func (r *request) turnSession(ctx context.Context, pool *snapshot.Pool, op *snapshot.Op, d direction) (plugin.Result, error) {
	snap, err := r.kept(ctx, pool, op, d)
	if err != nil {
		return plugin.Result{}, err
	}
	r.ref.ID = op.Session
	done, err := r.exchange(ctx, pool, replacement{
		snap: snap, op: r.op(snapshot.OpLoad, snap.Name), backup: true,
		note: fmt.Sprintf("%s of the %s", d.verb, called(op.Kind)),
	})
	if err != nil {
		return plugin.Result{}, err
	}
	if err := r.turned(ctx, pool, op, done, d); err != nil {
		return plugin.Result{}, err
	}
	r.retain(ctx, pool, done.ref, append(done.exempt(), snap.Doc.Meta.ID)...)
	what := called(op.Kind)
	if op.Kind == snapshot.OpLoad && op.Name != "" {
		what += " of " + op.Name
	}
	now := fmt.Sprintf("has the %s of %s", count(snap.Doc.Meta.Messages, "message"), snap.Name)
	if snap.Name == "" {
		now = "is empty again"
	}
	text := fmt.Sprintf("%s of the %s: session %s %s (sess %s turns it round)", d.verb, what, done.ref.ID, now, d.counter)
	return answer(text, pair{"op", op.ID}, pair{"kind", op.Kind}, pair{"session", done.ref.ID},
		pair{"from", snap.Name}, pair{"changed", done.changed}, pair{"revision", done.revision}, pair{"backup", done.backupName()})
}

// called is what people call an operation on a session.
func called(kind snapshot.OpKind) string {
	switch kind {
	case snapshot.OpDeleteMessages:
		return "message deletion"
	case snapshot.OpCompact:
		return "compaction"
	}
	return string(kind)
}

// kept is the state that an operation on a session is turned back to: a backup,
// also one that was pruned meanwhile, or, without a name, the empty session that
// needed none.
func (r *request) kept(ctx context.Context, pool *snapshot.Pool, op *snapshot.Op, d direction) (*snapshot.Snapshot, error) {
	kept := d.kept(op)
	link := kept.Link
	if link == nil && kept.Empty != nil {
		doc := &transcript.Document{Header: kept.Empty}
		doc.Meta.SessionID, doc.Meta.ProjectID = op.Session, r.key.Project
		return &snapshot.Snapshot{Doc: doc}, nil
	}
	if link == nil {
		return nil, plugin.Errorf(plugin.NotFound, "the last %s of session %s cannot be undone or redone: no backup was made", called(op.Kind), op.Session).
			WithHint("look for older backups with: %s", command("list", "--include-auto", "--of-session="+op.Session))
	}
	_, snap, err := r.open(ctx, link.ID)
	if _, several := errors.AsType[*snapshot.AmbiguousError](err); several {
		_, snap, err = r.open(ctx, string(link.Name))
	}
	if _, missing := errors.AsType[*snapshot.NotFoundError](err); missing {
		if snap, err = pool.ReadTrash(ctx, link.ID); err == nil {
			err = pool.Check(ctx, snap, r.progress("checking "+string(link.Name), "chunks"))
		}
	}
	if missing, ok := errors.AsType[*snapshot.NotFoundError](err); ok {
		return nil, named(plugin.NotFound, missing, "the backup %s that %s needs is gone", link.Name, d.verb).
			WithHint("look for older backups with: %s", command("list", "--include-auto", "--of-session="+op.Session))
	}
	return snap, err
}

// turned files what an exchange did under the op that it turned back. The op of
// the exchange itself served a crash in between only, and goes.
func (r *request) turned(ctx context.Context, pool *snapshot.Pool, op *snapshot.Op, done *replaced, d direction) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	way := done.kept()
	if !done.changed {
		way = d.kept(op) // the session is as it was and as it is to be
	}
	err := d.mark(pool, ctx, op.ID, way)
	switch {
	case !done.changed:
		return err
	case err != nil: // the session has changed all the same
		r.finish(ctx, done.op)
		r.notices = append(r.notices, fmt.Sprintf("this %s counts as a load, which %s takes back: %s", d.verb, r.typed("undo"), explain(err).Text()))
		return nil
	}
	err = done.op.SetBackup(ctx, snapshot.Link{})
	if err == nil {
		err = done.op.Withdraw(ctx)
	}
	if err != nil { // all but that is done and recorded
		r.unsettled(ctx, done.op, err)
	}
	return nil
}
