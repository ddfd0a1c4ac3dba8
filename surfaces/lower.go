package surfaces

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sess/plugin"
)

// Lowered is an object that became a call. Empty host fields were not given.
type Lowered struct {
	Verb                    *plugin.Verb
	Argv                    []string
	Agent, Project, Session string
	// Input is the content of the field "input" of a verb that reads one; nil
	// where it was not given.
	Input io.Reader
}

// inputHelp tells of the field "input".
const inputHelp = "the content that the verb reads"

// Lower turns an object into a call: the fields of a tool call, an HTTP body
// or the params of a gateway method. action is the verb, by name or alias and
// in any case; if it is empty, the field "action" is. The object is one that
// [ParseObject] made; it is not changed.
//
// Flags come first, each in one word with its value, then "--", then the
// arguments. So no value can become a flag, and every string arrives byte for
// byte. A number is taken where text is wanted, and text that spells a number,
// a boolean, a JSON list or a JSON object where those are wanted, because
// models and query strings send them; a flag that confirms takes a real
// boolean only. Everything else of a wrong type, null, and every field that
// the verb does not have is refused by name.
func Lower(spec *plugin.Spec, action string, fields map[string]any) (Lowered, error) {
	fields = maps.Clone(fields)
	verb, err := findAction(spec, action, fields)
	if err != nil {
		return Lowered{}, err
	}
	l := lowering{verb: verb, fields: fields}
	out := Lowered{Verb: verb, Agent: l.host("agent"), Project: l.host("project"), Session: l.host("session")}
	argv := strings.Fields(verb.Name)
	for f := range verb.ObjectFlags() {
		argv = append(argv, l.flag(f)...)
	}
	if verb.Input != "" {
		out.Input = l.input()
	}
	if words := l.args(); len(words) > 0 {
		argv = append(append(argv, "--"), words...)
	}
	l.unknown()
	if l.err != nil {
		return Lowered{}, l.err
	}
	out.Argv = argv
	return out, nil
}

// findAction resolves the verb, and takes the field "action" if it is that.
func findAction(spec *plugin.Spec, action string, fields map[string]any) (*plugin.Verb, error) {
	var names, words []string
	for i := range spec.Verbs {
		if v := &spec.Verbs[i]; !v.Internal {
			names = append(names, v.Name)
			words = append(append(words, v.Name), v.Aliases...)
		}
	}
	actions := "the actions are " + strings.Join(names, ", ")
	if action == "" {
		value, ok := fields["action"]
		if !ok {
			return nil, plugin.Errorf(plugin.Usage, "action is missing").WithHint("%s", actions)
		}
		if action, ok = value.(string); !ok {
			return nil, plugin.Errorf(plugin.Usage, "action: %s is not a string", show(value)).WithHint("%s", actions)
		}
		delete(fields, "action")
	}
	argv := strings.Fields(strings.ToLower(action))
	if v, n := spec.Find(argv); v != nil && n == len(argv) && !v.Internal {
		return v, nil
	}
	unknown := plugin.Errorf(plugin.Usage, "unknown action %q: %s", shorten(action, 40), actions)
	if near := plugin.Nearest(action, words); near != nil {
		return nil, unknown.WithHint("did you mean %s?", strings.Join(near, " or ")).
			WithDetail("candidates", strings.Join(near, ", "))
	}
	return nil, unknown
}

// lowering is one object on its way; what was lowered is deleted from fields.
type lowering struct {
	verb   *plugin.Verb
	fields map[string]any
	err    *plugin.Error // the first mistake
}

func (l *lowering) fail(e *plugin.Error) {
	if l.err == nil {
		l.err = e
	}
}

func (l *lowering) wrong(field string, value any, want string) {
	l.fail(plugin.Errorf(plugin.Usage, "%s: %s is not %s", field, show(value), want).WithDetail("field", field))
}

// take removes a field and returns its value. null is refused: it might mean
// "not given" or "none", and only the caller knows which.
func (l *lowering) take(field, want string) (any, bool) {
	value, ok := l.fields[field]
	delete(l.fields, field)
	if ok && value == nil {
		l.fail(plugin.Errorf(plugin.Usage, "%s: null is not %s", field, want).
			WithHint("leave the field out, or give %s", want).WithDetail("field", field))
		return nil, false
	}
	return value, ok
}

// host reads one of the host's fields.
func (l *lowering) host(field string) string {
	value, ok := l.take(field, "a string")
	if !ok {
		return ""
	}
	text, ok := asText(value)
	switch {
	case !ok:
		l.wrong(field, value, "a string")
	case text == "":
		l.fail(plugin.Errorf(plugin.Usage, "%s is empty", field).WithHint("leave it out for the default").WithDetail("field", field))
	}
	return text
}

// input reads the content that the object brings.
func (l *lowering) input() io.Reader {
	value, ok := l.take(plugin.FieldInput, "a string")
	if !ok {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		l.wrong(plugin.FieldInput, value, "a string")
	}
	return strings.NewReader(text)
}

// flag lowers a flag's field to the words that stand for it.
func (l *lowering) flag(f *plugin.Flag) []string {
	field, name := f.Field(), "--"+f.Name
	want := wanted(f)
	value, ok := l.take(field, want)
	if !ok {
		return nil
	}
	switch f.Type {
	case plugin.TypeBool:
		on, ok := asBool(value, !f.Confirm)
		switch {
		case !ok:
			l.wrong(field, value, want)
			return nil
		case strings.HasPrefix(f.Name, "no-"):
			if on {
				return nil // the default
			}
			return []string{name}
		case on:
			return []string{name}
		case f.Negatable:
			return []string{"--no-" + f.Name}
		}
		return []string{name + "=false"}
	case plugin.TypeInt:
		if text, ok := asInt(value); ok {
			return []string{name + "=" + text}
		}
	case plugin.TypeStrings:
		if list, ok := asList(value, asText); ok {
			return prefixed(name+"=", list)
		}
	case plugin.TypeMap:
		if pairs, ok := asPairs(value); ok {
			return prefixed(name+"=", pairs)
		}
	default:
		if text, ok := asText(value); ok {
			return []string{name + "=" + text}
		}
	}
	l.wrong(field, value, want)
	return nil
}

func prefixed(prefix string, words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = prefix + w
	}
	return out
}

// args lowers the arguments. One that is left out must not be followed by one
// that is given, since argv cannot say so.
func (l *lowering) args() []string {
	var words []string
	var left string
	for a := range l.verb.ObjectArgs() {
		field := plugin.Camel(a.Name)
		as, want := asText, "a string"
		if a.Type == plugin.TypeInt {
			as, want = asInt, "a whole number"
		}
		if a.Repeated {
			want = "a list of" + strings.TrimPrefix(want, "a") + "s"
		}
		value, given := l.take(field, want)
		var list []string
		if given {
			ok := false
			if a.Repeated {
				list, ok = asList(value, as)
			} else {
				list = make([]string, 1)
				list[0], ok = as(value)
			}
			if !ok {
				l.wrong(field, value, want)
			}
		}
		switch {
		case len(list) == 0 && a.Required && l.err == nil:
			l.unknown() // a misspelt name is the likelier mistake
			l.fail(plugin.Errorf(plugin.Usage, "%s is missing: %s takes %s", field, l.verb.Name, l.takes()).WithDetail("missing", field))
		case len(list) == 0:
			left = field
		case left != "":
			l.fail(plugin.Errorf(plugin.Usage, "%s is given without %s", field, left).WithHint("give both").WithDetail("missing", left))
		}
		words = append(words, list...)
	}
	return words
}

// unknown refuses a field that was not taken. Arguments that were not looked
// at yet are known.
func (l *lowering) unknown() {
	known := l.verbFields()
	for _, field := range slices.Sorted(maps.Keys(l.fields)) {
		if slices.Contains(known, field) {
			continue
		}
		e := plugin.Errorf(plugin.Usage, "unknown field %q: %s takes %s", shorten(field, 40), l.verb.Name, l.takes()).
			WithDetail("field", field)
		if near := plugin.Nearest(field, append(known, "agent", "project", "session")); near != nil {
			e = e.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, ", "))
		}
		l.fail(e)
	}
}

func (l *lowering) verbFields() []string {
	var names []string
	for a := range l.verb.ObjectArgs() {
		names = append(names, plugin.Camel(a.Name))
	}
	if l.verb.Input != "" {
		names = append(names, plugin.FieldInput)
	}
	for f := range l.verb.ObjectFlags() {
		names = append(names, f.Field())
	}
	return names
}

func (l *lowering) takes() string {
	if names := l.verbFields(); names != nil {
		return strings.Join(names, ", ")
	}
	return "no fields"
}

// wanted says what a flag's field takes.
func wanted(f *plugin.Flag) string {
	switch f.Type {
	case plugin.TypeInt:
		return "a whole number"
	case plugin.TypeBool:
		if f.Confirm {
			return "the boolean true or false"
		}
		return "true or false"
	case plugin.TypeStrings:
		return "a list of strings"
	case plugin.TypeMap:
		return `an object of strings such as {"key": "value"}`
	case plugin.TypeDuration:
		return `a duration such as "36h" or "7d"`
	}
	if f.Enum != nil {
		return "one of " + strings.Join(f.Enum, ", ")
	}
	return "a string"
}

func asText(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

func asInt(value any) (string, bool) {
	text, ok := asText(value)
	if !ok {
		return "", false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return strconv.FormatInt(n, 10), err == nil
}

func asBool(value any, spelt bool) (on, ok bool) {
	switch {
	case value == true, spelt && value == "true":
		return true, true
	case value == false, spelt && value == "false":
		return false, true
	}
	return false, false
}

// asList reads a list, also as JSON in a string, or a single item.
func asList(value any, item func(any) (string, bool)) ([]string, bool) {
	if list, ok := spelt(value, "[").([]any); ok {
		out := make([]string, len(list))
		for i, v := range list {
			var ok bool
			if out[i], ok = item(v); !ok {
				return nil, false
			}
		}
		return out, true
	}
	text, ok := item(value)
	return []string{text}, ok
}

// asPairs reads an object, also as JSON in a string, a list of "k=v", or the
// text that the command line takes. An object without pairs is not the same
// as none at all: it empties what was there.
func asPairs(value any) ([]string, bool) {
	switch v := spelt(value, "{[").(type) {
	case string:
		return []string{v}, v == "" || strings.Contains(v, "=")
	case []any:
		pairs, ok := asList(v, asText)
		for i, p := range pairs {
			ok = ok && strings.Contains(p, "=")
			pairs[i] = quotePair(p)
		}
		return pairs, ok
	case map[string]any:
		if len(v) == 0 {
			return []string{""}, true
		}
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, ok := asText(v[key])
			if !ok || key == "" || strings.Contains(key, "=") {
				return nil, false
			}
			pairs = append(pairs, quotePair(key+"="+text))
		}
		return pairs, true
	}
	return nil, false
}

// quotePair quotes a pair as in CSV where it would be read as something else.
func quotePair(pair string) string {
	if !strings.Contains(pair, ",") && !strings.HasPrefix(pair, `"`) {
		return pair
	}
	return `"` + strings.ReplaceAll(pair, `"`, `""`) + `"`
}

// spelt returns what a string spells, if it is JSON that begins with one of the
// brackets, and otherwise the value itself.
func spelt(value any, brackets string) any {
	text, ok := value.(string)
	if !ok {
		return value
	}
	if trimmed := strings.TrimSpace(text); trimmed == "" || !strings.Contains(brackets, trimmed[:1]) {
		return value
	}
	parsed, err := parseValue([]byte(text))
	if err != nil {
		return value
	}
	return parsed
}

// show writes a value for an error, in one short line.
func show(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("a %T", value)
	}
	return shorten(string(data), 60)
}

// ParseObject parses one JSON object for [Lower]. Numbers keep their text as
// [json.Number]. Refused, because it could only be misread: more than one
// value, a key given twice at any depth, bytes that are not UTF-8, more than 32
// levels. Empty input is the empty object.
func ParseObject(data []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return map[string]any{}, nil
	}
	value, err := parseValue(data)
	if err != nil {
		return nil, plugin.Errorf(plugin.Usage, "bad JSON: %w", err).WithHint(`send one JSON object such as {"name": "v1"}`)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, plugin.Errorf(plugin.Usage, "%s is not a JSON object", show(value)).
			WithHint(`send one JSON object such as {"name": "v1"}`)
	}
	return object, nil
}

func parseValue(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	value, err := readValue(dec, 0)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it ends too early")
	}
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return value, nil
}

func readValue(dec *json.Decoder, depth int) (any, error) {
	const deepest = 32
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if depth > deepest {
		return nil, errors.New("it is nested too deeply")
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := readValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	case json.Delim('{'):
		object := map[string]any{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string) // the decoder lets nothing else stand here
			if _, ok := object[name]; ok {
				return nil, fmt.Errorf("the key %q is given twice", name)
			}
			if object[name], err = readValue(dec, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := dec.Token()
		return object, err
	}
	return token, nil
}
