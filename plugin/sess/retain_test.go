package sess_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
)

func TestTheCapEvictsAutoManagedOnesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"maxSnapshots":8}`)
	for _, name := range []string{"keep1", "keep2", "keep3"} {
		w.do("save", name)
		w.add(time.Minute)
	}
	w.do("pin", "keep1")
	for i := range 12 {
		w.do("save", fmt.Sprintf("auto%02d~", i))
		w.add(time.Minute)
	}
	want := []string{"auto07~", "auto08~", "auto09~", "auto10~", "auto11~", "keep1", "keep2", "keep3"}
	if diff := cmp.Diff(want, sorted(w.names())); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	result := w.do("save", "auto12~")
	if len(result.Notices) != 1 || !strings.HasPrefix(result.Notices[0], "auto07~ went to the trash: ") {
		t.Errorf("the eviction is told as %q", result.Notices)
	}
	// What was loaded last stays, and so does the backup just made.
	w.say(w.ref, "more", 1)
	w.do("load", "auto08~")
	w.do("save", "auto13~")
	w.do("save", "auto14~")
	w.do("save", "auto15~")
	w.do("save", "auto16~")
	names := w.names()
	if !slices.Contains(names, "auto08~") || !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "pre-load~") }) {
		t.Errorf("names %v lack the loaded one or the newest backup of the session", names)
	}
}

func TestTheCapAndSnapshotsWithNamesOfOnesOwn(t *testing.T) {
	t.Parallel()
	for onCap, want := range map[string][]string{"warn": {"a", "b", "c"}, "refuse": {"a", "b"}, "evict": {"b", "c"}} {
		t.Run(onCap, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, fmt.Sprintf(`{"maxSnapshots":2,"onCap":%q}`, onCap))
			w.do("save", "a")
			w.add(time.Minute)
			w.do("save", "b")
			w.add(time.Minute)
			result, err := w.call("save", "c")
			switch onCap {
			case "warn":
				if len(result.Notices) != 1 || !strings.Contains(result.Notices[0], "3 snapshots with names of your own exceed maxSnapshots 2") {
					t.Errorf("notices %q", result.Notices)
				}
			case "refuse":
				if e := plugin.AsError(err); e == nil || e.Code != plugin.NoSpace || !strings.Contains(e.Hint, "sess delete a") {
					t.Errorf("save answers %v", err)
				}
				w.refused(plugin.NoSpace, "copy", "a", "d")
				w.refused(plugin.NoSpace, "new", "d")
				w.do("save", "b", "--overwrite")
				w.do("save", "hidden~")
				w.do("delete", "hidden~")
			}
			if diff := cmp.Diff(want, sorted(w.names())); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"maxSnapshots":0}`)
	for _, project := range []string{"p1", "p2"} {
		w.ref = w.session(project, "s-"+project, 1)
		for i := range 3 {
			w.do("save", fmt.Sprintf("old%d~", i))
			w.add(time.Hour)
		}
		w.do("save", "named")
	}
	w.add(30 * 24 * time.Hour)
	for _, argv := range [][]string{
		{"--older-than=-1d"}, {"--older-than=forever"}, {"--older-than=1Y"}, {"--older-than=30"}, {"--keep=-3"}, {"--keep=ten"},
	} {
		w.untouched(func() { w.refused(plugin.Usage, append([]string{"prune"}, argv...)...) })
	}
	for _, argv := range [][]string{{}, {"--older-than=0"}, {"--keep=0"}} {
		w.says("nothing to prune, 4 kept", append([]string{"prune"}, argv...)...)
	}
	type answer struct {
		DryRun   bool
		Projects []struct {
			Project       string
			Dropped, Kept []struct{ Name, Reason string }
		}
	}
	var dry, real answer
	dryRun := w.do("prune", "--older-than=7d", "--all-projects", "--dry-run")
	w.decode(dryRun, &dry)
	if len(w.names()) != 4 {
		t.Errorf("a dry run left %v", w.names())
	}
	w.decode(w.do("prune", "--older-than=7d", "--all-projects"), &real)
	if !dry.DryRun || len(dry.Projects) != 2 {
		t.Errorf("the dry run answers %+v", dry)
	}
	dry.DryRun = false
	if diff := cmp.Diff(dry, real); diff != "" {
		t.Errorf("the real run does other things than the dry one (-dry +real):\n%s", diff)
	}
	for _, p := range real.Projects {
		if len(p.Dropped) != 3 || p.Dropped[0].Reason == "" {
			t.Errorf("project %s dropped %+v, want the three auto-managed ones with reasons", p.Project, p.Dropped)
		}
	}
	for _, want := range []string{"project p1:\n", "project p2:\n", "  - old0~: ", "  + named: ", "would prune 6 snapshots, keep 2"} {
		if !strings.Contains(dryRun.Text, want) {
			t.Errorf("the dry run says\n%s\nwant %q in it", dryRun.Text, want)
		}
	}
	if diff := cmp.Diff([]string{"named"}, w.names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	w.do("undo")
	if n := len(w.names()); n != 4 {
		t.Errorf("after the undo: %v, want four", w.names())
	}
	w.do("trash", "list")
}

// A snapshot dated by a fast clock neither is dropped for it nor drops others.
func TestPruneWithAFutureDate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.add(2 * 365 * 24 * time.Hour)
	w.do("save", "f")
	w.add(-2 * 365 * 24 * time.Hour)
	w.do("save", "n")
	w.say(w.ref, "more", 1)
	w.do("load", "n")
	before := w.names()
	w.do("prune", "--keep=2", "--older-than=1d")
	if diff := cmp.Diff(before, w.names()); diff != "" {
		t.Errorf("names (-before +after):\n%s", diff)
	}
}

// A backup dated by a fast clock does not take the place of the newest one.
func TestPruneKeepsTheNewestBackupBesideOneOfTheFuture(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"maxSnapshots":0}`)
	w.do("save", "v1")
	backup := func() string {
		w.say(w.ref, "more", 1)
		return w.meta("load", "v1").Backup
	}
	w.add(2 * 365 * 24 * time.Hour)
	ahead := backup()
	w.add(-2 * 365 * 24 * time.Hour)
	older := backup()
	w.add(time.Hour)
	newest := backup()
	w.add(time.Hour)
	w.do("save", "young~")

	w.do("prune", "--keep=1")
	if diff := cmp.Diff(sorted([]string{newest, "v1", "young~"}), sorted(w.names())); diff != "" {
		t.Errorf("names (-want +got); %s is of the future, %s older:\n%s", ahead, older, diff)
	}
}

// A run that a fast clock noted does not put off all others until its date.
func TestUpkeepAfterARunInTheFuture(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	tended := func() time.Time {
		t.Helper()
		w.do("save", "v1", "--overwrite")
		if err := w.plugin.Drain(t.Context()); err != nil { // waits for the upkeep
			t.Fatal(err)
		}
		w.start(false)
		status, err := w.plugin.Status(t.Context())
		if err != nil || len(status) != 1 {
			t.Fatalf("Status: %v, %v", status, err)
		}
		return status[0].Last
	}
	w.add(2 * 365 * 24 * time.Hour)
	ahead := tended()
	w.add(-2 * 365 * 24 * time.Hour)
	if got := tended(); !got.Before(ahead) || got.Before(w.Now().Add(-time.Second)) {
		t.Errorf("after a run dated %v the pool was tidied up at %v, want now: %v", ahead, got, w.Now())
	}
	if first, again := tended(), tended(); !again.Equal(first) {
		t.Errorf("the pool was tidied up at %v and again at %v", first, again)
	}
}
