package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"testing"

	"sess/host/server"
	"sess/plugin"
)

func TestRoutes(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	tests := []struct {
		method, target, body string
		status               int
		want                 string // in the body
	}{
		{"GET", "/notes/list", "", 200, `"caller":"http"`},
		{"GET", "/notes/ls?limit=5&tag=a=b&tag=c%26=d;e&session=s1&agent=x&project=p", "", 200, `"tag":["a=b","c\u0026=d;e"]`},
		{"GET", "/notes/list?name=a+b%2B", "", 200, `"name":"a b+"`},
		{"GET", "/notes/list?limit=5&limit=6", "", 400, "limit is given twice"},
		{"GET", "/notes/list?limit=x", "", 400, `limit: \"x\" is not a whole number`},
		{"GET", "/notes/list?nmae=x", "", 400, `did you mean name?`},
		{"GET", "/notes/list?name=%zz", "", 400, "percent-encoded"},
		{"GET", "/notes/list?name=%ff", "", 400, "percent-encoded"},
		{"GET", "/notes/list", `{"name":"x"}`, 400, "takes no body"},
		{"POST", "/notes/save", `{"name":"v1","tags":{"a":"b"}}`, 200, `"text":"done"`},
		{"POST", "/notes/save", "", 200, `"text":"done"`},
		{"POST", "/notes/save?name=v1", "", 400, "takes no query"},
		{"POST", "/notes/save", `{"name":null}`, 400, "null is not a string"},
		{"POST", "/notes/save", `{"name":"a"`, 400, "bad JSON"},
		{"POST", "/notes/save", `[]`, 400, "not a JSON object"},
		{"POST", "/notes/save", `{"name":"a","turn":"t"}`, 400, `unknown field \"turn\"`},
		{"POST", "/notes/trash/restore", `{"name":"v1"}`, 200, `"name":"v1"`},
		{"POST", "/notes/delete", `{"confirm":true}`, 200, `"data":null`},
		{"POST", "/notes/delete", `{"confirm":"true"}`, 400, "is not the boolean true or false"},
		{"POST", "/notes/list", "", 405, "GET or HEAD"},
		{"PROPFIND", "/notes/list", "", 405, "GET or HEAD"},
		{"PROPFIND", "/healthz", "", 405, ""},
		{"BREW", "/healthz", "", 405, "GET or HEAD"},
		{"BREW", "/metrics", "", 405, "GET or HEAD"},
		{"DELETE", "/healthz", "", 405, "GET or HEAD"},
		{"GET", "/notes/lst", "", 404, "did you mean list"},
		{"GET", "/notes/trash", "", 404, "trash restore"},
		{"GET", "/notes", "", 404, "no verb is given"},
		{"GET", "/notes/op", "", 404, "unknown verb"},
		{"GET", "/notes/list/", "", 404, "there is nothing at /notes/list/"},
		{"GET", "/notes//list", "", 404, "there is nothing at /notes//list"},
		{"POST", "/plugins/install", "{}", 403, "for people only"},
		{"GET", "/nowhere", "", 404, "openapi.json"},
		{"GET", "/off/list", "", 503, "switched off"},
		{"GET", "/wrong/list", "", 400, "objects to its configuration"},
		{"GET", "/notes-of/s%2F1/items", "", 200, `"session":"s/1"`},
		{"GET", "/notes-of/s1/items?session=s2", "", 400, "session is what"},
		{"GET", "/notes-of/s1/items/chosen", "", 200, `"name":"chosen"`},
		{"POST", "/notes-of/s1/items", `{"reason":"why, and \"how\""}`, 201, `"reason":"why, and \"how\""`},
		{"POST", "/notes-of/s1/items", "", 201, `"reason":""`},
		{"POST", "/notes-of/s1/items", `{"reason":["x"]}`, 400, "is not a string"},
		{"POST", "/notes-of/s1/items", `{"name":"mine"}`, 201, `"name":"mine"`},
		{"DELETE", "/notes-of/s1/items/chosen", "", 200, `"text":"deleted"`},
		{"GET", "/notes-of/s1/items/not_found", "", 404, `"code":"not_found"`},
		{"GET", "/notes-of/s1/items/busy", "", 409, `"code":"busy"`},
		{"PUT", "/notes-of/s1/items/busy", "", 405, "DELETE or GET or HEAD"},
		{"GET", "/plugins/inspect?id=x", "", 404, `"code":"not_found"`},
		{"GET", "/", "", 200, `"version":"9.9"`},
		{"GET", "/healthz", "", 200, `{"ok":true,"status":"live"}`},
		{"GET", "/readyz", "", 200, `"ok":true`},
	}
	for _, tt := range tests {
		a := g.ask(t, tt.method, tt.target, tt.body)
		if a.status != tt.status || !strings.Contains(a.body, tt.want) {
			t.Errorf("%s %s %s: %d %s\nwant %d with %s", tt.method, tt.target, tt.body, a.status, a.body, tt.status, tt.want)
		}
		if a.status >= 400 {
			failure(t, a)
		}
		if a.status == http.StatusMethodNotAllowed && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow in %v", tt.method, tt.target, a.header)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		} {
			if a.header.Get(name) != want {
				t.Errorf("%s %s: %s is %q, want %q", tt.method, tt.target, name, a.header.Get(name), want)
			}
		}
	}
}

// Every code has its status: 400 for what the caller of a documented route can
// mend, and the one of the table everywhere else.
func TestStatusOfEveryCode(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	for _, info := range plugin.Codes() {
		want := info.HTTP
		if info.Code != plugin.Denied && want < 500 {
			want = http.StatusBadRequest
		}
		for target, want := range map[string]int{
			"/notes/fail?code=" + string(info.Code):   want,
			"/notes-of/s1/items/" + string(info.Code): info.HTTP,
		} {
			a := g.ask(t, "GET", target, "")
			if a.status != want {
				t.Errorf("GET %s: status %d, want %d", target, a.status, want)
			}
			if code, text := failure(t, a); code != string(info.Code) || !strings.HasPrefix(text, "it failed; ") {
				t.Errorf("GET %s: %s %q, want the code and text of the error", target, code, text)
			}
		}
	}
}

func TestHeadersOfAnAnswer(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	a := g.ask(t, "GET", "/notes/list?limit=2&after=old&name=noted", "", "X-Request-Id: mine-1")
	for name, want := range map[string]string{
		"X-Request-Id":  "mine-1",
		"X-Total-Count": "7",
		"Link":          `</notes/list?limit=2&name=noted&after=c%3D1%26x>; rel="next"`,
		"X-Notices":     `["sch\u00f6n","the disk is full"]`,
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, call := g.host.reached(); call.RequestID != "mine-1" {
		t.Errorf("the call has the request id %q", call.RequestID)
	}
	if a := g.ask(t, "GET", "/notes/list", "", "X-Request-Id: a\tb"); len(a.header.Get("X-Request-Id")) != 36 {
		t.Errorf("a bad request id gives %q, want one that was made", a.header.Get("X-Request-Id"))
	}
	head := g.ask(t, "HEAD", "/notes/list?limit=2&after=old&name=noted", "")
	if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != fmt.Sprint(len(a.body)) || head.header.Get("X-Total-Count") != "7" {
		t.Errorf("HEAD: %d %q %v, want the headers of GET without its body", head.status, head.body, head.header)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{BodyLimit: 2000})
	large := `{"name":"` + strings.Repeat("x", 2000) + `"}`
	for name, tt := range map[string]struct {
		body, headers string
		status        int
	}{
		"form":           {`{"name":"x"}`, "Content-Type: application/x-www-form-urlencoded", 415},
		"text":           {`{"name":"x"}`, "Content-Type: text/plain", 415},
		"no type":        {`{"name":"x"}`, "Content-Type: ", 415},
		"another script": {`{"name":"x"}`, "Content-Type: application/json; charset=utf-16", 415},
		"compressed":     {`{"name":"x"}`, "Content-Encoding: gzip", 415},
		"with charset":   {`{"name":"x"}`, "Content-Type: application/json; charset=UTF-8", 200},
		"too large":      {large, "Content-Type: application/json", 413},
	} {
		if a := g.ask(t, "POST", "/notes/save", tt.body, tt.headers); a.status != tt.status {
			t.Errorf("%s: status %d %s, want %d", name, a.status, a.body, tt.status)
		}
	}
	// Without a length the end of what is allowed shows only while reading.
	req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/notes/save", io.MultiReader(strings.NewReader(large)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body without length: status %d, want 413", resp.StatusCode)
	}
}

// A client that sends all of a body before it reads gets the answer, whatever it is
// that keeps the body from being read.
func TestAnswerToABodyThatIsNotRead(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	const size = 3 * server.DefaultBodyLimit
	whole, chunked := fmt.Sprintf("Content-Length: %d\r\n\r\n", size), "Transfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct {
		request, token, headers string
		status                  int
		code                    string
	}{
		{"PUT /sessions/s1", token, whole, 413, "usage"},
		{"PUT /sessions/s1", token, chunked, 413, "usage"},
		{"POST /rpc", token, whole, 413, "usage"},
		{"POST /notes/save", token, chunked, 413, "usage"},
		{"POST /notes/nosuch", token, whole, 404, "usage"},
		{"DELETE /healthz", token, chunked, 405, "usage"},
		{"PUT /sessions/s1", "wrong", whole, 401, "denied"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		sent := func() error {
			_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s", tt.request, tt.token, tt.headers)
			var body io.Writer = conn
			if tt.headers == chunked {
				w := httputil.NewChunkedWriter(conn)
				defer func() { _, _ = io.WriteString(conn, "\r\n") }() // what is wrong with it is told by the read
				defer w.Close()
				body = w
			}
			if err == nil {
				_, err = io.CopyN(body, endless{}, size)
			}
			return err
		}
		if err := sent(); err != nil {
			t.Errorf("%s %q: the body was not taken: %v", tt.request, tt.headers, err)
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s %q: no answer: %v", tt.request, tt.headers, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), fmt.Sprintf(`"code":%q`, tt.code)) {
			t.Errorf("%s %q: %d %s, %v, want %d %s", tt.request, tt.headers, resp.StatusCode, body, err, tt.status, tt.code)
		}
	}
}

// endless is blanks without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A panic becomes an answer with an incident that the log has too; what it said
// stays in the log.
func TestPanic(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	a := g.ask(t, "GET", "/notes/list?name=panic", "")
	code, text := failure(t, a)
	incident := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(text)
	if a.status != 500 || code != "internal" || incident == "" || strings.Contains(a.body, "secret") {
		t.Fatalf("a panic gives %d %s", a.status, a.body)
	}
	if log := g.log.String(); !strings.Contains(log, incident) || !strings.Contains(log, "fake_test.go") {
		t.Errorf("incident %s and its stack are not in the log:\n%s", incident, log)
	}
	if a := g.ask(t, "GET", "/notes/list", ""); a.status != 200 {
		t.Errorf("after a panic: status %d", a.status)
	}
}

// A client that goes away ends its call, and a server that closes lets calls
// finish.
func TestEndOfACall(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	began, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	h.add(t, "slow", "slow-plugin", func(ctx context.Context) error {
		began <- struct{}{}
		select {
		case <-ctx.Done():
			ended <- context.Cause(ctx)
			return ctx.Err()
		case <-release:
			return nil
		}
	})
	g := start(t, h, server.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /slow/wait HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
	<-began
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the call of a client that went away has no cause of its end")
	}
	got := make(chan answer, 1)
	go func() { got <- g.ask(t, "GET", "/slow/wait", "") }()
	<-began
	g.stop()
	close(release)
	if a := <-got; a.status != 200 || a.body != "\"waited\"\n" {
		t.Errorf("a call while the server closes: %d %s", a.status, a.body)
	}
}

func TestServeCancelsWhatOutlastsTheGraceTime(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	began, ended := make(chan struct{}), make(chan struct{})
	h.add(t, "slow", "slow-plugin", func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	g := start(t, h, server.Options{Grace: 1})
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /slow/wait HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token)
	<-began
	g.stop()
	<-ended
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 503 || !strings.Contains(string(body), "slow did not come to its end: the gateway is stopping") {
		t.Errorf("the call that was cut short answered %d %s, %v", resp.StatusCode, body, err)
	}
}

// What the commands offer is asked for with each request.
func TestCommandsComeAndGo(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := start(t, h, server.Options{})
	if a := g.ask(t, "GET", "/more/list", ""); a.status != 404 {
		t.Errorf("before: status %d", a.status)
	}
	h.add(t, "more", "more-plugin", nil)
	if a := g.ask(t, "GET", "/more/list", ""); a.status != 200 {
		t.Errorf("after it came: status %d", a.status)
	}
	h.mu.Lock()
	h.commands[len(h.commands)-1].HTTP = false
	h.mu.Unlock()
	for _, target := range []string{"/more/list", "/more/nosuch", "/more-of/s/items"} {
		a := g.ask(t, "GET", target, "")
		if _, text := failure(t, a); a.status != 404 || !strings.Contains(text, "plugins.entries.more-plugin.config.httpRoutes") {
			t.Errorf("GET %s of a command without routes: %d %s", target, a.status, a.body)
		}
	}
	if a := g.ask(t, "POST", "/tools/invoke", `{"tool":"more_manage","args":{"action":"list"}}`); a.status != 200 {
		t.Errorf("the tool of a command without routes: %d %s", a.status, a.body)
	}
	h.mu.Lock()
	h.commands[len(h.commands)-1].HTTP, h.commands[len(h.commands)-1].Tool = true, false
	h.mu.Unlock()
	if a := g.ask(t, "GET", "/more/list", ""); a.status != 200 {
		t.Errorf("the routes of a command without tool: status %d", a.status)
	}
	if a := g.ask(t, "POST", "/tools/invoke", `{"tool":"more_manage","args":{"action":"list"}}`); a.status != 404 || !strings.Contains(a.body, "config.exposeTool") {
		t.Errorf("a tool that is switched off: %d %s", a.status, a.body)
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	var tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	if a := g.ask(t, "GET", "/tools", ""); json.Unmarshal([]byte(a.body), &tools) != nil || len(tools) != 1 || tools[0].Name != "notes_manage" || tools[0].Description == "" || len(tools[0].InputSchema) == 0 {
		t.Fatalf("GET /tools: %d %s", a.status, a.body)
	}
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"tool":"notes_manage","args":{"action":"list","limit":"5"},"session":"s1"}`, 200, `"session":"s1"`},
		{`{"name":"notes_manage","arguments":"{\"action\":\"LS\"}"}`, 200, `"caller":"tool"`},
		{`{"tool":"notes_manage","args":{"action":"save"}}`, 200, `{"ok":true,"result":{"text":"done","data":{`},
		{`{"tool":"notes_manage","args":{"action":"delete","confirm":true}}`, 200, `{"ok":true,"result":{"text":"deleted","data":null}}`},
		{`{"tool":"notes_manage","args":{"action":"delete","confirm":"true"}}`, 400, `{"ok":false,"error":{"code":"usage"`},
		{`{"tool":"notes_manage","args":{"action":"fail","code":"busy"}}`, 409, `"message":"it failed","hint":"do otherwise"`},
		{`{"tool":"notes_manage","args":{}}`, 400, "the actions are list"},
		{`{"tool":"notes_manage"}`, 400, "action is missing"},
		{`{"tool":"notes_manage","args":[1]}`, 400, "is not an object"},
		{`{"tool":"notes_manage","name":"x"}`, 400, "both given"},
		{`{"tool":"notes_manage","args":{"session":"a"},"session":"b"}`, 400, "session is given twice"},
		{`{"tool":"notes_manage","arg":{}}`, 400, "did you mean args"},
		{`{"tool":"plugins_manage","args":{}}`, 404, "is switched off"},
		{`{"tool":"nosuch","args":{}}`, 404, "the tools are notes_manage"},
		{`{"tool":42}`, 400, "is not a string"},
		{`{}`, 400, "tool is missing"},
	} {
		a := g.ask(t, "POST", "/tools/invoke", tt.body)
		if a.status != tt.status || !strings.Contains(a.body, tt.want) || !strings.HasPrefix(a.body, `{"ok":`) {
			t.Errorf("%s: %d %s\nwant %d with %s", tt.body, a.status, a.body, tt.status, tt.want)
		}
	}
}

func TestReadyAndMetrics(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := start(t, h, server.Options{})
	g.ask(t, "GET", "/notes/list", "")
	g.ask(t, "GET", "/notes/fail?code=busy", "")
	g.ask(t, "GET", "/notes/list", "", "-")
	g.ask(t, "GET", "/notes/list?name=panic", "")
	g.ask(t, "POST", "/tools/invoke", `{"tool":"notes_manage","args":{"action":"save"}}`)
	for i, call := range []string{
		`"notes.invoke","params":{"action":"LS"}`, `"notes.invoke","params":{"argv":["trash","restore"]}`, `"notes.invoke","params":{"action":"nope"}`,
		`"plugins.list"`, `"notes.panic"`, `"no.such.method"`,
	} {
		if a := g.ask(t, "POST", "/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%s}`, i, call)); a.status != 200 {
			t.Errorf("POST /rpc of %s: %d %s", call, a.status, a.body)
		}
	}
	a := g.ask(t, "GET", "/metrics", "")
	if a.status != 200 || a.header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Fatalf("GET /metrics: %d %v", a.status, a.header)
	}
	for _, want := range []string{
		`sess_build_info{version="9.9",go_version="`,
		`sess_calls_total{surface="http",command="notes",verb="list",code="ok"} 1`,
		`sess_calls_total{surface="http",command="notes",verb="fail",code="busy"} 1`,
		`sess_call_duration_seconds_bucket{surface="http",command="notes",verb="list",le="+Inf"} 2`,
		`sess_call_duration_seconds_count{surface="http",command="notes",verb="list"} 2`,
		`sess_calls_total{surface="http",command="notes",verb="list",code="internal"} 1`,
		`sess_calls_total{surface="tool",command="notes",verb="save",code="ok"} 1`,
		`sess_calls_total{surface="rpc",command="notes",verb="list",code="ok"} 1`,
		`sess_calls_total{surface="rpc",command="notes",verb="trash restore",code="ok"} 1`,
		`sess_calls_total{surface="rpc",command="notes",verb="invoke",code="ok"} 1`,
		`sess_calls_total{surface="rpc",command="notes",verb="panic",code="internal"} 1`,
		`sess_calls_total{surface="rpc",command="plugins",verb="list",code="ok"} 1`,
		`sess_calls_total{surface="rpc",command="unknown",verb="unknown",code="usage"} 1`,
		`sess_calls_in_flight{surface="http"} 0`,
		`sess_calls_in_flight{surface="rpc"} 0`,
		`sess_http_requests_total{status="401"} 1`,
		`sess_plugin_state{plugin="notes-plugin",state="ready"} 1`,
		`sess_plugin_restarts_total{plugin="notes-plugin"} 2`,
		"\ngo_goroutines ",
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("/metrics has no %s:\n%s", want, a.body)
		}
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"\n]*"(,[a-z_]+="[^"\n]*")*\})? [0-9.e+-]+)$`)
	for l := range strings.SplitSeq(strings.TrimSuffix(a.body, "\n"), "\n") {
		if !line.MatchString(l) {
			t.Errorf("/metrics has a line that is none of the format: %q", l)
		}
	}
	h.mu.Lock()
	h.ready = plugin.Errorf(plugin.Unavailable, "plugin notes-plugin does not start")
	h.mu.Unlock()
	if a := g.ask(t, "GET", "/readyz", ""); a.status != 503 || a.body != `{"ok":false,"status":"not ready","failing":["plugin notes-plugin does not start"]}`+"\n" {
		t.Errorf("GET /readyz of a host that is not ready: %d %s", a.status, a.body)
	}
}
