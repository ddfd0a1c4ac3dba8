package sess

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

func deleteVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "delete",
			Aliases: []string{"rm", "remove", "del"},
			Summary: "Move snapshots to the trash",
			Help: "A name must be given in full. --prefix takes all names that begin with it, auto-managed ones too, and asks for " +
				"--confirm. Damaged snapshots and those of a newer version can be deleted as well.",
			Examples: []string{"delete v1", "delete --prefix=pre-load~ --confirm"},
			Args:     []plugin.Arg{{Name: "name", Type: plugin.TypeString, Help: "name or id of the snapshot", Complete: completeSnapshot}},
			Flags: func(fs *dispatch.Flags) {
				fs.String("prefix", "", "all snapshots whose names begin with this").Complete(completeSnapshot)
				fs.Bool("confirm", false, "really delete all that --prefix names").Confirm()
				onlySessionFlag(fs)
			},
			Effect: plugin.EffectDestroy,
			Main:   true,
		},
		run: deleteSnapshots,
	}
}

func deleteSnapshots(ctx context.Context, r *request) (plugin.Result, error) {
	prefix := r.String("prefix")
	switch {
	case r.Has("name") == r.Changed("prefix"):
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "delete: want either a name or --prefix").
			WithHint("as in: sess delete v1, or: sess delete --prefix=pre-load~ --confirm")
	case r.Changed("prefix") && prefix == "":
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "delete: an empty --prefix would take every snapshot").
			WithHint("name what is to go, as in --prefix=pre-load~")
	}
	var pool *snapshot.Pool
	var names []snapshot.Name
	if r.Has("name") {
		found, name, err := r.findOf(ctx, r.Arg("name"))
		if err != nil {
			return plugin.Result{}, err
		}
		pool, names = found, []snapshot.Name{name}
	} else {
		entries, err := r.entries(ctx, r.key)
		if err != nil {
			return plugin.Result{}, err
		}
		for _, e := range entries {
			if strings.HasPrefix(string(e.Name), prefix) && (r.String("only-session") == "" || e.Meta.SessionID == r.String("only-session")) {
				names = append(names, e.Name)
			}
		}
		if !r.Bool("confirm") {
			return plugin.Result{}, plugin.Errorf(plugin.Usage, "delete: --prefix=%s takes %s; nothing was deleted", quoted(prefix), count(len(names), "snapshot")).
				WithHint("to delete them run: %s", command("delete", "--prefix="+prefix, "--confirm")).
				WithDetail("count", fmt.Sprint(len(names)))
		}
		if len(names) == 0 {
			return plugin.Result{Text: fmt.Sprintf("no name begins with %s: nothing to delete", quoted(prefix)), Data: json.RawMessage("[]")}, nil
		}
		if pool, err = r.pool(ctx); err != nil {
			return plugin.Result{}, err
		}
	}
	deleted, _, err := pool.Delete(ctx, names, r.op(snapshot.OpDelete, ""))
	if err != nil {
		return plugin.Result{}, err
	}
	ids := make([]string, len(deleted))
	data := make([]json.RawMessage, len(deleted))
	for i, e := range deleted {
		ids[i] = e.Meta.ID
		if data[i], err = entryJSON(e); err != nil {
			return plugin.Result{}, err
		}
	}
	r.leaveViews(ctx, ids)
	r.upkeep(pool)
	body, err := json.Marshal(data)
	return plugin.Result{Text: fmt.Sprintf("deleted %s (%s brings %s back)", enumerate(deleted), r.typed("undo"), itThem(len(deleted))), Data: body}, err
}

// enumerate names snapshots, and how many there are where it is not one.
func enumerate(entries []snapshot.Entry) string {
	const most = 20
	names := make([]string, 0, most+1)
	for i, e := range entries {
		if i == most {
			names = append(names, fmt.Sprintf("… and %d more", len(entries)-most))
			break
		}
		names = append(names, string(e.Name))
	}
	if len(entries) == 1 {
		return names[0]
	}
	return count(len(entries), "snapshot") + ": " + strings.Join(names, ", ")
}

func itThem(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// leaveViews shows sessions again that showed one of these snapshots.
func (r *request) leaveViews(ctx context.Context, ids []string) {
	sessions, err := r.liveSessions(ctx)
	if err != nil {
		r.notices = append(r.notices, "a session may still show a deleted snapshot: "+explain(err).Text())
	}
	for _, live := range sessions {
		if live.Selected == "" || !slices.Contains(ids, live.Selected) {
			continue
		}
		ref := plugin.SessionRef{Project: live.Project, ID: live.ID}
		if err := r.runtime.Select(ctx, ref, ""); err != nil {
			r.notices = append(r.notices, fmt.Sprintf("session %s still shows a deleted snapshot: %s", live.ID, plugin.AsError(err).Text()))
		}
	}
}
