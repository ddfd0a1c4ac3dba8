package surfaces

import (
	"fmt"
	"slices"
	"strings"

	"sess/plugin"
)

// segment is a part of a path between slashes.
type segment struct {
	text  string
	param bool // text is the name of a parameter
}

// templateField is a field whose value a route makes.
type templateField struct {
	name  string
	value any       // true or false of a flag without a value
	text  []segment // the value's parts otherwise; a param is a placeholder
	kind  plugin.Type
	list  bool // the field takes a list; more words may add to it
}

// routes makes the routes of one command.
func (c *HTTPCommand) routes(problems *[]string) []*HTTPRoute {
	var routes []*HTTPRoute
	for i := range c.Spec.Verbs {
		v := &c.Spec.Verbs[i]
		if v.Internal {
			continue
		}
		method := "POST"
		if v.Effect == plugin.EffectRead {
			method = "GET"
		}
		for n, name := range append([]string{v.Name}, v.Aliases...) {
			r := &HTTPRoute{
				Method: method, Path: "/" + c.Spec.Command + "/" + strings.ReplaceAll(name, " ", "/"),
				Command: c.Spec, Verb: v, Alias: n > 0, Status: httpOK, documented: c.Documented,
			}
			r.segments = parseTemplatePath(r.Path)
			routes = append(routes, r)
		}
	}
	for i := range c.Spec.Routes {
		r, err := templateRoute(c.Spec, &c.Spec.Routes[i])
		if err != nil {
			*problems = append(*problems, fmt.Sprintf("%s %s of %s: %v", c.Spec.Routes[i].Method, c.Spec.Routes[i].Path, c.Spec.Command, err))
			continue
		}
		routes = append(routes, r)
	}
	return routes
}

func parseTemplatePath(path string) []segment {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	out := make([]segment, len(parts))
	for i, p := range parts {
		out[i] = segment{text: p}
		if name, ok := placeholder(p); ok {
			out[i] = segment{text: name, param: true}
		}
	}
	return out
}

// placeholder returns the name in "{name}".
func placeholder(s string) (string, bool) {
	if len(s) > 2 && s[0] == '{' && s[len(s)-1] == '}' && !strings.ContainsAny(s[1:len(s)-1], "{}") {
		return s[1 : len(s)-1], true
	}
	return "", false
}

// templateRoute reads a route that a Spec declares. Its argv is a command line
// with placeholders; the host's flags may stand in it.
func templateRoute(spec *plugin.Spec, declared *plugin.Route) (*HTTPRoute, error) {
	v, n := spec.Find(declared.Argv)
	switch {
	case v == nil || v.Internal:
		return nil, fmt.Errorf("its argv leads to no verb")
	case declared.Method == "GET" && v.Effect != plugin.EffectRead:
		return nil, fmt.Errorf("GET is for verbs that only read")
	}
	r := &HTTPRoute{
		Method: declared.Method, Path: declared.Path, Command: spec, Verb: v, Status: declared.Status,
		segments: parseTemplatePath(declared.Path),
	}
	if r.Status == 0 {
		r.Status = httpOK
	}
	for _, s := range r.segments {
		if s.param {
			r.params = append(r.params, s.text)
		}
	}
	words := declared.Argv[n:]
	for i, word := range words {
		if word == "--" {
			return r, r.templateArgs(words[i+1:])
		}
		if err := r.templateFlag(word); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// templateFlag reads "--flag", "--no-flag" or "--flag=value".
func (r *HTTPRoute) templateFlag(word string) error {
	name, value, inline := strings.Cut(strings.TrimPrefix(word, "--"), "=")
	flag := r.Verb.Flag(name)
	on := true
	if flag == nil {
		if base, ok := strings.CutPrefix(name, "no-"); ok {
			if f := r.Verb.Flag(base); f != nil && f.Negatable {
				flag, on = f, false
			}
		}
	} else if strings.HasPrefix(name, "no-") {
		on = false // the field has the name without "no-"
	}
	field := templateField{text: parseTemplateText(value), kind: plugin.TypeString}
	switch {
	case !strings.HasPrefix(word, "--"):
		return fmt.Errorf("%q: write flags as --name=value, and arguments after --", word)
	case flag == nil && inline && slices.Contains(hostFields(), name):
		field.name = name
	case flag == nil || flag.Internal:
		return fmt.Errorf("%s has no flag --%s", r.Verb.Name, name)
	case flag.Type == plugin.TypeBool && inline:
		return fmt.Errorf("--%s takes no value", name)
	case flag.Type == plugin.TypeBool:
		field.name, field.value = flag.Field(), on
	case !inline:
		return fmt.Errorf("write --%s=value", name)
	default:
		field.name, field.kind = flag.Field(), flag.Type
		field.list = flag.Type == plugin.TypeStrings || flag.Type == plugin.TypeMap
	}
	r.template = append(r.template, field)
	return nil
}

func (r *HTTPRoute) templateArgs(words []string) error {
	args := r.Verb.Args
	for i, word := range words {
		if i >= len(args) && (len(args) == 0 || !args[len(args)-1].Repeated) {
			return fmt.Errorf("%s takes %d arguments", r.Verb.Name, len(args))
		}
		a := args[min(i, len(args)-1)]
		r.template = append(r.template, templateField{
			name: plugin.Camel(a.Name), text: parseTemplateText(word), kind: a.Type, list: a.Repeated,
		})
	}
	return nil
}

// hostFields are the host's flags that are fields in objects.
func hostFields() []string { return []string{"agent", "project", "session"} }

// parseTemplateText splits a word into literal text and placeholders.
func parseTemplateText(s string) []segment {
	var parts []segment
	for s != "" {
		open := strings.IndexByte(s, '{')
		if open < 0 {
			return append(parts, segment{text: s})
		}
		end := strings.IndexByte(s[open:], '}')
		if end < 2 {
			return append(parts, segment{text: s})
		}
		if open > 0 {
			parts = append(parts, segment{text: s[:open]})
		}
		parts = append(parts, segment{text: s[open+1 : open+end], param: true})
		s = s[open+end+1:]
	}
	return parts
}
