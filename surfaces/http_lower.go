package surfaces

import (
	"bytes"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"sess/plugin"
)

// HTTPInput is what a request says beside its method.
type HTTPInput struct {
	Params map[string]string // of the path, from Match
	Query  string            // as it stands in the request line, without "?"
	Body   []byte            // one JSON object, or nothing
	// Content is the body where it is the input of a verb that reads one: then the
	// fields are in the query. It is nil otherwise.
	Content io.Reader
}

// Lower turns a request into a call. The fields of GET and DELETE are those of
// the query, the fields of other methods those of the body; what comes in the
// wrong place is refused. In a query every value is text, and only a field that
// takes a list may be given more than once. See [Lower] for the rest.
func (r *HTTPRoute) Lower(in HTTPInput) (Lowered, error) {
	fields, err := r.fields(in)
	if err != nil {
		return Lowered{}, err
	}
	if err := r.fill(in.Params, fields); err != nil {
		return Lowered{}, err
	}
	l, err := Lower(r.Command, r.Verb.Name, fields)
	if err == nil && in.Content != nil {
		if l.Input != nil {
			return Lowered{}, plugin.Errorf(plugin.Usage, "%s is given, and a body as well", plugin.FieldInput).
				WithHint("give one of them").WithDetail("field", plugin.FieldInput)
		}
		l.Input = in.Content
	}
	return l, err
}

func (r *HTTPRoute) fields(in HTTPInput) (map[string]any, error) {
	if in.Content != nil {
		return r.parseQuery(in.Query)
	}
	if r.InQuery() {
		if len(bytes.TrimSpace(in.Body)) > 0 {
			return nil, plugin.Errorf(plugin.Usage, "%s %s takes no body", r.Method, r.Path).WithHint("give the fields in the query, as in ?name=value")
		}
		return r.parseQuery(in.Query)
	}
	if in.Query != "" {
		return nil, plugin.Errorf(plugin.Usage, "%s %s takes no query", r.Method, r.Path).WithHint("give the fields as a JSON object in the body")
	}
	return ParseObject(in.Body)
}

// InQuery reports whether the fields are given in the query, not in the body.
func (r *HTTPRoute) InQuery() bool { return r.Method == "GET" || r.Method == "DELETE" }

// parseQuery reads name=value pairs. Unlike net/url it takes a semicolon for
// what it is, a character.
func (r *HTTPRoute) parseQuery(query string) (map[string]any, error) {
	fields := map[string]any{}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil || !utf8.ValidString(name) {
			return nil, badEscape("the query", key)
		}
		text, err := url.QueryUnescape(value)
		if err != nil || !utf8.ValidString(text) {
			return nil, badEscape("the query", value).WithDetail("field", name)
		}
		list, isList := fields[name].([]any)
		switch _, given := fields[name]; {
		case r.takesList(name):
			fields[name] = append(list, text)
		case given && !isList:
			return nil, plugin.Errorf(plugin.Usage, "%s is given twice", shorten(name, 40)).WithHint("give it once").WithDetail("field", name)
		default:
			fields[name] = text
		}
	}
	return fields, nil
}

// takesList reports whether a field of the verb takes more than one value.
func (r *HTTPRoute) takesList(field string) bool {
	for f := range r.Verb.ObjectFlags() {
		if f.Field() == field {
			return f.Type == plugin.TypeStrings || f.Type == plugin.TypeMap
		}
	}
	return slices.ContainsFunc(r.Verb.Args, func(a plugin.Arg) bool { return a.Repeated && plugin.Camel(a.Name) == field })
}

// fill adds what the route itself says to what the request says. A placeholder
// takes a parameter of the path, else a field of the request, else it is empty.
func (r *HTTPRoute) fill(params map[string]string, fields map[string]any) error {
	said := map[string]string{} // fields of the request that placeholders took
	value := func(name string) (text string, given bool, err error) {
		if text, ok := params[name]; ok {
			return text, true, nil
		}
		if text, ok := said[name]; ok {
			return text, true, nil
		}
		v, ok := fields[name]
		if !ok {
			return "", false, nil
		}
		if text, ok = asText(v); !ok {
			return "", false, plugin.Errorf(plugin.Usage, "%s: %s is not a string", name, show(v)).WithDetail("field", name)
		}
		delete(fields, name)
		said[name] = text
		return text, true, nil
	}
	made := map[string]any{}
	for _, t := range r.template {
		if t.value != nil {
			made[t.name] = t.value
			continue
		}
		var b strings.Builder
		given := false
		for _, part := range t.text {
			if !part.param {
				given = true
				b.WriteString(part.text)
				continue
			}
			text, ok, err := value(part.text)
			if err != nil {
				return err
			}
			given = given || ok
			b.WriteString(text)
		}
		switch {
		case t.list:
			list, _ := made[t.name].([]any)
			made[t.name] = append(list, b.String())
		case given || t.kind == plugin.TypeString:
			made[t.name] = b.String()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if _, given := fields[name]; given {
			return plugin.Errorf(plugin.Usage, "%s is what %s says already", name, r.Path).WithHint("leave it out").WithDetail("field", name)
		}
		fields[name] = made[name]
	}
	return nil
}
