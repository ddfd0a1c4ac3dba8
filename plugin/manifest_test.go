package plugin_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sess/plugin"
)

func TestParseManifestRefuses(t *testing.T) {
	t.Parallel()
	const rest = `"version":"1","builtin":"x","protocol":1,"configSchema":{"type":"object"},"commands":["x"]`
	for _, id := range []string{"x", "x-1-", "a" + strings.Repeat("0", 62)} {
		if _, err := plugin.ParseManifest([]byte(`{"id":"` + id + `",` + rest + `}`)); err != nil {
			t.Fatalf("ParseManifest with the id %s: %v", id, err)
		}
	}
	for text, want := range map[string]string{
		`{"id":"x","colour":1,` + rest + `}`:                        `unknown key "colour"`,
		`{"ID":"x",` + rest + `}`:                                   `unknown key "ID"`,
		`{"id":"x","protoCol":2,` + rest + `}`:                      `unknown key "protoCol"`,
		`{"id":"x","id":"y",` + rest + `}`:                          `id: given twice`,
		`{"id":"x","permissions":[],"permissions":[],` + rest + `}`: `permissions: given twice`,
		`{"id":"X",` + rest + `}`:                                   `id: want lower-case`,
		`{"id":"",` + rest + `}`:                                    `id: want lower-case`,
		`{"id":"1x",` + rest + `}`:                                  `id: want lower-case`,
		`{"id":"-x",` + rest + `}`:                                  `id: want lower-case`,
		`{"id":"x.y",` + rest + `}`:                                 `id: want lower-case`,
		`{"id":"xé",` + rest + `}`:                                  `id: want lower-case`,
		`{"id":"a` + strings.Repeat("0", 63) + `",` + rest + `}`:    `id: want lower-case`,
		`{"id":"x","events":["turn_ended","dusk"],` + rest + `}`:    `events: unknown event dusk`,
		`{"id":"x",` + rest + `} {}`:                                `more than one JSON value`,
		`null`:                                                      `want an object`,
		`[]`:                                                        `want an object`,
		``:                                                          `plugin.json: `,
	} {
		_, err := plugin.ParseManifest([]byte(text))
		if !errors.Is(err, &plugin.Error{Code: plugin.Usage}) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseManifest(%s) = %v, want a usage error with %q", text, err, want)
		}
	}
}

// A plugin that lists no events is told of none, one that says nothing of them of
// all.
func TestManifestHears(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]plugin.EventKind{
		``:                         {plugin.EventTurnEnded, plugin.EventSessionReplaced, plugin.EventPluginEnded},
		`"events":[],`:             nil,
		`"events":["turn_ended"],`: {plugin.EventTurnEnded},
	} {
		m, err := plugin.ParseManifest([]byte(`{"id":"x",` + list + `"version":"1","builtin":"x","protocol":1,"configSchema":{"type":"object"},"commands":["x"]}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []plugin.EventKind
		for _, kind := range []plugin.EventKind{plugin.EventTurnEnded, plugin.EventSessionReplaced, plugin.EventPluginEnded} {
			if m.Hears(kind) {
				got = append(got, kind)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with %s it hears of (-want +got):\n%s", list, diff)
		}
	}
}

// What is taken of a plugin.json is what it says: written again it reads the
// same, and no key of it was passed over.
func FuzzParseManifest(f *testing.F) {
	own, err := os.ReadFile("../plugin.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	for _, s := range []string{
		"", "{}", "null", `{"id":"a"}`, `{"id":"a","version":"1","command":["x"],"protocol":1,"configSchema":{"type":"object"},"commands":["a"]}`,
		`{"id":"a","version":"1","builtin":"x","protocol":2,"mux":false,"mtls":null,"permissions":["rpc:x","session.read"],"configSchema":{"type":"object"},"commands":["a","b-c"]} `,
		`{"id":"a","ID":"b","version":"1","builtin":"x","protocol":1,"configSchema":{"type":"object","type":"array"},"commands":["a"]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := plugin.ParseManifest(data)
		if err != nil {
			if !errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
				t.Fatalf("ParseManifest = %v, want a usage error", err)
			}
			return
		}
		encoded, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("%s is taken and cannot be written: %v", data, err)
		}
		again, err := plugin.ParseManifest(encoded)
		if err != nil {
			t.Fatalf("%s is taken, and %s refused: %v", data, encoded, err)
		}
		var compact json.RawMessage
		if err := json.Unmarshal(encoded, &struct{ ConfigSchema *json.RawMessage }{&compact}); err != nil {
			t.Fatal(err)
		}
		m.ConfigSchema = compact // only the blanks differ
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s, written and read again (-was +is):\n%s", data, diff)
		}
		var keys map[string]any
		if err := json.Unmarshal(data, &keys); err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for key := range strings.FieldsSeq("id name version description command builtin protocol mux mtls permissions configSchema commands events") {
			known[key] = true
		}
		for key := range keys {
			if !known[key] {
				t.Errorf("the key %q is taken", key)
			}
		}
	})
}
