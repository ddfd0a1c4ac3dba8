package surfaces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
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

// HTTPAnswer is what is sent back, but for what belongs to the connection.
type HTTPAnswer struct {
	Status int
	Header map[string]string
	Body   []byte // one JSON document
}

// Render turns an answer into a response. target is the path and query of the
// request, for the link to the next page. A verb that only reads gives its
// data as it is, or its text where it has none, and its notices in the header
// X-Notices; another one gives {"text","data"}, and "notices" where there are
// some.
func (r *HTTPRoute) Render(target string, result plugin.Result, err error) HTTPAnswer {
	if err == nil && result.Data != nil && !json.Valid(result.Data) {
		err = plugin.Errorf(plugin.Internal, "the answer is not JSON")
	}
	if err != nil {
		e := plugin.AsError(err)
		return HTTPAnswer{Status: r.errorStatus(e.Code), Body: HTTPErrorBody(e)}
	}
	answer := HTTPAnswer{Status: r.Status, Header: map[string]string{}}
	if r.Verb.Effect == plugin.EffectRead {
		answer.Body = encodeJSON(readBody(result))
		if notices := NoticesHeader(result.Notices); notices != "" {
			answer.Header["X-Notices"] = notices
		}
		pageHeaders(answer.Header, target, result.Page)
		return answer
	}
	answer.Body = encodeJSON(changeBody{result.Text, result.Data, result.Notices, result.Page})
	return answer
}

// changeBody is the answer of a verb that is not read only.
type changeBody struct {
	Text    string          `json:"text"`
	Data    json.RawMessage `json:"data"`
	Notices []string        `json:"notices,omitempty"`
	Page    *plugin.Page    `json:"page,omitempty"`
}

// readBody is the answer of a verb that only reads.
func readBody(result plugin.Result) any {
	if result.Data == nil && result.Text != "" {
		return result.Text
	}
	return result.Data
}

// errorStatus is the status of an error of this route.
func (r *HTTPRoute) errorStatus(code plugin.Code) int {
	info := code.Info()
	if r.documented && code != plugin.Denied && info.HTTP < 500 {
		return httpBadRequest
	}
	return info.HTTP
}

// HTTPErrorBody is the body of a failed request: {"error","code","text","hint",
// "details"}, where text is the whole text for people.
func HTTPErrorBody(e *plugin.Error) []byte {
	return encodeJSON(struct {
		Error   string            `json:"error"`
		Code    plugin.Code       `json:"code"`
		Text    string            `json:"text"`
		Hint    string            `json:"hint,omitempty"`
		Details map[string]string `json:"details,omitempty"`
	}{e.Message, e.Code, e.Text(), e.Hint, e.Details})
}

// encodeJSON is writeJSON to new memory.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	writeJSON(&b, v)
	return b.Bytes()
}

// noticesRoom bounds the header with the notices, in bytes: proxies refuse large
// headers.
const noticesRoom = 4000

// NoticesHeader writes notices as a JSON array in ASCII, since a header takes
// nothing else; "" for none. Notices that have no room are counted in the last
// item.
func NoticesHeader(notices []string) string {
	if len(notices) == 0 {
		return ""
	}
	out := ""
	for i, n := range notices {
		item := asciiJSON(n)
		if len(out)+len(item) > noticesRoom {
			out += "," + asciiJSON(fmt.Sprintf("and %d more", len(notices)-i))
			break
		}
		out += "," + item
	}
	return "[" + strings.TrimPrefix(out, ",") + "]"
}

// asciiJSON writes a JSON string with every character beyond ASCII escaped.
func asciiJSON(s string) string {
	var b strings.Builder
	for _, r := range strings.TrimSuffix(string(encodeJSON(s)), "\n") {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// pageHeaders tell of the rest of a list: how many items there are in all, and
// where the next ones are (RFC 8288). target is what was requested.
func pageHeaders(header map[string]string, target string, page *plugin.Page) {
	if page == nil {
		return
	}
	header["X-Total-Count"] = strconv.FormatInt(page.Total, 10)
	if page.Next == "" {
		return
	}
	path, query, _ := strings.Cut(target, "?")
	var pairs []string
	for pair := range strings.SplitSeq(query, "&") {
		if key, _, _ := strings.Cut(pair, "="); pair != "" && key != plugin.FlagAfter {
			pairs = append(pairs, pair)
		}
	}
	pairs = append(pairs, plugin.FlagAfter+"="+url.QueryEscape(page.Next))
	link := path + "?" + strings.Join(pairs, "&")
	header["Link"] = "<" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22").Replace(link) + `>; rel="next"`
}
