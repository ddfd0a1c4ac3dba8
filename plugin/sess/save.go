package sess

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func saveVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "save",
			Summary: "Save the session under a name",
			Help: "The snapshot holds the last committed state, also while a turn runs. A name is 1 to 128 letters, digits, dots, " +
				"hyphens, underscores or ~; one with a ~ is auto-managed. Saving over a name needs --overwrite, keeps its note and tags " +
				"unless new ones are given, and leaves the old version in the trash.",
			Examples: []string{"save v1", `save v1 --overwrite --note="tests pass"`, "save before-refactor --tags=area=db,risk=high"},
			Args:     []plugin.Arg{{Name: "name", Type: plugin.TypeString, Help: "name of the snapshot", Complete: completeSnapshot}},
			Flags: func(fs *dispatch.Flags) {
				overwriteFlag(fs)
				noteFlag(fs)
				fs.Map("tags", "labels")
				fs.String("reason", "", "why it is made")
				fs.Bool("auto-name", false, "where no name is given make one from the time: manual-<time>")
				fs.String("trigger", string(transcript.TriggerManual), "what asked for it").Internal().Enum(
					string(transcript.TriggerManual), string(transcript.TriggerAutosave), string(transcript.TriggerDeleteMessages),
					string(transcript.TriggerCompact), string(transcript.TriggerImport))
				fs.String("action", "", "the action it was made before").Internal()
				fs.String("indices", "", "message indices of the action: 18,22,25").Internal()
				fs.String("range", "", "message range of the action: 357: or :277 or 3:9").Internal()
				fs.String("op", "", "the open op whose backup it is").Internal()
			},
			Effect: plugin.EffectWrite,
			Main:   true,
		},
		run: save,
	}
}

// saving is what a call of save asks for.
type saving struct {
	name    snapshot.Name // empty: made from the prefix
	prefix  string
	trigger transcript.Trigger
	indices []int
	span    *transcript.Range
}

// patience is how long a save waits for who holds the pool; 0 is as long as all
// others do. An autosave waits less than a program does that wants to end after
// its last turn: there was nothing wrong with the turn, and the next one brings
// another autosave.
func (s saving) patience() time.Duration {
	if s.trigger == transcript.TriggerAutosave {
		return 3 * time.Second
	}
	return 0
}

func save(ctx context.Context, r *request) (plugin.Result, error) {
	want, err := r.saving()
	if err != nil {
		return plugin.Result{}, err
	}
	backup := want.trigger == transcript.TriggerDeleteMessages || want.trigger == transcript.TriggerCompact
	if backup && !r.config.AutoSnapshots {
		return plugin.Result{Text: "automatic snapshots are switched off: nothing was saved"}, nil
	}
	pool, err := r.pool(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	automatic := want.trigger != transcript.TriggerManual && want.trigger != transcript.TriggerImport
	if !automatic {
		if err := r.roomFor(ctx, pool, want.name); err != nil {
			return plugin.Result{}, err
		}
	}
	held, err := r.heldOp()
	if err != nil {
		return plugin.Result{}, err
	}
	entry, live, err := r.capture(ctx, r.agent, pool, r.ref, func(live *plugin.Session) *snapshot.SaveRequest {
		if automatic && empty(&live.Document) {
			return nil
		}
		op := r.op(snapshot.OpOverwrite, want.name)
		op.Session = live.Ref.ID
		req := &snapshot.SaveRequest{
			Name: want.name, AutoPrefix: want.prefix, Overwrite: r.overwrite(), Op: &op,
			Rolling: want.trigger == transcript.TriggerAutosave, Patience: want.patience(), BackupFor: held,
			MergeMeta: func(old, fresh *transcript.Meta) {
				if old == nil {
					return
				}
				delete(fresh.Extra, originKey) // this one was made here
				fresh.Tags = old.Tags          // not the configured ones
				if r.Changed("tags") {
					fresh.Tags = r.config.withTags(r.Map("tags")) // also none
				}
				if r.Changed("note") {
					fresh.Note = r.String("note") // also an empty one
				}
			},
		}
		meta := &live.Document.Meta
		meta.Note, meta.Tags = r.String("note"), r.config.withTags(r.Map("tags"))
		meta.Reason, meta.Trigger, meta.Automatic = r.String("reason"), want.trigger, automatic
		meta.Action, meta.Indices, meta.Range = r.String("action"), want.indices, want.span
		if id, ok := strings.CutPrefix(string(r.Call.Caller), "plugin:"); ok {
			meta.Plugin = id
		}
		if meta.Reason == "" && r.Bool("auto-name") && !automatic {
			meta.Reason = "manual snapshot"
		}
		return req
	})
	if err != nil {
		return plugin.Result{}, err
	}
	if entry.Name == "" {
		return plugin.Result{Text: fmt.Sprintf("session %s is empty: nothing was saved", live.Ref.ID)}, nil
	}
	r.retain(ctx, pool, live.Ref, entry.Meta.ID)
	text := "saved " + describe(entry)
	if r.Call.Foreign != "" {
		text += fmt.Sprintf(", of conversation %s of %s", live.Ref.ID, r.Call.Foreign)
		if title := live.Document.Meta.Title; title != "" {
			text += fmt.Sprintf(" (%s)", oneLine(title, 80))
		}
	}
	if want.trigger != transcript.TriggerAutosave {
		text += r.replacedNote(entry)
	}
	if want.name != "" && !automatic {
		text += hiddenNote(entry.Name)
	}
	data, err := metaJSON(entry.Name, entry.Meta)
	return plugin.Result{Text: text, Data: data}, err
}

// describe is a snapshot in a sentence: "v1: 12 messages, 14.2 KB".
func describe(e snapshot.Entry) string {
	return fmt.Sprintf("%s: %s, %s", e.Name, count(e.Meta.Messages, "message"), longSize(e.Meta.Bytes))
}

// saving reads the call and refuses what does not fit together.
func (r *request) saving() (saving, error) {
	want := saving{trigger: transcript.Trigger(r.String("trigger"))}
	if err := checkTags(r.Map("tags")); err != nil {
		return want, err
	}
	var err error
	if want.indices, err = parseIndices(r.String("indices")); err != nil {
		return want, err
	}
	if want.span, err = parseRange(r.String("range")); err != nil {
		return want, err
	}
	switch {
	case !r.Has("name") && r.Bool("auto-name"):
		want.prefix = autoPrefix(want.trigger)
		return want, nil
	case !r.Has("name"):
		return want, plugin.Errorf(plugin.Usage, "save: the name is missing").WithHint("give one, as in: sess save v1")
	}
	want.name, err = r.target(r.Arg("name"))
	r.whenTaken = func(stored string) string { return command("save", stored, "--overwrite") }
	return want, err
}

// autoPrefix begins the name of a snapshot that nobody named.
func autoPrefix(t transcript.Trigger) string {
	switch t {
	case transcript.TriggerLoad:
		return "pre-load~"
	case transcript.TriggerNew:
		return "pre-new~"
	case transcript.TriggerDeleteMessages:
		return "pre-delete~"
	case transcript.TriggerCompact:
		return "pre-compact~"
	}
	return "manual-"
}

func parseIndices(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var list []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return nil, plugin.Errorf(plugin.Usage, "--indices: %q is not the index of a message", field).
				WithHint("want numbers from 0, as in --indices=18,22,25")
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func parseRange(text string) (*transcript.Range, error) {
	if text == "" {
		return nil, nil
	}
	bad := plugin.Errorf(plugin.Usage, "--range: %q is not a range of messages", text).
		WithHint("want start:end, either side may be left out, as in --range=357:")
	from, to, ok := strings.Cut(text, ":")
	if !ok {
		return nil, bad
	}
	var span transcript.Range
	if from != "" {
		n, err := strconv.Atoi(from)
		if err != nil || n < 0 {
			return nil, bad
		}
		span.Start = n
	}
	if to != "" {
		n, err := strconv.Atoi(to)
		if err != nil || n < span.Start {
			return nil, bad
		}
		span.End = &n
	}
	return &span, nil
}
