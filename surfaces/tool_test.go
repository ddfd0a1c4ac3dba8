package surfaces_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sess/dispatch"
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
		{"a long list", plugin.Result{Text: "2000 snapshots", Data: json.RawMessage(list)}, nil, "note: the data has only the first 787 of 2000 items\n"},
		{"a long list in an object", plugin.Result{Text: "x", Data: json.RawMessage(`{"some":["a"],"list":` + list + `,"more":true}`)}, nil, `},{"name":"snapshot-0785"}],"more":true}`},
		{"a long object", plugin.Result{Data: json.RawMessage(`{"text":"` + long + `"}`)}, nil, "bytes)"},
		{"a long object beside a text", plugin.Result{Text: "told", Data: json.RawMessage(`{"text":"` + long + `"}`)}, nil, "told\nnote: the data beside the text, 90011 bytes, is left out"},
		{"a list of one long item", plugin.Result{Data: json.RawMessage(`["` + long + `"]`)}, nil, "of 90004 bytes)"},
		{"a long text", plugin.Result{Text: long, Data: json.RawMessage(list)}, nil, "of 90000 bytes)\nnote: the data beside the text is left out"},
		{"a long text of lines", plugin.Result{Text: strings.Repeat("a line of text\n", 3000)}, nil, "a line of text\n(cut here"},
		{"a text that leaves no room", plugin.Result{Text: strings.Repeat("x", surfaces.MaxToolText-10), Data: json.RawMessage(list)}, nil, "note: the data beside the text is left out"},
		{"many notices", plugin.Result{Text: "told", Notices: strings.Split(strings.Repeat("a thing to know\n", 2000), "\n")}, nil, "note: 1774 more notes are left out"},
		{"one long notice", plugin.Result{Text: "told", Notices: []string{long}, Data: json.RawMessage(`[1]`)}, nil, "told\nnote: 1 more notes are left out\n\n[1]"},
		{"a long error", plugin.Result{}, &plugin.Error{Code: plugin.Corrupt, Message: long}, "of 90017 bytes)"},
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
	if _, data, _ := strings.Cut(got, "\n\n"); !json.Valid([]byte(data)) || len(data) < surfaces.MaxToolText*9/10 {
		t.Errorf("the shown part of the list has %d bytes, valid JSON %v", len(data), json.Valid([]byte(data)))
	}
}

// A model that asks for a list and then for what follows, as the answers tell
// it, is shown every item once, however long the items are.
func TestToolCallWalks(t *testing.T) {
	t.Parallel()
	const many = 400
	var all []string
	for i := range many {
		all = append(all, fmt.Sprintf("%04d-%s", many-i, strings.Repeat("x", i*i%700)))
	}
	calls := 0
	d, err := dispatch.New(dispatch.Command{
		Name: "stock", Summary: "what there is",
		Verbs: []dispatch.Verb{{
			Name: "show all", Summary: "list it", Effect: plugin.EffectRead,
			Args:  []plugin.Arg{{Name: "of", Type: plugin.TypeString}},
			Flags: func(fs *dispatch.Flags) { fs.Paged() },
			Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
				calls++
				if got := in.Arg("of"); got != "--limit=1" {
					return plugin.Result{}, plugin.Errorf(plugin.Usage, "the argument arrived as %q", got)
				}
				part, page, err := dispatch.Paginate(in, all, func(s string) []string { return []string{s} })
				if err != nil {
					return plugin.Result{}, err
				}
				data, err := json.Marshal(part)
				return plugin.Result{Text: strings.Join(part, "\n"), Data: data, Page: page}, err
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := d.Spec()
	for _, limit := range []string{"", `,"limit":7`, `,"limit":100000`} {
		var walked []string
		calls = 0
		for after := ""; ; {
			fields, err := surfaces.ParseObject([]byte(`{"action":"show all","of":"--limit=1"` + limit + after + `}`))
			if err != nil {
				t.Fatal(err)
			}
			lowered, err := surfaces.Lower(&spec, "", fields)
			if err != nil {
				t.Fatal(err)
			}
			result, err := surfaces.ToolCall(t.Context(), d, lowered.Verb, plugin.Call{Argv: lowered.Argv, Caller: plugin.CallerTool})
			text, isError := surfaces.ToolRender(result, err)
			if isError || len(text) > surfaces.MaxToolText {
				t.Fatalf("an answer of %d bytes: %.300s", len(text), text)
			}
			var part []string
			if err := json.Unmarshal(result.Data, &part); err != nil || len(part) == 0 {
				t.Fatalf("the data does not parse (%v), or has none of the items:\n%s", err, text)
			}
			walked = append(walked, part...)
			if result.Page.Next == "" {
				break
			}
			after = fmt.Sprintf(`,"after":%q`, result.Page.Next)
			if said := fmt.Sprintf(`call again with the same fields and with "after": %q`, result.Page.Next); !strings.Contains(text, said) {
				t.Fatalf("the answer does not say %q:\n%s", said, text)
			}
		}
		if diff := cmp.Diff(all, walked); diff != "" {
			t.Errorf("with%s the model was shown (-want +got):\n%s", limit, diff)
		}
		if calls > many/4 {
			t.Errorf("with%s %d calls for %d items: the answers are not filled", limit, calls, many)
		}
	}
}

// Only a list that is read is asked for again: a change is made once.
func TestToolCallChangesOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	data, err := json.Marshal(strings.Split(strings.Repeat("an item;", 9000), ";"))
	if err != nil {
		t.Fatal(err)
	}
	d := plugin.DispatcherFunc(func(context.Context, plugin.Call, plugin.ProgressFunc) (plugin.Result, error) {
		calls++
		return plugin.Result{Data: data}, nil
	})
	verb := &plugin.Verb{Name: "drop", Effect: plugin.EffectDestroy, Flags: []plugin.Flag{{Name: plugin.FlagLimit, Type: plugin.TypeInt}}}
	result, err := surfaces.ToolCall(t.Context(), d, verb, plugin.Call{Argv: []string{"drop"}})
	if text, _ := surfaces.ToolRender(result, err); err != nil || calls != 1 || len(text) > surfaces.MaxToolText || !json.Valid(result.Data) {
		t.Errorf("ToolCall of a change: %d calls, %d bytes, error %v; want one call that fits", calls, len(text), err)
	}
}
