package sess

import (
	"context"
	"fmt"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

func fromToArgs() []plugin.Arg {
	return []plugin.Arg{
		{Name: "from", Type: plugin.TypeString, Help: "the snapshot, by name or id", Required: true, Complete: completeSnapshot},
		{Name: "to", Type: plugin.TypeString, Help: "the new name", Required: true},
	}
}

func copyVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "copy",
			Aliases: []string{"cp", "clone", "branch"},
			Summary: "Copy a snapshot to another name",
			Help: "The way to branch: both then go their own ways. The copy remembers what it was copied from; tags and note go " +
				"with it, a pin does not. The session is not touched.",
			Examples: []string{"copy v1 experiment", `copy v1 v1-risky --note="try the other index"`},
			Args:     fromToArgs(),
			Flags: func(fs *dispatch.Flags) {
				noteFlag(fs)
				overwriteFlag(fs)
			},
			Effect: plugin.EffectWrite,
			Main:   true,
		},
		run: copySnapshot,
	}
}

func copySnapshot(ctx context.Context, r *request) (plugin.Result, error) {
	to, err := r.target(r.Arg("to"))
	if err != nil {
		return plugin.Result{}, err
	}
	pool, from, err := r.find(ctx, r.Arg("from"))
	if err != nil {
		return plugin.Result{}, err
	}
	if sameName(from, to) {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "copy: %s and %s are the same snapshot", r.Arg("from"), to).
			WithHint("give the copy another name")
	}
	if err := r.roomFor(ctx, pool, to); err != nil {
		return plugin.Result{}, err
	}
	r.whenTaken = func(stored string) string { return command("copy", string(from), stored, "--overwrite") }
	op := r.op(snapshot.OpOverwrite, from)
	options := snapshot.CopyOptions{Overwrite: r.overwrite(), Op: &op}
	if r.Changed("note") {
		options.Note = new(r.String("note"))
	}
	entry, err := pool.Copy(ctx, from, to, options)
	if err != nil {
		return plugin.Result{}, err
	}
	r.retain(ctx, pool, r.ref, entry.Meta.ID)
	data, err := metaJSON(entry.Name, entry.Meta)
	return plugin.Result{Text: fmt.Sprintf("copied %s to %s%s%s", from, describe(entry), r.replacedNote(entry), hiddenNote(entry.Name)), Data: data}, err
}
