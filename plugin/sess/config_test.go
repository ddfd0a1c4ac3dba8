package sess_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/plugin/sess"
)

func TestManifest(t *testing.T) {
	t.Parallel()
	m, err := plugin.ParseManifest(sess.ManifestJSON)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "sess" || m.Builtin != "sess" || m.Protocol != plugin.ProtocolVersion {
		t.Errorf("manifest %+v", m)
	}
	root, err := os.ReadFile("../../plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(root, sess.ManifestJSON) {
		t.Error("plugin.json at the root differs from plugin/sess/plugin.json: copy it again")
	}

	var schema struct {
		Properties map[string]struct {
			Default     any
			Description string
		}
	}
	if err := json.Unmarshal(m.ConfigSchema, &schema); err != nil {
		t.Fatal(err)
	}
	defaults := map[string]any{}
	for key, p := range schema.Properties {
		defaults[key] = p.Default
		if p.Description == "" {
			t.Errorf("configSchema: %s has no description", key)
		}
	}
	data, err := json.Marshal(sess.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, defaults); diff != "" {
		t.Errorf("defaults of the schema and of the code (-code +schema):\n%s", diff)
	}
}

func TestParseConfig(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `null`, ` {} `} {
		if c, err := sess.ParseConfig(json.RawMessage(text)); err != nil || !cmp.Equal(c, sess.DefaultConfig()) {
			t.Errorf("ParseConfig(%q) = %+v, %v; want the defaults", text, c, err)
		}
	}
	const at = "plugins.entries.sess.config"
	tests := []struct{ config, want string }{
		{`{"maxSnapshot":1}`, at + ".maxSnapshot: unknown key"},
		{`{"maxSnapshots":-1}`, at + ".maxSnapshots: -1 is out of range: want 0 to 2147483647"},
		{`{"maxSnapshots":"ten"}`, at + ".maxSnapshots: want a whole number, not a string"},
		{`{"maxSnapshots":1.5}`, at + ".maxSnapshots: want a whole number, not 1.5"},
		{`{"autoSave":"yes"}`, at + ".autoSave: want true or false, not a string"},
		{`{"tags":["a"]}`, at + ".tags: want an object of strings, not an array"},
		{`{"tags":{"a b":"c"}}`, at + `.tags: tag key "a b": want at most 64 letters, digits, dots, hyphens or underscores`},
		{`{"pruneIntervalMinutes":-5}`, at + ".pruneIntervalMinutes: -5 is out of range: want 0 to 525600"},
		{`{"pruneIntervalMinutes":0.5}`, at + ".pruneIntervalMinutes: want a whole number, not 0.5"},
		{`{"pruneIntervalMinutes":"hourly"}`, at + ".pruneIntervalMinutes: want a whole number, not a string"},
		{`{"pruneIntervalMinutes":1000000000000}`, at + ".pruneIntervalMinutes: 1000000000000 is out of range: want 0 to 525600"},
		{`{"trashDays":-1}`, at + ".trashDays: -1 is out of range: want 0 to 36500"},
		{`{"onCap":"shout"}`, at + `.onCap: "shout": want warn, refuse or evict`},
		{`{"storageDir":""}`, at + `.storageDir: "" leads out of the agent's folder: want a relative folder in it, or an absolute one`},
		{`{"storageDir":"../x"}`, at + `.storageDir: "../x" leads out of the agent's folder: want a relative folder in it, or an absolute one`},
		{`{"autoSaveSlot":"pre-load~x"}`, at + `.autoSaveSlot: "pre-load~x" begins like the program's own backups`},
		{`{"autoSaveSlot":"a b"}`, at + `.autoSaveSlot: "a b": a name has no spaces; try a-b`},
		{
			`{"storageDir":"../x","autoSaveSlot":"pre-new~","trashDays":-1}`,
			at + `.storageDir: "../x" leads out of the agent's folder: want a relative folder in it, or an absolute one; ` +
				at + `.autoSaveSlot: "pre-new~" begins like the program's own backups; ` + at + ".trashDays: -1 is out of range: want 0 to 36500",
		},
		{`{} {}`, at + ": more than one JSON value"},
		{`[]`, at + ": want an object, not an array"},
	}
	for _, tt := range tests {
		_, err := sess.ParseConfig(json.RawMessage(tt.config))
		if err == nil {
			t.Errorf("ParseConfig(%s) accepts it, want %s", tt.config, tt.want)
			continue
		}
		if e := plugin.AsError(err); e.Message != tt.want || e.Code != plugin.Usage {
			t.Errorf("ParseConfig(%s) fails with %s\n%s\nwant usage\n%s", tt.config, e.Code, e.Message, tt.want)
		}
	}
}
