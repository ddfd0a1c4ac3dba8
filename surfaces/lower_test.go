package surfaces_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sess/plugin"
	"sess/surfaces"
)

func TestLower(t *testing.T) {
	t.Parallel()
	spec := spec(t)
	tests := []struct {
		name, action, object string
		want                 []string
	}{
		{"arguments follow --", "save", `{"name":"v1"}`, []string{"save", "--", "v1"}},
		{"flags in the order of their declaration", "save", `{"overwrite":true,"name":"v1","note":"x"}`, []string{"save", "--note=x", "--overwrite", "--", "v1"}},
		{"the action is a field", "", `{"action":"list"}`, []string{"list"}},
		{"an action in another case", "", `{"action":"LOAD","name":"v1"}`, []string{"load", "--", "v1"}},
		{"an alias", "rm", `{"name":"v1"}`, []string{"delete", "--", "v1"}},
		{"two words", "", `{"action":"trash restore","name":"v1"}`, []string{"trash", "restore", "--", "v1"}},
		{"no object", "list", ``, []string{"list"}},
		{"values cannot become flags", "save", `{"name":"--overwrite","note":"--tags=a"}`, []string{"save", "--note=--tags=a", "--", "--overwrite"}},
		{"a name that is --", "save", `{"name":"--"}`, []string{"save", "--", "--"}},
		{"an empty name is given", "save", `{"name":""}`, []string{"save", "--", ""}},
		{"an empty flag is given", "save", `{"name":"v1","note":""}`, []string{"save", "--note=", "--", "v1"}},
		{"camelCase", "list", `{"includeAuto":true}`, []string{"list", "--include-auto"}},
		{"false is said", "list", `{"includeAuto":false}`, []string{"list", "--include-auto=false"}},
		{"false of a negative flag", "load", `{"name":"v1","backup":false}`, []string{"load", "--no-backup", "--", "v1"}},
		{"true of a negative flag", "load", `{"name":"v1","backup":true}`, []string{"load", "--", "v1"}},
		{"false of a negatable flag", "new", `{"backup":false}`, []string{"new", "--no-backup"}},
		{"true of a negatable flag", "new", `{"backup":true}`, []string{"new", "--backup"}},
		{"a number", "list", `{"limit":5}`, []string{"list", "--limit=5"}},
		{"a number as a string", "list", `{"limit":"5"}`, []string{"list", "--limit=5"}},
		{"a boolean as a string", "list", `{"includeAuto":"true"}`, []string{"list", "--include-auto"}},
		{"a number as a name", "save", `{"name":42}`, []string{"save", "--", "42"}},
		{"a number keeps its text", "save", `{"name":1.50}`, []string{"save", "--", "1.50"}},
		{"a duration of zero", "list", `{"newerThan":0}`, []string{"list", "--newer-than=0"}},
		{"an object", "save", `{"name":"v1","tags":{"b":"2","a":"x=y","n":3}}`, []string{"save", "--tags=a=x=y", "--tags=b=2", "--tags=n=3", "--", "v1"}},
		{"pairs are quoted where they must be", "save", `{"name":"v1","tags":{"a":"1,2","\"q":"say \"hi\"","c":"5\" disk"}}`, []string{"save", `--tags="""q=say ""hi"""`, `--tags="a=1,2"`, `--tags=c=5" disk`, "--", "v1"}},
		{"an empty object is given", "save", `{"name":"v1","tags":{}}`, []string{"save", "--tags=", "--", "v1"}},
		{"an object in a string", "save", `{"name":"v1","tags":"{\"a\":\"1\"}"}`, []string{"save", "--tags=a=1", "--", "v1"}},
		{"a list of pairs", "save", `{"name":"v1","tags":["a=1,2","b=2"]}`, []string{"save", `--tags="a=1,2"`, "--tags=b=2", "--", "v1"}},
		{"a list of pairs in a string", "save", `{"name":"v1","tags":"[\"a=1\"]"}`, []string{"save", "--tags=a=1", "--", "v1"}},
		{"pairs as on the command line", "save", `{"name":"v1","tags":"a=1,b=2"}`, []string{"save", "--tags=a=1,b=2", "--", "v1"}},
		{"a list", "save", `{"name":"v1","includeFile":["a,b","--x"]}`, []string{"save", "--include-file=a,b", "--include-file=--x", "--", "v1"}},
		{"a list in a string", "save", `{"name":"v1","includeFile":"[\"a\",\"b\"]"}`, []string{"save", "--include-file=a", "--include-file=b", "--", "v1"}},
		{"one item for a list", "save", `{"name":"v1","includeFile":"[draft"}`, []string{"save", "--include-file=[draft", "--", "v1"}},
		{"a list of numbers", "drop", `{"indices":[3,"-1"]}`, []string{"drop", "--", "3", "-1"}},
		{"a list of numbers in a string", "drop", `{"indices":"[3, 4]"}`, []string{"drop", "--", "3", "4"}},
		{"one number for a list", "drop", `{"indices":3}`, []string{"drop", "--", "3"}},
		{"two arguments in order", "copy", `{"to":"b","from":"a"}`, []string{"copy", "--", "a", "b"}},
		{"optional arguments", "tag", `{"name":"a","labels":["x","y"]}`, []string{"tag", "--", "a", "x", "y"}},
		{"confirmed", "delete", `{"prefix":"a","confirm":true}`, []string{"delete", "--prefix=a", "--confirm"}},
		{"not confirmed", "delete", `{"prefix":"a","confirm":false}`, []string{"delete", "--prefix=a", "--confirm=false"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fields, err := surfaces.ParseObject([]byte(tt.object))
			if err != nil {
				t.Fatal(err)
			}
			got, err := surfaces.Lower(spec, tt.action, fields)
			if err != nil {
				t.Fatalf("Lower(%q, %s): %s", tt.action, tt.object, text(t, err))
			}
			if diff := cmp.Diff(tt.want, got.Argv); diff != "" {
				t.Errorf("Lower(%q, %s) (-want +got):\n%s", tt.action, tt.object, diff)
			}
		})
	}
}

func TestLowerRefuses(t *testing.T) {
	t.Parallel()
	spec := spec(t)
	const actions = "the actions are save, load, list, new, copy, delete, drop, tag, trash list, trash restore"
	const saveTakes = "save takes name, note, tags, includeFile, overwrite"
	tests := []struct{ action, object, want string }{
		{"", `{}`, "action is missing; " + actions},
		{"", `{"action":null}`, "action: null is not a string; " + actions},
		{"", `{"action":true}`, "action: true is not a string; " + actions},
		{"", `{"action":"sav"}`, `unknown action "sav": ` + actions + "; did you mean save?"},
		{"", `{"action":"xyzzy"}`, `unknown action "xyzzy": ` + actions},
		{"", `{"action":"op"}`, `unknown action "op": ` + actions + "; did you mean cp?"},
		{"", `{"action":"trash"}`, `unknown action "trash": ` + actions + "; did you mean trash list or trash restore?"},
		{"", `{"action":"list --all"}`, `unknown action "list --all": ` + actions},
		{"save", `{"action":"list","name":"v1"}`, `unknown field "action": ` + saveTakes},
		{"save", `{"nmae":"v1"}`, `unknown field "nmae": ` + saveTakes + "; did you mean name?"},
		{"save", `{"name":"v1","sesion":"s"}`, `unknown field "sesion": ` + saveTakes + "; did you mean session?"},
		{"save", `{"name":"v1","trigger":"x"}`, `unknown field "trigger": ` + saveTakes},
		{"list", `{"include-auto":true}`, `unknown field "include-auto": list takes limit, includeAuto, sort, newerThan; did you mean includeAuto?`},
		{"trash list", `{"all":true}`, `unknown field "all": trash list takes no fields`},
		{"save", `{}`, "name is missing: " + saveTakes},
		{"drop", `{"indices":[]}`, "indices is missing: drop takes indices"},
		{"save", `{"name":null}`, "name: null is not a string; leave the field out, or give a string"},
		{"save", `{"name":true}`, "name: true is not a string"},
		{"save", `{"name":{"value":"v1"}}`, `name: {"value":"v1"} is not a string`},
		{"save", `{"name":["v1"]}`, `name: ["v1"] is not a string`},
		{"list", `{"limit":true}`, "limit: true is not a whole number"},
		{"list", `{"limit":"many"}`, `limit: "many" is not a whole number`},
		{"list", `{"limit":5.5}`, "limit: 5.5 is not a whole number"},
		{"list", `{"includeAuto":1}`, "includeAuto: 1 is not true or false"},
		{"list", `{"includeAuto":"yes"}`, `includeAuto: "yes" is not true or false`},
		{"list", `{"sort":true}`, "sort: true is not one of updated, name"},
		{"list", `{"newerThan":[]}`, `newerThan: [] is not a duration such as "36h" or "7d"`},
		{"delete", `{"prefix":"a","confirm":"true"}`, `confirm: "true" is not the boolean true or false`},
		{"delete", `{"prefix":"a","confirm":1}`, `confirm: 1 is not the boolean true or false`},
		{"save", `{"name":"v1","tags":"a"}`, `tags: "a" is not an object of strings such as {"key": "value"}`},
		{"save", `{"name":"v1","tags":"[\"a\",\"b\"]"}`, `tags: "[\"a\",\"b\"]" is not an object of strings such as {"key": "value"}`},
		{"save", `{"name":"v1","tags":{"a":true}}`, `tags: {"a":true} is not an object of strings such as {"key": "value"}`},
		{"save", `{"name":"v1","tags":{"a=b":"c"}}`, `tags: {"a=b":"c"} is not an object of strings such as {"key": "value"}`},
		{"save", `{"name":"v1","tags":{"":"c"}}`, `tags: {"":"c"} is not an object of strings such as {"key": "value"}`},
		{"save", `{"name":"v1","includeFile":[["a"]]}`, `includeFile: [["a"]] is not a list of strings`},
		{"drop", `{"indices":[1,true]}`, "indices: [1,true] is not a list of whole numbers"},
		{"tag", `{"labels":["x"]}`, "labels is given without name; give both"},
		{"list", `{"session":""}`, "session is empty; leave it out for the default"},
		{"list", `{"agent":["a"]}`, `agent: ["a"] is not a string`},
	}
	for _, tt := range tests {
		t.Run(tt.action+" "+tt.object, func(t *testing.T) {
			t.Parallel()
			fields, err := surfaces.ParseObject([]byte(tt.object))
			if err != nil {
				t.Fatal(err)
			}
			_, err = surfaces.Lower(spec, tt.action, fields)
			if diff := cmp.Diff(tt.want, text(t, err)); diff != "" {
				t.Errorf("Lower(%q, %s) (-want +got):\n%s", tt.action, tt.object, diff)
			}
		})
	}
}

func TestLowerTakesHostFields(t *testing.T) {
	t.Parallel()
	fields := map[string]any{"action": "list", "agent": "a", "project": "p", "session": "s"}
	before := maps.Clone(fields)
	got, err := surfaces.Lower(spec(t), "", fields)
	if err != nil {
		t.Fatal(err)
	}
	want := surfaces.Lowered{Argv: []string{"list"}, Agent: "a", Project: "p", Session: "s"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(surfaces.Lowered{}, "Verb")); diff != "" || got.Verb.Name != "list" {
		t.Errorf("Lower, verb %v (-want +got):\n%s", got.Verb, diff)
	}
	if diff := cmp.Diff(before, fields); diff != "" {
		t.Errorf("Lower changed its argument:\n%s", diff)
	}
}

func TestParseObject(t *testing.T) {
	t.Parallel()
	got, err := surfaces.ParseObject([]byte(" {\"a\":[1.0,{\"b\":null}],\"c\":\"\\u00e9\"}\n"))
	want := map[string]any{"a": []any{json.Number("1.0"), map[string]any{"b": nil}}, "c": "é"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseObject: %v (-want +got):\n%s", err, diff)
	}
	bad := map[string]string{
		`{"a":1,"a":2}`:             `the key "a" is given twice`,
		`{"x":{"a":1,"a":2}}`:       `the key "a" is given twice`,
		`{"a":1} {}`:                "something follows the value",
		`{"a":1`:                    "it ends too early",
		`{"a":[1,2}`:                "invalid character",
		`{a:1}`:                     "invalid character",
		`null`:                      "null is not a JSON object",
		`["save"]`:                  `["save"] is not a JSON object`,
		"{\"a\":\"\xff\"}":          "it is not UTF-8",
		strings.Repeat("[", 10_000): "nested too deeply",
	}
	for in, want := range bad {
		if _, err := surfaces.ParseObject([]byte(in)); err == nil || !strings.Contains(text(t, err), want) {
			t.Errorf("ParseObject(%.40s) = %v, want an error with %q", in, err, want)
		}
	}
}

// given dispatches an argv to the fixture and returns what its verb was given.
func given(t *testing.T, argv []string) values {
	t.Helper()
	r, err := fixture(t).Dispatch(t.Context(), plugin.Call{Argv: argv, Caller: plugin.CallerTool}, nil)
	if err != nil {
		t.Fatalf("Dispatch(%q): %s", argv, text(t, err))
	}
	var v values
	if err := json.Unmarshal(r.Data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Whatever strings an object holds, the verb gets the same ones.
func TestLoweredValuesArriveUnchanged(t *testing.T) {
	t.Parallel()
	check := func(name, note, value, key string, files []string) bool {
		key = "k" + strings.ReplaceAll(key, "=", "")
		object := map[string]any{"name": name, "note": note, "tags": map[string]any{key: value, "z": note}}
		list := make([]any, len(files))
		for i, f := range files {
			list[i] = f
		}
		object["includeFile"] = list
		low, err := surfaces.Lower(spec(t), "save", object)
		if err != nil {
			t.Errorf("Lower(%q): %v", object, err)
			return false
		}
		got := given(t, low.Argv)
		same := slices.Equal(got.Args["name"], []string{name}) && got.Text["note"] == note &&
			maps.Equal(got.Maps["tags"], map[string]string{key: value, "z": note}) &&
			slices.Equal(got.Lists["include-file"], files)
		if !same {
			t.Errorf("object %q, argv %q, arrived as %+v", object, low.Argv, got)
		}
		return same
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 200}); err != nil {
		t.Error(err)
	}
	nasty := []string{"", "--", "-n", "--overwrite", "=", "a=b", ",", `"`, `""`, `"a`, `a"b,c`, "\r\n", "a,\"b\"\n", "é\u0301", "[]", "{}", `["x"]`, "\x00"}
	for _, s := range nasty {
		check(s, s, s, s, nasty)
	}
}

func FuzzLower(f *testing.F) {
	for _, s := range []string{
		`{"action":"save","name":"v1","note":"--x","tags":{"a":"1,2"}}`,
		`{"action":"list","limit":"5","includeAuto":"true"}`,
		`{"action":"delete","prefix":"","confirm":true}`,
		`{"action":"drop","indices":"[1,-2]"}`,
		`{"action":"tag","labels":[],"name":null}`,
		`{"action":"save","name":"v","tags":"\"a=1","includeFile":[1.5]}`,
	} {
		f.Add([]byte(s))
	}
	d := fixture(f)
	spec := d.Spec()
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := surfaces.ParseObject(data)
		if err != nil {
			text(t, err)
			return
		}
		low, err := surfaces.Lower(&spec, "", fields)
		if err != nil {
			text(t, err)
			return
		}
		// What was lowered parses as the same verb; only values can still be wrong.
		r, err := d.Dispatch(t.Context(), plugin.Call{Argv: low.Argv}, nil)
		if err != nil {
			if msg := text(t, err); strings.Contains(msg, "unknown") || strings.Contains(msg, "unexpected") {
				t.Errorf("Lower(%s) = %q, which is refused: %s", data, low.Argv, msg)
			}
			return
		}
		if want := low.Verb.Name + " ran"; r.Text != want {
			t.Errorf("Lower(%s) = %q, which ran %q, want %q", data, low.Argv, r.Text, want)
		}
	})
}
