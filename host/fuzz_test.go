package host

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
)

// FuzzConfig reads any bytes as config.json, against any schema of a plugin. What
// is wrong is a usage error that names the file; what is taken reads the same when
// the whole of it, defaults filled in, is written as a file.
func FuzzConfig(f *testing.F) {
	const schema = `{"type": "object", "additionalProperties": false, "properties": {
		"max": {"type": "integer", "minimum": 0, "default": 50}, "slot": {"type": "string", "default": "a~"},
		"deep": {"type": "object", "properties": {"x": {"type": "boolean", "default": true}}},
		"tags": {"type": "object", "default": {}, "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": {"type": "string"}}}}`
	for _, text := range []string{
		"{}", "", "null", "[]", "{", "\xff", "// a comment\n{/* one */ \"chat\": {\"confirm\": [\"a\",],},}",
		`{"plugins": {"entries": {"p": {"enabled": false, "config": {"max": 5e1, "tags": {"a": "b"}, "deep": {}}}}}}`,
		`{"plugins": {"entries": {"p": {"config": {"max": 1e999999999}}, "q": null}}}`,
		`{"plugins": {"entries": {"p": {"config": {"tags": {"A": 1, "b": []}, "deep": 4, "nax": 1}}}}}`,
		`{"models": {"default": "a/b", "providers": {"a": {"kind": "offline"}}}, "gateway": {"token": "t"}}`,
		`{"sessions": {"max": 1.0, "max": 2}}`, `{"sessions": {"max": 9223372036854775808}}`, `{"models": {"default": "a/b", "providers": {"a": {}}}}`,
	} {
		f.Add([]byte(text), []byte(schema))
	}
	for _, s := range []string{
		`{"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}`, `{"type": "object", "properties": {"a": {"default": 1e400}}}`,
		`{"type": "object", "$ref": "file:///nowhere.json"}`, `{"type": "object", "properties": 4}`, `{"type": "object", "patternProperties": {"(": {}}}`,
		`{"type": "object", "properties": {"a": {"properties": {"b": {"default": 1}}}}, "not": {"required": ["a"]}}`, `{"type": "object", "oneOf": [{}, {}]}`,
	} {
		f.Add([]byte(`{"plugins": {"entries": {"p": {"config": {"a": {"b": 2}}}}}}`), []byte(s))
	}
	f.Fuzz(func(t *testing.T, data, schema []byte) {
		manifest, err := json.Marshal(map[string]any{
			"id": "p", "version": "1", "builtin": "p", "protocol": 1, "commands": []string{"p"}, "configSchema": json.RawMessage(schema),
		})
		if err != nil {
			return
		}
		m, err := plugin.ParseManifest(manifest)
		if err != nil {
			return
		}
		load := func(data []byte) (*Config, error) {
			c := newConfig("")
			object, err := c.parse(data)
			if err != nil {
				return nil, err
			}
			return c, c.take(object, []*plugin.Manifest{m})
		}
		c, err := load(data)
		if err != nil {
			if !errors.Is(err, &plugin.Error{Code: plugin.Usage}) || !strings.Contains(err.Error(), "config.json") {
				t.Fatalf("%s, schema %s: %v, want a usage error that names the file", data, schema, err)
			}
			return
		}
		whole := map[string]any{}
		maps.Copy(whole, c.raw)
		whole["plugins"] = map[string]any{"entries": map[string]any{"p": map[string]any{"enabled": c.Enabled("p"), "config": c.PluginConfig("p")}}}
		written, err := json.Marshal(whole)
		if err != nil {
			t.Fatalf("%s is taken and cannot be written: %v", data, err)
		}
		again, err := load(written)
		if err != nil {
			if strings.Contains(string(schema), "default") {
				return // a schema may have defaults that it does not allow
			}
			t.Fatalf("%s is taken, and %s refused: %v", data, written, err)
		}
		if diff := cmp.Diff(string(c.PluginConfig("p")), string(again.PluginConfig("p"))); diff != "" {
			t.Errorf("%s, written and read again (-was +is):\n%s", data, diff)
		}
		if c.Enabled("p") != again.Enabled("p") || !cmp.Equal(c.Models, again.Models) || !cmp.Equal(c.Chat, again.Chat) {
			t.Errorf("%s, written and read again, is %+v, was %+v", data, again, c)
		}
	})
}

// FuzzDescription reads any bytes as a cached description: it is one of this
// build and this plugin, or none.
func FuzzDescription(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", `{"build":"b1","description":{"spec":{"command":"p","verbs":[{"name":"a b","flags":[{"name":"x","type":"bool"}]}]}}}`,
		`{"build":"b2","description":{"spec":{"command":"p"}}}`, `{"build":"b1","description":null}`, `{"build":"b1","description":{"spec":{"command":"q"}}}`,
		`{"build":"b1","description":{"spec":{"command":"p","verbs":4}}}`, `{"build":"b1","desc`,
	} {
		f.Add([]byte(text))
	}
	h := &Host{build: "b1"}
	p := &Plugin{build: "b1", Manifest: &plugin.Manifest{ID: "p", Commands: []string{"p"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, ok := h.parseDescription(p, data)
		if ok != (d != nil) {
			t.Fatalf("%v, %v", d, ok)
		}
		if !ok {
			return
		}
		if d.Spec.Command != "p" || !strings.Contains(string(data), "b1") {
			t.Fatalf("%q is taken for a description of p in build b1", data)
		}
		encoded, err := json.Marshal(description{Build: h.build, Description: *d})
		if err != nil {
			t.Fatalf("%q cannot be written again: %v", data, err)
		}
		again, ok := h.parseDescription(p, encoded)
		if !ok || len(again.Spec.Verbs) != len(d.Spec.Verbs) {
			t.Fatalf("%q, written again, is %q", data, encoded)
		}
	})
}
