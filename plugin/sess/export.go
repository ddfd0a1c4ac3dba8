package sess

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// The formats of export.
const (
	formatJSON     = "json"
	formatMarkdown = "markdown"
	formatHTML     = "html"
)

func exportVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "export",
			Summary: "Write snapshots out, to be taken along or to be read",
			Help: "The format json is a bundle with everything, byte for byte and with checksums, which import reads anywhere. markdown and " +
				"html are for people: what was said, with the tool calls folded; the HTML needs nothing else and loads nothing.\n\n" +
				"--mask-secrets replaces what looks like a secret: keys and tokens of well-known services (sk-…, ghp_…, github_pat_…, glpat-…, " +
				"xox…-…, AKIA…, AIza…, hf_…, npm_…), JSON web tokens, bearer tokens, private keys, passwords in URLs, and values of " +
				"names such as password, secret, token and api_key. Look through the result all the same: nobody knows all secrets.",
			Examples: []string{"export v1 --output=v1.sess.json", "export v1 --format=html --output=v1.html", "export --all --output=all.sess.json"},
			Args:     []plugin.Arg{{Name: "name", Type: plugin.TypeString, Help: "snapshot, by name or id", Complete: completeSnapshot}},
			Flags: func(fs *dispatch.Flags) {
				fs.Bool("all", false, "all snapshots of the project, auto-managed ones too")
				fs.String("format", formatJSON, "what is written").Enum(formatJSON, formatMarkdown, formatHTML)
				fs.String("output", "", "the file to write; without it stdout")
				fs.Bool("mask-secrets", false, "replace what looks like a secret")
			},
			Effect: plugin.EffectRead,
			Output: "output",
		},
		run: export,
	}
}

// exported is a snapshot that is being written out.
type exported struct {
	pool *snapshot.Pool
	*snapshot.Snapshot
}

func export(ctx context.Context, r *request) (plugin.Result, error) {
	if r.Has("name") == r.Bool("all") {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "export: want either a name or --all").WithHint("as in: sess export v1 --output=v1.sess.json")
	}
	all, err := r.toExport(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	name := "snapshots"
	if len(all) == 1 {
		name = string(all[0].Name)
	}
	mask := &masker{on: r.Bool("mask-secrets")}
	for _, e := range all {
		mask.document(e.Doc)
	}
	var total, done int64
	for _, e := range all {
		total += e.Doc.Meta.Bytes
	}
	step := func(n int) error {
		done += int64(n)
		r.Progress(plugin.Progress{Stage: "exporting", Done: min(done, total), Total: total, Unit: "bytes"})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	switch format := r.String("format"); format {
	case formatJSON:
		err = r.exportBundle(name, all, mask, step)
	default:
		err = r.exportText(name, format, all, mask, step)
	}
	if err != nil {
		return plugin.Result{}, err
	}
	return r.exportAnswer(all, mask)
}

// toExport finds the snapshots of the call and checks them whole, before anything
// is written.
func (r *request) toExport(ctx context.Context) ([]exported, error) {
	if r.Has("name") {
		pool, snap, err := r.open(ctx, r.Arg("name"))
		if err != nil {
			return nil, err
		}
		return []exported{{pool, snap}}, nil
	}
	entries, err := r.entries(ctx, r.key)
	if err != nil {
		return nil, err
	}
	var all []exported
	for _, e := range slices.Backward(entries) { // oldest first, as they were made
		pool, snap, err := r.open(ctx, string(e.Name))
		if err != nil {
			r.notices = append(r.notices, "left out: "+explain(err).Text())
			continue
		}
		all = append(all, exported{pool, snap})
	}
	if len(all) == 0 {
		return nil, plugin.Errorf(plugin.NotFound, "there is no snapshot to export").WithHint("save one with: sess save <name>")
	}
	return all, nil
}

func (r *request) exportBundle(name string, all []exported, mask *masker, step func(int) error) error {
	if err := r.Call.Output.Begin(name+".sess.json", "application/json"); err != nil {
		return err
	}
	b := newBundleWriter(r.Call.Output, r.now())
	for _, e := range all {
		if err := b.add(e, mask, step); err != nil {
			return err
		}
	}
	return b.end(mask)
}

// records are those of a list. What goes wrong with them is the snapshot's.
func (e exported) records(l *transcript.List) iter.Seq2[transcript.Record, error] {
	return func(yield func(transcript.Record, error) bool) {
		for rec, err := range l.All(e.pool.Plain, 0, l.Records) {
			if err != nil {
				err = &snapshot.DamagedError{Name: e.Name, File: e.File, Reason: err.Error(), Err: err}
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func (r *request) exportAnswer(all []exported, mask *masker) (plugin.Result, error) {
	text := fmt.Sprintf("exported %s", count(len(all), "snapshot"))
	names := make([]snapshot.Name, len(all))
	var bytes int64
	messages := 0
	for i, e := range all {
		names[i] = e.Name
		bytes += e.Doc.Meta.Bytes
		messages += e.Doc.Meta.Messages
	}
	if len(all) == 1 {
		text = fmt.Sprintf("exported %s", names[0])
	}
	text += fmt.Sprintf(": %s, %s", count(messages, "message"), longSize(bytes))
	if r.Bool("mask-secrets") {
		r.notices = append(r.notices, fmt.Sprintf("%s masked; look through the result before you pass it on", count(mask.count, "secret")))
	}
	if file := r.String("output"); file != "" && file != "-" {
		text += "; written to " + file
	}
	return answer(text, pair{"names", names}, pair{"messages", messages}, pair{"bytes", bytes}, pair{"masked", mask.count})
}
