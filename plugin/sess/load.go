package sess

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func loadVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "load",
			Aliases: []string{"restore", "get"},
			Summary: "Bring a snapshot back, in place",
			Help: "The session keeps its id. What it holds now is first kept as pre-load~<time>, so that loading that one, or sess undo, " +
				"takes the load back. Where session and snapshot do not differ nothing is written. With --as-new the snapshot " +
				"becomes a new session, and the present one stays as it is.",
			Examples: []string{"load v1", "load v1 --as-new"},
			Args:     []plugin.Arg{nameArg("snapshot to load, by name or id")},
			Flags: func(fs *dispatch.Flags) {
				fs.Bool("no-backup", false, "keep no copy of what the session holds now")
				fs.Bool("as-new", false, "make a new session of it")
				onlySessionFlag(fs)
			},
			Effect:    plugin.EffectWrite,
			AfterTurn: true,
			Main:      true,
		},
		run: load,
		check: func(ctx context.Context, r *request) error {
			_, _, err := r.openOf(ctx, r.Arg("name"))
			return err
		},
	}
}

func load(ctx context.Context, r *request) (plugin.Result, error) {
	pool, snap, err := r.openOf(ctx, r.Arg("name"))
	if err != nil {
		return plugin.Result{}, err
	}
	if r.Call.Foreign != "" {
		return r.loadForeign(ctx, pool, snap)
	}
	if r.Bool("as-new") {
		return r.openNew(ctx, newSession{pool: pool, from: snap})
	}
	done, err := r.replace(ctx, pool, replacement{
		snap: snap, op: r.op(snapshot.OpLoad, snap.Name), backup: !r.Bool("no-backup"),
		note: fmt.Sprintf("snapshot %s was loaded", snap.Name),
	})
	if err != nil {
		return plugin.Result{}, err
	}
	text := fmt.Sprintf("session %s already equals %s: nothing to do", done.ref.ID, snap.Name)
	if done.changed {
		r.retain(ctx, pool, done.ref, done.exempt()...)
		text = fmt.Sprintf("loaded %s into session %s: %s", snap.Name, done.ref.ID, count(snap.Doc.Meta.Messages, "message"))
		switch {
		case done.backup != nil:
			text += fmt.Sprintf("; the %s before %s in %s (%s takes it back)",
				count(done.backup.Meta.Messages, "message"), isAre(done.backup.Meta.Messages), done.backup.Name, r.typed("undo"))
		case r.Bool("no-backup"):
			text += fmt.Sprintf("; no backup was made, so %s cannot take it back", r.typed("undo"))
		}
	}
	data, err := metaJSON(snap.Name, snap.Doc.Meta,
		pair{"session", done.ref.ID}, pair{"changed", done.changed}, pair{"revision", done.revision}, pair{"backup", done.backupName()})
	return plugin.Result{Text: text, Data: data}, err
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// open finds, reads and checks a snapshot whole, before anything depends on it.
func (r *request) open(ctx context.Context, text string) (*snapshot.Pool, *snapshot.Snapshot, error) {
	pool, name, err := r.find(ctx, text)
	if err != nil {
		return nil, nil, err
	}
	return r.check(ctx, pool, name)
}

// openOf is open for verbs with [onlySessionFlag].
func (r *request) openOf(ctx context.Context, text string) (*snapshot.Pool, *snapshot.Snapshot, error) {
	pool, name, err := r.findOf(ctx, text)
	if err != nil {
		return nil, nil, err
	}
	return r.check(ctx, pool, name)
}

func (r *request) check(ctx context.Context, pool *snapshot.Pool, name snapshot.Name) (*snapshot.Pool, *snapshot.Snapshot, error) {
	snap, err := pool.Read(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return pool, snap, pool.Check(ctx, snap, r.progress("checking "+string(name), "chunks"))
}

// replacement puts a snapshot into the session of the call.
type replacement struct {
	snap   *snapshot.Snapshot
	op     snapshot.OpInfo
	backup bool   // keep what the session holds
	note   string // for the chats that show the session
}

// replaced is what became of a [replacement].
type replaced struct {
	ref      plugin.SessionRef
	revision int64
	changed  bool
	backup   *snapshot.Entry // nil: none was made
	empty    json.RawMessage // all that there was to keep, where that was no more than a header
	op       *snapshot.OpenOp
}

func (d *replaced) backupName() *snapshot.Name {
	if d.backup == nil {
		return nil
	}
	return &d.backup.Name
}

// kept is what brings back the state before.
func (d *replaced) kept() snapshot.Kept {
	if d.backup == nil {
		return snapshot.Kept{Empty: d.empty}
	}
	return snapshot.Kept{Link: &snapshot.Link{Name: d.backup.Name, ID: d.backup.Meta.ID}}
}

// exempt is what retention must leave alone: the backup just made.
func (d *replaced) exempt() []string {
	if d.backup == nil {
		return nil
	}
	return []string{d.backup.Meta.ID}
}

// replace changes the session all or nothing and closes the op. Where session
// and snapshot do not differ nothing is written.
func (r *request) replace(ctx context.Context, pool *snapshot.Pool, want replacement) (*replaced, error) {
	done, err := r.exchange(ctx, pool, want)
	if err != nil || !done.changed {
		return done, err
	}
	r.finish(ctx, done.op)
	return done, nil
}

// exchange is replace without the end of the op, which the caller closes or
// withdraws.
func (r *request) exchange(ctx context.Context, pool *snapshot.Pool, want replacement) (*replaced, error) {
	r.settleUndecided(ctx)
	live, damaged, err := r.present(ctx)
	switch {
	case has(err, plugin.NotFound) && want.snap.Doc.Meta.SessionID == r.ref.ID:
		live = &plugin.Session{Ref: r.ref} // it was deleted; the load makes it again
	case err != nil:
		return nil, err
	case live.Running:
		return nil, inTurn(live.Ref)
	}
	stage, err := r.runtime.Stage(ctx, plugin.StageRequest{
		Session: live.Ref, Document: *want.snap.Doc, Restore: true,
		Fresh: !stateOf(live.Ref, &want.snap.Doc.Meta),
	})
	if err != nil {
		return nil, err
	}
	done := &replaced{ref: stage.Ref, revision: stage.Revision}
	if !stage.Differs {
		return done, r.leaveView(ctx, live, r.runtime.Unstage(ctx, stage.ID))
	}
	want.op.Session = stage.Ref.ID
	want.op.NameID = want.snap.Doc.Meta.ID
	if want.backup && empty(&live.Document) && live.Revision > 0 {
		want.op.Empty = json.RawMessage(cmp.Or(string(live.Document.Header), "{}"))
	}
	op, err := pool.OpenOp(ctx, want.op)
	if err != nil {
		return nil, r.abandon(ctx, stage.ID, nil, err)
	}
	done.op, done.empty = op, want.op.Empty
	if want.backup && !empty(&live.Document) {
		if done.backup, err = r.backup(ctx, pool, stage.Ref, op, transcript.TriggerLoad, "before restore"); err != nil {
			if has(err, plugin.Corrupt) {
				err = plugin.AsError(err).WithHint("what is left of the session is given up by: %s", command("load", string(want.snap.Name), "--no-backup"))
			}
			return nil, r.abandon(ctx, stage.ID, op, err)
		}
	}
	if err := r.send(ctx, pool, stage); err != nil {
		return nil, r.abandon(ctx, stage.ID, op, err)
	}
	revision, err := r.runtime.Commit(ctx, plugin.CommitRequest{Stage: stage.ID, Revision: stage.Revision, Op: op.ID(), Note: want.note})
	if err != nil {
		switch r.outcome(ctx, stage.Ref, op, err) {
		case plugin.OpLanded:
		case plugin.OpVoid:
			return nil, r.abandon(ctx, stage.ID, op, committing(err, stage.Ref))
		default:
			return nil, r.undecided(stage.Ref, op, err)
		}
	}
	done.changed, done.revision = true, revision
	if damaged {
		r.notices = append(r.notices, fmt.Sprintf("session %s: its file was damaged and is kept beside it, as *.invalid-*", stage.Ref.ID))
	}
	return done, r.leaveView(ctx, live, nil)
}

// stateOf reports whether a snapshot is of that very session. One that was imported may
// be of another of the same name: two sessions never share what the provider continues
// from.
func stateOf(ref plugin.SessionRef, m *transcript.Meta) bool {
	return m.SessionID == ref.ID && m.ProjectID == ref.Project && m.Extra[originKey] == nil
}

// present reads the session of the call for what replaces it or turns away from
// it. One whose file is damaged is no bar to that: it counts as one without
// records, since nothing in it can be kept; the host keeps the file.
func (r *request) present(ctx context.Context) (live *plugin.Session, damaged bool, err error) {
	live, err = r.runtime.Session(ctx, r.ref)
	if r.ref.ID != "" && has(err, plugin.Corrupt) {
		return &plugin.Session{Ref: r.ref}, true, nil
	}
	return live, false, err
}

// backup keeps the live state of a session for the op that is about to change
// it; nil where there is nothing to keep.
func (r *request) backup(ctx context.Context, pool *snapshot.Pool, ref plugin.SessionRef, op *snapshot.OpenOp,
	trigger transcript.Trigger, reason string,
) (*snapshot.Entry, error) {
	entry, _, err := r.capture(ctx, r.agent, pool, ref, func(live *plugin.Session) *snapshot.SaveRequest {
		if empty(&live.Document) {
			return nil
		}
		meta := &live.Document.Meta
		meta.Reason, meta.Trigger, meta.Automatic = reason, trigger, true
		meta.Tags = r.config.withTags(nil)
		return &snapshot.SaveRequest{AutoPrefix: autoPrefix(trigger), BackupFor: op}
	})
	if err != nil {
		return nil, fmt.Errorf("back up session %s: %w", ref.ID, err)
	}
	if entry.Name == "" {
		return nil, nil
	}
	return &entry, nil
}

// leaveView shows the session again where a snapshot was shown instead.
func (r *request) leaveView(ctx context.Context, live *plugin.Session, err error) error {
	if err != nil || live.Selected == "" {
		return err
	}
	if err := r.runtime.Select(ctx, live.Ref, ""); err != nil {
		r.notices = append(r.notices, fmt.Sprintf("session %s still shows a snapshot: %s", live.Ref.ID, plugin.AsError(err).Text()))
	}
	return nil
}

func inTurn(ref plugin.SessionRef) *plugin.Error {
	return plugin.Errorf(plugin.Busy, "session %s runs a turn", ref.ID).
		WithHint("wait for the turn to end, or stop it, then try again").WithDetail("session", ref.ID)
}

// committing adds to the refusal of a commit what to do about it.
func committing(err error, ref plugin.SessionRef) error {
	e := plugin.AsError(err)
	switch {
	case e.Hint != "":
	case e.Code == plugin.Conflict:
		return e.WithHint("session %s changed meanwhile and was left as it is; run the command again", ref.ID)
	case e.Code == plugin.Busy:
		return e.WithHint("session %s was left as it is; wait for its turn to end, then try again", ref.ID)
	}
	return e
}
