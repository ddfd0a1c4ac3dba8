package sess

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/plugin"
	"sess/store/snapshot"
)

// ManifestJSON is the plugin's manifest. Its configSchema and [Config] say the
// same.
//
//go:embed plugin.json
var ManifestJSON []byte

// Config is the plugin's configuration, plugins.entries.sess.config.
type Config struct {
	StorageDir     string `json:"storageDir"`
	AutoSave       bool   `json:"autoSave"`
	AutoSaveSlot   string `json:"autoSaveSlot"`
	AutoSnapshots  bool   `json:"autoSnapshots"`
	MaxSnapshots   int    `json:"maxSnapshots"` // 0: no cap
	OnCap          string `json:"onCap"`        // warn, refuse, evict
	AllowOverwrite bool   `json:"allowOverwrite"`
	// ExposeTool and HTTPRoutes are read by the host.
	ExposeTool           bool              `json:"exposeTool"`
	HTTPRoutes           bool              `json:"httpRoutes"`
	PruneIntervalMinutes int               `json:"pruneIntervalMinutes"` // 0: no tick
	PruneCatchUp         bool              `json:"pruneCatchUp"`
	TrashDays            int               `json:"trashDays"` // 0: kept until emptied by hand
	Tags                 map[string]string `json:"tags"`
}

// What onCap can be.
const (
	onCapWarn   = "warn"
	onCapRefuse = "refuse"
	onCapEvict  = "evict"
)

// DefaultConfig is what holds where the configuration is silent.
func DefaultConfig() Config {
	return Config{
		StorageDir:           "sessions",
		AutoSaveSlot:         "autosave~",
		AutoSnapshots:        true,
		MaxSnapshots:         50,
		OnCap:                onCapWarn,
		ExposeTool:           true,
		HTTPRoutes:           true,
		PruneIntervalMinutes: 60,
		PruneCatchUp:         true,
		TrashDays:            7,
		Tags:                 map[string]string{},
	}
}

// ParseConfig reads a configuration over the defaults. Unknown keys, wrong
// types and values out of range are refused by their path; the code is usage.
// Nothing, or null, gives the defaults.
func ParseConfig(raw json.RawMessage) (Config, error) {
	c := DefaultConfig()
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" {
		return c, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return Config{}, badConfig(wrong.Field, "want %s, not %s", wanted(wrong.Type.String()), found(wrong.Value))
		}
		if key, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return Config{}, badConfig(strings.Trim(key, `"`), "unknown key")
		}
		return Config{}, badConfig("", "%w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Config{}, badConfig("", "more than one JSON value")
	}
	return c, c.check()
}

func (c *Config) check() error {
	var faults []*plugin.Error
	bad := func(field, format string, args ...any) {
		faults = append(faults, badConfig(field, format, args...))
	}
	dir := strings.TrimPrefix(filepath.ToSlash(c.StorageDir), "~/")
	if c.StorageDir == "" || !filepath.IsAbs(c.StorageDir) && c.StorageDir != "~" && !filepath.IsLocal(dir) {
		bad("storageDir", "%q leads out of the agent's folder: want a relative folder in it, or an absolute one", c.StorageDir)
	}
	if slot, err := snapshot.ParseName(c.AutoSaveSlot); err != nil {
		bad("autoSaveSlot", "%w", err)
	} else if snapshot.ReservedPrefix(slot) {
		bad("autoSaveSlot", "%q begins like the program's own backups", c.AutoSaveSlot)
	}
	if !slices.Contains([]string{onCapWarn, onCapRefuse, onCapEvict}, c.OnCap) {
		bad("onCap", "%q: want warn, refuse or evict", c.OnCap)
	}
	if err := checkTags(c.Tags); err != nil {
		bad("tags", "%w", err)
	}
	for _, n := range []struct {
		field    string
		is, most int
	}{
		{"maxSnapshots", c.MaxSnapshots, 1<<31 - 1},
		{"pruneIntervalMinutes", c.PruneIntervalMinutes, 525600},
		{"trashDays", c.TrashDays, 36500},
	} {
		if n.is < 0 || n.is > n.most {
			bad(n.field, "%d is out of range: want 0 to %d", n.is, n.most)
		}
	}
	switch len(faults) {
	case 0:
		return nil
	case 1:
		return faults[0]
	}
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Message
	}
	return plugin.Errorf(plugin.Usage, "%s", strings.Join(texts, "; ")).WithHint("correct them in config.json")
}

func badConfig(field, format string, args ...any) *plugin.Error {
	path := "plugins.entries.sess.config"
	if field != "" {
		path += "." + field
	}
	return plugin.Errorf(plugin.Usage, "%s: %w", path, fmt.Errorf(format, args...)).
		WithHint("correct %s in config.json", path).WithDetail("field", path)
}

// wanted says in JSON's words what a Go type takes.
func wanted(goType string) string {
	switch goType {
	case "bool":
		return "true or false"
	case "int":
		return "a whole number"
	case "map[string]string":
		return "an object of strings"
	case "string":
		return "a string"
	}
	return "an object"
}

// found says what a decoder met: "string", or "number 1.5".
func found(value string) string {
	if number, ok := strings.CutPrefix(value, "number "); ok {
		return number
	}
	if value == "array" || value == "object" {
		return "an " + value
	}
	return "a " + value
}

func (c *Config) pruneInterval() time.Duration {
	return time.Duration(c.PruneIntervalMinutes) * time.Minute
}

func (c *Config) trashAge() time.Duration { return time.Duration(c.TrashDays) * 24 * time.Hour }

// withTags lays the tags of a call over the configured ones.
func (c *Config) withTags(own map[string]string) map[string]string {
	tags := maps.Clone(c.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, own)
	return tags
}

var tagKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`) })

// checkTags refuses keys that could not be typed back as key=value, and values
// too long for a label.
func checkTags(tags map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		switch {
		case !tagKey().MatchString(k):
			return plugin.Errorf(plugin.Usage, "tag key %q: want at most 64 letters, digits, dots, hyphens or underscores", k).
				WithHint("put other text into the value or the note")
		case len([]rune(tags[k])) > 256:
			return plugin.Errorf(plugin.Usage, "tag %s: its value has more than 256 characters", k).
				WithHint("put long text into the note")
		}
	}
	return nil
}
