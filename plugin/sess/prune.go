package sess

import (
	"context"
	"fmt"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

func pruneVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "prune",
			Summary: "Apply the retention rules now",
			Help: "Auto-managed snapshots above maxSnapshots go to the trash, oldest first. --older-than and --keep add rules for this " +
				"run, for auto-managed snapshots alone; 0 is no rule. Pinned, shown and last loaded ones always stay.",
			Examples: []string{"prune --dry-run", "prune --older-than=30d --keep=10"},
			Flags: func(fs *dispatch.Flags) {
				fs.Bool("dry-run", false, "only say what would go, and why the rest stays")
				fs.Duration("older-than", 0, "auto-managed ones older than this go too")
				fs.Int("keep", 0, "keep only so many auto-managed ones, the newest").Min(0)
				fs.Bool("all-projects", false, "in all projects of the agent")
			},
			Effect: plugin.EffectDestroy,
		},
		run: prune,
	}
}

// pruned is what a run did to one pool.
type pruned struct {
	Project string     `json:"project"`
	Op      string     `json:"op,omitempty"`
	Dropped []decision `json:"dropped"`
	Kept    []decision `json:"kept"`
}

type decision struct {
	Name   snapshot.Name `json:"name"`
	ID     string        `json:"id"`
	Reason string        `json:"reason"`
}

func decisions(list []snapshot.Decision) []decision {
	out := make([]decision, len(list))
	for i, d := range list {
		out[i] = decision{d.Entry.Name, d.Entry.Meta.ID, d.Reason}
	}
	return out
}

func prune(ctx context.Context, r *request) (plugin.Result, error) {
	keys := []poolKey{r.key}
	if r.Bool("all-projects") {
		var err error
		if keys, err = r.pools.projects(r.key.Agent); err != nil {
			return plugin.Result{}, err
		}
	}
	projects := []pruned{}
	for _, k := range keys {
		done, err := r.pruneOne(ctx, k)
		if err != nil {
			return plugin.Result{}, fmt.Errorf("prune project %s: %w", k.Project, explain(err))
		}
		projects = append(projects, done)
	}
	return answer(r.pruneText(projects), pair{"dryRun", r.Bool("dry-run")}, pair{"projects", projects})
}

func (r *request) pruneOne(ctx context.Context, k poolKey) (pruned, error) {
	done := pruned{Project: k.Project, Dropped: []decision{}, Kept: []decision{}}
	pool, err := r.pools.existing(ctx, k)
	if err != nil || pool == nil {
		return done, err
	}
	entries, err := pool.List(ctx)
	if err != nil {
		return done, err
	}
	policy, err := r.policy(ctx, entries, r.ref, nil)
	if err != nil {
		return done, err
	}
	policy.OlderThan, policy.Keep = r.Duration("older-than"), int(r.Int("keep"))
	op := r.op(snapshot.OpPrune, "")
	op.Project = k.Project
	report, err := pool.Prune(ctx, policy, snapshot.PruneOptions{DryRun: r.Bool("dry-run"), Op: op})
	if err != nil {
		return done, err
	}
	done.Op, done.Dropped, done.Kept = report.Op, decisions(report.Drop), decisions(append(report.Keep, report.Passed...))
	if !r.Bool("dry-run") {
		r.upkeep(pool)
	}
	return done, nil
}

// pruneText groups by project. A dry run explains: it names the project also
// where there is only one, and says why the rest stays.
func (r *request) pruneText(projects []pruned) string {
	dry := r.Bool("dry-run")
	var b strings.Builder
	dropped, kept := 0, 0
	for _, p := range projects {
		dropped += len(p.Dropped)
		kept += len(p.Kept)
		if len(projects) > 1 || r.Bool("all-projects") || dry {
			fmt.Fprintf(&b, "project %s:\n", p.Project)
		}
		for _, d := range p.Dropped {
			fmt.Fprintf(&b, "  - %s: %s\n", d.Name, d.Reason)
		}
		if !dry {
			continue
		}
		for _, d := range p.Kept {
			fmt.Fprintf(&b, "  + %s: %s\n", d.Name, d.Reason)
		}
	}
	switch {
	case dropped == 0:
		fmt.Fprintf(&b, "nothing to prune, %d kept", kept)
	case dry:
		fmt.Fprintf(&b, "would prune %s, keep %d (- goes, + stays)", count(dropped, "snapshot"), kept)
	default:
		fmt.Fprintf(&b, "pruned %s, %d kept (%s brings %s back)", count(dropped, "snapshot"), kept, r.typed("undo"), itThem(dropped))
	}
	return b.String()
}
