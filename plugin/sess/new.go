package sess

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func newVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "new",
			Aliases: []string{"reset", "fresh"},
			Summary: "Start a fresh session",
			Help: "The new session becomes the active one. The present one stays in the list of sessions and is also kept as " +
				"pre-new~<time>; sess undo goes back to it. With a name the fresh state is saved under it, with --from it begins as " +
				"that snapshot.",
			Examples: []string{"new", "new experiment --from=v1"},
			Args:     []plugin.Arg{{Name: "name", Type: plugin.TypeString, Help: "save the fresh state under this name"}},
			Flags: func(fs *dispatch.Flags) {
				fs.String("from", "", "snapshot to begin with").Complete(completeSnapshot)
				fs.Bool("backup", true, "keep the present session as pre-new~<time>").Negatable()
				noteFlag(fs)
			},
			Effect:    plugin.EffectWrite,
			AfterTurn: true,
			Main:      true,
		},
		run: startNew,
		check: func(ctx context.Context, r *request) error {
			_, err := r.newSession(ctx)
			return err
		},
	}
}

// newSession is what a session is made of.
type newSession struct {
	pool   *snapshot.Pool
	from   *snapshot.Snapshot // nil: without messages
	name   snapshot.Name      // save the fresh state under it; may be empty
	note   string
	backup bool
}

func startNew(ctx context.Context, r *request) (plugin.Result, error) {
	if r.Call.Foreign != "" {
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "a new conversation of %s begins in %s itself", r.Call.Foreign, r.Call.Foreign).
			WithHint("start it there; to begin with a snapshot: %s", command("load", "<name>", "--agent="+r.agent))
	}
	want, err := r.newSession(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	return r.openNew(ctx, want)
}

// newSession reads the call, and refuses what could not be done to the end.
func (r *request) newSession(ctx context.Context) (newSession, error) {
	want := newSession{backup: r.Bool("backup"), note: r.String("note")}
	var err error
	switch {
	case r.Has("name"):
		if want.name, err = r.target(r.Arg("name")); err != nil {
			return want, err
		}
		r.whenTaken = func(stored string) string { return command("delete", stored) }
	case r.Changed("note"):
		return want, plugin.Errorf(plugin.Usage, "new: --note belongs to the snapshot of the fresh state, and no name is given").
			WithHint("give a name, as in: sess new v2 --note=…")
	}
	if r.Changed("from") {
		if want.pool, want.from, err = r.open(ctx, r.String("from")); err != nil {
			return want, err
		}
	} else if want.pool, err = r.pool(ctx); err != nil {
		return want, err
	}
	if want.name != "" {
		if err := free(ctx, want.pool, want.name); err != nil {
			return want, err
		}
		if err := r.roomFor(ctx, want.pool, want.name); err != nil {
			return want, err
		}
	}
	return want, nil
}

// free refuses a name that is taken, in any case.
func free(ctx context.Context, pool *snapshot.Pool, name snapshot.Name) error {
	entries, err := pool.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if sameName(e.Name, name) {
			return &snapshot.ExistsError{Name: e.Name}
		}
	}
	return nil
}

// openNew makes a session and makes it the active one.
func (r *request) openNew(ctx context.Context, want newSession) (plugin.Result, error) {
	r.settleUndecided(ctx)
	if r.ref.ID == "" {
		return r.openFirst(ctx, want)
	}
	old, damaged, err := r.present(ctx)
	switch {
	case err != nil:
		return plugin.Result{}, err
	case old.Running:
		return plugin.Result{}, inTurn(old.Ref)
	}
	fresh := plugin.SessionRef{Project: r.key.Project, ID: sessionID(r.now())}
	stage, err := r.stageFresh(ctx, want)
	if err != nil {
		return plugin.Result{}, err
	}
	info := r.op(snapshot.OpNew, want.name)
	info.Session, info.NewSession = old.Ref.ID, fresh.ID
	op, err := want.pool.OpenOp(ctx, info)
	if err != nil {
		return plugin.Result{}, r.abandon(ctx, stage.ID, nil, err)
	}
	var backup *snapshot.Entry
	if want.backup && !damaged {
		if backup, err = r.backup(ctx, want.pool, old.Ref, op, transcript.TriggerNew, "before new"); err != nil {
			return plugin.Result{}, r.abandon(ctx, stage.ID, op, err)
		}
	}
	if err := r.send(ctx, want.pool, &stage); err != nil {
		return plugin.Result{}, r.abandon(ctx, stage.ID, op, err)
	}
	made, err := r.runtime.NewSession(ctx, plugin.NewSessionRequest{Project: fresh.Project, ID: fresh.ID, Stage: stage.ID, Op: op.ID()})
	if err != nil {
		switch r.outcome(ctx, fresh, op, err) {
		case plugin.OpLanded:
			made.Ref = fresh
		case plugin.OpVoid:
			return plugin.Result{}, r.abandon(ctx, stage.ID, op, err)
		default:
			return plugin.Result{}, r.undecided(fresh, op, err)
		}
	}
	r.finish(ctx, op)
	if damaged {
		r.notices = append(r.notices, fmt.Sprintf("session %s is damaged: it was left as it is, without a backup", old.Ref.ID))
	}
	return r.announceNew(ctx, want, old, made.Ref, backup)
}

// openFirst is openNew where no session is active: there is nothing to go back to,
// and asking for the present session would make another one.
func (r *request) openFirst(ctx context.Context, want newSession) (plugin.Result, error) {
	stage, err := r.stageFresh(ctx, want)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := r.send(ctx, want.pool, &stage); err != nil {
		return plugin.Result{}, r.abandon(ctx, stage.ID, nil, err)
	}
	made, err := r.runtime.NewSession(ctx, plugin.NewSessionRequest{Project: r.key.Project, ID: sessionID(r.now()), Stage: stage.ID})
	if err != nil {
		return plugin.Result{}, r.abandon(ctx, stage.ID, nil, err)
	}
	return r.announceNew(ctx, want, &plugin.Session{}, made.Ref, nil)
}

// stageFresh prepares what a new session begins with; without a snapshot that is
// nothing, and no stage.
func (r *request) stageFresh(ctx context.Context, want newSession) (plugin.Stage, error) {
	if want.from == nil {
		return plugin.Stage{}, nil
	}
	s, err := r.runtime.Stage(ctx, plugin.StageRequest{
		Session: plugin.SessionRef{Project: r.key.Project}, Document: *want.from.Doc, Restore: true, Fresh: true,
	})
	if err != nil {
		return plugin.Stage{}, err
	}
	return *s, nil
}

// announceNew saves the fresh state where a name was given, and answers.
func (r *request) announceNew(ctx context.Context, want newSession, old *plugin.Session, made plugin.SessionRef, backup *snapshot.Entry) (plugin.Result, error) {
	done := replaced{backup: backup}
	exempt := done.exempt()
	messages := 0
	text := "new session " + made.ID
	var previous any // null: there was none
	if old.Ref.ID != "" {
		previous = old.Ref.ID
	}
	pairs := []pair{{"session", made.ID}, {"previous", previous}, {"backup", done.backupName()}}
	if want.from != nil {
		messages = want.from.Doc.Meta.Messages
		text += " from " + string(want.from.Name)
		pairs = append(pairs, pair{"from", want.from.Name})
	}
	text += ": " + count(messages, "message")
	if want.name != "" {
		entry, err := r.saveFresh(ctx, want, made)
		if err != nil {
			e := explainTaken(err, func(stored string) string { return command("save", stored, "--overwrite") })
			return plugin.Result{}, plugin.Errorf(e.Code, "session %s was made and is active, but was not saved as %s: %w", made.ID, want.name, e).WithHint("%s", e.Hint)
		}
		exempt = append(exempt, entry.Meta.ID)
		text += ", saved as " + string(entry.Name) + hiddenNote(entry.Name)
		meta, err := metaJSON(entry.Name, entry.Meta)
		if err != nil {
			return plugin.Result{}, err
		}
		pairs = append(pairs, pair{"snapshot", meta})
	}
	r.retain(ctx, want.pool, made, exempt...)
	switch {
	case backup != nil:
		n := backup.Meta.Messages
		text += fmt.Sprintf("; the %s before %s in %s (%s goes back)", count(n, "message"), isAre(n), backup.Name, r.typed("undo"))
	case !empty(&old.Document):
		text += fmt.Sprintf("; session %s stays as it is (%s goes back)", old.Ref.ID, r.typed("undo"))
	}
	return answer(text, pairs...)
}

// saveFresh saves the session just made under the name that was asked for.
func (r *request) saveFresh(ctx context.Context, want newSession, made plugin.SessionRef) (snapshot.Entry, error) {
	entry, _, err := r.capture(ctx, r.agent, want.pool, made, func(live *plugin.Session) *snapshot.SaveRequest {
		meta := &live.Document.Meta
		meta.Note, meta.Tags, meta.Trigger = want.note, r.config.withTags(nil), transcript.TriggerNew
		if want.from != nil {
			meta.Parent = want.from.Doc.Meta.ID
		}
		return &snapshot.SaveRequest{Name: want.name}
	})
	return entry, err
}

// sessionID makes the id of a session: the local date and eight random digits.
func sessionID(now time.Time) string {
	id := uuid.New()
	return now.Local().Format("20060102_") + hex.EncodeToString(id[:4])
}

// useSession makes a session of the project the active one.
func (r *request) useSession(ctx context.Context, id string) error {
	params, err := object(pair{"project", r.key.Project}, pair{"id", id})
	if err != nil {
		return err
	}
	_, err = r.runtime.Call(ctx, "sessions.use", params)
	if has(err, plugin.NotFound) {
		return plugin.Errorf(plugin.NotFound, "session %s is gone", id).
			WithHint("its backup may be there: %s", command("list", "--include-auto", "--of-session="+id))
	}
	return err
}
