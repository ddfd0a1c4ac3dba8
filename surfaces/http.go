package surfaces

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"sess/plugin"
)

// The statuses of HTTP that no code of an error stands for (RFC 9110).
const (
	httpOK         = 200
	httpBadRequest = 400
	httpNotFound   = 404
	httpNotAllowed = 405
)

// HTTPCommand is a command, and how its routes are offered.
type HTTPCommand struct {
	Spec *plugin.Spec
	// Off is the key of the configuration that switches its routes off; "" means
	// that they are on.
	Off string
	// Documented marks the routes below the command's name as answering 400 for
	// everything that the caller can mend, as the routes of the first plugin are
	// documented. Others answer with the column HTTP of [plugin.Codes].
	Documented bool
}

// HTTPRoute is one method and path template that leads to a verb, or to an
// endpoint of the server's own. It is one of an [HTTPTable] and never changes.
type HTTPRoute struct {
	Method string
	Path   string // the template: "/sess/trash/restore", "/sessions/{id}/snapshots"
	// Own is the server's own endpoint; Command and Verb are nil then, and what
	// lowers and renders is not for it.
	Own     *HTTPOperation
	Command *plugin.Spec
	Verb    *plugin.Verb
	// Alias says that the path has another name of the verb in it.
	Alias bool
	// Status is that of success.
	Status int

	documented bool // see HTTPCommand
	segments   []segment
	params     []string
	template   []templateField // what the route itself says
}

// HTTPTable finds the verb that a request is for. It never changes and is safe
// for concurrent use.
type HTTPTable struct {
	commands []HTTPCommand
	routes   []*HTTPRoute         // in the order of the Specs
	bySize   map[int][]*HTTPRoute // by the number of segments, literal ones first
}

// NewHTTPTable lays out the server's own endpoints, and the routes of the
// commands: GET for a verb that only reads, POST for another one, by each of its
// names, and what the Specs declare beside. Of two routes of the same method and
// shape the first stays; what was left out, and why, is returned as one line each.
func NewHTTPTable(own []HTTPOperation, commands []HTTPCommand) (table *HTTPTable, problems []string) {
	t := &HTTPTable{commands: slices.Clone(commands), bySize: map[int][]*HTTPRoute{}}
	taken := map[string]string{}
	add := func(r *HTTPRoute, owner string, on bool) {
		shape := r.shape()
		if by, ok := taken[shape]; ok {
			problems = append(problems, fmt.Sprintf("%s %s of %s: the route is one of %s already", r.Method, r.Path, owner, by))
			return
		}
		taken[shape] = owner
		if on {
			t.routes = append(t.routes, r)
			t.bySize[len(r.segments)] = append(t.bySize[len(r.segments)], r)
		}
	}
	for i := range own {
		add(&HTTPRoute{Method: own[i].Method, Path: own[i].Path, Own: &own[i], segments: parseTemplatePath(own[i].Path)}, "the gateway", true)
	}
	for _, c := range t.commands {
		for _, r := range c.routes(&problems) {
			add(r, c.Spec.Command, c.Off == "")
		}
	}
	for _, routes := range t.bySize {
		slices.SortStableFunc(routes, func(a, b *HTTPRoute) int {
			for i := range a.segments {
				if p, q := a.segments[i].param, b.segments[i].param; p != q {
					if q {
						return -1
					}
					return 1
				}
			}
			return 0
		})
	}
	return t, problems
}

// shape is what two routes that serve the same requests have in common.
func (r *HTTPRoute) shape() string {
	var b strings.Builder
	b.WriteString(r.Method)
	for _, s := range r.segments {
		if s.param {
			b.WriteString("/{}")
		} else {
			b.WriteString("/" + s.text)
		}
	}
	return b.String()
}

// Routes lists the routes that are on: the server's own, then those of the
// commands in the order of the Specs.
func (t *HTTPTable) Routes() []*HTTPRoute { return slices.Clone(t.routes) }

// HTTPFailure is why a request leads to no verb.
type HTTPFailure struct {
	Status int
	Allow  []string // the methods that there are, for 405
	Err    *plugin.Error
}

// Match finds the route for a method and a path as it stands in the request
// line, percent-encoded. Each segment is decoded once, after the path was
// split, so an encoded slash is part of a value. A literal segment wins over a
// parameter. HEAD is served by the routes of GET.
func (t *HTTPTable) Match(method, path string) (*HTTPRoute, map[string]string, *HTTPFailure) {
	raw := strings.Split(strings.TrimPrefix(path, "/"), "/")
	parts := make([]string, len(raw))
	for i, s := range raw {
		text, err := url.PathUnescape(s)
		if err != nil || !utf8.ValidString(text) {
			return nil, nil, &HTTPFailure{Status: httpBadRequest, Err: badEscape("the path", s)}
		}
		parts[i] = text
	}
	asked := method
	if method == "HEAD" {
		method = "GET"
	}
	var allow []string
	var beside *HTTPRoute
	for _, r := range t.bySize[len(parts)] {
		params, ok := r.match(parts)
		if !ok {
			continue
		}
		if r.Method == method {
			return r, params, nil
		}
		if beside == nil {
			beside = r
		}
		if allow = append(allow, r.Method); r.Method == "GET" {
			allow = append(allow, "HEAD")
		}
	}
	if beside != nil {
		slices.Sort(allow)
		allow = slices.Compact(allow)
		return nil, nil, &HTTPFailure{
			Status: httpNotAllowed, Allow: allow,
			Err: plugin.Errorf(plugin.Usage, "%s is not for %s", asked, beside.Path).WithHint("use %s", strings.Join(allow, " or ")),
		}
	}
	return nil, nil, &HTTPFailure{Status: httpNotFound, Err: t.missing(parts)}
}

func (r *HTTPRoute) match(parts []string) (map[string]string, bool) {
	for i, s := range r.segments {
		if !s.param && s.text != parts[i] {
			return nil, false
		}
	}
	params := map[string]string{}
	for i, s := range r.segments {
		if s.param {
			params[s.text] = parts[i]
		}
	}
	return params, true
}

// missing says why nothing is at a path.
func (t *HTTPTable) missing(parts []string) *plugin.Error {
	for _, c := range t.commands {
		if c.Off != "" && c.wouldServe(parts) {
			return plugin.Errorf(plugin.NotFound, "the HTTP routes of %s are switched off", c.Spec.Command).
				WithHint("remove %s from the configuration, or set it to true, to switch them on", c.Off)
		}
	}
	for _, c := range t.commands {
		if c.Spec.Command != parts[0] || len(parts) > 2 && slices.Contains(parts, "") {
			continue // two slashes, or one at the end, make no verb
		}
		var names, words []string
		for i := range c.Spec.Verbs {
			if v := &c.Spec.Verbs[i]; !v.Internal {
				names = append(names, v.Name)
				words = append(append(words, v.Name), v.Aliases...)
			}
		}
		typed := strings.TrimSpace(strings.Join(parts[1:], " "))
		if typed == "" {
			return plugin.Errorf(plugin.Usage, "%s: no verb is given", c.Spec.Command).
				WithHint("the verbs are %s", strings.Join(names, ", "))
		}
		near := plugin.Nearest(typed, words)
		for _, name := range words { // the first word of two
			if near == nil && strings.HasPrefix(name, typed+" ") {
				near = append(near, name)
			}
		}
		unknown := plugin.Errorf(plugin.Usage, "unknown verb %q", shorten(typed, 40))
		if near == nil {
			return unknown.WithHint("the verbs are %s", strings.Join(names, ", "))
		}
		return unknown.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, ", "))
	}
	return plugin.Errorf(plugin.NotFound, "there is nothing at /%s", shorten(strings.Join(parts, "/"), 100)).
		WithHint("GET /openapi.json lists what there is")
}

// wouldServe reports whether a path is one of the command's, were they on.
func (c *HTTPCommand) wouldServe(parts []string) bool {
	var problems []string
	return c.Spec.Command == parts[0] || slices.ContainsFunc(c.routes(&problems), func(r *HTTPRoute) bool {
		if len(r.segments) != len(parts) {
			return false
		}
		_, ok := r.match(parts)
		return ok
	})
}

func badEscape(where, text string) *plugin.Error {
	return plugin.Errorf(plugin.Usage, "%s: %q is not percent-encoded UTF-8", where, shorten(text, 60)).
		WithHint("write %% as %%25")
}
