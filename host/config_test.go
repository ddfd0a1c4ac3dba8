package host_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"sess/host"
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
		{"one of a list", `{"models": {"providers": {"x": {"kind": "magic"}}}}`, `models.providers.x.kind: want one of "offline", "openai", "anthropic", got "magic"`},
		{"an index", `{"gateway": {"allowedOrigins": ["https://a.example", 5]}}`, `gateway.allowedOrigins.1: want string, got 5`},
		{"twice", `{"sessions": {"max": 1, "max": 2}}`, `sessions.max: given twice`},
		{"no JSON", `{"sessions": `, `config.json`},
		{"not an object", `[]`, `the file: want object, got []`},
		{"all faults at once", `{"sessions": {"max": "a", "trashDays": "b"}}`, `sessions.max: want integer, got "a"; sessions.trashDays: want integer, got "b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			home := writeConfig(t, tt.text)
			_, err := host.LoadConfig(home)
			if !errors.Is(err, &plugin.Error{Code: plugin.Usage}) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("LoadConfig(%s) = %v, want usage with %q", tt.text, err, tt.want)
			}
			if !strings.Contains(err.Error(), host.ConfigPath(home)) {
				t.Errorf("error %q does not name the file", err)
			}
		})
	}
}

func TestLoadConfigAccepts(t *testing.T) {
	t.Parallel()
	c, err := host.LoadConfig(t.TempDir())
	if err != nil {
		t.Fatalf("LoadConfig without a file: %v", err)
	}
	if !c.Enabled("sess") {
		t.Error("a bundled plugin is off without a file")
	}
	c, err = host.LoadConfig(writeConfig(t, `// mine
{
  "plugins": {"entries": {"sess": {"enabled": false, /* off */ "config": {"maxSnapshots": 7}}}},
}`))
	if err != nil {
		t.Fatalf("LoadConfig with comments: %v", err)
	}
	if c.Enabled("sess") {
		t.Error("enabled: false was not read")
	}
}

func TestPluginConfig(t *testing.T) {
	t.Parallel()
	m := &plugin.Manifest{ID: "demo", ConfigSchema: json.RawMessage(`{
		"type": "object", "additionalProperties": false,
		"properties": {
			"max": {"type": "integer", "minimum": 0, "default": 50},
			"slot": {"type": "string", "default": "a~"},
			"tags": {"type": "object", "default": {}, "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": {"type": "string"}}
		}}`)}
	c, err := host.LoadConfig(writeConfig(t, `{"plugins": {"entries": {"demo": {"config": {"max": 7}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.PluginConfig(m)
	if want := `{"max":7,"slot":"a~","tags":{}}`; err != nil || string(got) != want {
		t.Errorf("PluginConfig = %s, %v, want %s", got, err, want)
	}
	for _, whole := range []string{"7.0", "70e-1", "0.7e1", "7E0"} {
		c, err := host.LoadConfig(writeConfig(t, `{"plugins": {"entries": {"demo": {"config": {"max": `+whole+`}}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.PluginConfig(m)
		if want := `{"max":7,"slot":"a~","tags":{}}`; err != nil || string(got) != want {
			t.Errorf("PluginConfig with %s = %s, %v, want %s", whole, got, err, want)
		}
	}
	c, err = host.LoadConfig(writeConfig(t, `{"plugins": {"entries": {"demo": {"config": {"mx": 7, "slot": 1, "max": -2, "tags": {"a b": "c"}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.PluginConfig(m)
	want := `plugins.entries.demo.config.max: -2 is too small; want at least 0; plugins.entries.demo.config.mx: unknown key; did you mean max?; plugins.entries.demo.config.slot: want string, got 1; plugins.entries.demo.config.tags.a b: this key is not allowed`
	if !errors.Is(err, &plugin.Error{Code: plugin.Usage}) || !strings.Contains(err.Error(), want) {
		t.Errorf("PluginConfig = %v, want %q", err, want)
	}
}
