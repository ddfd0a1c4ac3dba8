package sess

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func importVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "import",
			Summary: "Take in snapshots that were exported, here or elsewhere",
			Help: "Reads what export wrote with --format=json. All of it is checked before anything is kept: damage, or a bundle of a newer " +
				"version, is refused. Notes, tags, pins and times come along. Importing the same again changes nothing; where another " +
				"snapshot has the name, give a new one with --name, or --overwrite it.",
			Examples: []string{"import v1.sess.json", "import v1.sess.json --name=from-laptop"},
			Args:     []plugin.Arg{{Name: "file", Type: plugin.TypeString, Help: "the bundle; without it, or with -, what comes in at stdin"}},
			Flags: func(fs *dispatch.Flags) {
				fs.String("name", "", "the name that the snapshot gets, where the bundle has just one")
				overwriteFlag(fs)
			},
			Effect: plugin.EffectWrite,
			Input:  "file",
		},
		run: importSnapshots,
	}
}

// originKey is the key of meta that tells where an imported snapshot comes from.
const originKey = "origin"

func importSnapshots(ctx context.Context, r *request) (plugin.Result, error) {
	if r.Call.Input == nil {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "import: there is no bundle to read").
			WithHint("name its file, as in: sess import v1.sess.json")
	}
	var rename snapshot.Name
	var err error
	if r.Changed("name") {
		if rename, err = r.target(r.String("name")); err != nil {
			return plugin.Result{}, err
		}
	}
	pool, err := r.pool(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	w, err := pool.Begin(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	made, same, err := r.importFrom(ctx, pool, w, rename)
	if e := w.Close(); err == nil {
		err = e
	}
	if err != nil {
		return plugin.Result{}, err
	}
	if len(made) > 0 {
		exempt := make([]string, len(made))
		for i, e := range made {
			exempt[i] = e.Meta.ID
		}
		r.retain(ctx, pool, r.ref, exempt...)
	}
	return r.importAnswer(made, same)
}

// importFrom reads the bundle and saves what it has. It returns what is new in the
// pool, and what was there already.
func (r *request) importFrom(ctx context.Context, pool *snapshot.Pool, w *snapshot.Writer, rename snapshot.Name) (made, same []snapshot.Entry, err error) {
	b := bundleReader{dec: json.NewDecoder(r.Call.Input), seal: w.Seal, done: func(offset int64) error {
		r.Progress(plugin.Progress{Stage: "reading", Done: offset, Unit: "bytes"})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}}
	all, err := b.read()
	switch {
	case err != nil:
		return nil, nil, err
	case len(all) == 0:
		return nil, nil, plugin.Errorf(plugin.Usage, "the bundle has no snapshots").WithHint("export some, as in: sess export v1 --output=v1.sess.json")
	case rename != "" && len(all) > 1:
		return nil, nil, plugin.Errorf(plugin.Usage, "import: --name is for one snapshot, and the bundle has %d", len(all)).WithHint("leave it out")
	case rename != "":
		all[0].name = rename
	}
	plan, err := r.planImport(ctx, pool, all)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range plan {
		if p.same != nil {
			same = append(same, *p.same)
			continue
		}
		op := r.op(snapshot.OpOverwrite, p.name)
		entry, err := w.Save(ctx, snapshot.SaveRequest{Name: p.name, Doc: p.doc, Overwrite: r.overwrite(), Imported: true, Op: &op})
		if err != nil {
			if len(made) > 0 {
				r.notices = append(r.notices, fmt.Sprintf("imported before that: %s", enumerate(made)))
				e := explainTaken(err, r.whenTaken)
				return nil, nil, plugin.Errorf(e.Code, "%s of %d were imported, then: %w", count(len(made), "snapshot"), len(all), e).
					WithHint("import it again: what is there already stays as it is")
			}
			return nil, nil, err
		}
		made = append(made, entry)
	}
	return made, same, nil
}

// planned is a snapshot that is to be imported.
type planned struct {
	bundled
	same *snapshot.Entry // what is there already, with the same content
}

// planImport decides about every snapshot before any is saved.
func (r *request) planImport(ctx context.Context, pool *snapshot.Pool, all []bundled) ([]planned, error) {
	entries, err := pool.List(ctx)
	if err != nil {
		return nil, err
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		ids[e.Meta.ID] = true
	}
	plan := make([]planned, 0, len(all))
	var fresh []snapshot.Name
	for _, b := range all {
		if low := strings.ToLower(string(b.name)); names[low] {
			return nil, errBundle("it has %s twice", b.name)
		} else {
			names[low] = true
		}
		p := planned{bundled: b}
		digest := b.doc.Digest()
		for _, e := range entries {
			switch {
			case !sameName(e.Name, b.name):
			case e.Name == b.name && e.State == snapshot.StateOK && e.Meta.Digest == digest:
				p.same = &e
			case e.Name != b.name || !r.overwrite():
				r.whenTaken = func(stored string) string { return r.importAgain("--name=" + suffixed(stored, "-imported")) }
				return nil, &snapshot.ExistsError{Name: e.Name}
			}
		}
		if p.same == nil {
			fresh = append(fresh, b.name)
			if err := markImported(&b.doc.Meta, b.name, digest); err != nil {
				return nil, err
			}
			if ids[b.doc.Meta.ID] || uuid.Validate(b.doc.Meta.ID) != nil {
				b.doc.Meta.ID = "" // it gets one of its own
			}
			ids[b.doc.Meta.ID] = true
		}
		plan = append(plan, p)
	}
	return plan, r.roomFor(ctx, pool, fresh...)
}

// importAgain is the command that imports the same file in another way.
func (r *request) importAgain(flag string) string {
	words := []string{"import"}
	if file := r.Arg("file"); file != "" {
		words = append(words, file)
	}
	return command(append(words, flag)...)
}

// markImported says in a snapshot's meta where it comes from. What it was
// exported with the first time stays.
func markImported(m *transcript.Meta, name snapshot.Name, digest string) error {
	m.Digest = digest
	if m.Extra[originKey] == nil {
		origin, err := object(pair{"id", m.ID}, pair{"trigger", m.Trigger})
		if err != nil {
			return err
		}
		if m.Extra == nil {
			m.Extra = map[string]json.RawMessage{}
		}
		m.Extra[originKey] = origin
	}
	m.Trigger = transcript.TriggerImport
	m.Automatic = m.Automatic && name.Auto() // under a name of the user's it is his
	return nil
}

func (r *request) importAnswer(made, same []snapshot.Entry) (plugin.Result, error) {
	var parts []string
	data := make([]json.RawMessage, 0, len(made)+len(same))
	add := func(entries []snapshot.Entry, changed bool) error {
		for _, e := range entries {
			one, err := metaJSON(e.Name, e.Meta, pair{"changed", changed})
			if err != nil {
				return err
			}
			data = append(data, one)
		}
		return nil
	}
	if len(made) == 1 {
		parts = append(parts, "imported "+describe(made[0])+r.replacedNote(made[0])+hiddenNote(made[0].Name))
	} else if len(made) > 1 {
		parts = append(parts, "imported "+enumerate(made))
	}
	if len(same) > 0 {
		parts = append(parts, fmt.Sprintf("%s %s there already, with the same content: nothing to do", enumerate(same), isAre(len(same))))
	}
	if err := add(made, true); err != nil {
		return plugin.Result{}, err
	}
	if err := add(same, false); err != nil {
		return plugin.Result{}, err
	}
	body, err := json.Marshal(data)
	return plugin.Result{Text: strings.Join(parts, "\n"), Data: body}, err
}
