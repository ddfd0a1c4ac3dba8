package host_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"sess/host"
	"sess/host/schema"
	"sess/plugin"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	home := t.TempDir()
	if err := os.WriteFile(host.ConfigPath(home), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

// known is a plugin with a small configuration.
var known = []*plugin.Manifest{{ID: "sess", Builtin: "sess", ConfigSchema: json.RawMessage(`{
	"type": "object", "additionalProperties": false,
	"properties": {
		"maxSnapshots": {"type": "integer", "minimum": 0, "default": 50},
		"slot": {"type": "string", "default": "a~"},
		"tags": {"type": "object", "default": {}, "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": {"type": "string"}}
	}}`)}}

func TestLoadConfigRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"unknown key at the top", `{"plugin": {}}`, "plugin: unknown key; did you mean plugins?"},
		{"unknown key below", `{"plugins": {"entries": {"sess": {"enable": true}}}}`, "plugins.entries.sess.enable: unknown key; did you mean enabled?"},
		{"wrong type", `{"sessions": {"max": "ten"}}`, `sessions.max: want integer, got "ten"`},
		{"a fraction", `{"sessions": {"max": 1.5}}`, `sessions.max: want integer, got 1.5`},
		{"negative", `{"sessions": {"trashDays": -1}}`, `sessions.trashDays: -1 is too small; want at least 0`},
		{"body limit in words", `{"gateway": {"bodyLimit": "10 megs"}}`, `gateway.bodyLimit: want integer, got "10 megs"`},
		{"a negative body limit", `{"gateway": {"bodyLimit": -1}}`, `gateway.bodyLimit: -1 is too small; want at least 1024`},
		{"a body limit beyond all disks", `{"gateway": {"bodyLimit": 1e30}}`, `gateway.bodyLimit: 1e30 is too large; want at most 1099511627776`},
		{"an exponent beyond all memory", `{"sessions": {"max": 1e999999999}}`, `sessions.max: want integer, got 1e999999999`},
		{"one of a list", `{"models": {"providers": {"x": {"kind": "magic"}}}}`, `models.providers.x.kind: want one of "offline", "openai", "anthropic", or the id of a plugin, got "magic"`},
		{"an index", `{"gateway": {"allowedOrigins": ["https://a.example", 5]}}`, `gateway.allowedOrigins.1: want string, got 5`},
		{"twice", `{"sessions": {"max": 1, "max": 2}}`, `sessions.max: given twice`},
		{"no JSON", `{"sessions": `, `line 1, column 14: `},
		{"a key that stands there itself", `{"models": {"providers": {"x": {"kind": "openai", "apiKey": "k"}}}}`, `models.providers.x.apiKey: unknown key; did you mean apiKeyEnv?`},
		{"attempts below none", `{"models": {"providers": {"x": {"kind": "openai", "maxRetries": -1}}}}`, `models.providers.x.maxRetries: -1 is too small; want at least 0`},
		{"a model without its provider", `{"models": {"default": "echo"}}`, `models.default: "echo" is not allowed; want provider/model`},
		{"not an object", `[]`, `the file: want object, got []`},
		{"a key at the top", `{"bogus": 1}`, "bogus: unknown key"},
		{"a plugin that is not here", `{"plugins": {"entries": {"other": {}}}}`, "plugins.entries.other: no plugin of this id is here"},
		{"a key with a pattern, among other faults", `{"plugins": {"entries": {"sess": {"config": {"maxSnapshots": "x", "slot": 1, "tags": {"a b": "c"}}}}}}`, `plugins.entries.sess.config.maxSnapshots: want integer, got "x"; plugins.entries.sess.config.slot: want string, got 1; plugins.entries.sess.config.tags: the key "a b" is not allowed`},
		{"a key with a pattern", `{"plugins": {"entries": {"sess": {"config": {"tags": {"a b": "c"}}}}}}`, `plugins.entries.sess.config.tags: the key "a b" is not allowed; want it to match ^[a-z]+$`},
		{
			"the faults of all parts", `{"bogus": 1, "plugins": {"entries": {"other": {}, "sess": {"config": {"mx": 1, "maxSnapshots": -2}}}}}`,
			"bogus: unknown key; plugins.entries.other: no plugin of this id is here; " +
				"plugins.entries.sess.config.maxSnapshots: -2 is too small; want at least 0; plugins.entries.sess.config.mx: unknown key",
		},
		{"all faults at once", `{"sessions": {"max": "a", "trashDays": "b"}}`, `sessions.max: want integer, got "a"; sessions.trashDays: want integer, got "b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			home := writeConfig(t, tt.text)
			_, err := host.LoadConfig(home, known)
			want := host.ConfigPath(home) + ": " + tt.want
			if !errors.Is(err, &plugin.Error{Code: plugin.Usage}) || !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("LoadConfig(%s) = %v, want usage with %q", tt.text, err, want)
			}
		})
	}
}

func TestLoadConfigAccepts(t *testing.T) {
	t.Parallel()
	c, err := host.LoadConfig(t.TempDir(), known)
	if err != nil {
		t.Fatalf("LoadConfig without a file: %v", err)
	}
	if !c.Enabled("sess") {
		t.Error("a bundled plugin is off without a file")
	}
	c, err = host.LoadConfig(writeConfig(t, `// mine
{
  "plugins": {"entries": {"sess": {"enabled": false, /* off */ "config": {"maxSnapshots": 7}}}},
}`), known)
	if err != nil {
		t.Fatalf("LoadConfig with comments: %v", err)
	}
	if c.Enabled("sess") {
		t.Error("enabled: false was not read")
	}
}

func TestPluginConfig(t *testing.T) {
	t.Parallel()
	c, err := host.LoadConfig(writeConfig(t, `{"plugins": {"entries": {"sess": {"config": {"maxSnapshots": 7}}}}}`), known)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(c.PluginConfig("sess")), `{"maxSnapshots":7,"slot":"a~","tags":{}}`; got != want {
		t.Errorf("PluginConfig = %s, want %s", got, want)
	}
	for _, whole := range []string{"7.0", "70e-1", "0.7e1", "7E0"} {
		c, err := host.LoadConfig(writeConfig(t, `{"plugins": {"entries": {"sess": {"config": {"maxSnapshots": `+whole+`}}}}}`), known)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(c.PluginConfig("sess")), `{"maxSnapshots":7,"slot":"a~","tags":{}}`; got != want {
			t.Errorf("PluginConfig with %s = %s, want %s", whole, got, want)
		}
	}
}

// The schemas that come with the program are right, and without a file their
// defaults hold.
func TestBundledSchemas(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("config.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := plugin.ParseManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"config.schema.json": own, "plugin.json": m.ConfigSchema} {
		s, err := schema.Vet(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		object := map[string]any{}
		s.Defaults(object)
		if faults := s.Check(object); len(faults) > 0 || len(object) == 0 {
			t.Errorf("%s: the defaults %v have the faults %q", name, object, faults)
		}
	}
}
