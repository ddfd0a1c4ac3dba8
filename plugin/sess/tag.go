package sess

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/transcript"
)

func tagVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "tag",
			Summary:  "Change the tags and the note of a snapshot",
			Examples: []string{"tag v1 area=db risk=high", `tag v1 --remove=risk --note="reviewed"`},
			Args: []plugin.Arg{
				nameArg("snapshot, by name or id"),
				{Name: "pairs", Type: plugin.TypeString, Help: "labels to set, as key=value", Repeated: true},
			},
			Flags: func(fs *dispatch.Flags) {
				fs.Map("tags", "labels to set")
				fs.Strings("remove", "key of a label to remove")
				fs.String("note", "", "the new note; an empty one removes it")
			},
			Effect: plugin.EffectWrite,
		},
		run: tag,
	}
}

func tag(ctx context.Context, r *request) (plugin.Result, error) {
	set, err := parsePairs("tag", r.Args("pairs"))
	if err != nil {
		return plugin.Result{}, err
	}
	maps.Copy(set, r.Map("tags"))
	if err := checkTags(set); err != nil {
		return plugin.Result{}, err
	}
	remove := r.Strings("remove")
	if len(set) == 0 && len(remove) == 0 && !r.Changed("note") {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "tag: nothing to change is given").
			WithHint("as in: %s", command("tag", r.Arg("name"), "key=value"))
	}
	entry, changed, err := r.edit(ctx, func(m *transcript.Meta) error {
		tags, note := maps.Clone(m.Tags), m.Note
		if tags == nil {
			tags = map[string]string{}
		}
		maps.Copy(tags, set)
		for _, k := range remove {
			delete(tags, k)
		}
		if r.Changed("note") {
			note = r.String("note")
		}
		if maps.Equal(tags, m.Tags) && note == m.Note {
			return errSame
		}
		m.Tags, m.Note = tags, note
		return nil
	})
	if err != nil {
		return plugin.Result{}, err
	}
	text := fmt.Sprintf("%s: %s", entry.Name, cmp.Or(tagText(entry.Meta.Tags), "no tags"))
	if entry.Meta.Note != "" {
		text += fmt.Sprintf("; note: %s", oneLine(entry.Meta.Note, 200))
	}
	if !changed {
		text += " (as before)"
	}
	data, err := metaJSON(entry.Name, entry.Meta, pair{"changed", changed})
	return plugin.Result{Text: text, Data: data}, err
}

// tagText lists tags by key. Of none it is empty.
func tagText(tags map[string]string) string {
	words := make([]string, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		words = append(words, k+"="+tags[k])
	}
	return strings.Join(words, ", ")
}
