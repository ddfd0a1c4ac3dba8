package sess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

func trashListVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "trash list",
			Summary:  "List what was deleted, replaced or pruned",
			Examples: []string{"trash list", "trash list --limit=20"},
			Flags:    func(fs *dispatch.Flags) { fs.Paged() },
			Effect:   plugin.EffectRead,
		},
		run: trashList,
	}
}

func trashList(ctx context.Context, r *request) (plugin.Result, error) {
	pool, err := r.pools.existing(ctx, r.key)
	if err != nil {
		return plugin.Result{}, err
	}
	var entries []snapshot.TrashEntry
	if pool != nil {
		if entries, err = pool.ListTrash(ctx); err != nil {
			return plugin.Result{}, err
		}
	}
	entries, page, err := dispatch.Paginate(r.Invocation, entries, trashPlace)
	if err != nil {
		return plugin.Result{}, err
	}
	data := make([]json.RawMessage, len(entries))
	rows := make([][]string, len(entries))
	for i, e := range entries {
		expires := "never"
		more := []pair{{"deletedAt", e.DeletedAt}, {"why", e.Reason}}
		if !e.Expires.IsZero() {
			expires = e.Expires.UTC().Format("2006-01-02 15:04")
			more = append(more, pair{"expires", e.Expires})
		}
		messages, size := fmt.Sprint(e.Meta.Messages), plugin.Size(e.Meta.Bytes)
		if e.State != snapshot.StateOK {
			messages, size = "-", "-"
		}
		rows[i] = []string{
			string(e.Name), messages, size,
			plugin.Ago(e.DeletedAt, r.now()), expires, oneLine(e.Reason, 80),
		}
		if data[i], err = entryJSON(e.Entry, more...); err != nil {
			return plugin.Result{}, err
		}
	}
	var parts []string
	switch {
	case page.Total == 0:
		parts = append(parts, "the trash is empty")
	case len(entries) > 0:
		parts = append(parts, plugin.Table([]string{"NAME", "MSGS", "SIZE", "DELETED", "EXPIRES", "WHY"}, rows))
	}
	if text := dispatch.PageText(len(entries), page); text != "" {
		parts = append(parts, text)
	}
	body, err := json.Marshal(data)
	return plugin.Result{Text: strings.Join(parts, "\n"), Data: body, Page: page}, err
}

// trashPlace names the place of an entry in the order of [snapshot.Pool.ListTrash].
func trashPlace(e snapshot.TrashEntry) []string {
	return []string{e.Op.ID, placeOf(e.DeletedAt), placeOf(e.Meta.UpdatedAt), e.Meta.ID, e.File}
}

func trashRestoreVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "trash restore",
			Summary:  "Bring a snapshot back from the trash",
			Help:     "Of several that had the name, the one deleted last comes back; give an id for another one.",
			Examples: []string{"trash restore v1", "trash restore v1 --as=v1-old"},
			Args:     []plugin.Arg{{Name: "name", Type: plugin.TypeString, Help: "its name, or its id", Required: true, Complete: completeTrash}},
			Flags:    func(fs *dispatch.Flags) { fs.String("as", "", "the name to give it") },
			Effect:   plugin.EffectWrite,
		},
		run: trashRestore,
	}
}

func trashRestore(ctx context.Context, r *request) (plugin.Result, error) {
	var as snapshot.Name
	if r.Changed("as") {
		var err error
		if as, err = r.target(r.String("as")); err != nil {
			return plugin.Result{}, err
		}
	}
	pool, err := r.pools.existing(ctx, r.key)
	if err != nil {
		return plugin.Result{}, err
	}
	name := r.Arg("name")
	var entry snapshot.Entry
	err = snapshot.Find(name)
	if pool != nil {
		entry, err = pool.RestoreTrash(ctx, name, as)
	}
	if missing, ok := errors.AsType[*snapshot.NotFoundError](err); ok {
		return plugin.Result{}, meantAmong(named(plugin.NotFound, missing, "there is no snapshot %q in the trash", clip(name, 160)), missing.Near, command("trash", "list"))
	}
	if bad, ok := errors.AsType[*snapshot.NameError](err); ok && bad.Text == name {
		return plugin.Result{}, meantAmong(explain(bad), bad.Near, command("trash", "list"))
	}
	if err != nil {
		r.whenTaken = func(stored string) string {
			return command("trash", "restore", name, "--as="+suffixed(stored, "-restored"))
		}
		return plugin.Result{}, err
	}
	data, err := metaJSON(entry.Name, entry.Meta)
	return plugin.Result{Text: "brought back " + describe(entry) + hiddenNote(entry.Name), Data: data}, err
}

func trashEmptyVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "trash empty",
			Summary:  "Remove what is in the trash for good",
			Examples: []string{"trash empty --confirm", "trash empty --older-than=2d --confirm"},
			Flags: func(fs *dispatch.Flags) {
				fs.Bool("confirm", false, "really remove it").Confirm()
				fs.Duration("older-than", 0, "only what went there longer ago")
			},
			Effect: plugin.EffectDestroy,
		},
		run: trashEmpty,
	}
}

func trashEmpty(ctx context.Context, r *request) (plugin.Result, error) {
	pool, err := r.pools.existing(ctx, r.key)
	if err != nil {
		return plugin.Result{}, err
	}
	age := r.Duration("older-than")
	n, size := 0, int64(0)
	if pool != nil {
		if n, size, err = pool.EmptyTrash(ctx, age, !r.Bool("confirm")); err != nil {
			return plugin.Result{}, err
		}
	}
	what := fmt.Sprintf("%s, %s", count(n, "snapshot"), longSize(size))
	if n == 0 {
		what = longSize(size) + " that only undo and redo need"
	}
	switch {
	case size == 0:
		return answer("nothing to remove from the trash", pair{"removed", 0}, pair{"bytes", 0})
	case !r.Bool("confirm"):
		words := []string{"trash", "empty", "--confirm"}
		if age > 0 {
			words = append(words, "--older-than="+age.String())
		}
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "trash empty: %s would be gone for good; nothing was removed", what).
			WithHint("to remove them run: %s", command(words...)).WithDetail("count", fmt.Sprint(n))
	}
	r.tasks.run(func() { // what only the trash needed
		if _, err := pool.Sweep(r.life); err != nil && r.life.Err() == nil {
			r.log.Error("what nobody needs any more is not removed", "dir", pool.Dir(), "err", err)
		}
	})
	return answer("removed for good: "+what, pair{"removed", n}, pair{"bytes", size})
}
