package surfaces_test

import (
	"testing"

	"sess/plugin"
	"sess/surfaces"
)

func TestSlashHints(t *testing.T) {
	t.Parallel()
	specs := []plugin.Spec{
		{Command: "sess", Verbs: []plugin.Verb{{Name: "undo"}, {Name: "load"}, {Name: "trash list"}, {Name: "op open", Internal: true}}},
		{Command: "sessions", Verbs: []plugin.Verb{{Name: "list"}}},
	}
	for _, tt := range []struct{ text, want string }{
		{"deleted v1 (sess undo brings it back)", "deleted v1 (/sess undo brings it back)"},
		{"sess load v1 --overwrite, or sess undo", "/sess load v1 --overwrite, or /sess undo"},
		{"see it with: sess trash list", "see it with: /sess trash list"},
		{"try `sess undo`.", "try `/sess undo`."},
		{"sess sessions list shows all sessions", "/sessions list shows all sessions"},
		{"sess sess undo", "/sess undo"},
		{"type /sess undo", "type /sess undo"},
		{"the sess plugin is being stopped", "the sess plugin is being stopped"},
		{"run sess doctor", "run sess doctor"},
		{"sess op open", "sess op open"},
		{"possess undo", "possess undo"},
		{"in a sess ", "in a sess "},
		{"sess", "sess"},
		{"", ""},
	} {
		if got := surfaces.SlashHints(tt.text, specs); got != tt.want {
			t.Errorf("SlashHints(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
