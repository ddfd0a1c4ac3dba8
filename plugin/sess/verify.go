package sess

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func verifyVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "verify",
			Summary:  "Read snapshots whole and check every checksum",
			Help:     "Without a name all snapshots of the pool are checked. Nothing is changed.",
			Examples: []string{"verify", "verify v1 v2"},
			Args: []plugin.Arg{{
				Name: "names", Type: plugin.TypeString, Help: "snapshots, by name or id",
				Repeated: true, Complete: completeSnapshot,
			}},
			Effect: plugin.EffectRead,
		},
		run: verify,
	}
}

func verify(ctx context.Context, r *request) (plugin.Result, error) {
	pool, err := r.pools.existing(ctx, r.key)
	if err != nil {
		return plugin.Result{}, err
	}
	var names []snapshot.Name
	for _, text := range r.Args("names") {
		_, name, err := r.find(ctx, text)
		if err != nil {
			return plugin.Result{}, err
		}
		names = append(names, name)
	}
	var report snapshot.VerifyReport
	if pool != nil {
		if report, err = r.verifyPool(ctx, pool, names); err != nil {
			return plugin.Result{}, err
		}
	}
	checked := fmt.Sprintf("%s, %s, %s", count(report.Checked, "snapshot"), count(report.Chunks, "chunk"), longSize(report.Bytes))
	if len(report.Problems) > 0 {
		return plugin.Result{}, damage(report.Problems, checked)
	}
	text := "all is well: " + checked
	if n := len(report.Unreferenced); n > 0 {
		text += fmt.Sprintf("; %s of no snapshot, which the next clean-up removes", count(n, "chunk"))
	}
	unreferenced := report.Unreferenced
	if unreferenced == nil {
		unreferenced = []transcript.ID{}
	}
	return answer(text,
		pair{"checked", report.Checked}, pair{"chunks", report.Chunks}, pair{"bytes", report.Bytes},
		pair{"problems", json.RawMessage("[]")}, pair{"unreferenced", unreferenced})
}

// verifyPool checks what this version can read. What a newer one wrote is passed
// over with a notice, and refused where it is asked for by name.
func (r *request) verifyPool(ctx context.Context, pool *snapshot.Pool, names []snapshot.Name) (snapshot.VerifyReport, error) {
	entries, err := pool.List(ctx)
	if err != nil {
		return snapshot.VerifyReport{}, err
	}
	for _, e := range entries {
		if e.State == snapshot.StateNewer && slices.Contains(names, e.Name) {
			_, err := pool.Read(ctx, e.Name)
			return snapshot.VerifyReport{}, err
		}
	}
	report, err := pool.Verify(ctx, names, r.progress("verifying", "snapshots"))
	report.Problems = slices.DeleteFunc(report.Problems, func(p snapshot.Problem) bool {
		if p.Newer {
			r.notices = append(r.notices, fmt.Sprintf("%s was not checked: %s", where(p), p.Reason))
		}
		return p.Newer
	})
	return report, err
}

// where names what a problem is about.
func where(p snapshot.Problem) string {
	switch {
	case !p.Trashed:
		return string(p.Name)
	case p.Name == "":
		return "a file in the trash"
	}
	return string(p.Name) + " in the trash"
}

// damage is the failure of a check, with what was found.
func damage(problems []snapshot.Problem, checked string) error {
	const most = 20
	var lines []string
	for i, p := range problems {
		if i == most {
			lines = append(lines, fmt.Sprintf("… and %d more", len(problems)-most))
			break
		}
		line := fmt.Sprintf("%s: %s (%s)", where(p), cause(p.Reason), p.File)
		if p.Chunk != "" {
			line = fmt.Sprintf("%s: chunk %.12s: %s (%s)", where(p), p.Chunk, p.Reason, p.File)
		}
		lines = append(lines, line)
	}
	list, err := json.Marshal(problems)
	if err != nil {
		return err
	}
	e := plugin.Errorf(plugin.Corrupt, "%s found in %s:\n%s", count(len(problems), "problem"), checked, strings.Join(lines, "\n")).
		WithDetail("problems", string(list))
	first := slices.IndexFunc(problems, func(p snapshot.Problem) bool { return !p.Trashed })
	if first < 0 {
		return e.WithHint("the snapshots themselves are whole; see the trash with: %s", command("trash", "list"))
	}
	return e.WithHint("an older version may be in the trash: %s; a damaged snapshot is put away with: %s",
		command("trash", "list"), command("delete", string(problems[first].Name)))
}
