package sess_test

import (
	"strings"
	"testing"

	"sess/plugin"
)

// What an error advises to run can be run as it stands, and does it.
func TestTheAdviceOfErrorsWorks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before [][]string
		argv   []string
		want   string // the advice
	}{
		{"save over a name", [][]string{{"save", "v1"}}, []string{"save", "v1"}, "sess save v1 --overwrite"},
		{"copy over a name", [][]string{{"save", "v1"}, {"save", "v2"}}, []string{"copy", "v1", "v2"}, "sess copy v1 v2 --overwrite"},
		{"rename over a name", [][]string{{"save", "v1"}, {"save", "v2"}}, []string{"rename", "v1", "v2"}, "sess rename v1 v2 --overwrite"},
		{"new under a name", [][]string{{"save", "v1"}}, []string{"new", "v1"}, "sess delete v1"},
		{"load of nothing", nil, []string{"load", "zz"}, "sess list --include-auto"},
		{"delete of many", [][]string{{"save", "v1"}}, []string{"delete", "--prefix=v"}, "sess delete --prefix=v --confirm"},
		{"restore over a name", [][]string{{"save", "v1"}, {"delete", "v1"}, {"save", "v1"}}, []string{"trash", "restore", "v1"}, "sess trash restore v1 --as=v1-restored"},
		{"empty the trash", [][]string{{"save", "v1"}, {"delete", "v1"}}, []string{"trash", "empty"}, "sess trash empty --confirm"},
		{"restore of nothing", nil, []string{"trash", "restore", "zz"}, "sess trash list"},
		{"undo of a deletion whose name is taken", [][]string{{"save", "v1"}, {"delete", "v1"}, {"save", "v1"}}, []string{"undo"}, "sess trash restore v1 --as=v1-restored"},
		{"undo of a rename whose name is taken", [][]string{{"save", "v1"}, {"rename", "v1", "v2"}, {"save", "v1"}}, []string{"undo"}, "sess rename v2 v1-restored"},
		{"nothing to undo", nil, []string{"undo"}, "sess list --include-auto"},
		{"no name", nil, []string{"save"}, "sess save v1"},
		{"nothing to tag", [][]string{{"save", "v1"}}, []string{"tag", "v1"}, "sess tag v1 key=value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, `{}`)
			for _, argv := range tt.before {
				w.do(argv...)
			}
			_, err := w.call(tt.argv...)
			if err == nil {
				t.Fatalf("sess %q succeeds", tt.argv)
			}
			hint := plugin.AsError(err).Hint
			if !strings.HasSuffix(hint, tt.want) {
				t.Fatalf("sess %q advises %q, want %q at its end", tt.argv, hint, tt.want)
			}
			w.do(strings.Fields(tt.want)[1:]...)
		})
	}
}
