package sess

import (
	"context"
	"fmt"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

func renameVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "rename",
			Aliases:  []string{"mv", "move"},
			Summary:  "Give a snapshot another name",
			Help:     "All else stays: content, id, times, note, tags and pin.",
			Examples: []string{"rename v1 before-refactor"},
			Args:     fromToArgs(),
			Flags:    overwriteFlag,
			Effect:   plugin.EffectWrite,
			Main:     true,
		},
		run: rename,
	}
}

func rename(ctx context.Context, r *request) (plugin.Result, error) {
	to, err := r.target(r.Arg("to"))
	if err != nil {
		return plugin.Result{}, err
	}
	pool, from, err := r.find(ctx, r.Arg("from"))
	if err != nil {
		return plugin.Result{}, err
	}
	if from.Auto() {
		if err := r.roomFor(ctx, pool, to); err != nil {
			return plugin.Result{}, err
		}
	}
	r.whenTaken = func(stored string) string { return command("rename", string(from), stored, "--overwrite") }
	op := r.op(snapshot.OpRename, from)
	entry, changed, err := pool.Rename(ctx, from, to, snapshot.RenameOptions{Overwrite: r.overwrite(), Op: &op})
	if err != nil {
		return plugin.Result{}, err
	}
	text := fmt.Sprintf("%s has that name already: nothing to do", from)
	if changed {
		text = fmt.Sprintf("renamed %s to %s%s", from, to, r.replacedNote(entry))
		if !from.Auto() {
			text += hiddenNote(to)
		}
	}
	data, err := metaJSON(entry.Name, entry.Meta, pair{"changed", changed})
	return plugin.Result{Text: text, Data: data}, err
}

// sameName reports whether two names are one on a disk that ignores case.
func sameName(a, b snapshot.Name) bool { return strings.EqualFold(string(a), string(b)) }
