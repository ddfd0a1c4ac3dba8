package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/host/server"
)

// web is a server over a user's home, with the sess plugin in a process of its
// own, on a port of this machine.
type web struct {
	t    testing.TB
	host *host.Host
	url  string
}

const webToken = "token-of-the-test"

// serve opens the home of u and serves it until the end of the test.
func (u *user) serve() *web {
	u.t.Helper()
	h, err := host.Open(u.t.Context(), host.Options{
		Home: u.home, Exe: u.bin, Builtins: manifests(u.t), RuntimeDir: u.tmp, Environ: u.env, Background: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		u.t.Fatal(err)
	}
	s, err := server.New(h, server.Options{Token: webToken})
	if err != nil {
		u.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		u.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(u.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	u.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			u.t.Errorf("Serve: %v", err)
		}
		if err := h.Close(context.WithoutCancel(ctx)); err != nil {
			u.t.Errorf("Close: %v", err)
		}
	})
	return &web{u.t, h, "http://" + listener.Addr().String()}
}

// webAnswer is a response with its body read.
type webAnswer struct {
	*http.Response
	body string
}

// call sends a request with the token; body "" is none.
func (w *web) call(method, target, body string) webAnswer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+target, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+webToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return webAnswer{resp, string(data)}
}

// want is call for what has to answer with a status; the body is decoded into
// into, unless that is nil.
func (w *web) want(status int, into any, method, target, body string) webAnswer {
	w.t.Helper()
	a := w.call(method, target, body)
	if a.StatusCode != status {
		w.t.Fatalf("%s %s %s: %d %s\nwant status %d", method, target, body, a.StatusCode, a.body, status)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(a.body), into); err != nil {
			w.t.Fatalf("%s %s: %v\n%s", method, target, err, a.body)
		}
	}
	return a
}

// refused is want for an error, and returns its code and text.
func (w *web) refused(status int, method, target, body string) (code, text string) {
	w.t.Helper()
	var failure struct{ Error, Code, Text string }
	w.want(status, &failure, method, target, body)
	if failure.Error == "" || failure.Text == "" {
		w.t.Errorf("%s %s: the body of the error has no error or no text: %+v", method, target, failure)
	}
	return failure.Code, failure.Text
}

// names are those of a list.
func (w *web) names(target string) []string {
	w.t.Helper()
	var list []struct{ Name string }
	w.want(200, &list, "GET", target, "")
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// changed is the answer of a verb that changes something.
type changed struct {
	Text string `json:"text"`
	Data struct {
		Name, ID, Note, Reason, Session string
		Messages                        int
		Tags                            map[string]string
		Automatic                       bool
	} `json:"data"`
}

// S4-76, S4-77, S4-78, S4-79, S4-80, S4-81, S4-82, S4-83: the documented routes,
// with the bodies and answers that are documented.
func TestHTTPSnapshots(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	w := u.serve()
	if a := w.call("GET", "/sess/list", ""); a.StatusCode != 200 || a.body != "[]\n" || a.Header.Get("X-Total-Count") != "0" {
		t.Errorf("GET /sess/list of an empty pool: %d %q %v, want an empty list", a.StatusCode, a.body, a.Header)
	}
	var c changed
	w.want(200, &c, "POST", "/sess/save", `{"name":"v1","note":"a note","tags":{"area":"db","kind":"x,y"}}`)
	if c.Data.Name != "v1" || c.Data.Note != "a note" || c.Data.Messages != 2 || !strings.HasPrefix(c.Text, "saved v1") ||
		!cmp.Equal(c.Data.Tags, map[string]string{"area": "db", "kind": "x,y"}) {
		t.Errorf("save: %+v", c)
	}
	if code, text := w.refused(400, "POST", "/sess/save", `{"name":"v1"}`); code != "exists" || !strings.Contains(text, "v1") {
		t.Errorf("save of a name that is taken: %s %q", code, text)
	}
	w.want(200, nil, "POST", "/sess/save", `{"name":"v1","overwrite":true}`)
	w.want(200, &c, "POST", "/sess/copy", `{"from":"v1","to":"v2","note":"of v1"}`)
	if c.Data.Name != "v2" || c.Data.Note != "of v1" {
		t.Errorf("copy: %+v", c)
	}
	w.want(200, &c, "POST", "/sess/rename", `{"from":"v2","to":"x1"}`)
	if c.Data.Name != "x1" {
		t.Errorf("rename: %+v", c)
	}
	if got := w.names("/sess/list?prefix=v&limit=5"); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("list with a prefix: %q", got)
	}
	if got := w.names("/sess/ls?tag=area=db&tag=kind=x%2Cy"); !slices.Equal(got, []string{"x1", "v1"}) && !slices.Equal(got, []string{"v1", "x1"}) {
		t.Errorf("list with tags: %q", got)
	}
	if code, _ := w.refused(400, "POST", "/sess/rename", `{"from":"x1","to":"v1"}`); code != "exists" {
		t.Errorf("rename to a name that is taken: %s", code)
	}
	w.want(200, nil, "POST", "/sess/copy", `{"from":"v1","to":"v3"}`)
	w.want(200, nil, "POST", "/sess/copy", `{"from":"v1","to":"v3","overwrite":true}`)
	w.want(200, &c, "POST", "/sess/rename", `{"from":"x1","to":"v3","overwrite":true}`)
	if c.Data.Name != "v3" || !strings.HasPrefix(c.Text, "renamed x1 to v3") {
		t.Errorf("rename over another one: %+v", c)
	}
	w.want(200, nil, "POST", "/sess/rename", `{"from":"v3","to":"x1"}`)
	u.do("chat", "--message", "more")
	w.want(200, &c, "POST", "/sess/load", `{"name":"v1"}`)
	if c.Data.Name != "v1" || len(u.messages()) != 2 {
		t.Errorf("load: %+v, the session has %d messages, want 2", c, len(u.messages()))
	}
	if got := w.names("/sess/list?includeAuto=true"); len(got) != 3 || !slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, "pre-load~") }) {
		t.Errorf("list with automatic ones after load: %q, want a backup", got)
	}
	w.want(200, nil, "POST", "/sess/load", `{"name":"x1","backup":false}`)
	w.want(200, &c, "POST", "/sess/new", `{"name":"fresh","note":"from v1","from":"v1","backup":false}`)
	if got := w.names("/sess/list"); !slices.Contains(got, "fresh") {
		t.Errorf("new under a name: %+v, then %q", c, got)
	}
	if code, _ := w.refused(400, "POST", "/sess/load", `{"name":"nosuch"}`); code != "not_found" {
		t.Errorf("load of a name that is not there: %s", code)
	}
	w.want(200, nil, "POST", "/sess/delete", `{"name":"fresh"}`)
	before := w.names("/sess/list")
	for _, body := range []string{`{"prefix":"v"}`, `{"prefix":"v","confirm":false}`, `{"prefix":"v","confirm":"true"}`} {
		w.refused(400, "POST", "/sess/delete", body)
	}
	if got := w.names("/sess/list"); !slices.Equal(got, before) {
		t.Errorf("an unconfirmed delete leaves %q of %q", got, before)
	}
	w.want(200, nil, "POST", "/sess/delete", `{"prefix":"v","confirm":true}`)
	if got := w.names("/sess/list"); !slices.Equal(got, []string{"x1"}) {
		t.Errorf("after the confirmed delete: %q", got)
	}
	w.want(200, nil, "POST", "/sess/trash/restore", `{"name":"v1"}`)
	w.refused(405, "GET", "/sess/save", "")
	w.refused(405, "POST", "/sess/list", `{}`)
	for _, target := range []string{"/sess/list?limit=abc", "/sess/list?limit=0", "/sess/list?limit=-1"} {
		if code, text := w.refused(400, "GET", target, ""); code != "usage" || !strings.Contains(text, "limit") {
			t.Errorf("GET %s: %s %q", target, code, text)
		}
	}
	// The text is the sentence of the command line.
	said := strings.TrimSpace(u.do("pin", "x1"))
	w.want(200, &c, "POST", "/sess/pin", `{"name":"v1"}`)
	if want := strings.ReplaceAll(said, "x1", "v1"); c.Text != want {
		t.Errorf("pin says %q, the command line %q", c.Text, want)
	}
}

// S0-08, S0-09, S0-10, S0-11, S0-12, S0-13, S0-14, S0-54, S0-55, S0-56, S0-57, S0-58, S0-59, S0-60: the
// routes below a session, as the Spec declares them.
func TestHTTPSessionRoutes(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "hello")
	u.do("--session=two", "chat", "--message", "other")
	u.do("--session=two", "save", "other")
	w := u.serve()
	const one = "/sessions/one/snapshots"
	if a := w.call("GET", one, ""); a.StatusCode != 200 || a.body != "[]\n" {
		t.Errorf("GET of no snapshots: %d %s", a.StatusCode, a.body)
	}
	var c changed
	reason := "before the \"big\" change; größer, 100%"
	body, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		t.Fatal(err)
	}
	w.want(201, &c, "POST", one, string(body))
	first := c.Data.Name
	if c.Data.Reason != reason || !regexp.MustCompile(`^manual-\d{8}T\d{9}Z`).MatchString(first) || c.Data.Automatic {
		t.Errorf("create: %+v", c)
	}
	for _, body := range []string{"", `{}`, `{"reason":""}`} {
		w.want(201, &c, "POST", one, body)
		if c.Data.Reason != "manual snapshot" {
			t.Errorf("create with the body %q: reason %q", body, c.Data.Reason)
		}
	}
	w.want(201, &c, "POST", one, `{"name":"selected"}`)
	id := c.Data.ID
	w.refused(400, "POST", one, `{"reason":"`+strings.Repeat("x", 1001)+`"}`)
	w.refused(400, "POST", one, `{"reason":["x"]}`)
	w.refused(400, "POST", one, `{"session":"two"}`)
	if code, _ := w.refused(409, "POST", one, `{"name":"selected"}`); code != "exists" {
		t.Errorf("create of a name that is taken: %s", code)
	}
	got := w.names(one)
	if len(got) != 5 || got[0] != "selected" || got[4] != first {
		t.Errorf("list: %q, want five, the newest first", got)
	}

	// Nothing is selected; the word wins over the snapshot of that name.
	if a := w.call("GET", one+"/selected", ""); a.StatusCode != 200 || a.body != "null\n" {
		t.Errorf("GET of no selection: %d %q", a.StatusCode, a.body)
	}
	w.want(200, nil, "POST", one+"/selected/clear", "")
	file := filepath.Join(u.home, "sessions", "default", "one.json")
	live, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w.want(200, nil, "POST", one+"/"+first+"/select", "")
	if got := u.do("--session=one", "selected"); !strings.Contains(got, first) {
		t.Errorf("another process says that the session shows %s", got)
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, live) {
		t.Errorf("selecting changed the file of the session (%v)", err)
	}
	var shown struct{ Name string }
	if w.want(200, &shown, "GET", one+"/selected", ""); shown.Name != first {
		t.Errorf("selected is %q, want %q", shown.Name, first)
	}
	w.want(200, nil, "POST", one+"/"+id+"/select", `{}`)
	if w.want(200, &shown, "GET", one+"/selected", ""); shown.Name != "selected" {
		t.Errorf("selected is %q, want the one of the id %s", shown.Name, id)
	}
	w.want(200, nil, "POST", one+"/selected/clear", "")
	w.want(200, nil, "POST", one+"/selected/clear", "")

	// Restoring is in place, and deleting is another thing than clearing.
	u.do("--session=one", "chat", "--message", "more")
	w.want(200, nil, "POST", one+"/"+first+"/restore", "")
	if n := len(u.messages("--session=one")); n != 2 {
		t.Errorf("after restoring: %d messages, want 2", n)
	}
	w.want(200, nil, "POST", one+"/"+id+"/select", "")
	w.want(200, nil, "DELETE", one+"/selected", "")
	if a := w.call("GET", one+"/selected", ""); a.body != "null\n" {
		t.Errorf("the snapshot that was selected is deleted, and selected is %s", a.body)
	}
	if got := w.names(one); slices.Contains(got, "selected") {
		t.Errorf("after deleting: %q", got)
	}

	for _, tt := range []struct {
		method, target string
		status         int
		code           string
	}{
		{"GET", "/sessions/nosuch/snapshots", 404, "not_found"},
		{"POST", "/sessions/nosuch/snapshots", 404, "not_found"},
		{"GET", "/sessions/nosuch/snapshots/selected", 404, "not_found"},
		{"POST", one + "/nosuch/select", 404, "not_found"},
		{"POST", one + "/nosuch/restore", 404, "not_found"},
		{"DELETE", one + "/nosuch", 404, "not_found"},
		{"POST", one + "/other/select", 404, "not_found"},
		{"POST", one + "/other/restore", 404, "not_found"},
		{"DELETE", one + "/other", 404, "not_found"},
		{"PUT", one, 405, "usage"},
		{"GET", one + "/" + first, 405, "usage"},
	} {
		if code, text := w.refused(tt.status, tt.method, tt.target, ""); code != tt.code {
			t.Errorf("%s %s: %s %q, want %s", tt.method, tt.target, code, text, tt.code)
		}
	}
	if got := w.names("/sessions/two/snapshots"); !slices.Equal(got, []string{"other"}) {
		t.Errorf("the snapshots of the other session: %q", got)
	}
}

// S4-15, S4-91, S4-92: A name in a URL is decoded once, and one that leads
// elsewhere is refused as a name, not as a route.
func TestHTTPNames(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "hello")
	u.do("--session=one", "save", "v1")
	for _, dir := range []string{u.dir, u.home, filepath.Join(u.home, "agents")} {
		if err := os.WriteFile(filepath.Join(dir, "canary.sess.json"), []byte(`{"format":"sess/1"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := u.serve()
	if got := w.names("/sess/list?session=one"); !slices.Equal(got, []string{"v1"}) { // also: the plugin runs
		t.Fatalf("list: %q", got)
	}
	check := u.unchanged()
	names := []string{
		"../../canary", "x/../../../canary", "..%2f..%2fcanary", "%2e%2e/canary", "/somewhere/canary", `C:\canary`, `..\canary`, "a\x00b", ".", "..", "~", "",
		"ыыы", "a b", "a+b", "100%", "a&b", "x;y", "q?z", "h#1", "a/b", "%252e",
	}
	for _, name := range names {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		escaped := url.PathEscape(name)
		if name == "." || name == ".." {
			escaped = strings.ReplaceAll(name, ".", "%2E") // clients take such segments away
		}
		for _, tt := range []struct{ method, target, body string }{
			{"POST", "/sess/save", fmt.Sprintf(`{"name":%s}`, quoted)},
			{"POST", "/sess/load", fmt.Sprintf(`{"name":%s}`, quoted)},
			{"POST", "/sess/delete", fmt.Sprintf(`{"name":%s}`, quoted)},
			{"POST", "/sess/rename", fmt.Sprintf(`{"from":"v1","to":%s}`, quoted)},
			{"POST", "/sess/copy", fmt.Sprintf(`{"from":"v1","to":%s}`, quoted)},
			{"POST", "/sess/tag", fmt.Sprintf(`{"name":%s,"tags":{"a":"b"}}`, quoted)},
			{"GET", "/sess/view?name=" + url.QueryEscape(name), ""},
			{"POST", "/sessions/one/snapshots/" + escaped + "/select", ""},
			{"POST", "/sessions/one/snapshots/" + escaped + "/restore", ""},
			{"DELETE", "/sessions/one/snapshots/" + escaped, ""},
		} {
			code, text := w.refused(400, tt.method, tt.target, tt.body)
			if code != "invalid_name" && (name != "" || code != "usage") {
				t.Errorf("%s %s %s: %s %q, want invalid_name", tt.method, tt.target, tt.body, code, text)
			}
		}
		// Sessions and projects from elsewhere may have any name that is no path.
		if !strings.ContainsAny(name, "/\\\x00") && strings.Trim(name, ".") != "" {
			continue
		}
		for _, target := range []string{
			"/sessions/" + escaped + "/snapshots/selected", "/sess/selected?session=" + url.QueryEscape(name), "/sess/selected?project=" + url.QueryEscape(name),
		} {
			w.refused(400, "GET", target, "")
		}
	}
	// A malformed escape does not reach the router; net/http answers.
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /sessions/%%zz/snapshots HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", webToken)
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("a malformed path: %q, %v; want 400", answer, err)
	}
	check()

	// What is allowed comes back as it was.
	for _, name := range []string{"a.b-c_d", "A1~", "100.0"} {
		var c changed
		w.want(200, &c, "POST", "/sess/save", fmt.Sprintf(`{"name":%q,"session":"one"}`, name))
		w.want(200, nil, "GET", "/sess/view?name="+url.QueryEscape(name), "")
		w.want(200, nil, "POST", "/sessions/one/snapshots/"+url.PathEscape(name)+"/restore", "")
		if !slices.Contains(u.names("--include-auto"), name) || c.Data.Name != name {
			t.Errorf("%q was saved as %q", name, c.Data.Name)
		}
		w.want(200, nil, "DELETE", "/sessions/one/snapshots/"+strings.ReplaceAll(name, "a", "%61"), "")
	}
}

// Walking through the pages shows every snapshot that stays exactly once, and a
// page says how many there are and where the next one is.
func TestHTTPPages(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	w := u.serve()
	const many = 24
	for i := range many {
		w.want(200, nil, "POST", "/sess/save", fmt.Sprintf(`{"name":"s%03d"}`, i))
	}
	seen := map[string]int{}
	next := regexp.MustCompile(`^<(/sess/list\?[^>]+)>; rel="next"$`)
	for target, pages := "/sess/list?limit=5&prefix=s", 0; target != ""; pages++ {
		var list []struct{ Name string }
		a := w.want(200, &list, "GET", target, "")
		if total := fmt.Sprint(many); a.Header.Get("X-Total-Count") != total || len(list) > 5 || pages > many {
			t.Fatalf("GET %s: %d items, X-Total-Count %s; want at most 5 of %s", target, len(list), a.Header.Get("X-Total-Count"), total)
		}
		for _, s := range list {
			seen[s.Name]++
		}
		if pages == 0 { // one that was seen goes, another one comes
			w.want(200, nil, "POST", "/sess/delete", fmt.Sprintf(`{"name":%q}`, list[0].Name))
			w.want(200, nil, "POST", "/sess/save", `{"name":"s-new"}`)
		}
		target = ""
		if link := next.FindStringSubmatch(a.Header.Get("Link")); link != nil {
			target = link[1]
		}
	}
	for i := range many {
		if name := fmt.Sprintf("s%03d", i); seen[name] != 1 {
			t.Errorf("%s was shown %d times, want once", name, seen[name])
		}
	}
	if a := w.want(200, nil, "GET", "/sess/list?limit=100000", ""); a.Header.Get("Link") != "" {
		t.Errorf("the whole list has a next page: %s", a.Header.Get("Link"))
	}
}

// S4-63, S4-64, S4-65, S4-71, S4-72: the two settings switch off what they name and
// nothing else.
func TestHTTPSurfacesOff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		config       string
		routes, tool bool
	}{
		{`{"httpRoutes":false}`, false, true},
		{`{"exposeTool":false}`, true, false},
	} {
		u := newUser(t)
		u.configure(tt.config)
		w := u.serve()
		list := w.call("GET", "/sess/list", "")
		below := w.call("GET", "/sessions/one/snapshots/selected", "")
		if got := list.StatusCode == 200; got != tt.routes {
			t.Errorf("with %s: GET /sess/list gives %d %s", tt.config, list.StatusCode, list.body)
		}
		if !tt.routes && (list.StatusCode != 404 || !strings.Contains(list.body, "plugins.entries.sess.config.httpRoutes") || !strings.Contains(below.body, "httpRoutes")) {
			t.Errorf("with %s: %d %s, %d %s; want 404 that names the key", tt.config, list.StatusCode, list.body, below.StatusCode, below.body)
		}
		tool := w.call("POST", "/tools/invoke", `{"tool":"sess_manage","args":{"action":"list"}}`)
		if got := tool.StatusCode == 200; got != tt.tool {
			t.Errorf("with %s: the tool gives %d %s", tt.config, tool.StatusCode, tool.body)
		}
		if !tt.tool && (tool.StatusCode != 404 || !strings.Contains(tool.body, "plugins.entries.sess.config.exposeTool")) {
			t.Errorf("with %s: the tool gives %d %s, want 404 that names the key", tt.config, tool.StatusCode, tool.body)
		}
		w.want(200, nil, "GET", "/sessions/list", "")
		u.do("list")
	}
}

// The command of a plugin that is switched off is not unknown.
func TestHTTPPluginOff(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.config(`{"plugins":{"entries":{"sess":{"enabled":false}}}}`)
	w := u.serve()
	for _, target := range []string{"/sess/list", "/sess/nosuch", "/sess"} {
		if code, text := w.refused(503, "GET", target, ""); code != "unavailable" || !strings.Contains(text, "plugin sess is switched off") {
			t.Errorf("GET %s: %s %q", target, code, text)
		}
	}
	if code, _ := w.refused(404, "GET", "/nosuch/list", ""); code != "not_found" {
		t.Errorf("GET of a command that nobody has: %s", code)
	}
	if a := w.call("GET", "/tools", ""); a.StatusCode != 200 || strings.Contains(a.body, "sess_manage") {
		t.Errorf("GET /tools: %d %s", a.StatusCode, a.body)
	}
	w.want(200, nil, "GET", "/plugins/list", "")
}

// What a tool call over HTTP answers, with arguments as models send them.
func TestHTTPTool(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	w := u.serve()
	call := func(status int, args string) (text, code string) {
		t.Helper()
		var out struct {
			OK     bool
			Result struct{ Text string }
			Error  struct{ Code, Message, Hint string }
		}
		w.want(status, &out, "POST", "/tools/invoke", `{"tool":"sess_manage","args":`+args+`}`)
		if out.OK != (status == 200) {
			t.Errorf("%s: ok is %v with status %d", args, out.OK, status)
		}
		return out.Result.Text, out.Error.Code
	}
	if text, _ := call(200, `{"action":"SAVE","name":42,"tags":"{\"a\":\"b\"}"}`); !strings.HasPrefix(text, "saved 42") {
		t.Errorf("save: %q", text)
	}
	call(200, `{"action":"list","limit":"5"}`)
	for args, status := range map[string]int{
		`{"action":"list","limit":true}`:                        400,
		`{"action":"save","name":null}`:                         400,
		`{"action":"save","nmae":"x"}`:                          400,
		`{"action":"delete","prefix":"4","confirm":"true"}`:     400,
		`{"action":"load","name":"nosuch"}`:                     404,
		`{"action":"save","name":"42"}`:                         409,
		`{"name":"x"}`:                                          400,
		`{"action":"op open","name":"x"}`:                       400,
		`{"action":"save","name":"x","trigger":"autosave"}`:     400,
		`{"action":{"action":"save"},"name":{"name":"nested"}}`: 400,
	} {
		call(status, args)
	}
	call(200, `{"action":"delete","prefix":"4","confirm":true}`)
	if got := w.names("/sess/list"); len(got) != 0 {
		t.Errorf("after the confirmed delete: %q", got)
	}
}

// A damaged snapshot is an item of the list, and told of where it is asked for.
func TestHTTPDamagedSnapshot(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "v1")
	if err := os.WriteFile(filepath.Join(u.home, poolAt, "empty.sess.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := u.serve()
	if got := w.names("/sess/list"); len(got) != 2 {
		t.Errorf("list: %q, want both", got)
	}
	if code, _ := w.refused(400, "POST", "/sess/load", `{"name":"empty"}`); code != "corrupt" {
		t.Errorf("load of a damaged snapshot: %s, want corrupt", code)
	}
	session := strings.TrimSpace(u.do("sessions", "list", "--json"))
	var rows []struct{ ID string }
	if err := json.Unmarshal([]byte(session), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("sessions list: %v\n%s", err, session)
	}
	w.refused(404, "POST", "/sessions/"+rows[0].ID+"/snapshots/empty/select", "")
	started := time.Now()
	w.refused(400, "GET", "/sess/view?name=empty", "")
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("telling so took %v", took)
	}
}

// A request that only reads makes nothing, also where it names a project that
// is not there: neither a session nor another active one.
func TestHTTPReadsMakeNothing(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	w := u.serve()
	w.want(200, nil, "GET", "/sess/list", "") // the plugin runs
	check := u.unchanged()
	for _, target := range []string{
		"/sess/list?project=nowhere", "/sess/selected?project=nowhere", "/sess/trash/list?project=nowhere", "/sess/verify?project=nowhere",
		"/sessions/list?project=nowhere", "/plugins/list", "/tools", "/openapi.json", "/metrics", "/readyz",
	} {
		w.want(200, nil, "GET", target, "")
	}
	w.refused(400, "GET", "/sess/view?project=nowhere&name=v1", "")
	check()
}

// The document that describes the routes is valid for the real commands, and
// every route that it names is there.
func TestHTTPDocument(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "hello")
	w := u.serve()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(w.want(200, nil, "GET", "/openapi.json", "").body))
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatalf("the document is not valid: %v", err)
	}
	if n := doc.Paths.Len(); n < 40 {
		t.Errorf("the document has %d paths, want those of all commands", n)
	}
	check := u.unchanged()
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if method == "PUT" && path == "/sessions/manifest" {
				continue // keys that it does not know are dropped
			}
			// A field that no verb has is refused before the verb runs.
			target, body := strings.NewReplacer("{id}", "one", "{snapshot}", "v1").Replace(path), `{"noSuchField":1}`
			if method == "GET" || method == "DELETE" {
				target, body = target+"?noSuchField=1", ""
			}
			if a := w.call(method, target, body); a.StatusCode != 400 && !slices.Contains([]string{"/", "/healthz", "/readyz", "/metrics", "/tools", "/openapi.json", "/rpc", "/client.js", "/client.d.ts", "/v1/models"}, path) {
				t.Errorf("%s %s: %d %s, want the field refused", method, target, a.StatusCode, a.body)
			} else if a.StatusCode == 404 || a.StatusCode == 405 {
				t.Errorf("%s %s: %d %s, and the document names it", method, target, a.StatusCode, a.body)
			}
		}
	}
	check()
}
