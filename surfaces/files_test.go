package surfaces_test

import (
	"io"
	"strings"
	"testing"

	"sess/plugin"
	"sess/surfaces"
)

// carrier is a verb that reads a file and writes one.
func carrier() *plugin.Spec {
	return &plugin.Spec{Command: "carry", Summary: "Carry", Verbs: []plugin.Verb{{
		Name: "turn", Summary: "Turn", Effect: plugin.EffectWrite, Input: "file", Output: "output",
		Args: []plugin.Arg{{Name: "how", Type: plugin.TypeString}, {Name: "file", Type: plugin.TypeString}},
		Flags: []plugin.Flag{
			{Name: "output", Short: "o", Type: plugin.TypeString}, {Name: "note", Type: plugin.TypeString}, {Name: "fast", Type: plugin.TypeBool},
		},
	}}}
}

// The words of a command line name the files, wherever they stand.
func TestFileNames(t *testing.T) {
	t.Parallel()
	verb := &carrier().Verbs[0]
	for _, tt := range []struct{ words, input, output string }{
		{"", "", ""},
		{"how", "", ""},
		{"how in.json", "in.json", ""},
		{"--fast how in.json --output=out.json", "in.json", "out.json"},
		{"--output out.json how in.json", "in.json", "out.json"},
		{"how --note x --note=y in.json -o out.json", "in.json", "out.json"},
		{"how -- --output=x", "--output=x", ""},
		{"how - --output=-", "-", "-"},
		{"how --output", "", ""},
		{"how --note --output=x in.json", "in.json", ""},
	} {
		input, output := surfaces.FileNames(verb, strings.Fields(tt.words))
		if input != tt.input || output != tt.output {
			t.Errorf("FileNames(%q) = %q, %q, want %q, %q", tt.words, input, output, tt.input, tt.output)
		}
	}
}

// An object brings content, and never names a file of the machine that it is sent
// to.
func TestLowerInput(t *testing.T) {
	t.Parallel()
	l, err := surfaces.Lower(carrier(), "turn", map[string]any{"how": "x", "input": "some\ncontent"})
	if err != nil || strings.Join(l.Argv, " ") != "turn -- x" {
		t.Fatalf("Lower = %q, %v", l.Argv, err)
	}
	if content, err := io.ReadAll(l.Input); err != nil || string(content) != "some\ncontent" {
		t.Errorf("the input is %q, %v", content, err)
	}
	for _, fields := range []map[string]any{
		{"file": "/etc/passwd"}, {"output": "/etc/passwd"}, {"input": 5}, {"input": nil}, {"input": map[string]any{}},
	} {
		if _, err := surfaces.Lower(carrier(), "turn", fields); plugin.AsError(err) == nil || plugin.AsError(err).Code != plugin.Usage {
			t.Errorf("Lower(%v): %v, want it refused", fields, err)
		}
	}
	schema := string(surfaces.ToolSchema(carrier()).InputSchema)
	if !strings.Contains(schema, `"input"`) || strings.Contains(schema, `"file"`) || strings.Contains(schema, `"output"`) {
		t.Errorf("the tool takes %s", schema)
	}
}
