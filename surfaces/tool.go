package surfaces

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
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
func ToolSchema(spec *plugin.Spec) Tool { return toolSchema(spec, true) }

// toolSchema is ToolSchema, also for a model whose turn is not of this program.
func toolSchema(spec *plugin.Spec, inTurn bool) Tool {
	var names, lines []string
	props := newProperties()
	for i := range spec.Verbs {
		v := &spec.Verbs[i]
		if v.Internal || v.ByHand {
			continue
		}
		names = append(names, v.Name)
		lines = append(lines, actionLine(v, inTurn))
		for a := range v.ObjectArgs() {
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
		if v.Input != "" {
			props.add(plugin.FieldInput, &schema{Type: "string"}, inputHelp, v.Name)
		}
		for f := range v.ObjectFlags() {
			props.add(f.Field(), flagSchema(f), flagHelp(f), v.Name)
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
func actionLine(v *plugin.Verb, inTurn bool) string {
	effect := map[plugin.Effect]string{
		plugin.EffectRead: "only reads", plugin.EffectWrite: "changes", plugin.EffectDestroy: "destroys",
	}[v.Effect]
	if v.AfterTurn && inTurn {
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

// Typed is a lowered call as people would type it, for their eyes.
func Typed(spec *plugin.Spec, argv []string) string {
	words := []string{spec.Command}
	for i, w := range argv {
		if w != "--" || slices.Contains(argv[:i], "--") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// MaxToolText bounds an answer to a model, in bytes.
const MaxToolText = 20_000

// ToolCall dispatches a call that a model made and was lowered for it, and makes
// the answer one of at most [MaxToolText] bytes as [ToolRender] writes it. A list
// that is too long is asked for again with a smaller limit, so that it ends at a
// whole item and says itself how to go on. What is cut is told in a notice.
func ToolCall(ctx context.Context, d plugin.Dispatcher, verb *plugin.Verb, call plugin.Call) (plugin.Result, error) {
	result, err := d.Dispatch(ctx, call, nil)
	if err != nil {
		return plugin.Result{}, err
	}
	limit := verb.Flag(plugin.FlagLimit)
	if limit == nil || limit.Type != plugin.TypeInt || verb.Effect != plugin.EffectRead {
		return fit(result), nil
	}
	// Items differ in size, so that a share may be too many once more.
	for few := items(result.Data); few > 1 && toolSize(result) > MaxToolText; {
		few = max(1, min(few-1, few*(MaxToolText-2*cutRoom)/toolSize(result)))
		call.Argv = limited(verb, call.Argv, few)
		if result, err = d.Dispatch(ctx, call, nil); err != nil {
			return plugin.Result{}, err
		}
		note := fmt.Sprintf("an answer has room for %d of them; %s was lowered to that", few, plugin.FlagLimit)
		result.Notices = append(slices.Clip(result.Notices), note)
	}
	return fit(result), nil
}

// limited returns a lowered argv with another limit.
func limited(verb *plugin.Verb, argv []string, limit int) []string {
	const flag = "--" + plugin.FlagLimit + "="
	words := len(strings.Fields(verb.Name))
	out := append(slices.Clone(argv[:words]), flag+strconv.Itoa(limit))
	for i, w := range argv[words:] {
		if w == "--" {
			return append(out, argv[words+i:]...)
		}
		if !strings.HasPrefix(w, flag) {
			out = append(out, w)
		}
	}
	return out
}

// ToolRender renders an answer for a model: text, notices and data, of at most
// [MaxToolText] bytes. An error is a result too, marked by isError, so that the
// model can act on it.
func ToolRender(result plugin.Result, err error) (text string, isError bool) {
	if err != nil {
		e := plugin.AsError(err)
		return cut(fmt.Sprintf("error (%s): %s", e.Code, e.Text()), MaxToolText), true
	}
	result = fit(result)
	said := toolText(result)
	if said != "" && len(result.Data) > 0 {
		said += "\n\n"
	}
	return said + string(result.Data), false
}

// toolText is what a model is told beside the data.
func toolText(result plugin.Result) string {
	parts := []string{result.Text}
	for _, n := range result.Notices {
		parts = append(parts, "note: "+n)
	}
	if p := result.Page; p != nil && p.Next != "" {
		parts = append(parts, fmt.Sprintf("to go on, call again with the same fields and with %q: %q", plugin.FlagAfter, p.Next))
	}
	return strings.TrimSpace(strings.Join(parts, "\n"))
}

// toolSize is how long an answer is for a model, in bytes.
func toolSize(result plugin.Result) int {
	return len(toolText(result)) + len("\n\n") + len(compact(result.Data))
}

const cutRoom = 300 // bytes kept for what is said of a cut

// fit makes an answer one of at most [MaxToolText] bytes. One that is stays as
// it is, but for the blanks of its data.
func fit(result plugin.Result) plugin.Result {
	result.Data = compact(result.Data)
	if toolSize(result) <= MaxToolText {
		return result
	}
	notices, left := 0, MaxToolText/4
	for _, n := range result.Notices {
		if left -= len(n) + len("note: \n"); left >= 0 {
			notices++
		}
	}
	if more := len(result.Notices) - notices; more > 0 {
		result.Notices = append(result.Notices[:notices:notices], fmt.Sprintf("%d more notes are left out", more))
	}
	data := result.Data
	result.Data = nil
	room := MaxToolText - toolSize(result) - cutRoom
	note := ""
	switch shown := cutData(data, room); {
	case room < 0:
		result.Text = cut(result.Text, len(result.Text)+room)
		note = "the data beside the text is left out"
	case shown == nil && result.Text == "":
		result.Text = cut(string(data), room)
	case shown == nil:
		note = fmt.Sprintf("the data beside the text, %d bytes, is left out", len(data))
	case len(shown) < len(data):
		result.Data = shown
		note = fmt.Sprintf("the data has only the first %d of %d items", items(shown), items(data))
	default:
		result.Data = data
	}
	if note != "" && len(data) > 0 {
		result.Notices = append(slices.Clip(result.Notices), note)
	}
	return result
}

// compact takes the blanks out of JSON.
func compact(data json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if len(data) == 0 || json.Compact(&b, data) != nil {
		return data
	}
	return b.Bytes()
}

// cut shortens text to at most n bytes, at the end of a line where one is near,
// and says so.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	kept := clip(text, max(0, n-cutRoom/2))
	if line := strings.LastIndexByte(kept, '\n'); line > len(kept)*3/4 {
		kept = kept[:line]
	}
	return kept + fmt.Sprintf("\n(cut here: these were the first %d of %d bytes)", len(kept), len(text))
}

// clip returns the longest beginning of at most n bytes that ends between two
// characters.
func clip(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// parts splits data into the list that is most of it, data itself or a member,
// and what stands around that. ok is false where there is no list.
func parts(data json.RawMessage) (before []byte, list []json.RawMessage, after []byte, ok bool) {
	if json.Unmarshal(data, &list) == nil && list != nil {
		return nil, list, nil, true
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, nil, nil, false
	}
	from, to := 0, 0
	for dec.More() {
		if _, err := dec.Token(); err != nil {
			return nil, nil, nil, false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil, nil, nil, false
		}
		if end := int(dec.InputOffset()); value[0] == '[' && len(value) > to-from {
			from, to = end-len(value), end
		}
	}
	if to == 0 || json.Unmarshal(data[from:to], &list) != nil {
		return nil, nil, nil, false
	}
	return data[:from], list, data[to:], true
}

// items counts what the list in data holds.
func items(data json.RawMessage) int {
	_, list, _, _ := parts(data)
	return len(list)
}

// cutData shortens JSON to at most n bytes: its list keeps its first items
// whole. It is nil where not even one of them fits.
func cutData(data json.RawMessage, n int) json.RawMessage {
	if len(data) <= n {
		return data
	}
	before, list, after, ok := parts(data)
	if !ok {
		return nil
	}
	out := append(slices.Clip(before), '[')
	kept := 0
	for kept < len(list) && len(out)+len(list[kept])+len(",]")+len(after) <= n {
		if kept > 0 {
			out = append(out, ',')
		}
		out = append(out, list[kept]...)
		kept++
	}
	if kept == 0 {
		return nil
	}
	return append(append(out, ']'), after...)
}
