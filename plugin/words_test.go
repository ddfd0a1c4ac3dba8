package plugin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"save", "load", "list", "ls", "delete", "del", "trash list", "trash restore"}
	tests := []struct {
		name, word string
		want       []string
	}{
		{"a letter missing", "sav", []string{"save"}},
		{"two letters swapped", "slave", []string{"save"}},
		{"neighbours swapped", "laod", []string{"load"}},
		{"case is no difference", "LOAD", []string{"load"}},
		{"a beginning", "dele", []string{"delete", "del"}},
		{"ties keep the order given", "lst", []string{"list", "ls"}},
		{"two words", "trsh restore", []string{"trash restore"}},
		{"nothing near", "frobnicate", nil},
		{"nothing typed", "", nil},
		{"very long", strings.Repeat("x", 1<<16), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, plugin.Nearest(tt.word, known)); diff != "" {
				t.Errorf("Nearest(%.20q) (-want +got):\n%s", tt.word, diff)
			}
		})
	}
}

func TestVerbUsage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		verb plugin.Verb
		want string
	}{
		{plugin.Verb{Name: "undo"}, "undo"},
		{plugin.Verb{Name: "trash restore", Args: []plugin.Arg{{Name: "name", Required: true, Repeated: true}}}, "trash restore <name>..."},
		{plugin.Verb{Name: "new", Args: []plugin.Arg{{Name: "name"}}, Flags: []plugin.Flag{{Name: "from"}}}, "new [<name>] [flags]"},
		{plugin.Verb{Name: "op", Flags: []plugin.Flag{{Name: "trigger", Internal: true}}}, "op"},
	}
	for _, tt := range tests {
		if got := tt.verb.Usage(); got != tt.want {
			t.Errorf("Usage() of %q = %q, want %q", tt.verb.Name, got, tt.want)
		}
	}
}
