package sess

import (
	"context"
	"fmt"
	"strings"

	"sess/plugin"
	"sess/store/snapshot"
)

// prog begins the commands in hints.
const prog = "sess "

// loadForeign makes a new conversation of another agent from a snapshot: what
// that agent keeps is never changed, so there is nothing to back up.
func (r *request) loadForeign(ctx context.Context, pool *snapshot.Pool, snap *snapshot.Snapshot) (plugin.Result, error) {
	stage, err := r.runtime.Stage(ctx, plugin.StageRequest{
		Session: plugin.SessionRef{Project: r.key.Project}, Document: *snap.Doc, Restore: true, Fresh: true,
	})
	if err != nil {
		return plugin.Result{}, err
	}
	if err := r.send(ctx, pool, stage); err != nil {
		return plugin.Result{}, r.abandon(ctx, stage.ID, nil, err)
	}
	made, err := r.runtime.NewSession(ctx, plugin.NewSessionRequest{Project: r.key.Project, Stage: stage.ID})
	if err != nil {
		return plugin.Result{}, r.abandon(ctx, stage.ID, nil, err)
	}
	r.noteLoad(ctx, pool, snap, made)
	resume := make([]string, len(made.Resume))
	for i, word := range made.Resume {
		resume[i] = quoted(word)
	}
	text := fmt.Sprintf("loaded %s as the new conversation %s of %s: %s; go on with: %s", snap.Name, made.Ref.ID, r.Call.Foreign,
		count(snap.Doc.Meta.Messages, "message"), strings.Join(resume, " "))
	data, err := metaJSON(snap.Name, snap.Doc.Meta, pair{"session", made.Ref.ID}, pair{"changed", true},
		pair{"file", made.File}, pair{"resume", made.Resume})
	return plugin.Result{Text: text, Data: data}, err
}

// noteLoad records a load for undo, which then does not take back something
// older instead.
func (r *request) noteLoad(ctx context.Context, pool *snapshot.Pool, snap *snapshot.Snapshot, made plugin.MadeSession) {
	info := r.op(snapshot.OpNew, snap.Name)
	info.NewSession = made.Ref.ID // and no session: none of that agent is the active one
	op, err := pool.OpenOp(ctx, info)
	if err != nil {
		r.notices = append(r.notices, fmt.Sprintf("%s does not know of this load: %v", r.typed("undo"), err))
		return
	}
	r.finish(ctx, op)
}

// turnForeign is the undo or redo of a load that made a conversation of another
// agent. The conversation stays: it may have gone on since.
func (r *request) turnForeign(ctx context.Context, pool *snapshot.Pool, op *snapshot.Op, d direction) (plugin.Result, error) {
	if err := d.mark(pool, ctx, op.ID, snapshot.Kept{}); err != nil {
		return plugin.Result{}, err
	}
	text := fmt.Sprintf("%s of the load of %s: nothing was removed or changed. The conversation %s that it made stays in %s, as does the one before it: "+
		"go on there with the one that you want", d.verb, op.Name, op.NewSession, r.Call.Foreign)
	return answer(text, pair{"op", op.ID}, pair{"kind", op.Kind}, pair{"session", op.NewSession}, pair{"changed", false})
}

// typed is a command for the agent of this call: without its name it would work on
// the default one's snapshots and session.
func (r *request) typed(words ...string) string { return ofAgent(command(words...), r.agent) }

// ofAgent makes the command in a hint one for another agent, whose pool no
// command finds without being told.
func ofAgent(hint, agent string) string {
	flag := "--agent=" + agent
	if agent == defaultAgent || strings.Contains(hint, flag) {
		return hint
	}
	if rest, ok := strings.CutPrefix(hint, prog); ok {
		hint = prog + flag + " " + rest
	}
	return strings.ReplaceAll(hint, ": "+prog, ": "+prog+flag+" ")
}
