package surfaces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sess/plugin"
)

// Tool is an agent tool, as models are told of it.
type Tool struct {
	Name        string
	Description string
	// InputSchema is a JSON Schema of type object.
	InputSchema json.RawMessage
}

// ToolSchema derives the one tool of a command: its verbs are the values of the
// field "action", its other fields those of all verbs together. What a call
// really may say is decided by [Lower].
func ToolSchema(spec *plugin.Spec) Tool {
	var names, lines []string
	props := newProperties()
	for i := range spec.Verbs {
		v := &spec.Verbs[i]
		if v.Internal {
			continue
		}
		names = append(names, v.Name)
		lines = append(lines, actionLine(v))
		for _, a := range v.Args {
			help := a.Help
			if a.Required {
				help = strings.TrimPrefix(help+", required", ", ")
			}
			s := &schema{Type: "string"}
			if a.Type == plugin.TypeInt {
				s.Type = "integer"
			}
			if a.Repeated {
				s = &schema{Type: "array", Items: s}
			}
			props.add(plugin.Camel(a.Name), s, help, v.Name)
		}
		for i := range v.Flags {
			if f := &v.Flags[i]; !f.Internal {
				props.add(f.Field(), flagSchema(f), flagHelp(f), v.Name)
			}
		}
	}
	for _, f := range plugin.HostFlags() {
		if f.Name == "agent" || f.Name == "project" || f.Name == "session" {
			props.add(f.Name, &schema{Type: "string"}, f.Help, "")
		}
	}
	action := &schema{Type: "string", Enum: names, Description: strings.Join(lines, "\n")}
	object := map[string]any{
		"type":                 "object",
		"properties":           props.object(action),
		"required":             []string{"action"},
		"additionalProperties": false,
	}
	var b bytes.Buffer
	writeJSON(&b, object)
	return Tool{
		Name: spec.ToolName(),
		Description: spec.Summary + ". Choose an action and give the fields that it takes, no others. " +
			"Actions marked \"destroys\" remove stored data: use them only if you were asked to.",
		InputSchema: bytes.TrimSpace(b.Bytes()),
	}
}

// actionLine tells a model about a verb in one line.
func actionLine(v *plugin.Verb) string {
	effect := map[plugin.Effect]string{
		plugin.EffectRead: "only reads", plugin.EffectWrite: "changes", plugin.EffectDestroy: "destroys",
	}[v.Effect]
	if v.AfterTurn {
		effect += ", runs when your turn has ended"
	}
	l := lowering{verb: v}
	return fmt.Sprintf("%s: %s (%s; takes %s)", v.Name, v.Summary, effect, l.takes())
}

// schema is the part of JSON Schema that is used here.
type schema struct {
	Type                 string    `json:"type,omitempty"`
	Description          string    `json:"description,omitempty"`
	Enum                 []string  `json:"enum,omitempty"`
	Items                *schema   `json:"items,omitempty"`
	AdditionalProperties *schema   `json:"additionalProperties,omitempty"`
	AnyOf                []*schema `json:"anyOf,omitempty"`
}

func flagSchema(f *plugin.Flag) *schema {
	switch f.Type {
	case plugin.TypeInt:
		return &schema{Type: "integer"}
	case plugin.TypeBool:
		return &schema{Type: "boolean"}
	case plugin.TypeStrings:
		return &schema{Type: "array", Items: &schema{Type: "string"}}
	case plugin.TypeMap:
		return &schema{Type: "object", AdditionalProperties: &schema{Type: "string"}}
	}
	return &schema{Type: "string", Enum: f.Enum}
}

// flagHelp describes a flag as an object's field.
func flagHelp(f *plugin.Flag) string {
	help := f.Help
	switch {
	case f.Confirm:
		help += " (must be the boolean true to confirm)"
	case strings.HasPrefix(f.Name, "no-"):
		help = "true by default; false: " + help
	case f.Type == plugin.TypeDuration:
		help += ` (such as "36h" or "7d")`
	}
	if f.Default != "" {
		help += " (default " + f.Default + ")"
	}
	return help
}

// properties merges the fields of all verbs.
type properties struct {
	order []string
	byKey map[string]*property
}

type property struct {
	schemas []*schema
	encoded []string // of schemas, to tell them apart
	helps   []string
	verbs   [][]string // per help
}

func newProperties() *properties { return &properties{byKey: map[string]*property{}} }

func (p *properties) add(field string, s *schema, help, verb string) {
	prop := p.byKey[field]
	if prop == nil {
		prop = &property{}
		p.byKey[field] = prop
		p.order = append(p.order, field)
	}
	var b bytes.Buffer
	writeJSON(&b, s)
	if !slices.Contains(prop.encoded, b.String()) {
		prop.encoded = append(prop.encoded, b.String())
		prop.schemas = append(prop.schemas, s)
	}
	at := slices.Index(prop.helps, help)
	if at < 0 {
		at = len(prop.helps)
		prop.helps = append(prop.helps, help)
		prop.verbs = append(prop.verbs, nil)
	}
	if verb != "" {
		prop.verbs[at] = append(prop.verbs[at], verb)
	}
}

// object returns the properties under their names, "action" among them.
func (p *properties) object(action *schema) map[string]*schema {
	out := map[string]*schema{"action": action}
	for _, field := range p.order {
		prop := p.byKey[field]
		s := prop.schemas[0]
		if len(prop.schemas) > 1 {
			s = &schema{AnyOf: prop.schemas}
		}
		var lines []string
		for i, help := range prop.helps {
			if verbs := strings.Join(prop.verbs[i], ", "); verbs != "" {
				help = strings.TrimSuffix(verbs+": "+help, ": ")
			}
			lines = append(lines, help)
		}
		described := *s
		described.Description = strings.Join(lines, "\n")
		out[field] = &described
	}
	return out
}

// MaxToolText bounds what [ToolRender] gives to a model, in bytes.
const MaxToolText = 20_000

// ToolRender renders an answer for a model: text, notices and data, of at most
// [MaxToolText] bytes. What was cut is said in the last line. An error is a
// result too, marked by isError, so that the model can act on it.
func ToolRender(result plugin.Result, err error) (text string, isError bool) {
	if err != nil {
		e := plugin.AsError(err)
		text := fmt.Sprintf("error (%s): %s", e.Code, e.Text())
		return cut(text, MaxToolText), true
	}
	parts := []string{result.Text}
	for _, n := range result.Notices {
		parts = append(parts, "note: "+n)
	}
	said := strings.TrimSpace(strings.Join(parts, "\n"))
	if len(result.Data) == 0 || len(said) > MaxToolText {
		return cut(said, MaxToolText), false
	}
	if said != "" {
		said += "\n\n"
	}
	var data bytes.Buffer
	if err := json.Compact(&data, result.Data); err != nil {
		data.Reset()
		data.Write(result.Data)
	}
	if len(said)+data.Len() <= MaxToolText {
		return said + data.String(), false
	}
	if room := MaxToolText - len(said); room >= 2*cutRoom {
		return said + cutData(data.Bytes(), room), false
	}
	return cut(said+data.String(), MaxToolText), false
}

const cutRoom = 200 // bytes kept for the line that says what was cut

// cut shortens text to at most n bytes, and says so.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return clip(text, n-cutRoom) + fmt.Sprintf("\n(cut here: %d bytes in all; ask for less, with a limit or a filter, to see the rest)", len(text))
}

// clip returns the longest beginning of at most n bytes that ends between two
// characters.
func clip(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// cutData shortens JSON to n bytes: a list keeps its first items whole.
func cutData(data []byte, n int) string {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return cut(string(data), n)
	}
	kept, size := 0, 2
	for kept < len(items) && size+len(items[kept])+1 <= n-cutRoom {
		size += len(items[kept]) + 1
		kept++
	}
	if kept == 0 {
		return cut(string(data), n)
	}
	var shown bytes.Buffer
	writeJSON(&shown, items[:kept])
	return fmt.Sprintf("%s(cut here: the first %d of %d items are shown; ask for less, with a limit or a filter, to see the rest)",
		shown.String(), kept, len(items))
}
