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
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/tailscale/hujson"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

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
	Models struct {
		Default   string                   `json:"default"`
		Providers map[string]ModelProvider `json:"providers"`
	} `json:"models"`

	Chat struct {
		// Confirm lists the tool actions that ask a person first.
		Confirm []string `json:"confirm"`
	} `json:"chat"`

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

// ModelProvider is models.providers.<id>.
type ModelProvider struct {
	Kind  string `json:"kind"`
	Model string `json:"model"`
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
	faults := validate(configSchema, object, "")
	entries, _ := child(child(object, "plugins"), "entries").(map[string]any)
	for id := range entries {
		if !slices.ContainsFunc(plugins, func(m *plugin.Manifest) bool { return m.ID == id }) {
			faults = append(faults, "plugins.entries."+id+": no plugin of this id is here")
		}
	}
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
	return c.fill(wholeNumbers(object).(map[string]any)) // by its schema it is one
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
	std, err := hujson.Standardize(data)
	if err != nil {
		return nil, configError(c.path, []string{strings.TrimPrefix(err.Error(), "hujson: ")})
	}
	if key, ok := duplicateKey(std); ok {
		return nil, configError(c.path, []string{key + ": given twice"})
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(std))
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
	if faults := validate(m.ConfigSchema, object, at); len(faults) > 0 {
		return nil, faults
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.ConfigSchema))
	if err != nil {
		return nil, []string{"plugin.json of " + m.ID + ": configSchema: " + err.Error()}
	}
	withDefaults(schema, object)
	part, err = json.Marshal(wholeNumbers(object))
	if err != nil {
		return nil, []string{at + ": " + err.Error()}
	}
	return part, nil
}

// fill adds the schema's defaults to what the file says, and decodes it.
func (c *Config) fill(object map[string]any) error {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(configSchema))
	if err != nil {
		return err
	}
	withDefaults(schema, object)
	c.raw = object
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, c)
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

// withDefaults adds to an object what its schema gives as defaults, also in the
// objects within it.
func withDefaults(schema any, object map[string]any) {
	properties, _ := child(schema, "properties").(map[string]any)
	for key, sub := range properties {
		value, given := object[key]
		if def := child(sub, "default"); !given && def != nil {
			object[key] = def
			continue
		}
		inner, isObject := value.(map[string]any)
		if !given && child(sub, "properties") != nil {
			inner, isObject = map[string]any{}, true
		}
		if isObject {
			if withDefaults(sub, inner); given || len(inner) > 0 {
				object[key] = inner
			}
		}
	}
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

// validate checks value against a JSON Schema and returns one line for each
// fault, each beginning with the path of the field.
func validate(schema []byte, value any, at string) []string {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return []string{"schema: " + err.Error()}
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // a schema refers to nothing outside of itself
	if err := c.AddResource("schema.json", doc); err != nil {
		return []string{"schema: " + err.Error()}
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		return []string{"schema: " + err.Error()}
	}
	err = s.Validate(value)
	if err == nil {
		return nil
	}
	verr, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []string{err.Error()}
	}
	var faults []string
	collect(verr, doc, value, at, &faults)
	slices.Sort(faults)
	return slices.Compact(faults)
}

// collect flattens a validation error into lines.
func collect(e *jsonschema.ValidationError, schema, root any, at string, out *[]string) {
	names, isName := e.ErrorKind.(*kind.PropertyNames)
	if len(e.Causes) > 0 && !isName {
		for _, c := range e.Causes {
			collect(c, schema, root, at, out)
		}
		return
	}
	where := at
	value := root
	location := e.InstanceLocation
	if isName {
		location = namesLocation(e)
	}
	for _, step := range location {
		where = join(where, step)
		value = child(value, step)
	}
	say := func(path, format string, args ...any) {
		if path == "" {
			path = "the file"
		}
		*out = append(*out, path+": "+fmt.Sprintf(format, args...))
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, p := range k.Properties {
			meant := ""
			if near := plugin.Nearest(p, knownKeys(schema, e.SchemaURL)); len(near) > 0 {
				meant = "; did you mean " + near[0] + "?"
			}
			say(join(where, p), "unknown key%s", meant)
		}
	case *kind.Type:
		say(where, "want %s, got %s", strings.Join(k.Want, " or "), show(value))
	case *kind.Enum:
		say(where, "want one of %s, got %s", list(k.Want), show(value))
	case *kind.Minimum:
		say(where, "%s is too small; want at least %s", show(value), number(k.Want.RatString()))
	case *kind.Maximum:
		say(where, "%s is too large; want at most %s", show(value), number(k.Want.RatString()))
	case *kind.Required:
		for _, p := range k.Missing {
			say(join(where, p), "missing")
		}
	case *kind.MinLength:
		say(where, "must not be empty")
	case *kind.Pattern:
		want, ok := child(schemaAt(schema, e.SchemaURL), "title").(string)
		if !ok {
			want = "it to match " + k.Want
		}
		say(where, "%s is not allowed; want %s", show(value), want)
	case *kind.PropertyNames:
		want := ""
		for _, c := range e.Causes {
			if k, ok := c.ErrorKind.(*kind.Pattern); ok {
				want = "; want it to match " + k.Want
			}
		}
		say(where, "the key %s is not allowed%s", show(names.Property), want)
	default:
		say(where, "%s", e.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
	}
}

// namesLocation is where the object with a wrong key is. What the validator says
// (v6.0.3) shares its memory with the faults found later, so all that the
// schema's own path names is taken from there.
func namesLocation(e *jsonschema.ValidationError) []string {
	location := slices.Clone(e.InstanceLocation)
	_, pointer, _ := strings.Cut(e.SchemaURL, "#/")
	steps := strings.Split(pointer, "/")
	for i, at := 0, 0; i+1 < len(steps) && at < len(location); i++ {
		switch steps[i] {
		case "properties":
			i++
			location[at] = steps[i]
			at++
		case "additionalProperties", "items":
			at++
		}
	}
	return location
}

func join(path, step string) string {
	if path == "" {
		return step
	}
	return path + "." + step
}

func child(value any, step string) any {
	switch v := value.(type) {
	case map[string]any:
		return v[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// knownKeys lists the properties of the schema that a fault's URL points at.
func knownKeys(schema any, url string) []string {
	properties, _ := child(schemaAt(schema, url), "properties").(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

// schemaAt is the part of the schema that a fault's URL points at.
func schemaAt(schema any, url string) any {
	_, pointer, _ := strings.Cut(url, "#/")
	for step := range strings.SplitSeq(pointer, "/") {
		if step != "" {
			schema = child(schema, step)
		}
	}
	return schema
}

// show is a value as a message quotes it, shortened.
func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	s := string(b)
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return s
}

func list(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = show(v)
	}
	return strings.Join(words, ", ")
}

func number(s string) string { return strings.TrimSuffix(s, "/1") }

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
