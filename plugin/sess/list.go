package sess

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

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
				"Filters combine; --limit comes last, and --after goes on behind what it left.",
			Examples: []string{"list", "list --tag=area=db --limit=5", "list --include-auto --prefix=pre-load~"},
			Flags: func(fs *dispatch.Flags) {
				fs.String("prefix", "", "only names that begin with this").Complete(completeSnapshot)
				fs.Strings("tag", "only those with this tag: key=value")
				fs.Paged()
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

// compare orders the list: newest first, also of several pools.
func (a listed) compare(b listed) int {
	return cmp.Or(
		b.Meta.UpdatedAt.Compare(a.Meta.UpdatedAt), cmp.Compare(b.Meta.ID, a.Meta.ID),
		cmp.Compare(b.Name, a.Name), cmp.Compare(b.project, a.project),
	)
}

// place says the same as compare in words. A damaged snapshot has no id.
func (a listed) place() []string {
	return []string{placeOf(a.Meta.UpdatedAt), a.Meta.ID, string(a.Name), a.project}
}

// placeOf writes a time so that a later one is the larger word.
func placeOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000") }

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
	session, there := r.String("of-session"), false
	for _, k := range keys {
		entries, err := r.entries(ctx, k)
		if err != nil {
			return plugin.Result{}, err
		}
		total += len(entries)
		for _, e := range entries {
			there = there || e.Meta.SessionID == session
			switch {
			case !strings.HasPrefix(string(e.Name), r.String("prefix")),
				session != "" && e.Meta.SessionID != session,
				!hasTags(e, tags):
			case e.Name.Auto() && !r.Bool("include-auto"):
				hidden++
			default:
				found = append(found, listed{e, k.Project})
			}
		}
	}
	if session != "" && !there && !r.Bool("all-projects") {
		if _, err := r.runtime.Session(ctx, plugin.SessionRef{Project: r.key.Project, ID: session}); has(err, plugin.NotFound) {
			return plugin.Result{}, err
		}
	}
	slices.SortFunc(found, listed.compare)
	found, page, err := dispatch.Paginate(r.Invocation, found, listed.place)
	if err != nil {
		return plugin.Result{}, err
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
	return plugin.Result{Text: r.listText(found, page, hidden, total), Data: body, Page: page}, err
}

// entries lists a pool that may not be there.
func (s *service) entries(ctx context.Context, k poolKey) ([]snapshot.Entry, error) {
	pool, err := s.pools.existing(ctx, k)
	if err != nil || pool == nil {
		return nil, err
	}
	return pool.List(ctx)
}

func (r *request) listText(found []listed, page *plugin.Page, hidden, total int) string {
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
	if text := dispatch.PageText(len(found), page); text != "" {
		parts = append(parts, text)
	}
	if hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d auto-managed hidden; --include-auto shows them", hidden))
	}
	switch {
	case total == 0:
		parts = append([]string{"no snapshots yet; save one with: sess save <name>"}, parts...)
	case page.Total > 0:
	case hidden == 0:
		parts = append(parts, "no snapshot matches; leave a filter out to see more")
	default:
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
