package surfaces_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/surfaces"
)

// httpSpec is the fixture with routes of its own.
func httpSpec(tb testing.TB) *plugin.Spec {
	tb.Helper()
	s := spec(tb)
	const base = "/sessions/{id}/snapshots"
	s.Routes = []plugin.Route{
		{Method: "GET", Path: base, Argv: []string{"list", "--include-auto", "--session={id}"}},
		{Method: "POST", Path: base, Argv: []string{"save", "--note={why}", "--tags=from=http", "--session={id}"}, Status: 201},
		{Method: "GET", Path: base + "/first", Argv: []string{"list", "--limit=1", "--session={id}"}},
		{Method: "GET", Path: base + "/{n}", Argv: []string{"list", "--limit={n}", "--session={id}"}},
		{Method: "POST", Path: base + "/{name}/branch", Argv: []string{"copy", "--", "{name}", "{id}-{to}"}},
		{Method: "POST", Path: base + "/{name}/start", Argv: []string{"new", "--no-backup", "--from={name}"}},
		{Method: "DELETE", Path: base + "/{name}", Argv: []string{"delete", "--confirm", "--", "{name}"}},
		{Method: "DELETE", Path: base + "/{name}/messages", Argv: []string{"drop", "--session={id}"}},
	}
	return s
}

func httpTable(tb testing.TB) *surfaces.HTTPTable {
	tb.Helper()
	table, problems := surfaces.NewHTTPTable(nil, []surfaces.HTTPCommand{{Spec: httpSpec(tb), Documented: true}})
	if problems != nil {
		tb.Fatalf("NewHTTPTable: %q", problems)
	}
	return table
}

// lowerHTTP is what becomes of a request: the argv of its call with the host's
// fields before it, or the text of the error.
func lowerHTTP(tb testing.TB, table *surfaces.HTTPTable, method, target, body string) string {
	tb.Helper()
	path, query, _ := strings.Cut(target, "?")
	route, params, failure := table.Match(method, path)
	if failure != nil {
		return failure.Err.Text()
	}
	l, err := route.Lower(surfaces.HTTPInput{Params: params, Query: query, Body: []byte(body)})
	if err != nil {
		return text(tb, err)
	}
	if l.Verb != route.Verb {
		tb.Errorf("%s %s is for %s and became %s", method, target, route.Verb.Name, l.Verb.Name)
	}
	var host strings.Builder
	for _, f := range []struct{ name, value string }{{"agent", l.Agent}, {"project", l.Project}, {"session", l.Session}} {
		if f.value != "" {
			host.WriteString(f.name + "=" + f.value + " ")
		}
	}
	return host.String() + strings.Join(l.Argv, " | ")
}

func TestHTTPLower(t *testing.T) {
	t.Parallel()
	const s1 = "/sessions/s1/snapshots"
	tests := []struct{ name, method, target, body, want string }{
		{"a query", "GET", "/sess/list?limit=5&includeAuto=true&sort=name", "", "list | --limit=5 | --include-auto | --sort=name"},
		{"HEAD is GET", "HEAD", "/sess/list?limit=5", "", "list | --limit=5"},
		{"an alias", "GET", "/sess/ls", "", "list"},
		{"two words", "GET", "/sess/trash/list", "", "trash | list"},
		{"the host's fields", "GET", "/sess/list?agent=a&project=p&session=s", "", "agent=a project=p session=s list"},
		{"empty pairs", "GET", "/sess/list?&limit=5&", "", "list | --limit=5"},
		{"off", "GET", "/sess/list?includeAuto=false", "", "list | --include-auto=false"},
		{"twice", "GET", "/sess/list?limit=5&limit=5", "", "limit is given twice; give it once"},
		{"no number", "GET", "/sess/list?limit=", "", `limit: "" is not a whole number`},
		{"a bad escape", "GET", "/sess/list?sort=%zz", "", `the query: "%zz" is not percent-encoded UTF-8; write % as %25`},
		{"an encoded name of a field", "GET", "/sess/list?l%69mit=5", "", "list | --limit=5"},
		{"a body where the query is read", "GET", "/sess/list", "{}", "GET /sess/list takes no body; give the fields in the query, as in ?name=value"},
		{"a query where the body is read", "POST", "/sess/save?name=x", "", "POST /sess/save takes no query; give the fields as a JSON object in the body"},
		{"a body", "POST", "/sess/save", `{"name":"--x","note":"-- y","tags":{"a":"b,c"}}`, `save | --note=-- y | --tags="a=b,c" | -- | --x`},
		{"no body", "POST", "/sess/new", "", "new"},
		{"an encoded verb", "POST", "/sess/s%61ve", `{"name":"x"}`, "save | -- | x"},
		{"an action in the body", "POST", "/sess/save", `{"name":"x","action":"delete"}`, `unknown field "action": save takes name, note, tags, includeFile, overwrite`},
		{"an internal flag", "POST", "/sess/save", `{"name":"x","trigger":"y"}`, `unknown field "trigger": save takes name, note, tags, includeFile, overwrite`},

		{"a parameter", "GET", s1, "", "session=s1 list | --include-auto"},
		{"a parameter with a slash", "GET", "/sessions/a%2Fb%252F/snapshots", "", "session=a/b%2F list | --include-auto"},
		{"an empty parameter", "GET", "/sessions//snapshots", "", "session is empty; leave it out for the default"},
		{"a parameter that is not UTF-8", "GET", "/sessions/%ff/snapshots", "", `the path: "%ff" is not percent-encoded UTF-8; write % as %25`},
		{"more fields", "GET", s1 + "?limit=3", "", "session=s1 list | --limit=3 | --include-auto"},
		{"a field that the route says", "GET", s1 + "?includeAuto=false", "", "includeAuto is what /sessions/{id}/snapshots says already; leave it out"},
		{"a session that the path says", "POST", s1, `{"name":"x","session":"s2"}`, "session is what /sessions/{id}/snapshots says already; leave it out"},
		{"a placeholder from the body", "POST", s1, `{"name":"x","why":"{id} \"because\""}`, `session=s1 save | --note={id} "because" | --tags=from=http | -- | x`},
		{"an optional placeholder", "POST", s1, `{"name":"x"}`, "session=s1 save | --note= | --tags=from=http | -- | x"},
		{"a placeholder that is no text", "POST", s1, `{"name":"x","why":["y"]}`, `why: ["y"] is not a string`},
		{"what the placeholder stands for", "POST", s1, `{"name":"x","note":"y"}`, "note is what /sessions/{id}/snapshots says already; leave it out"},
		{"a literal segment wins", "GET", s1 + "/first", "", "session=s1 list | --limit=1"},
		{"a parameter for a number", "GET", s1 + "/7", "", "session=s1 list | --limit=7"},
		{"a parameter that is no number", "GET", s1 + "/x", "", `limit: "x" is not a whole number`},
		{"text around placeholders", "POST", s1 + "/v1/branch", `{"to":"copy"}`, "copy | -- | v1 | s1-copy"},
		{"a negated flag", "POST", s1 + "/v1/start", "", "new | --from=v1 | --no-backup"},
		{"a name like a flag", "DELETE", s1 + "/--all", "", "delete | --confirm | -- | --all"},
		{"by the method first", "DELETE", s1 + "/first", "", "delete | --confirm | -- | first"},
		{"a list in a query", "DELETE", s1 + "/v1/messages?indices=3&indices=-1", "", "session=s1 drop | -- | 3 | -1"},

		{"another method", "POST", "/sess/list", "", "POST is not for /sess/list; use GET or HEAD"},
		{"HEAD of what changes", "HEAD", "/sess/save", "", "HEAD is not for /sess/save; use POST"},
		{"other methods", "PUT", s1 + "/first", "", "PUT is not for /sessions/{id}/snapshots/first; use DELETE or GET or HEAD"},
		{"a misspelt verb", "GET", "/sess/lsit", "", `unknown verb "lsit"; did you mean list?`},
		{"one word of two", "GET", "/sess/trash", "", `unknown verb "trash"; did you mean trash list or trash restore?`},
		{"an internal verb", "POST", "/sess/op", "", `unknown verb "op"; did you mean cp?`},
		{"no verb", "GET", "/sess/", "", "sess: no verb is given; the verbs are save, load, list, new, copy, delete, drop, tag, trash list, trash restore"},
		{"nothing there", "GET", "/Sess/list", "", "there is nothing at /Sess/list; GET /openapi.json lists what there is"},
	}
	table := httpTable(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, lowerHTTP(t, table, tt.method, tt.target, tt.body)); diff != "" {
				t.Errorf("%s %s %s (-want +got):\n%s", tt.method, tt.target, tt.body, diff)
			}
		})
	}
}

// A declaration that cannot be served is left out and told of; the others stay.
func TestNewHTTPTableLeavesOut(t *testing.T) {
	t.Parallel()
	declared := func(method, path string, argv ...string) plugin.Route {
		return plugin.Route{Method: method, Path: path, Argv: argv}
	}
	tests := []struct {
		want  string
		route plugin.Route
	}{
		{"its argv leads to no verb", declared("GET", "/x", "nope")},
		{"its argv leads to no verb", declared("GET", "/x", "op")},
		{"GET is for verbs that only read", declared("GET", "/x", "save")},
		{"list has no flag --nope", declared("GET", "/x", "list", "--nope=1")},
		{"save has no flag --trigger", declared("POST", "/x", "save", "--trigger=x")},
		{`"x": write flags as --name=value, and arguments after --`, declared("POST", "/x", "save", "x")},
		{"write --note=value", declared("POST", "/x", "save", "--note", "--", "x")},
		{"--overwrite takes no value", declared("POST", "/x", "save", "--overwrite=true", "--", "x")},
		{"list takes 0 arguments", declared("GET", "/x", "list", "--", "x")},
		{"the route is one of sess already", declared("GET", "/sess/list", "list")},
	}
	for _, tt := range tests {
		s := spec(t)
		s.Routes = []plugin.Route{tt.route, declared("GET", "/y", "list")}
		table, problems := surfaces.NewHTTPTable(nil, []surfaces.HTTPCommand{{Spec: s}})
		want := []string{tt.route.Method + " " + tt.route.Path + " of sess: " + tt.want}
		if diff := cmp.Diff(want, problems); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.route, diff)
		}
		if got := lowerHTTP(t, table, "GET", "/y", ""); got != "list" {
			t.Errorf("the route beside %+v: %s", tt.route, got)
		}
	}
}

// The server's own endpoints come before the commands' routes of the same shape,
// a literal segment wins over a parameter whoever declares it, and what a path
// has is told for all of its methods.
func TestHTTPTableOfOwnEndpoints(t *testing.T) {
	t.Parallel()
	own := []surfaces.HTTPOperation{
		{Method: "GET", Path: "/sess/{id}", ID: "one"},
		{Method: "PUT", Path: "/sess/{id}", ID: "put"},
		{Method: "GET", Path: "/sessions/{key}/snapshots", ID: "first"},
	}
	table, problems := surfaces.NewHTTPTable(own, []surfaces.HTTPCommand{{Spec: httpSpec(t)}})
	if diff := cmp.Diff([]string{"GET /sessions/{id}/snapshots of sess: the route is one of the gateway already"}, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ method, path, own, param string }{
		{"GET", "/sess/a%2Fb", "one", "a/b"},
		{"HEAD", "/sess/x", "one", "x"},
		{"GET", "/sess/list", "", ""},
		{"PUT", "/sess/list", "put", "list"},
		{"GET", "/sessions/s/snapshots", "first", "s"},
	} {
		route, params, failure := table.Match(tt.method, tt.path)
		if failure != nil {
			t.Errorf("Match(%s, %s): %v", tt.method, tt.path, failure.Err)
			continue
		}
		got := ""
		if route.Own != nil {
			got = route.Own.ID
		}
		if got != tt.own || params["id"]+params["key"] != tt.param {
			t.Errorf("Match(%s, %s) is the endpoint %q with %q, want %q with %q", tt.method, tt.path, got, params, tt.own, tt.param)
		}
	}
	if _, _, failure := table.Match("DELETE", "/sess/list"); failure == nil || !slices.Equal(failure.Allow, []string{"GET", "HEAD", "PUT"}) {
		t.Errorf("DELETE of a path that both have: %+v", failure)
	}
}

// An answer that is not JSON is a bug of its verb, and does not reach a client.
func TestHTTPRenderChecksTheData(t *testing.T) {
	t.Parallel()
	route, _, failure := httpTable(t).Match("GET", "/sess/list")
	if failure != nil {
		t.Fatal(failure.Err)
	}
	for data, status := range map[string]int{`[]`: 200, `[`: 500, ``: 500} {
		if got := route.Render("/sess/list", plugin.Result{Data: []byte(data)}, nil); got.Status != status {
			t.Errorf("Render of %q: status %d, want %d", data, got.Status, status)
		}
		if got := surfaces.RenderHTTPTool(plugin.Result{Data: []byte(data)}, nil); got.Status != status {
			t.Errorf("RenderHTTPTool of %q: status %d, want %d", data, got.Status, status)
		}
	}
	many := slices.Repeat([]string{strings.Repeat("ä", 300)}, 10)
	notices := route.Render("/sess/list", plugin.Result{Notices: many}, nil).Header["X-Notices"]
	if len(notices) > 5000 || !strings.HasSuffix(notices, `,"and 8 more"]`) {
		t.Errorf("X-Notices has %d bytes and ends in %q", len(notices), notices[max(0, len(notices)-30):])
	}
}

// Whatever a request says, it becomes a call of the verb of its route in which
// no value is taken for a flag, or an error of usage.
func FuzzHTTPLower(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/sess/list?limit=5&tag=a=b", ""},
		{"POST", "/sess/save", `{"name":"--overwrite","note":"--","tags":{"a":"b"}}`},
		{"DELETE", "/sessions/%2F/snapshots/--confirm", ""},
		{"POST", "/sessions/s/snapshots", `{"why":"{id}","name":"x"}`},
		{"GET", "/%", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	d := fixture(f)
	table := httpTable(f)
	f.Fuzz(func(t *testing.T, method, target, body string) {
		path, query, _ := strings.Cut(target, "?")
		route, params, failure := table.Match(method, path)
		if failure != nil {
			if failure.Status < 400 || failure.Status > 405 || failure.Err.Message == "" {
				t.Errorf("Match(%q, %q) fails with %d %v", method, path, failure.Status, failure.Err)
			}
			return
		}
		l, err := route.Lower(surfaces.HTTPInput{Params: params, Query: query, Body: []byte(body)})
		if err != nil {
			if e, ok := errors.AsType[*plugin.Error](err); !ok || e.Code != plugin.Usage {
				t.Errorf("Lower of %q %q: %v, want an error of usage", target, body, err)
			}
			return
		}
		if v, _ := route.Command.Find(l.Argv); v != route.Verb {
			t.Fatalf("%q %q became %q, want a call of %s", target, body, l.Argv, route.Verb.Name)
		}
		_, err = d.Dispatch(t.Context(), plugin.Call{Argv: l.Argv, Caller: plugin.CallerHTTP}, nil)
		if e, ok := errors.AsType[*plugin.Error](err); err != nil && (!ok || e.Code != plugin.Usage) {
			t.Errorf("%q gives %v, want an error of usage", l.Argv, err)
		}
	})
}
