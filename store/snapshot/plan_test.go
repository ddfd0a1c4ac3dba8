package snapshot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/snapshot"
	"sess/store/transcript"
)

var planNow = time.Date(2031, 6, 1, 12, 0, 0, 0, time.UTC)

// entries makes a list from words like "a~:3" (auto-managed, 3 days old),
// "n:40!" (named, pinned) and "f~:-700" (dated in the future), "d:1?" (damaged).
func entries(words string) []snapshot.Entry {
	var out []snapshot.Entry
	for i, w := range strings.Fields(words) {
		name, age, _ := strings.Cut(w, ":")
		e := snapshot.Entry{State: snapshot.StateOK, Name: snapshot.Name(name)}
		if s, ok := strings.CutSuffix(age, "!"); ok {
			age, e.Meta.Pinned = s, true
		}
		if s, ok := strings.CutSuffix(age, "?"); ok {
			age, e.State = s, snapshot.StateDamaged
		}
		var days int
		if _, err := fmt.Sscan(age, &days); err != nil {
			panic(w)
		}
		e.Meta.ID = fmt.Sprintf("id-%s-%03d", name, i)
		e.Meta.UpdatedAt = planNow.AddDate(0, 0, -days)
		out = append(out, e)
	}
	return out
}

func TestPlan(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	tests := []struct {
		rule    string
		entries string
		policy  snapshot.Policy
		drop    string
	}{
		{"the zero policy keeps everything", "a~:900 b~:800 n:999", snapshot.Policy{}, ""},
		{"negative limits are off", "a~:900 n:999", snapshot.Policy{Max: -1, Keep: -3, OlderThan: -day}, ""},
		{"auto-managed ones go first, the oldest first", "n1:90 n2:80 a~:3 b~:2 c~:1", snapshot.Policy{Max: 3}, "a~ b~"},
		{"named ones stay above the cap", "n1:9 n2:8 n3:7 a~:1", snapshot.Policy{Max: 2}, "a~"},
		{"refuse evicts nothing named", "n1:9 n2:8 n3:7", snapshot.Policy{Max: 2, OnCap: snapshot.OnCapRefuse}, ""},
		{"evict takes the oldest named when they alone exceed", "n1:9 n2:8 n3:7 a~:1", snapshot.Policy{Max: 2, OnCap: snapshot.OnCapEvict}, "a~ n1"},
		{"evict leaves named ones that fit", "n1:9 n2:8 a~:1!", snapshot.Policy{Max: 2, OnCap: snapshot.OnCapEvict}, ""},
		{"evict passes over pinned ones", "n1:9! n2:8 n3:7", snapshot.Policy{Max: 2, OnCap: snapshot.OnCapEvict}, "n2"},
		{"pinned ones stay but count", "a~:9! b~:8 c~:7", snapshot.Policy{Max: 2}, "b~"},
		{"exempt ones stay", "a~:9 b~:8 c~:7", snapshot.Policy{Max: 2, Exempt: []string{"id-a~-000"}}, "b~"},
		{"protected ones stay", "a~:9 b~:8 c~:7", snapshot.Policy{Max: 1, Protect: func(e snapshot.Entry) string {
			if e.Name == "a~" {
				return "selected"
			}
			return ""
		}}, "b~ c~"},
		{"damaged ones stay and do not count", "d:900? a~:2 b~:1", snapshot.Policy{Max: 2, OlderThan: 30 * day}, ""},
		{"age is for auto-managed ones only", "n:90 a~:90 b~:29", snapshot.Policy{OlderThan: 30 * day}, "a~"},
		{"exactly as old is not older", "a~:30", snapshot.Policy{OlderThan: 30 * day}, ""},
		{"keep is for auto-managed ones only", "n:90 a~:3 b~:2 c~:1", snapshot.Policy{Keep: 2}, "a~"},
		{"keep counts those that stay anyway", "f~:-700 a~:3 b~:2!", snapshot.Policy{Keep: 2}, "f~"},
		{"keep leaves the newest, whatever else stays", "a~:3! b~:2 c~:1", snapshot.Policy{Keep: 2}, ""},
		{"each rule works on its own", "a~:90 b~:3 c~:2 d~:1", snapshot.Policy{OlderThan: 30 * day, Keep: 2}, "a~ b~"},
		{"the age rule needs no cap", "a~:90", snapshot.Policy{OlderThan: 30 * day, Max: 50}, "a~"},
		{"the future has no age", "f~:-700 a~:90", snapshot.Policy{OlderThan: 30 * day}, "a~"},
		{"the future pushes nothing out", "f~:-700 a~:2 b~:1", snapshot.Policy{Keep: 2}, "f~"},
		{"a named one of the future takes no place", "f:-700 a~:2 b~:1", snapshot.Policy{Keep: 2}, ""},
		{"the cap takes the future first", "f~:-700 n:5 a~:1", snapshot.Policy{Max: 2}, "f~"},
		{"ties go by id", "a~:1 b~:1 c~:1", snapshot.Policy{Max: 1}, "a~ b~"},
	}
	for _, tt := range tests {
		list := entries(tt.entries)
		keep, drop := snapshot.Plan(list, tt.policy, planNow)
		var got []string
		for _, d := range drop {
			got = append(got, string(d.Entry.Name))
		}
		if s := strings.Join(got, " "); s != tt.drop {
			t.Errorf("%s: Plan(%s) drops %q, want %q", tt.rule, tt.entries, s, tt.drop)
		}
		if len(keep)+len(drop) != len(list) {
			t.Errorf("%s: %d kept and %d dropped of %d", tt.rule, len(keep), len(drop), len(list))
		}
		for _, d := range append(keep, drop...) {
			if d.Reason == "" {
				t.Errorf("%s: no reason for %s", tt.rule, d.Entry.Name)
			}
		}
	}
}

func TestPlanCountLimitUnderPressure(t *testing.T) {
	t.Parallel()
	var words strings.Builder
	words.WriteString("keep1:100! keep2:99 keep3:98")
	for i := range 40 {
		fmt.Fprintf(&words, " auto%02d~:%d", i, 50-i)
	}
	keep, drop := snapshot.Plan(entries(words.String()), snapshot.Policy{Max: 8}, planNow)
	var names []string
	for _, d := range keep {
		names = append(names, string(d.Entry.Name))
	}
	want := []string{"auto39~", "auto38~", "auto37~", "auto36~", "auto35~", "keep3", "keep2", "keep1"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if len(drop) != 35 || drop[0].Reason != "auto-managed, oldest above maxSnapshots 8" {
		t.Errorf("dropped %d, first because %q; want 35, with the cap named", len(drop), drop[0].Reason)
	}
}

func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	list := entries("b~:1 a~:2 n:3")
	before := append([]snapshot.Entry(nil), list...)
	snapshot.Plan(list, snapshot.Policy{Max: 1, OnCap: snapshot.OnCapEvict}, planNow)
	if diff := cmp.Diff(before, list, cmp.AllowUnexported(transcript.Meta{})); diff != "" {
		t.Errorf("Plan changed its input (-before +after):\n%s", diff)
	}
}
