package tests

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Projects whose names are much alike share nothing: each has its own sessions
// and snapshots, under the name that was given, and what is removed in one stays
// in the others.
func TestProjectsWithLikeNames(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	projects := []string{"spec-rl", "spec_rl", "spec.rl", "외주", "개인", "w-spec-rl"}
	if runtime.GOOS == "linux" {
		projects = append(projects, "Spec-RL") // the others' disks may ignore case
	}
	in := func(project string) string { return "--project=" + project }
	for _, p := range projects {
		u.do("chat", "--message", "marker of "+p, in(p))
		u.do("save", "main", in(p))
		u.do("save", "auto~", in(p))
		u.do("chat", "--message", "later words", in(p))
	}
	// A path is no project, and is not bent into one.
	for _, path := range []string{"/w/spec-rl", "/w/spec/rl", "/w/spec_rl"} {
		var failure struct{ Code string }
		if u.fails(2, &failure, "save", "main", in(path)); failure.Code != "invalid_name" {
			t.Errorf("save in project %s: %+v", path, failure)
		}
	}

	var all []struct{ Name, ProjectID string }
	u.answer(&all, "list", "--all-projects", "--include-auto")
	if len(all) != 2*len(projects) {
		t.Errorf("all projects have %d snapshots, want %d", len(all), 2*len(projects))
	}
	for _, p := range projects {
		var own []struct{ Name, ProjectID string }
		u.answer(&own, "list", in(p))
		if len(own) != 1 || own[0].Name != "main" || own[0].ProjectID != p {
			t.Errorf("project %s lists %+v", p, own)
		}
	}

	// What goes in one goes nowhere else.
	u.do("prune", "--keep=1", "--older-than=0", in("spec-rl"))
	u.do("delete", "--prefix=auto", "--confirm", in("spec-rl"))
	u.do("delete", "main", in("spec-rl"))
	u.do("new", "--no-backup", in("spec_rl"))
	for _, p := range projects {
		got := u.names("--include-auto", in(p))
		if p == "spec-rl" {
			if len(got) != 0 {
				t.Errorf("project %s has %q left", p, got)
			}
			continue
		}
		slices.Sort(got)
		if !slices.Equal(got, []string{"auto~", "main"}) {
			t.Errorf("project %s has %q", p, got)
		}
		u.do("load", "main", in(p))
		if m := u.messages(in(p)); len(m) != 2 || m[0] != "marker of "+p {
			t.Errorf("load main in project %s brings %q", p, m)
		}
	}
	u.do("undo", in("spec-rl"))
	u.do("load", "main", in("spec-rl"))

	// A chat stays in the project that it was opened in.
	for _, p := range projects {
		stdout, _, _ := u.run("chat", "--message", "/sess view main", in(p))
		if !strings.Contains(stdout, "user: marker of "+p+"\n") {
			t.Errorf("in a chat of project %s view main shows:\n%s", p, stdout)
		}
	}
	// Nothing went anywhere but into folders of exactly these names.
	folders, err := filepath.Glob(filepath.Join(u.home, "agents", "main", "projects", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range folders {
		folders[i] = filepath.Base(folders[i])
	}
	if want := slices.Sorted(slices.Values(projects)); !slices.Equal(folders, want) {
		t.Errorf("the folders are %q, want %q", folders, want)
	}
}
