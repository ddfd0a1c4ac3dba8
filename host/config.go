package host

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"sess/host/models"
	"sess/host/schema"
	"sess/plugin"
)

//go:embed config.schema.json
var configSchema []byte

// configLimit bounds the size of a config.json, in bytes.
const configLimit = 4 << 20

// Config is config.json, validated. The zero value is an empty file: every
// default holds.
type Config struct {
	Plugins struct {
		Entries map[string]PluginEntry `json:"entries"`
	} `json:"plugins"`
	Models models.Config `json:"models"`

	Chat struct {
		// History is how many lines that people wrote in chats are kept for the
		// arrow keys; 0: none are.
		History int `json:"history"`
		// Confirm lists the tool actions that ask a person first.
		Confirm []string `json:"confirm"`
		// ApprovalSeconds is how long a gateway waits for a person to allow one; 0:
		// without end.
		ApprovalSeconds int `json:"approvalSeconds"`
	} `json:"chat"`

	Sessions struct {
		Max        int `json:"max"`        // 0: no limit
		MaxAgeDays int `json:"maxAgeDays"` // 0: no limit
		TrashDays  int `json:"trashDays"`  // 0: never emptied
	} `json:"sessions"`

	Gateway struct {
		Listen         string   `json:"listen"`
		Token          string   `json:"token"`
		AllowedOrigins []string `json:"allowedOrigins"`
		AllowedHosts   []string `json:"allowedHosts"`
		BodyLimit      int64    `json:"bodyLimit"` // bytes; 0: the server's default
		Insecure       bool     `json:"insecure"`
		TLS            *struct {
			Cert string `json:"cert"`
			Key  string `json:"key"`
		} `json:"tls"` // nil: none
	} `json:"gateway"`

	Agents map[string]AgentEntry `json:"agents"` // other agents, by id

	raw  map[string]any
	path string
	// parts are the plugins' configurations by id, defaults filled in.
	parts map[string]json.RawMessage
	// faults are what is wrong with those of installed plugins, by id.
	faults map[string][]string
}

// PluginEntry is plugins.entries.<id>.
type PluginEntry struct {
	Enabled *bool           `json:"enabled"` // nil means true
	Config  json.RawMessage `json:"config"`
}

// ConfigPath is where the configuration of a home lies.
func ConfigPath(home string) string { return filepath.Join(home, "config.json") }

// LoadConfig reads and validates config.json, JSON with comments and trailing
// commas: the host's own part, and the plugins' parts by the schemas of their
// manifests. A file that is absent is an empty one. Errors have the code usage
// and name every field that is wrong. What is wrong with the part of an
// installed plugin only keeps that one from running; see [Config.Problem].
func LoadConfig(home string, plugins []*plugin.Manifest) (*Config, error) {
	c := newConfig(home)
	object, err := c.read()
	if err != nil {
		return nil, err
	}
	return c, c.take(object, plugins)
}

func newConfig(home string) *Config {
	return &Config{path: ConfigPath(home), parts: map[string]json.RawMessage{}, faults: map[string][]string{}}
}

// defaultConfig is what holds without a file.
func defaultConfig(home string, plugins []*plugin.Manifest) (*Config, error) {
	c := newConfig(home)
	return c, c.take(map[string]any{}, plugins)
}

// take validates what a file says and takes it over, defaults filled in.
func (c *Config) take(object any, plugins []*plugin.Manifest) error {
	own, err := schema.Parse(configSchema)
	if err != nil {
		return err
	}
	var faults []string
	for _, f := range own.Check(object) {
		if f.Path == "" {
			f.Path = "the file"
		}
		faults = append(faults, f.String())
	}
	entries, _ := child(child(object, "plugins"), "entries").(map[string]any)
	for id := range entries {
		if !slices.ContainsFunc(plugins, func(m *plugin.Manifest) bool { return m.ID == id }) {
			faults = append(faults, "plugins.entries."+id+": no plugin of this id is here")
		}
	}
	faults = append(faults, kindFaults(object, plugins)...)
	for _, m := range plugins {
		part, wrong := pluginPart(m, child(entries[m.ID], "config"))
		c.parts[m.ID] = part
		if m.Builtin == "" {
			c.faults[m.ID] = wrong
			continue
		}
		faults = append(faults, wrong...)
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		return configError(c.path, faults)
	}
	c.raw = wholeNumbers(object).(map[string]any) // by its schema it is one
	own.Defaults(c.raw)
	data, err := json.Marshal(c.raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, c)
}

// kindFaults names the providers of kinds that nobody talks to. Which plugin does
// is known only once it was started; here any will do.
func kindFaults(object any, plugins []*plugin.Manifest) []string {
	providers, _ := child(child(object, "models"), "providers").(map[string]any)
	var faults, known []string
	for _, k := range models.Kinds() {
		known = append(known, strconv.Quote(k.Name))
	}
	for id, p := range providers {
		kind, ok := child(p, "kind").(string) // of another type the schema tells
		if ok && !slices.Contains(known, strconv.Quote(kind)) && !slices.ContainsFunc(plugins, func(m *plugin.Manifest) bool { return m.ID == kind }) {
			faults = append(faults, fmt.Sprintf("models.providers.%s.kind: want one of %s, or the id of a plugin, got %q", id, strings.Join(known, ", "), kind))
		}
	}
	return faults
}

// read parses the file.
func (c *Config) read() (any, error) {
	data, err := readConfig(c.path)
	if err != nil {
		return nil, err
	}
	return c.parse(data)
}

// parse reads what a file holds; nil is no file.
func (c *Config) parse(data []byte) (any, error) {
	if data == nil {
		return map[string]any{}, nil
	}
	std, err := hujson.Standardize(bytes.Clone(data)) // which writes over what it gets
	if err != nil {
		return nil, configError(c.path, []string{strings.TrimPrefix(err.Error(), "hujson: ")})
	}
	if key, ok := duplicateKey(std); ok {
		return nil, configError(c.path, []string{key + ": given twice"})
	}
	value, err := schema.Decode(std)
	if err != nil {
		return nil, configError(c.path, []string{err.Error()})
	}
	return value, nil
}

// pluginPart checks a plugin's part of the configuration, nil where there is
// none, and fills in the defaults of its schema.
func pluginPart(m *plugin.Manifest, value any) (part json.RawMessage, faults []string) {
	at := "plugins.entries." + m.ID + ".config"
	object, ok := value.(map[string]any)
	if value != nil && !ok {
		return nil, nil // the host's own schema says so
	}
	if object == nil {
		object = map[string]any{}
	}
	if m.ConfigSchema == nil {
		return nil, nil // of a plugin that is broken
	}
	own, err := schema.Parse(m.ConfigSchema)
	if err != nil {
		return nil, []string{"plugin.json of " + m.ID + ": configSchema: " + err.Error()}
	}
	for _, f := range schema.Under(at, own.Check(object)) {
		faults = append(faults, f.String())
	}
	if faults != nil {
		return nil, faults
	}
	own.Defaults(object)
	part, err = json.Marshal(wholeNumbers(object))
	if err != nil {
		return nil, []string{at + ": " + err.Error()}
	}
	return part, nil
}

// wholeNumbers writes numbers such as 5e1 and 8.0 as 50 and 8. To a schema they
// are integers; Go reads no int from them.
func wholeNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok && r.IsInt() && r.Num().IsInt64() {
			return json.Number(r.Num().String())
		}
	case map[string]any:
		for key, inner := range v {
			v[key] = wholeNumbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = wholeNumbers(inner)
		}
	}
	return value
}

// readConfig returns nil where there is no file.
func readConfig(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, plugin.Errorf(plugin.Denied, "cannot read %s: %w", path, err).WithHint("make the file readable for you")
	case !info.Mode().IsRegular():
		return nil, plugin.Errorf(plugin.Usage, "%s is not a file", path).WithHint("move it away; without it the defaults hold")
	case info.Size() > configLimit:
		return nil, plugin.Errorf(plugin.Usage, "%s has %d bytes, more than the limit of %d", path, info.Size(), configLimit)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, plugin.Errorf(plugin.Denied, "cannot read %s: %w", path, err).WithHint("make the file readable for you")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	return data, nil
}

func configError(path string, faults []string) error {
	return plugin.Errorf(plugin.Usage, "%s: %s", path, strings.Join(faults, "; ")).
		WithHint("correct the file, then check it with: sess config validate").
		WithDetail("file", path)
}

// Enabled reports whether a plugin is switched on; bundled ones are by default.
func (c *Config) Enabled(id string) bool {
	e, ok := c.Plugins.Entries[id]
	return !ok || e.Enabled == nil || *e.Enabled
}

// PluginConfig is a plugin's part of the configuration, defaults filled in.
func (c *Config) PluginConfig(id string) json.RawMessage { return c.parts[id] }

// Problem is what is wrong with the part of an installed plugin, or nil.
func (c *Config) Problem(id string) error {
	if len(c.faults[id]) == 0 {
		return nil
	}
	return configError(c.path, c.faults[id])
}

// changed lists what the gateway's part of two configurations has different, as
// "gateway.listen".
func (c *Config) changed(other *Config) []string {
	old, _ := c.raw["gateway"].(map[string]any)
	now, _ := other.raw["gateway"].(map[string]any)
	keys := []string{}
	for key := range old {
		if !reflect.DeepEqual(old[key], now[key]) {
			keys = append(keys, "gateway."+key)
		}
	}
	for key := range now {
		if _, both := old[key]; !both {
			keys = append(keys, "gateway."+key)
		}
	}
	slices.Sort(keys)
	return keys
}

// EffectiveConfig reads and checks the whole configuration, the plugins' parts
// included, and returns it with all defaults filled in and without secrets.
func EffectiveConfig(home string, builtins [][]byte) (json.RawMessage, error) {
	found, err := find(home, builtins)
	if err != nil {
		return nil, err
	}
	c, err := LoadConfig(home, manifestsOf(found))
	if err != nil {
		return nil, err
	}
	if faults := slices.Concat(slices.Collect(maps.Values(c.faults))...); len(faults) > 0 {
		slices.Sort(faults)
		return nil, configError(c.path, faults)
	}
	entries := map[string]any{}
	for id, part := range c.parts {
		entries[id] = map[string]any{"enabled": c.Enabled(id), "config": part}
	}
	shown := maps.Clone(c.raw)
	shown["plugins"] = map[string]any{"entries": entries}
	if gateway, ok := shown["gateway"].(map[string]any); ok && gateway["token"] != nil {
		gateway = maps.Clone(gateway)
		gateway["token"] = "(hidden)"
		shown["gateway"] = gateway
	}
	return json.MarshalIndent(shown, "", "  ")
}

func join(path, step string) string {
	if path == "" {
		return step
	}
	return path + "." + step
}

func child(value any, step string) any {
	object, _ := value.(map[string]any)
	return object[step]
}

// duplicateKey returns the path of a key that an object gives twice.
func duplicateKey(data []byte) (string, bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return duplicateIn(dec, "")
}

func duplicateIn(dec *json.Decoder, at string) (string, bool) {
	tok, err := dec.Token()
	if err != nil {
		return "", false
	}
	switch tok {
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			tok, err := dec.Token()
			key, _ := tok.(string)
			if err != nil {
				return "", false
			}
			if seen[key] {
				return join(at, key), true
			}
			seen[key] = true
			if path, dup := duplicateIn(dec, join(at, key)); dup {
				return path, true
			}
		}
		_, _ = dec.Token()
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if path, dup := duplicateIn(dec, join(at, strconv.Itoa(i))); dup {
				return path, true
			}
		}
		_, _ = dec.Token()
	}
	return "", false
}
