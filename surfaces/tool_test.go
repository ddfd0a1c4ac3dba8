package surfaces_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sess/plugin"
	"sess/surfaces"
)

type toolSchema struct {
	Type       string
	Required   []string
	Properties map[string]struct {
		Type, Description string
		Enum              []string
		AnyOf             []any
	}
}

func TestToolSchema(t *testing.T) {
	t.Parallel()
	tool := surfaces.ToolSchema(spec(t))
	if tool.Name != "sess_manage" || !strings.Contains(tool.Description, "named snapshots") {
		t.Errorf("tool %q: %q", tool.Name, tool.Description)
	}
	var s toolSchema
	if err := json.Unmarshal(tool.InputSchema, &s); err != nil {
		t.Fatal(err)
	}
	wantActions := []string{"save", "load", "list", "new", "copy", "delete", "drop", "tag", "trash list", "trash restore"}
	if diff := cmp.Diff(wantActions, s.Properties["action"].Enum); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	var fields []string
	for f := range s.Properties {
		fields = append(fields, f)
	}
	slices.Sort(fields)
	wantFields := []string{
		"action", "agent", "backup", "confirm", "from", "includeAuto", "includeFile", "indices", "labels", "limit", "name",
		"newerThan", "note", "overwrite", "prefix", "project", "session", "sort", "tags", "to",
	}
	if diff := cmp.Diff(wantFields, fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for field, want := range map[string]string{
		"action":  "delete: remove snapshots (destroys; takes name, prefix, confirm)",
		"backup":  "load: true by default; false: make no backup first\nnew: back up first (default true)",
		"confirm": "delete: really remove them (must be the boolean true to confirm)",
		"limit":   "list: how many (default 50)",
		"name":    "new, delete, tag: name of a snapshot",
	} {
		if got := s.Properties[field].Description; !strings.Contains(got, want) {
			t.Errorf("description of %s = %q, want it to have %q", field, got, want)
		}
	}
	if got := s.Properties["action"].Description; !strings.Contains(got, "runs when your turn has ended") {
		t.Errorf("description of action = %q does not tell that load waits for the turn's end", got)
	}
}

// The schema is one that a validator takes, and says what Lower says.
func TestToolSchemaValidates(t *testing.T) {
	t.Parallel()
	spec := spec(t)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(surfaces.ToolSchema(spec).InputSchema)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tool.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("tool.json")
	if err != nil {
		t.Fatal(err)
	}
	for object, valid := range map[string]bool{
		`{"action":"save","name":"v1","tags":{"a":"b"},"overwrite":true,"includeFile":["x"]}`: true,
		`{"action":"list","limit":5,"sort":"name","newerThan":"7d"}`:                          true,
		`{"action":"drop","indices":[1,2]}`:                                                   true,
		`{"action":"save"}`:                                                                   true, // the schema leaves it to Lower
		`{"name":"v1"}`:                                                                       false,
		`{"action":"xyzzy"}`:                                                                  false,
		`{"action":"list","limit":true}`:                                                      false,
		`{"action":"save","name":"v1","nmae":"v1"}`:                                           false,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(object))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != valid {
			t.Errorf("Validate(%s) = %v, want valid %v", object, err, valid)
		}
	}
}

// A field that two verbs take in different types allows both.
func TestToolSchemaMergesTypes(t *testing.T) {
	t.Parallel()
	tool := surfaces.ToolSchema(&plugin.Spec{Command: "x", Summary: "x", Verbs: []plugin.Verb{
		{Name: "a", Flags: []plugin.Flag{{Name: "keep", Type: plugin.TypeInt}}},
		{Name: "b", Flags: []plugin.Flag{{Name: "keep", Type: plugin.TypeDuration}}},
	}})
	var s toolSchema
	if err := json.Unmarshal(tool.InputSchema, &s); err != nil {
		t.Fatal(err)
	}
	want := []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
	if diff := cmp.Diff(want, s.Properties["keep"].AnyOf); diff != "" {
		t.Errorf("keep (-want +got):\n%s", diff)
	}
}

func TestToolRender(t *testing.T) {
	t.Parallel()
	got, isError := surfaces.ToolRender(plugin.Result{Text: "saved v1", Data: json.RawMessage("{ \"a\": 1 }"), Notices: []string{"disk low"}}, nil)
	if want := "saved v1\nnote: disk low\n\n{\"a\":1}"; got != want || isError {
		t.Errorf("ToolRender = %q, %v, want %q, false", got, isError, want)
	}
	got, isError = surfaces.ToolRender(plugin.Result{}, plugin.Errorf(plugin.NotFound, "no snapshot v9").WithHint("did you mean v1?"))
	if want := "error (not_found): no snapshot v9; did you mean v1?"; got != want || !isError {
		t.Errorf("ToolRender of an error = %q, %v, want %q, true", got, isError, want)
	}
}

func TestToolRenderIsBounded(t *testing.T) {
	t.Parallel()
	var items []string
	for i := range 2000 {
		items = append(items, fmt.Sprintf(`{"name":"snapshot-%04d"}`, i))
	}
	list := "[" + strings.Join(items, ",") + "]"
	long := strings.Repeat("日", 30_000)
	tests := []struct {
		name   string
		result plugin.Result
		err    error
		want   string
	}{
		{"a long list", plugin.Result{Text: "2000 snapshots", Data: json.RawMessage(list)}, nil, "of 2000 items are shown"},
		{"a long object", plugin.Result{Data: json.RawMessage(`{"text":"` + long + `"}`)}, nil, "bytes in all"},
		{"a list of one long item", plugin.Result{Data: json.RawMessage(`["` + long + `"]`)}, nil, "bytes in all"},
		{"a long text", plugin.Result{Text: long, Data: json.RawMessage(list)}, nil, "bytes in all"},
		{"a text that leaves no room", plugin.Result{Text: strings.Repeat("x", surfaces.MaxToolText-10), Data: json.RawMessage(list)}, nil, "bytes in all"},
		{"a long error", plugin.Result{}, &plugin.Error{Code: plugin.Corrupt, Message: long}, "bytes in all"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := surfaces.ToolRender(tt.result, tt.err)
			if len(got) > surfaces.MaxToolText || !utf8.ValidString(got) || !strings.Contains(got, tt.want) {
				t.Errorf("ToolRender: %d bytes, valid UTF-8 %v, ends in %q; want at most %d that tell %q",
					len(got), utf8.ValidString(got), got[max(0, len(got)-150):], surfaces.MaxToolText, tt.want)
			}
		})
	}
	got, _ := surfaces.ToolRender(tests[0].result, nil)
	_, data, _ := strings.Cut(got, "\n\n")
	shown, _, _ := strings.Cut(data, "\n")
	if !json.Valid([]byte(shown)) || len(shown) < surfaces.MaxToolText/2 {
		t.Errorf("the shown part of the list has %d bytes, valid JSON %v", len(shown), json.Valid([]byte(shown)))
	}
}
