package sess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

func selectVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "select",
			Summary:  "Show a snapshot in place of the session, read-only",
			Help:     "The session itself is not touched; writing to it is refused until sess deselect, sess load or sess new.",
			Examples: []string{"select v1"},
			Args:     []plugin.Arg{nameArg("snapshot, by name or id")},
			Flags:    onlySessionFlag,
			Effect:   plugin.EffectWrite,
		},
		run: selectSnapshot,
	}
}

func selectSnapshot(ctx context.Context, r *request) (plugin.Result, error) {
	pool, snap, err := r.openOf(ctx, r.Arg("name"))
	if err != nil {
		return plugin.Result{}, err
	}
	records, first, err := lastRecords(pool, snap, shownList(snap.Doc).Records, selectedMessages)
	if err != nil {
		return plugin.Result{}, err
	}
	live, err := r.runtime.Session(ctx, r.ref)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := r.runtime.Select(ctx, live.Ref, snap.Doc.Meta.ID); err != nil {
		return plugin.Result{}, err
	}
	data, err := metaJSON(snap.Name, snap.Doc.Meta, pair{"session", live.Ref.ID})
	text := fmt.Sprintf("session %s shows %s, read-only (%s goes back)", live.Ref.ID, snap.Name, r.typed("deselect"))
	return plugin.Result{Text: text + "\n\n" + messagesText(snap.Doc, records, first, command("view", string(snap.Name))+" "), Data: data}, err
}

// selectedMessages is how many of a snapshot's messages are shown when it is
// selected, the last ones.
const selectedMessages = 6

func deselectVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "deselect",
			Summary:  "Show the session again in place of a snapshot",
			Examples: []string{"deselect"},
			Effect:   plugin.EffectWrite,
		},
		run: deselect,
	}
}

func deselect(ctx context.Context, r *request) (plugin.Result, error) {
	live, err := r.runtime.Session(ctx, r.ref)
	if err != nil {
		return plugin.Result{}, err
	}
	text := fmt.Sprintf("session %s shows no snapshot: nothing to do", live.Ref.ID)
	if live.Selected != "" {
		if err := r.runtime.Select(ctx, live.Ref, ""); err != nil {
			return plugin.Result{}, err
		}
		text = fmt.Sprintf("session %s is shown again", live.Ref.ID)
	}
	return answer(text, pair{"session", live.Ref.ID}, pair{"changed", live.Selected != ""})
}

func selectedVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "selected",
			Summary:  "Tell which snapshot the session shows",
			Examples: []string{"selected"},
			Effect:   plugin.EffectRead,
		},
		run: selected,
	}
}

func selected(ctx context.Context, r *request) (plugin.Result, error) {
	if r.ref.ID == "" { // asking for it would make one
		return plugin.Result{Text: "no session is active: nothing is shown in its place", Data: json.RawMessage("null")}, nil
	}
	live, err := r.runtime.Session(ctx, r.ref)
	if err != nil {
		return plugin.Result{}, err
	}
	none := plugin.Result{Text: fmt.Sprintf("session %s shows no snapshot", live.Ref.ID), Data: json.RawMessage("null")}
	if live.Selected == "" {
		return none, nil
	}
	pool, name, err := r.find(ctx, live.Selected)
	if _, gone := errors.AsType[*snapshot.NotFoundError](err); gone {
		return none, nil
	}
	if err != nil {
		return plugin.Result{}, err
	}
	snap, err := pool.Read(ctx, name)
	if err != nil {
		return plugin.Result{}, err
	}
	data, err := metaJSON(name, snap.Doc.Meta)
	return plugin.Result{Text: fmt.Sprintf("session %s shows %s, read-only", live.Ref.ID, name), Data: data}, err
}

// onlySessionFlag narrows a verb to the snapshots of one session: where they are
// addressed below a session, that of another one is not there.
func onlySessionFlag(fs *dispatch.Flags) {
	fs.String("only-session", "", "only if it is a snapshot of this session").Complete(completeSession)
}

// sessionRoutes are the routes below a session.
func sessionRoutes() []plugin.Route {
	const base = "/sessions/{id}/snapshots"
	return []plugin.Route{
		{Method: "GET", Path: base, Argv: []string{"list", "--include-auto", "--of-session={id}", "--session={id}"}},
		{Method: "POST", Path: base, Argv: []string{"save", "--auto-name", "--reason={reason}", "--session={id}"}, Status: 201},
		{Method: "GET", Path: base + "/selected", Argv: []string{"selected", "--session={id}"}},
		{Method: "POST", Path: base + "/selected/clear", Argv: []string{"deselect", "--session={id}"}},
		{Method: "POST", Path: base + "/{snapshot}/select", Argv: []string{"select", "--only-session={id}", "--session={id}", "--", "{snapshot}"}},
		{Method: "POST", Path: base + "/{snapshot}/restore", Argv: []string{"load", "--only-session={id}", "--session={id}", "--", "{snapshot}"}},
		{Method: "DELETE", Path: base + "/{snapshot}", Argv: []string{"delete", "--only-session={id}", "--session={id}", "--", "{snapshot}"}},
	}
}
