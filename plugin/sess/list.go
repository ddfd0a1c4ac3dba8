package sess

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

func listVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "list",
			Aliases: []string{"ls", "show"},
			Summary: "List the snapshots, newest first",
			Help: "Auto-managed snapshots, those with a ~ in the name, are counted but not shown without --include-auto. " +
				"Filters combine; --limit comes last.",
			Examples: []string{"list", "list --tag=area=db --limit=5", "list --include-auto --prefix=pre-load~"},
			Flags: func(fs *dispatch.Flags) {
				fs.String("prefix", "", "only names that begin with this").Complete(completeSnapshot)
				fs.Strings("tag", "only those with this tag: key=value")
				fs.Int("limit", 0, "at most so many").Min(1)
				fs.Bool("include-auto", false, "show auto-managed ones too")
				fs.String("of-session", "", "only those of this session").Complete(completeSession)
				fs.Bool("all-projects", false, "those of all projects of the agent")
			},
			Effect: plugin.EffectRead,
			Main:   true,
		},
		run: list,
	}
}

// listed is a snapshot in a list, with the project whose pool has it.
type listed struct {
	snapshot.Entry
	project string
}

func list(ctx context.Context, r *request) (plugin.Result, error) {
	tags, err := parsePairs("--tag", r.Strings("tag"))
	if err != nil {
		return plugin.Result{}, err
	}
	keys := []poolKey{r.key}
	if r.Bool("all-projects") {
		if keys, err = r.pools.projects(r.key.Agent); err != nil {
			return plugin.Result{}, err
		}
	}
	var found []listed
	hidden, total := 0, 0
	for _, k := range keys {
		entries, err := r.entries(ctx, k)
		if err != nil {
			return plugin.Result{}, err
		}
		total += len(entries)
		for _, e := range entries {
			switch {
			case !strings.HasPrefix(string(e.Name), r.String("prefix")),
				r.String("of-session") != "" && e.Meta.SessionID != r.String("of-session"),
				!hasTags(e, tags):
			case e.Name.Auto() && !r.Bool("include-auto"):
				hidden++
			default:
				found = append(found, listed{e, k.Project})
			}
		}
	}
	// Each pool is in order; of several the newest come first as well.
	slices.SortStableFunc(found, func(a, b listed) int { return b.Meta.UpdatedAt.Compare(a.Meta.UpdatedAt) })
	matching := len(found)
	if n := r.Int("limit"); n > 0 && n < int64(len(found)) {
		found = found[:n]
	}
	data := make([]json.RawMessage, len(found)) // [] and never null
	for i, e := range found {
		var more []pair
		if e.Future {
			more = append(more, pair{"future", true})
		}
		if r.Bool("all-projects") {
			more = append(more, pair{"pool", e.project})
		}
		if data[i], err = entryJSON(e.Entry, more...); err != nil {
			return plugin.Result{}, err
		}
	}
	body, err := json.Marshal(data)
	return plugin.Result{Text: r.listText(found, matching, hidden, total), Data: body}, err
}

// entries lists a pool that may not be there.
func (s *service) entries(ctx context.Context, k poolKey) ([]snapshot.Entry, error) {
	pool, err := s.pools.existing(ctx, k)
	if err != nil || pool == nil {
		return nil, err
	}
	return pool.List(ctx)
}

func (r *request) listText(found []listed, matching, hidden, total int) string {
	var parts []string
	if len(found) > 0 {
		header := []string{"NAME", "MSGS", "SIZE", "UPDATED", "MODEL"}
		if r.Bool("all-projects") {
			header = append([]string{"PROJECT"}, header...)
		}
		rows := make([][]string, len(found))
		for i, e := range found {
			rows[i] = r.listRow(e)
		}
		parts = append(parts, plugin.Table(header, rows))
	}
	if len(found) < matching {
		parts = append(parts, fmt.Sprintf("%d of %d shown; raise --limit for more", len(found), matching))
	}
	if hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d auto-managed hidden; --include-auto shows them", hidden))
	}
	switch {
	case total == 0:
		parts = append([]string{"no snapshots yet; save one with: sess save <name>"}, parts...)
	case len(found) == 0 && hidden == 0:
		parts = append(parts, "no snapshot matches; leave a filter out to see more")
	case len(found) == 0:
		parts = append([]string{"no snapshots named by you"}, parts...)
	}
	return strings.Join(parts, "\n")
}

func (r *request) listRow(e listed) []string {
	row := []string{
		string(e.Name), fmt.Sprint(e.Meta.Messages), plugin.Size(e.Meta.Bytes),
		plugin.Ago(e.Meta.UpdatedAt, r.now()), cmp.Or(oneLine(e.Meta.Model, 60), "-"),
	}
	if e.Meta.Pinned {
		row[4] += " (pinned)"
	}
	switch e.State {
	case snapshot.StateDamaged:
		row[1], row[2], row[4] = "-", "-", "damaged: "+oneLine(cause(e.Problem), 120)
	case snapshot.StateNewer:
		row[1], row[2], row[4] = "-", "-", oneLine(e.Problem, 120)
	}
	if r.Bool("all-projects") {
		row = append([]string{e.project}, row...)
	}
	return row
}

// hasTags reports whether a snapshot has all of the tags. The two ways in which
// Unicode spells an accented letter are the same.
func hasTags(e snapshot.Entry, tags map[string]string) bool {
	for k, v := range tags {
		have, ok := e.Meta.Tags[k]
		if !ok || norm.NFC.String(have) != norm.NFC.String(v) {
			return false
		}
	}
	return true
}

// parsePairs reads key=value words; the value may hold a = itself.
func parsePairs(what string, words []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return nil, plugin.Errorf(plugin.Usage, "%s: %q is not key=value", what, w).WithHint("write it as in area=db")
		}
		if old, ok := pairs[k]; ok && old != v {
			return nil, plugin.Errorf(plugin.Usage, "%s: the key %q is given twice", what, k).WithHint("give it once")
		}
		pairs[k] = v
	}
	return pairs, nil
}
