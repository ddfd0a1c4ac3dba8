package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sess/plugin"
)

// mcpClient is the protocol's official client. changed receives a value whenever
// the server says that its tools have changed.
func mcpClient(changed chan<- struct{}, o mcp.ClientOptions) *mcp.Client {
	o.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	return mcp.NewClient(&mcp.Implementation{Name: "tests", Version: "1"}, &o)
}

// connect opens a session that ends with the test.
func connect(t testing.TB, c *mcp.Client, to mcp.Transport) *mcp.ClientSession {
	t.Helper()
	session, err := c.Connect(t.Context(), to, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // a test that is about its end has closed it
	return session
}

// mcpStdio starts the program as an agent does, and connects to it.
func (u *user) mcpStdio(args ...string) *mcp.ClientSession {
	u.t.Helper()
	return connect(u.t, mcpClient(nil, mcp.ClientOptions{}), &mcp.CommandTransport{Command: u.command(append([]string{"mcp"}, args...)...)})
}

// mcp connects to the gateway over HTTP.
func (g *gateway) mcp() *mcp.ClientSession {
	g.t.Helper()
	return connect(g.t, mcpClient(nil, mcp.ClientOptions{}), g.asker().mcp())
}

// mcp is the way to a gateway.
func (a asker) mcp() mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: a.url + "/mcp", HTTPClient: &http.Client{Transport: withToken(a.token)}, MaxRetries: -1}
}

// withToken shows a token with every request.
type withToken string

func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

// callSess calls the tool of the sess plugin; args is an object.
func callSess(t testing.TB, session *mcp.ClientSession, args string) *mcp.CallToolResult {
	t.Helper()
	answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sess_manage", Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatalf("sess_manage %s: %v", args, err)
	}
	return answer
}

// toolText is what a model is told by an answer.
func toolText(t testing.TB, answer *mcp.CallToolResult) string {
	t.Helper()
	if len(answer.Content) != 1 {
		t.Fatalf("the answer has %d contents, want one text", len(answer.Content))
	}
	text, ok := answer.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("the answer has the content %T, want a text", answer.Content[0])
	}
	return text.Text
}

// structuredAnswer is what programs are told by an answer.
type structuredAnswer struct {
	Text    string
	Data    json.RawMessage
	Notices []string
	Page    plugin.Page
	Error   *struct {
		Code          plugin.Code
		Message, Hint string
	}
}

// structured is what programs are told by an answer; it is empty where the answer
// has only a text.
func structured(t testing.TB, answer *mcp.CallToolResult) (s structuredAnswer) {
	t.Helper()
	data, err := json.Marshal(answer.StructuredContent)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		t.Fatalf("the structured content: %v\n%s", err, data)
	}
	if answer.StructuredContent != nil && answer.IsError != (s.Error != nil) {
		t.Fatalf("an answer that is an error or is none (%v): %s", answer.IsError, data)
	}
	return s
}

// code is that of an error; "" is a success.
func (s *structuredAnswer) code() plugin.Code {
	if s.Error == nil {
		return ""
	}
	return s.Error.Code
}

// sameJSON reports whether two texts are the same JSON value.
func sameJSON(one, other []byte) bool {
	var a, b any
	return json.Unmarshal(one, &a) == nil && json.Unmarshal(other, &b) == nil && reflect.DeepEqual(a, b)
}

// overMCP runs a test over both transports; u has a home, in which a gateway runs
// for the second.
func overMCP(t *testing.T, prepare func(u *user), test func(t *testing.T, u *user, open func(mcp.ClientOptions, chan<- struct{}) *mcp.ClientSession)) {
	t.Helper()
	for _, transport := range []string{"stdio", "stdio beside a gateway", "HTTP"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			prepare(u)
			var g *gateway
			if transport != "stdio" {
				g = u.gateway()
			}
			test(t, u, func(o mcp.ClientOptions, changed chan<- struct{}) *mcp.ClientSession {
				t.Helper()
				if transport == "HTTP" {
					return connect(t, mcpClient(changed, o), g.asker().mcp())
				}
				return connect(t, mcpClient(changed, o), &mcp.CommandTransport{Command: u.command("mcp")})
			})
		})
	}
}

// An agent is told of the tools of the plugins, and what their actions do to
// stored data. Arguments are taken as models send them: numbers and lists that are
// written in strings, but no other type, and nothing that is not known. What is
// refused changes nothing and is said in the answer.
func TestMCPTool(t *testing.T) {
	t.Parallel()
	overMCP(t, func(u *user) {
		u.askNobody()
		u.do("chat", "--message", "hello")
	}, func(t *testing.T, u *user, open func(mcp.ClientOptions, chan<- struct{}) *mcp.ClientSession) {
		session := open(mcp.ClientOptions{}, nil)
		list, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			if tool.Name != "sess_manage" {
				continue
			}
			a := tool.Annotations
			if a == nil || a.ReadOnlyHint || a.DestructiveHint == nil || !*a.DestructiveHint || !strings.Contains(tool.Description, "Named snapshots") {
				t.Errorf("sess_manage is told of as %+v, %q", a, tool.Description)
			}
			schema, ok := tool.InputSchema.(map[string]any)
			if !ok || schema["type"] != "object" {
				t.Errorf("its schema is %v", tool.InputSchema)
			}
		}
		if !slices.Contains(names, "sess_manage") || !slices.Contains(names, "messages_manage") {
			t.Errorf("the tools are %q", names)
		}

		for _, tt := range []struct {
			args string
			code plugin.Code
			text string // in the answer
		}{
			{`{"action":"SAVE","name":42,"tags":"{\"a\":\"b\"}"}`, "", "saved 42"},
			{`{"action":"list","limit":"5"}`, "", `"name":"42"`},
			{`{"action":"list","tag":"[\"a=b\"]"}`, "", `"name":"42"`},
			{`{"action":"LOAD","name":"42"}`, "", ""},
			{`"{\"action\":\"list\"}"`, "", `"name":"42"`},
			{`{"action":"list","limit":true}`, plugin.Usage, "limit"},
			{`{"action":"save","name":null}`, plugin.Usage, "name"},
			{`{"action":"save","nmae":"x"}`, plugin.Usage, `unknown field "nmae"`},
			{`{"action":"save","name":"x","tags":"a"}`, plugin.Usage, "tags"},
			{`{"action":"delete","prefix":"4","confirm":"true"}`, plugin.Usage, "confirm"},
			{`{"action":"load","name":"nosuch"}`, plugin.NotFound, "nosuch"},
			{`{"action":"save","name":"42"}`, plugin.Exists, "42"},
			{`{"action":"save","name":"two words"}`, plugin.InvalidName, "two words"},
			{`{"name":"x"}`, plugin.Usage, "action is missing"},
			{`{"action":"xyzzy"}`, plugin.Usage, "xyzzy"},
			{`{"action":"op open","name":"x"}`, plugin.Usage, "op open"},
			{`{"action":"save","name":"x","trigger":"autosave"}`, plugin.Usage, "trigger"},
			{`{"action":{"action":"save"},"name":{"name":"nested"}}`, plugin.Usage, "action"},
			{`[1]`, plugin.Usage, "not an object"},
			{`null`, plugin.Usage, "not an object"},
		} {
			answer := callSess(t, session, tt.args)
			s := structured(t, answer)
			if text := toolText(t, answer); s.code() != tt.code || answer.IsError != (tt.code != "") || !strings.Contains(text, tt.text) {
				t.Errorf("%s: %q %q, want %q that tells %q", tt.args, s.code(), text, tt.code, tt.text)
			}
		}
		if got := u.names(); !slices.Equal(got, []string{"42"}) {
			t.Errorf("afterwards there is %q, want what was saved and loaded", got)
		}
		if a := callSess(t, session, `{"action":"delete","prefix":"4","confirm":true}`); a.IsError || len(u.names()) != 0 {
			t.Errorf("the confirmed delete: %s, and there is %q", toolText(t, a), u.names())
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "nosuch"}); err == nil || !strings.Contains(err.Error(), "the tools are ") {
			t.Errorf("a call of a tool that there is not: %v", err)
		}
	})
}

// A name is taken exactly: no beginning of one, no pattern, no place in a list
// finds another snapshot, and where names are near the answer lists them.
func TestMCPNames(t *testing.T) {
	t.Parallel()
	overMCP(t, func(u *user) {
		u.askNobody()
		u.do("chat", "--message", "hello")
		for _, name := range []string{"demo-1", "demo-2", "demo_1"} {
			u.do("save", name)
		}
	}, func(t *testing.T, u *user, open func(mcp.ClientOptions, chan<- struct{}) *mcp.ClientSession) {
		session := open(mcp.ClientOptions{}, nil)
		before := u.names()
		for name, code := range map[string]plugin.Code{
			"demo": plugin.NotFound, "demo-": plugin.NotFound, "2": plugin.NotFound,
			"demo%": plugin.InvalidName, "50%": plugin.InvalidName, "*": plugin.InvalidName,
		} {
			for _, action := range []string{"load", "delete"} {
				args, err := json.Marshal(map[string]string{"action": action, "name": name})
				if err != nil {
					t.Fatal(err)
				}
				answer := callSess(t, session, string(args))
				s := structured(t, answer)
				if s.code() != code {
					t.Errorf("%s %s: %q %s, want %s", action, name, s.code(), toolText(t, answer), code)
				}
				if code == plugin.NotFound && strings.HasPrefix(name, "demo") && !strings.Contains(toolText(t, answer), "demo-1") {
					t.Errorf("%s %s does not tell which names are near: %s", action, name, toolText(t, answer))
				}
			}
		}
		if got := u.names(); !slices.Equal(got, before) {
			t.Errorf("afterwards there is %q, want %q", got, before)
		}
		if a := callSess(t, session, `{"action":"save","name":"demo"}`); a.IsError {
			t.Errorf("save demo: %s", toolText(t, a))
		}
		if a := callSess(t, session, `{"action":"load","name":"demo"}`); a.IsError {
			t.Errorf("load demo: %s", toolText(t, a))
		}
	})
}

// A long list comes in parts of at most 20 KB. Whoever walks it as the answers
// say is given every item that stays exactly once, though one that was seen is
// deleted and one is added meanwhile. A limit that is none is refused.
func TestMCPPages(t *testing.T) {
	t.Parallel()
	const many = 60
	overMCP(t, func(u *user) {
		u.askNobody()
		u.configure(`{"maxSnapshots":0}`)
		lines := []string{"hello"}
		for i := range many {
			lines = append(lines, "/sess save s"+string(rune('a'+i/26))+string(rune('a'+i%26))+" --note="+strings.Repeat("words-", 100))
		}
		u.chat(lines...)
		u.askNobody()
	}, func(t *testing.T, u *user, open func(mcp.ClientOptions, chan<- struct{}) *mcp.ClientSession) {
		session := open(mcp.ClientOptions{}, nil)
		five := structured(t, callSess(t, session, `{"action":"list","limit":5}`))
		var part []struct{ Name string }
		if err := json.Unmarshal(five.Data, &part); err != nil || len(part) != 5 || five.Page.Total != many || five.Page.Next == "" {
			t.Errorf("limit 5: %d items, page %+v, %v", len(part), five.Page, err)
		}
		for _, limit := range []string{"0", "-1", `"many"`} {
			if s := structured(t, callSess(t, session, `{"action":"list","limit":`+limit+`}`)); s.code() != plugin.Usage {
				t.Errorf("limit %s: %q, want it refused", limit, s.code())
			}
		}
		want := u.names()
		var shown []string
		fields := map[string]any{"action": "list", "limit": 100_000}
		for pages := 0; ; pages++ {
			answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sess_manage", Arguments: fields})
			if err != nil {
				t.Fatal(err)
			}
			s := structured(t, answer)
			var items []struct{ Name string }
			if err := json.Unmarshal(s.Data, &items); err != nil {
				t.Fatal(err)
			}
			if text := toolText(t, answer); len(text) > 20_000 || s.Page.Next != "" && !strings.Contains(text, s.Page.Next) {
				t.Errorf("page %d has %d bytes, and does not say how to go on: %s", pages, len(text), text[:200])
			}
			for _, item := range items {
				shown = append(shown, item.Name)
			}
			if s.Page.Next == "" {
				if pages == 0 {
					t.Error("the whole list came at once")
				}
				break
			}
			if pages == 0 { // of what was seen one goes, and one comes
				for _, args := range []string{`{"action":"delete","name":"` + shown[0] + `"}`, `{"action":"save","name":"late"}`} {
					if a := callSess(t, session, args); a.IsError {
						t.Fatal(toolText(t, a))
					}
				}
			}
			fields["after"] = s.Page.Next
		}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
	})
}

// What chat.confirm lists is asked of the person at the client; where the client
// cannot ask, it is refused. Without being asked for, that is what destroys.
func TestMCPConfirm(t *testing.T) {
	t.Parallel()
	overMCP(t, func(u *user) {
		u.do("chat", "--message", "hello")
		u.do("save", "v1")
		u.config(`{"chat":{"confirm":["delete","save"]}}`)
	}, func(t *testing.T, u *user, open func(mcp.ClientOptions, chan<- struct{}) *mcp.ClientSession) {
		const args = `{"action":"delete","name":"v1"}`
		dumb := structured(t, callSess(t, open(mcp.ClientOptions{}, nil), args))
		if dumb.code() != plugin.Denied || !strings.Contains(dumb.Error.Message, "sess delete v1") {
			t.Errorf("with a client that cannot ask: %+v", dumb.Error)
		}
		for _, action := range []string{"decline", "cancel", "accept"} {
			asked := make(chan string, 1)
			session := open(mcp.ClientOptions{ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked <- req.Params.Message
				return &mcp.ElicitResult{Action: action}, nil
			}}, nil)
			s := structured(t, callSess(t, session, args))
			if q := <-asked; q != "Allow sess delete v1?" {
				t.Errorf("the person was asked %q", q)
			}
			if allowed := action == "accept"; (s.code() == "") != allowed || (len(u.names()) == 0) != allowed {
				t.Errorf("%s: %+v, and there is %q", action, s.Error, u.names())
			}
			if a := callSess(t, session, `{"action":"list"}`); a.IsError {
				t.Errorf("what nobody is asked about: %s", toolText(t, a))
			}
			if action == "accept" {
				continue
			}
			// All of it is shown, as one line, and nothing in it turns round what stands there.
			callSess(t, session, `{"action":"save","name":"v2","note":"`+strings.Repeat("é", 400)+`\nAllow nothing?\u202e the end"}`)
			if q := <-asked; !strings.Contains(q, " the end") || strings.ContainsAny(q, "\n\u202e") {
				t.Errorf("the person was asked %q", q)
			}
		}
	})
}

// A client is told when a plugin is switched off or on, and then finds its tool
// gone and back; a tool that the configuration switches off is not offered, and a
// call of it says by which key.
func TestMCPToolsChange(t *testing.T) {
	t.Parallel()
	overMCP(t, func(u *user) {
		u.config(`{"plugins":{"entries":{"sess":{"config":{"exposeTool":false}}}}}`)
	}, func(t *testing.T, u *user, open func(mcp.ClientOptions, chan<- struct{}) *mcp.ClientSession) {
		changed := make(chan struct{}, 1)
		session := open(mcp.ClientOptions{}, changed)
		tools := func() (names []string) {
			for tool, err := range session.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			return names
		}
		if got := tools(); slices.Contains(got, "sess_manage") || !slices.Contains(got, "messages_manage") {
			t.Errorf("the tools are %q", got)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sess_manage", Arguments: map[string]any{"action": "list"}}); err == nil || !strings.Contains(err.Error(), "plugins.entries.sess.config.exposeTool") {
			t.Errorf("a call of a tool that is switched off: %v", err)
		}
		u.do("plugins", "disable", "session-actions")
		<-changed
		if got := tools(); slices.Contains(got, "messages_manage") {
			t.Errorf("the tools are %q with the plugin switched off", got)
		}
		u.do("plugins", "enable", "session-actions")
		<-changed
		if got := tools(); !slices.Contains(got, "messages_manage") {
			t.Errorf("the tools are %q with the plugin back", got)
		}
	})
}

// stdioLines starts the server, and returns what it answers to some lines until its
// end, which follows that of its input.
func (u *user) stdioLines(args []string, lines ...string) (stdout, stderr string) {
	u.t.Helper()
	cmd := u.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")), &out, &errs
	if exit := u.exit(cmd.Run()); exit != 0 {
		u.t.Fatalf("%q ended with status %d: %s", args, exit, &errs)
	}
	return out.String(), errs.String()
}

const mcpHello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"tests","version":"1"}}}`

// Every line that the server writes to stdout is one message of JSON-RPC 2.0:
// with all logging, a damaged snapshot, a call that fails, and lines that are no
// messages. The logs are on stderr. What was asked before the input ended is
// answered.
func TestMCPStdout(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "good")
	u.do("save", "v1")
	u.damage()
	stdout, stderr := u.stdioLines([]string{"-v", "mcp"},
		"no JSON", `{"jsonrpc":"2.0"`, `[]`, `{"id":1}`, "", mcpHello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sess_manage","arguments":{"action":"list"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"sess_manage","arguments":{"action":"load","name":"v1"}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"sess_manage","arguments":{"action":"verify"}}}`,
		`{"jsonrpc":"2.0","id":5,"method":"nosuch"}`,
		`{"jsonrpc":"2.0","id":6,"method":"ping"}`, "and none")
	answers := map[string]int{}
	for line := range strings.Lines(stdout) {
		var m struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Method  string          `json:"method"`
			Result  json.RawMessage `json:"result"`
			Params  json.RawMessage `json:"params"`
			Error   json.RawMessage `json:"error"`
		}
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&m); err != nil || m.Version != "2.0" || !strings.HasSuffix(line, "}\n") || dec.More() {
			t.Errorf("a line of stdout is no message (%v): %q", err, line)
		}
		if m.Method == "" {
			answers[string(m.ID)]++
		}
	}
	want := map[string]int{"null": 5, `"hello"`: 1, "1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "6": 1}
	if diff := cmp.Diff(want, answers); diff != "" {
		t.Errorf("answers by id (-want +got):\n%s\n%s", diff, stdout)
	}
	if !strings.Contains(stdout, `"isError":true`) || !strings.Contains(stdout, "corrupt") {
		t.Errorf("nothing tells of the damaged snapshot:\n%s", stdout)
	}
	if !strings.Contains(stderr, "msg=dispatch") {
		t.Errorf("stderr has no logs:\n%s", stderr)
	}
}

// The server ends when its client has gone without a word, and takes its plugins
// with it; what is started by a wrong configuration says so, and not on stdout.
func TestMCPStdioEnds(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	cmd := u.command("mcp")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(out)
	for _, line := range []string{mcpHello, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sess_manage","arguments":{"action":"list"}}}`} {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		var answer json.RawMessage
		if err := dec.Decode(&answer); err != nil {
			t.Fatal(err)
		}
	}
	// The plugin holds the other end of what the server holds of it: when all
	// processes have ended, so has stdout.
	if err := errors.Join(in.Close()); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("afterwards it wrote %q, %v", rest, err)
	}
	if exit := u.exit(cmd.Wait()); exit != 0 {
		t.Errorf("it ended with status %d", exit)
	}
	u.config(`{"nosuch":1}`)
	stdout, stderr, exit := u.run("mcp")
	if exit != plugin.Usage.Info().Exit || stdout != "" || !strings.Contains(stderr, "nosuch") {
		t.Errorf("with a wrong configuration: status %d, stdout %q, stderr %q", exit, stdout, stderr)
	}
	if _, stderr, exit := u.run("mcp", "--url=http://127.0.0.1:1"); exit != plugin.Usage.Info().Exit {
		t.Errorf("with --url: status %d, %s", exit, stderr)
	}
}

// Flags say what calls mean that name nothing themselves.
func TestMCPStdioFlags(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "hello")
	u.do("--session=two", "chat", "--message", "hello")
	session := u.mcpStdio("--session=one")
	for args, want := range map[string]string{
		`{"action":"save","name":"given"}`:                 "one",
		`{"action":"save","name":"named","session":"two"}`: "two",
	} {
		var meta struct{ SessionID string }
		s := structured(t, callSess(t, session, args))
		if err := json.Unmarshal(s.Data, &meta); err != nil || meta.SessionID != want {
			t.Errorf("%s saved the session %q (%v), want %s", args, meta.SessionID, err, want)
		}
	}
}

// post sends a message to the gateway's MCP path.
func (a asker) post(t *testing.T, session, message string) (status int, answer, made string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header.Get("Mcp-Session-Id")
}

// After a restart of the gateway the session of a client is unknown, status 404,
// which tells it to begin anew, and that always works, whatever session it still
// names. A request that names none is told what to send. Clients at the same time
// get their own answers.
func TestMCPSessions(t *testing.T) {
	t.Parallel()
	const list = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	u := newUser(t)
	u.do("chat", "--message", "hello")
	g := u.gateway()
	a := g.asker()
	status, answer, first := a.post(t, "", mcpHello)
	if status != 200 || first == "" || !strings.Contains(answer, `"listChanged":true`) {
		t.Fatalf("initialize: %d, session %q: %s", status, first, answer)
	}
	if status, answer, _ := a.post(t, first, list); status != 200 || !strings.Contains(answer, "sess_manage") {
		t.Errorf("tools/list: %d %s", status, answer)
	}
	u.do("gateway", "stop")
	g.end()
	a = u.gateway().asker()
	if status, answer, _ := a.post(t, first, list); status != 404 || !strings.Contains(answer, "initialize") {
		t.Errorf("with the session of a gateway that has ended: %d %s", status, answer)
	}
	status, answer, second := a.post(t, first, mcpHello)
	if status != 200 || second == "" || second == first {
		t.Fatalf("initialize with that session: %d, session %q: %s", status, second, answer)
	}
	if status, answer, _ := a.post(t, second, list); status != 200 || !strings.Contains(answer, "sess_manage") {
		t.Errorf("tools/list in the new session: %d %s", status, answer)
	}
	if status, answer, _ := a.post(t, "", list); status != 400 || !strings.Contains(answer, "initialize") {
		t.Errorf("without a session: %d %s", status, answer)
	}

	clients := []*mcp.ClientSession{connect(t, mcpClient(nil, mcp.ClientOptions{}), a.mcp()), connect(t, mcpClient(nil, mcp.ClientOptions{}), a.mcp())}
	done := make(chan error)
	for i, session := range clients {
		go func() {
			for range 20 {
				name := []string{"one", "two"}[i]
				answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sess_manage", Arguments: map[string]any{"action": "view", "name": name}})
				if err == nil && !strings.Contains(answer.Content[0].(*mcp.TextContent).Text, name) {
					err = errors.New("client " + name + " got the answer of another: " + answer.Content[0].(*mcp.TextContent).Text)
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The gateway lets nobody in over MCP whom it refuses otherwise; where clients look
// for somebody who gives out tokens they find, without one, that nobody does. A stop
// does not wait for the streams that they keep open.
func TestMCPAccess(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	g := u.gateway()
	connect(t, mcpClient(nil, mcp.ClientOptions{}), g.asker().mcp()) // and its stream stands
	for path, want := range map[string]int{
		"/mcp":                                  401,
		"/.well-known/oauth-protected-resource": 404, "/.well-known/oauth-protected-resource/mcp": 404,
		"/.well-known/oauth-authorization-server": 404, "/.well-known/openid-configuration": 404,
		"/mcp/.well-known/openid-configuration": 404, "/register": 404, "/mcp/nosuch": 401,
	} {
		if status, body := g.get(http.DefaultClient, path, ""); status != want || !json.Valid([]byte(body)) {
			t.Errorf("GET %s without a token: %d %s, want %d", path, status, body, want)
		}
	}
	for header, value := range map[string]string{"Origin": "http://evil.example", "Host": "evil.example"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.Address+"/mcp", strings.NewReader(mcpHello))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+g.token())
		if req.Header.Set(header, value); header == "Host" {
			req.Host = value
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != 403 {
			t.Errorf("with the %s %s: %d, want 403", header, value, resp.StatusCode)
		}
	}
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
}

// A gateway that begins or ends while an agent's server runs changes nothing for
// the agent: the one does the calls, or else the other.
func TestMCPGatewayComesAndGoes(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.stopsGateway()
	u.do("chat", "--message", "hello")
	session := u.mcpStdio()
	for i, step := range []func(){func() {}, func() { u.do("gateway", "start", "--listen=127.0.0.1:0") }, func() { u.do("gateway", "stop") }} {
		step()
		name := string(rune('a' + i))
		if answer := callSess(t, session, `{"action":"save","name":"`+name+`"}`); answer.IsError {
			t.Errorf("save %s: %s", name, toolText(t, answer))
		}
	}
	if got := u.names(); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("there is %q", got)
	}
}
