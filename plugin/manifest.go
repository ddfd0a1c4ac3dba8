package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
)

// Manifest is a plugin's plugin.json: what the host must know before it starts
// the plugin.
type Manifest struct {
	ID          string `json:"id"`
	Name        string `json:"name,omitempty"`
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`
	// Command is the executable and its arguments, relative to the manifest's
	// folder; Builtin names a plugin of the host's own executable. Exactly one
	// of them is given.
	Command []string `json:"command,omitempty"`
	Builtin string   `json:"builtin,omitempty"`
	// Protocol is the handshake's version; it almost never changes.
	Protocol int `json:"protocol"`
	// Mux and MTLS switch off broker multiplexing and mutual TLS, for languages
	// that lack them. Nil means on.
	Mux  *bool `json:"mux,omitempty"`
	MTLS *bool `json:"mtls,omitempty"`
	// Permissions lists what the plugin may ask of the host.
	Permissions []Permission `json:"permissions,omitempty"`
	// ConfigSchema is the JSON Schema of its configuration, an object schema.
	ConfigSchema json.RawMessage `json:"configSchema"`
	// Commands lists the commands it brings, so that help needs no start.
	Commands []string `json:"commands"`
	// Events lists what the plugin is told of by Notify; nil means everything. A
	// plugin is started to be told, so one that has no use for it lists none.
	Events []EventKind `json:"events,omitzero"`
}

// ProtocolVersion is the version of the handshake that this host speaks.
const ProtocolVersion = 1

// Permission is one thing a plugin may ask of the host: [PermSessionRead],
// [PermSessionWrite], [PermSessionNew], or "rpc:<method>".
type Permission string

// The permissions.
const (
	PermSessionRead  Permission = "session.read"
	PermSessionWrite Permission = "session.write"
	PermSessionNew   Permission = "session.new"
)

// PermRPC is the permission to call a gateway method.
func PermRPC(method string) Permission { return Permission("rpc:" + method) }

// The longest names, in bytes.
const (
	maxID      = 63
	maxCommand = 31
)

// isName reports whether s is made of lower-case letters, digits and hyphens,
// begins with a letter, and has at most so many bytes.
func isName(s string, most int) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return s != "" && len(s) <= most && strings.Contains(letters, s[:1]) && strings.Trim(s, letters+"0123456789-") == ""
}

// ParseManifest reads a plugin.json. Unknown keys, missing ones and wrong
// values are refused by name. Errors have the code usage.
func ParseManifest(data []byte) (*Manifest, error) {
	if err := checkKeys(data); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var m Manifest
	if err := dec.Decode(&m); err != nil {
		return nil, Errorf(Usage, "plugin.json: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, Errorf(Usage, "plugin.json: more than one JSON value")
	}
	bad := func(field, why string) (*Manifest, error) {
		return nil, Errorf(Usage, "plugin.json: %s: %s", field, why).WithDetail("field", field)
	}
	switch {
	case !isName(m.ID, maxID):
		return bad("id", "want lower-case letters, digits and hyphens, beginning with a letter")
	case m.Version == "":
		return bad("version", "missing")
	case (len(m.Command) == 0) == (m.Builtin == ""):
		return bad("command", "give either command or builtin")
	case len(m.Command) > 0 && m.Command[0] == "":
		return bad("command", "the executable's name is empty")
	case m.Protocol <= 0:
		return bad("protocol", "want a positive number")
	case len(m.Commands) == 0:
		return bad("commands", "want at least one command")
	}
	for _, c := range m.Commands {
		if !isName(c, maxCommand) {
			return bad("commands", "bad command name "+c)
		}
	}
	for _, p := range m.Permissions {
		known := []Permission{PermSessionRead, PermSessionWrite, PermSessionNew}
		if !slices.Contains(known, p) && (!strings.HasPrefix(string(p), "rpc:") || len(p) == len("rpc:")) {
			return bad("permissions", "unknown permission "+string(p))
		}
	}
	for _, e := range m.Events {
		if !slices.Contains([]EventKind{EventTurnEnded, EventTurnAnswered, EventSessionReplaced, EventPluginEnded}, e) {
			return bad("events", "unknown event "+string(e))
		}
	}
	var schema map[string]json.RawMessage
	if err := json.Unmarshal(m.ConfigSchema, &schema); err != nil || string(schema["type"]) != `"object"` {
		return bad("configSchema", `want a JSON Schema of type "object"`)
	}
	return &m, nil
}

// checkKeys refuses unknown keys, and those that are given twice. encoding/json
// would ignore their case and take the last: what a person reads in the file has
// to be what holds.
func checkKeys(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	switch tok, err := dec.Token(); {
	case err != nil:
		return Errorf(Usage, "plugin.json: %w", err)
	case tok != json.Delim('{'):
		return Errorf(Usage, "plugin.json: want an object")
	}
	var known []string
	for fields, i := reflect.TypeFor[Manifest](), 0; i < fields.NumField(); i++ {
		key, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		known = append(known, key)
	}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return Errorf(Usage, "plugin.json: %w", err)
		}
		key, _ := tok.(string) // in an object it is one
		switch {
		case !slices.Contains(known, key):
			return Errorf(Usage, "plugin.json: unknown key %q", key).WithDetail("field", key)
		case seen[key]:
			return Errorf(Usage, "plugin.json: %s: given twice", key).WithDetail("field", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return Errorf(Usage, "plugin.json: %s: %w", key, err)
		}
	}
	return nil
}

// Has reports whether the manifest asks for a permission.
func (m *Manifest) Has(p Permission) bool { return slices.Contains(m.Permissions, p) }

// Hears reports whether the plugin is to be told of events of a kind.
func (m *Manifest) Hears(kind EventKind) bool {
	return m.Events == nil || slices.Contains(m.Events, kind)
}

// UsesMux reports whether the plugin multiplexes its broker.
func (m *Manifest) UsesMux() bool { return m.Mux == nil || *m.Mux }

// UsesMTLS reports whether the plugin speaks mutual TLS.
func (m *Manifest) UsesMTLS() bool { return m.MTLS == nil || *m.MTLS }
