package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/channel"
	"github.com/google/go-cmp/cmp"

	"sess/plugin"
)

// rpcHost is a host with methods that tests need. Those that wait tell by
// started and ended.
type rpcHost struct {
	Host
	started chan string
	ended   chan error
	release chan struct{} // ends what holds

	mu   sync.Mutex
	subs []*rpcSub
}

func newRPCHost() *rpcHost {
	return &rpcHost{started: make(chan string, 1000), ended: make(chan error, 1000), release: make(chan struct{})}
}

func (h *rpcHost) Methods(context.Context) []string { return []string{"echo", "wait"} }

func (h *rpcHost) Call(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error) {
	switch method {
	case "echo":
		if params == nil {
			params = json.RawMessage("null")
		}
		return params, nil
	case "caller":
		return json.Marshal(caller)
	case "wait":
		h.started <- string(params)
		<-ctx.Done()
		h.ended <- context.Cause(ctx)
		return nil, plugin.AsError(ctx.Err())
	case "hold":
		h.started <- string(params)
		select {
		case <-h.release:
			return json.RawMessage(`"held"`), nil
		case <-ctx.Done():
			return nil, plugin.AsError(ctx.Err())
		}
	case "until": // ends when the test says so
		h.started <- string(params)
		h.ended <- nil
		return json.RawMessage(`"done"`), nil
	case "progress":
		for i := range 3 {
			progress.Report(plugin.Progress{Stage: "counting", Done: int64(i + 1), Total: 3, Unit: "things"})
		}
		return json.RawMessage("{}"), nil
	case "noted":
		TellNotices(ctx, []string{"schön"})
		return json.RawMessage("[]"), nil
	case "panic":
		panic("a bug")
	case "pretty":
		return json.RawMessage("{\n  \"a\": \"<b>\"\n}"), nil
	case "broken":
		return json.RawMessage("{"), nil
	case "fail":
		var code plugin.Code
		if err := json.Unmarshal(bytes.Trim(params, "[]"), &code); err != nil {
			return nil, err
		}
		return nil, plugin.Errorf(code, "it is %s", code).WithHint("do that").WithDetail("name", "x")
	}
	return nil, plugin.Errorf(plugin.Usage, "%w %q", ErrUnknownMethod, method).WithHint("did you mean echo?")
}

// rpcSub is a subscription to what the test puts into it.
type rpcSub struct {
	filter EventFilter
	events chan Event
	closed chan struct{}
	once   sync.Once
}

func (h *rpcHost) Subscribe(f EventFilter) Subscription {
	s := &rpcSub{filter: f, events: make(chan Event, 10), closed: make(chan struct{})}
	if slices.Equal(f.Kinds, []string{"plugins"}) {
		return s // the server's own
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs = append(h.subs, s)
	return s
}

func (s *rpcSub) Next(ctx context.Context) (Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case <-s.closed:
		return Event{}, io.EOF
	case <-ctx.Done():
		return Event{}, ctx.Err()
	}
}

func (s *rpcSub) Close() { s.once.Do(func() { close(s.closed) }) }

// rpcServer is a server that listens for all transports.
type rpcServer struct {
	*rpc
	host   *rpcHost
	socket string
	url    string
	stop   func() // closes it, and waits
}

const (
	testLimit = 2 << 20
	testToken = "let-me-in"
)

func startRPC(t *testing.T, o Options) *rpcServer {
	t.Helper()
	s := &rpcServer{host: newRPCHost(), socket: filepath.Join(t.TempDir(), "s")}
	o.Token, o.BodyLimit = testToken, testLimit
	server, err := New(s.host, o)
	if err != nil {
		t.Fatal(err)
	}
	s.rpc = server.rpc
	s.socketLimit = testLimit
	socket, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + web.Addr().String() + "/rpc"
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.ServeSocket(ctx, socket); err != nil {
			t.Errorf("ServeSocket: %v", err)
		}
	})
	served.Go(func() {
		if err := server.Serve(ctx, web); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	s.stop = sync.OnceFunc(func() {
		cancel()
		served.Wait()
		if n := s.kinds[kindSocket] + s.kinds[kindWebSocket]; n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// request makes a request with the token.
func (s *rpcServer) request(ctx context.Context, method, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

func (s *rpcServer) ask(ctx context.Context, method, body string) (status int, answer string, err error) {
	req, err := s.request(ctx, method, body)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// line is a connection over the socket.
type line struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func (s *rpcServer) dial(t *testing.T) *line {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &line{t, conn, bufio.NewReader(conn)}
}

func (l *line) say(format string, args ...any) {
	l.t.Helper()
	if _, err := fmt.Fprintf(l, format+"\n", args...); err != nil {
		l.t.Fatal(err)
	}
}

func (l *line) hear() string {
	l.t.Helper()
	text, err := l.in.ReadString('\n')
	if err != nil {
		l.t.Fatalf("after %q: %v", text, err)
	}
	return strings.TrimSuffix(text, "\n")
}

func (s *rpcServer) post(t *testing.T, body string) (status int, answer string) {
	t.Helper()
	status, answer, err := s.ask(t.Context(), http.MethodPost, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

// websocket opens one as a page does: with the token among the subprotocols.
func (s *rpcServer) websocket(t *testing.T, protocols ...string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), s.url, &websocket.DialOptions{Subprotocols: append(protocols, protocolPrefix+testToken)})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// What JSON-RPC 2.0 says about messages holds on each transport alike.
func TestRPCMessages(t *testing.T) {
	t.Parallel()
	const sendThat = `"hint":"send {\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"sess.invoke\", \"params\": {\"action\": \"list\"}}, or a list of such"`
	const sendOnly = `"hint":"send jsonrpc, id, method and params, and nothing else"`
	s := startRPC(t, Options{})
	conn, ws := s.dial(t), s.websocket(t)
	for _, tt := range []struct {
		name, message, want string
		status              int
	}{
		{"a call", `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"é<"}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"é<"}}`, 200},
		{"an id that is text", `{"jsonrpc":"2.0","id":"a b","method":"echo"}`, `{"jsonrpc":"2.0","id":"a b","result":null}`, 200},
		{"an answer in several lines", `{"jsonrpc":"2.0","id":1,"method":"pretty"}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"<b>"}}`, 200},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]},{"jsonrpc":"2.0","method":"echo"},1,{"jsonrpc":"2.0","id":2,"method":"echo","params":[2]}]`, `[{"jsonrpc":"2.0","id":1,"result":[1]},` +
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"this is no request: request is not a JSON object","data":{"code":"usage",` + sendOnly + `}}},{"jsonrpc":"2.0","id":2,"result":[2]}]`, 200},
		{"a batch of one", `[{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}]`, `[{"jsonrpc":"2.0","id":1,"result":[1]}]`, 200},
		{"an error", `{"jsonrpc":"2.0","id":1,"method":"fail","params":["busy"]}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32055,"message":"it is busy","data":{"code":"busy","hint":"do that","details":{"name":"x"}}}}`, 200},
		{"an unknown method", `{"jsonrpc":"2.0","id":1,"method":"ecco"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown method \"ecco\"","data":{"code":"usage","hint":"did you mean echo?"}}}`, 200},
		{"no JSON", `{"jsonrpc":"2.0",`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not JSON","data":{"code":"usage",` + sendThat + `}}}`, 400},
		{"no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"echo\"}", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not UTF-8","data":{"code":"usage",` + sendThat + `}}}`, 400},
		{"an empty batch", `[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the batch is empty","data":{"code":"usage",` + sendThat + `}}}`, 400},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"echo"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"this is no request: invalid version marker","data":{"code":"usage",` + sendOnly + `}}}`, 200},
		{"a field too many", `{"jsonrpc":"2.0","id":1,"method":"echo","x":1}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"this is no request: extra fields in request","data":{"code":"usage",` + sendOnly + `}}}`, 200},
		{"a key twice", `{"jsonrpc":"2.0","id":1,"method":"echo","m\u0065thod":"wait"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the key \"method\" is given twice","data":{"code":"usage",` + sendThat + `}}}`, 400},
		{"a key twice in a batch", `[{"jsonrpc":"2.0","id":1,"method":"echo"},{"jsonrpc":"2.0","id":1,"method":"echo","id":2}]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the key \"id\" is given twice","data":{"code":"usage",` + sendThat + `}}}`, 400},
		{"params that are a number", `{"jsonrpc":"2.0","id":1,"method":"echo","params":1}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"this is no request: parameters must be array or object","data":{"code":"usage",` + sendOnly + `}}}`, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if status, got := s.post(t, tt.message); status != tt.status || got != tt.want {
				t.Errorf("POST answered %d %s\nwant %d %s", status, got, tt.status, tt.want)
			}
			conn.say("%s", tt.message)
			if got := conn.hear(); got != tt.want {
				t.Errorf("the socket answered %s\nwant %s", got, tt.want)
			}
			if tt.name == "no UTF-8" {
				return // a WebSocket carries no other text
			}
			if err := ws.Write(t.Context(), websocket.MessageText, []byte(tt.message)); err != nil {
				t.Fatal(err)
			}
			if _, got, err := ws.Read(t.Context()); err != nil || string(got) != tt.want {
				t.Errorf("the WebSocket answered %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

// Warnings for which an answer has no room come before it, or beside it.
func TestRPCNotices(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn := s.dial(t)
	conn.say(`{"jsonrpc":"2.0","method":"noted"}`)
	conn.say(`[{"jsonrpc":"2.0","id":"a","method":"noted"}]`)
	for _, want := range []string{
		`{"jsonrpc":"2.0","method":"notices","params":{"requestId":"a","notices":["schön"]}}`,
		`[{"jsonrpc":"2.0","id":"a","result":[]}]`,
	} {
		if got := conn.hear(); got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
	req, err := s.request(t.Context(), http.MethodPost, `[{"jsonrpc":"2.0","id":1,"method":"noted"},{"jsonrpc":"2.0","id":2,"method":"noted"}]`)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, want := resp.Header.Get("X-Notices"), `["sch\u00f6n","sch\u00f6n"]`; got != want {
		t.Errorf("X-Notices is %s, want %s", got, want)
	}
}

// A notification is done and not answered.
func TestRPCNotification(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	const note = `{"jsonrpc":"2.0","method":"until","params":["%s"]}`
	if status, got := s.post(t, fmt.Sprintf(note, "post")); status != http.StatusNoContent || got != "" {
		t.Errorf("POST of a notification answered %d %q, want 204", status, got)
	}
	if status, got := s.post(t, "["+fmt.Sprintf(note, "batch")+"]"); status != http.StatusNoContent || got != "" {
		t.Errorf("POST of notifications answered %d %q, want 204", status, got)
	}
	conn := s.dial(t)
	conn.say(note, "socket")
	conn.say(`{"jsonrpc":"2.0","method":"no such"}`)
	conn.say("")
	conn.say(`{"jsonrpc":"2.0","id":9,"method":"echo"}`)
	if got := conn.hear(); !strings.Contains(got, `"id":9`) {
		t.Errorf("answer %s, want that to the call after the notifications", got)
	}
	for range 3 {
		<-s.host.started
	}
}

// Every code of ours comes back as it was, with hint and details.
func TestRPCCodes(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn := s.dial(t)
	for _, info := range plugin.Codes() {
		conn.say(`{"jsonrpc":"2.0","id":1,"method":"fail","params":[%q]}`, info.Code)
		var got struct{ Error rpcErrorSeen }
		if err := json.Unmarshal([]byte(conn.hear()), &got); err != nil {
			t.Fatal(err)
		}
		e := got.Error
		if e.Code != info.JSONRPC || e.Data.Code != info.Code || e.Message != "it is "+string(info.Code) || e.Data.Hint != "do that" || e.Data.Details["name"] != "x" {
			t.Errorf("%s came back as %+v", info.Code, e)
		}
		if incident := e.Data.Details["incident"]; (incident != "") != (info.Code == plugin.Internal) {
			t.Errorf("%s has the incident %q", info.Code, incident)
		}
	}
}

type rpcErrorSeen struct {
	Code    int
	Message string
	Data    struct {
		Code    plugin.Code
		Hint    string
		Details map[string]string
	}
}

// A client that was not written here understands it.
func TestRPCOtherClient(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	var told sync.Mutex // guards steps
	var steps []string
	client := jrpc2.NewClient(channel.Line(conn, conn), &jrpc2.ClientOptions{
		OnNotify: func(r *jrpc2.Request) {
			told.Lock()
			defer told.Unlock()
			steps = append(steps, r.ParamString())
		},
	})
	var got map[string]any
	if err := client.CallResult(t.Context(), "progress", nil, &got); err != nil {
		t.Errorf("Call: %v", err)
	}
	responses, err := client.Batch(t.Context(), []jrpc2.Spec{
		{Method: "echo", Params: []int{1}},
		{Method: "echo", Params: []int{2}, Notify: true},
		{Method: "fail", Params: []string{"not_found"}},
	})
	if err != nil || len(responses) != 2 || responses[0].ResultString() != "[1]" || responses[1].Error().Code != -32052 {
		t.Errorf("Batch = %v, %v", responses, err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	want := []string{
		`{"requestId":1,"stage":"counting","done":1,"total":3,"unit":"things"}`,
		`{"requestId":1,"stage":"counting","done":2,"total":3,"unit":"things"}`,
		`{"requestId":1,"stage":"counting","done":3,"total":3,"unit":"things"}`,
	}
	slices.Sort(steps) // that client tells them in any order
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

// A handler that panics ends its call, not the server; the answer names the
// incident and tells nothing else.
func TestRPCPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := startRPC(t, Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	conn := s.dial(t)
	for _, method := range []string{"panic", "broken"} {
		conn.say(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)
		var got struct{ Error rpcErrorSeen }
		answer := conn.hear()
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Fatal(err)
		}
		incident := got.Error.Data.Details["incident"]
		if got.Error.Code != -32603 || incident == "" || strings.Contains(answer, "a bug\"") {
			t.Errorf("%s answered %s", method, answer)
		}
		if !strings.Contains(log.String(), incident) {
			t.Errorf("the log does not have %s: %s", incident, log.String())
		}
	}
	if !strings.Contains(log.String(), "rpc_test.go") {
		t.Errorf("the log has no stack: %s", log.String())
	}
	conn.say(`{"jsonrpc":"2.0","id":2,"method":"echo"}`)
	if got := conn.hear(); !strings.Contains(got, `"id":2`) {
		t.Errorf("after the panic: %s", got)
	}
}

// A message that is too large is refused by its size; the connection goes on.
func TestRPCLimit(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn, ws := s.dial(t), s.websocket(t)
	message := func(size int) string {
		const head, tail = `{"jsonrpc":"2.0","id":1,"method":"echo","params":["`, `"]}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	for _, tt := range []struct {
		size, status int
		refused      bool
	}{
		{1 << 20, 200, false},
		{testLimit, 200, false},
		{testLimit + 1, 413, true},
		{3 * testLimit, 413, true},
		{1000, 200, false},
	} {
		body := message(tt.size)
		status, post := s.post(t, body)
		if status != tt.status {
			t.Errorf("POST of %d bytes: status %d, want %d", tt.size, status, tt.status)
		}
		conn.say("%s", body)
		written := make(chan error, 1)
		go func() { written <- ws.Write(t.Context(), websocket.MessageText, []byte(body)) }()
		_, web, err := ws.Read(t.Context())
		if err := errors.Join(err, <-written); err != nil {
			t.Fatal(err)
		}
		for transport, answer := range map[string]string{"POST": post, "the socket": conn.hear(), "the WebSocket": string(web)} {
			if got := strings.Contains(answer, `"limit":"2097152"`); got != tt.refused {
				t.Errorf("%d bytes through %s: %.300s", tt.size, transport, answer)
			}
		}
	}
}

// A call is cancelled by name; others go on.
func TestRPCCancel(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn := s.dial(t)
	conn.say(`{"jsonrpc":"2.0","id":"a","method":"wait","params":["a"]}`)
	conn.say(`{"jsonrpc":"2.0","id":7,"method":"wait","params":["7"]}`)
	<-s.host.started
	<-s.host.started
	conn.say(`{"jsonrpc":"2.0","id":8,"method":"rpc.cancel","params":{"id":"a"}}`)
	answers := []string{conn.hear(), conn.hear()}
	slices.Sort(answers)
	if want := `{"jsonrpc":"2.0","id":8,"result":{"cancelled":true}}`; answers[1] != want {
		t.Errorf("rpc.cancel answered %s, want %s", answers[1], want)
	}
	if !strings.Contains(answers[0], `"id":"a","error":{"code":-32061,"message":"wait was cancelled"`) {
		t.Errorf("the cancelled call answered %s", answers[0])
	}
	if cause := <-s.host.ended; !errors.Is(cause, context.Canceled) {
		t.Errorf("the call ended by %v", cause)
	}
	conn.say(`{"jsonrpc":"2.0","id":8,"method":"rpc.cancel","params":{"id":"a"}}`)
	if got := conn.hear(); !strings.Contains(got, `{"cancelled":false}`) {
		t.Errorf("a second cancel answered %s", got)
	}
	for _, params := range []string{`{}`, `{"id":7,"x":1}`, `[7]`} {
		conn.say(`{"jsonrpc":"2.0","id":8,"method":"rpc.cancel","params":%s}`, params)
		if got := conn.hear(); !strings.Contains(got, `"code":"usage"`) {
			t.Errorf("rpc.cancel of %s answered %s", params, got)
		}
	}
	conn.say(`{"jsonrpc":"2.0","id":7,"method":"echo"}`)
	if got := conn.hear(); !strings.Contains(got, "a call with the id 7 is running already") {
		t.Errorf("an id that is taken: %s", got)
	}
}

// A client that goes takes its calls and subscriptions with it.
func TestRPCDisconnect(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	const call = `{"jsonrpc":"2.0","id":1,"method":"wait"}`
	leave := map[string]func(){
		"socket": func() {
			conn := s.dial(t)
			conn.say(`{"jsonrpc":"2.0","id":0,"method":"events.subscribe"}`)
			conn.hear()
			conn.say(call)
			<-s.host.started
			conn.Close()
		},
		"websocket": func() {
			ws := s.websocket(t)
			if err := ws.Write(t.Context(), websocket.MessageText, []byte(call)); err != nil {
				t.Fatal(err)
			}
			<-s.host.started
			_ = ws.CloseNow()
		},
		"post": func() {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, _, err := s.ask(ctx, http.MethodPost, call)
				done <- err
			}()
			<-s.host.started
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("POST: %v", err)
			}
		},
	}
	for name, f := range leave {
		f()
		if cause := <-s.host.ended; cause == nil {
			t.Errorf("%s: the call did not hear that its client has gone", name)
		}
	}
	<-s.host.subs[0].closed
}

// A client that has said all it wants, and still reads, gets its answers before
// the end; one that goes altogether then takes its calls with it.
func TestRPCHalfClosed(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn := s.dial(t)
	conn.say(`{"jsonrpc":"2.0","id":1,"method":"hold"}`)
	if _, err := conn.Write([]byte(`{"jsonrpc":"2.0","id":2,"method":"echo","params":["no end of line"]}`)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-s.host.started
	if got := conn.hear(); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("the last request answered %s", got)
	}
	close(s.host.release)
	if got := conn.hear(); !strings.Contains(got, `"id":1,"result":"held"`) {
		t.Errorf("the call that ran answered %s", got)
	}
	if _, err := conn.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("then: %v, want the end", err)
	}

	idle := s.dial(t)
	if err := idle.Conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("without a call: %v, want the end", err)
	}
	if runtime.GOOS != "linux" {
		return // elsewhere the system does not tell whether anybody reads
	}
	gone := s.dial(t)
	gone.say(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)
	<-s.host.started
	if err := gone.Conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	gone.Close()
	if cause := <-s.host.ended; !errors.Is(cause, io.EOF) {
		t.Errorf("the call of a client that has gone ended by %v", cause)
	}
}

// So many requests are answered at a time, and no more connections than the
// server has descriptors for are taken.
func TestRPCManyPosts(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	var posts sync.WaitGroup
	for range maxConns {
		posts.Go(func() {
			if status, answer, err := s.ask(t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"hold"}`); status != 200 {
				t.Errorf("POST answered %d %s, %v", status, answer, err)
			}
		})
	}
	for range maxConns {
		<-s.host.started
	}
	if status, answer := s.post(t, `{"jsonrpc":"2.0","id":1,"method":"echo"}`); status != 409 || !strings.Contains(answer, `"code":"busy"`) {
		t.Errorf("one request too many answered %d %s", status, answer)
	}
	close(s.host.release)
	posts.Wait()
	if status, answer := s.post(t, `{"jsonrpc":"2.0","id":1,"method":"echo"}`); status != 200 {
		t.Errorf("afterwards: %d %s", status, answer)
	}
}

// Events come as notifications to those who asked for them, until they no longer
// do.
func TestRPCEvents(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	one, two := s.dial(t), s.dial(t)
	one.say(`{"jsonrpc":"2.0","id":1,"method":"events.subscribe","params":{"kinds":["sess"],"project":"p","session":"s"}}`)
	if got, want := one.hear(), `{"jsonrpc":"2.0","id":1,"result":{"subscription":"1"}}`; got != want {
		t.Fatalf("events.subscribe answered %s, want %s", got, want)
	}
	two.say(`{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}`)
	two.hear()
	if diff := cmp.Diff(EventFilter{Kinds: []string{"sess"}, Project: "p", Session: "s"}, s.host.subs[0].filter); diff != "" {
		t.Errorf("filter (-want +got):\n%s", diff)
	}
	for _, sub := range s.host.subs {
		sub.events <- Event{Seq: 5, Kind: "sess.changed", Time: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC), Verb: "save", Data: json.RawMessage(`{"name":"v1"}`)}
	}
	want := `{"jsonrpc":"2.0","method":"event","params":{"subscription":"1","event":{"seq":5,"kind":"sess.changed","time":"2031-01-02T03:04:05Z","verb":"save","data":{"name":"v1"}}}}`
	for _, conn := range []*line{one, two} {
		if got := conn.hear(); got != want {
			t.Errorf("event %s, want %s", got, want)
		}
	}
	one.say(`{"jsonrpc":"2.0","id":2,"method":"events.unsubscribe","params":{"subscription":"1"}}`)
	one.hear()
	<-s.host.subs[0].closed
	one.say(`{"jsonrpc":"2.0","id":3,"method":"events.unsubscribe","params":{"subscription":"1"}}`)
	if got := one.hear(); !strings.Contains(got, "not_found") {
		t.Errorf("a second events.unsubscribe answered %s", got)
	}
	for range maxSubscriptions {
		one.say(`{"jsonrpc":"2.0","id":4,"method":"events.subscribe"}`)
		one.hear()
	}
	one.say(`{"jsonrpc":"2.0","id":5,"method":"events.subscribe"}`)
	if got := one.hear(); !strings.Contains(got, "the most that it may") {
		t.Errorf("one subscription too many answered %s", got)
	}
	if _, got := s.post(t, `{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}`); !strings.Contains(got, "needs a connection that stays open") {
		t.Errorf("events.subscribe by POST answered %s", got)
	}
}

// A client that asks and does not read holds up nobody but itself.
func TestRPCSlowReader(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	slow := s.dial(t)
	slow.say(`{"jsonrpc":"2.0","id":0,"method":"events.subscribe"}`)
	slow.hear()
	fill := make(chan struct{})
	go func() {
		defer close(fill)
		text := strings.Repeat("x", 100<<10)
		for i := 1; ; i++ {
			if _, err := fmt.Fprintf(slow, `{"jsonrpc":"2.0","id":%d,"method":"echo","params":[%q]}`+"\n", i, text); err != nil {
				return
			}
		}
	}()
	quick := s.dial(t)
	for i := range 200 {
		quick.say(`{"jsonrpc":"2.0","id":%d,"method":"echo"}`, i)
		if got := quick.hear(); !strings.Contains(got, fmt.Sprintf(`"id":%d,`, i)) {
			t.Fatalf("answer %d: %s", i, got)
		}
	}
	slow.Close()
	<-fill
}

// More than so many calls of one connection are refused, and the connection
// goes on; a cancel still works.
func TestRPCManyCalls(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn := s.dial(t)
	for i := range maxCalls {
		conn.say(`{"jsonrpc":"2.0","id":%d,"method":"wait"}`, i)
	}
	conn.say(`{"jsonrpc":"2.0","id":"more","method":"echo"}`)
	if got := conn.hear(); !strings.Contains(got, `"id":"more","error":{"code":-32055`) {
		t.Errorf("one call too many answered %s", got)
	}
	for range maxCalls {
		<-s.host.started
	}
	conn.say(`{"jsonrpc":"2.0","id":"end","method":"rpc.cancel","params":{"id":3}}`)
	conn.hear()
	conn.hear()
	conn.say(`{"jsonrpc":"2.0","id":"next","method":"echo"}`)
	if got := conn.hear(); !strings.Contains(got, `"id":"next","result"`) && !strings.Contains(got, "-32055") {
		t.Errorf("after a cancel: %s", got)
	}
	batch := strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"echo"},`, maxCalls) + `{"jsonrpc":"2.0","id":1,"method":"echo"}`
	if status, got := s.post(t, "["+batch+"]"); status != 400 || !strings.Contains(got, "the batch has 65 requests") {
		t.Errorf("a batch that is too long: %d %s", status, got)
	}
}

// More than so many connections are refused in words.
func TestRPCManyConnections(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	for range maxConns {
		s.dial(t).say(`{"jsonrpc":"2.0","id":1,"method":"until"}`)
	}
	for range maxConns {
		<-s.host.ended
	}
	conn := s.dial(t)
	if got := conn.hear(); !strings.Contains(got, `"id":null,"error":{"code":-32055`) || !strings.Contains(got, "256 connections") {
		t.Errorf("one connection too many heard %s", got)
	}
	if _, err := conn.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("then: %v, want the end", err)
	}
	ws := s.websocket(t) // another kind
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"echo"}`)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := ws.Read(t.Context()); err != nil || !strings.Contains(string(got), "result") {
		t.Errorf("a WebSocket meanwhile: %s, %v", got, err)
	}
}

// A server that closes lets calls that run come to their end, takes no new ones,
// and cuts those that take too long.
func TestRPCStop(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	conn, idle := s.dial(t), s.dial(t)
	idle.say(`{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}`)
	idle.hear()
	conn.say(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)
	<-s.host.started
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop()
	}()
	if _, err := idle.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a connection without calls: %v, want its end", err)
	}
	for { // the end of the one connection says nothing of when the other one hears of it
		conn.say(`{"jsonrpc":"2.0","id":2,"method":"echo"}`)
		if got := conn.hear(); strings.Contains(got, "the gateway is stopping") {
			break
		} else if strings.Contains(got, "error") {
			t.Fatalf("a call while it stops answered %s", got)
		}
	}
	conn.say(`{"jsonrpc":"2.0","id":3,"method":"rpc.cancel","params":{"id":1}}`)
	answers := []string{conn.hear(), conn.hear()}
	if all := strings.Join(answers, ""); !strings.Contains(all, "wait was cancelled") || !strings.Contains(all, `"cancelled":true`) {
		t.Errorf("the call that ran answered %q", answers)
	}
	<-stopped

	s = startRPC(t, Options{Grace: time.Millisecond})
	conn = s.dial(t)
	conn.say(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)
	<-s.host.started
	ws := s.websocket(t)
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)); err != nil {
		t.Fatal(err)
	}
	<-s.host.started
	posted := make(chan string, 1)
	go func() {
		_, answer, err := s.ask(context.WithoutCancel(t.Context()), http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"wait"}`)
		posted <- fmt.Sprint(answer, err)
	}()
	<-s.host.started
	s.stop()
	_, last, err := ws.Read(t.Context())
	for by, said := range map[string]string{"socket": conn.hear(), "websocket": fmt.Sprint(string(last), err), "post": <-posted} {
		if !strings.Contains(said, "wait did not come to its end: the gateway is stopping") {
			t.Errorf("%s: a call that was cut short answered %s", by, said)
		}
	}
	for range 3 {
		if cause := <-s.host.ended; !errors.Is(cause, errStopping) {
			t.Errorf("a call that takes too long ended by %v", cause)
		}
	}
}

// A page gets back one of the subprotocols that it offers; not the one with the
// token, if there is another.
func TestRPCSubprotocol(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	if got := s.websocket(t).Subprotocol(); got != protocolPrefix+testToken {
		t.Errorf("chosen: %q, want the only one", got)
	}
	if got := s.websocket(t, "jsonrpc").Subprotocol(); got != "jsonrpc" {
		t.Errorf("chosen: %q, want that without the token", got)
	}
	req, err := s.request(t.Context(), http.MethodGet, "")
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var said struct{ Error, Code string }
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || resp.StatusCode != 400 || said.Code != "usage" || !strings.Contains(said.Error, "version") {
		t.Errorf("an upgrade of no version: %d %+v, %v", resp.StatusCode, said, err)
	}
	if status, body, err := s.ask(t.Context(), http.MethodGet, ""); err != nil || status != http.StatusUpgradeRequired || !strings.Contains(body, "is for WebSockets") {
		t.Errorf("GET without an upgrade: %d %s, %v", status, body, err)
	}
}

// Whoever has not the token, or comes from a strange page, gets no connection.
func TestRPCAccess(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := startRPC(t, Options{AllowedOrigins: []string{"https://notes.example"}, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	bearer := func(values ...string) http.Header { return http.Header{"Authorization": values} }
	page := func(origin, token string) http.Header {
		return http.Header{"Origin": {origin}, "Sec-Websocket-Protocol": {"jsonrpc, bearer." + token}}
	}
	for _, tt := range []struct {
		name   string
		header http.Header
		status int
	}{
		{"nothing", http.Header{}, 401},
		{"an empty token", bearer("Bearer "), 401},
		{"another token", bearer("Bearer " + testToken + "2"), 401},
		{"a part of the token", bearer("Bearer let"), 401},
		{"another scheme", bearer("Basic " + testToken), 401},
		{"two blanks", bearer("Bearer  " + testToken), 401},
		{"two headers", bearer("Bearer "+testToken, "Bearer "+testToken), 401},
		{"a header and a wrong subprotocol", http.Header{"Authorization": {"Bearer x"}, "Sec-Websocket-Protocol": {"bearer." + testToken}}, 401},
		{"an empty subprotocol", http.Header{"Sec-Websocket-Protocol": {"bearer."}}, 401},
		{"two subprotocols", http.Header{"Sec-Websocket-Protocol": {"bearer." + testToken + ", bearer." + testToken}}, 401},
		{"the token", bearer("Bearer " + testToken), 101},
		{"the token in lower case", bearer("bearer " + testToken), 101},
		{"a page that may", page("https://notes.example", testToken), 101},
		{"a page that may, without the token", page("https://notes.example", "x"), 401},
		{"a strange page", page("https://evil.example", testToken), 403},
		{"a page without a name", page("null", testToken), 403},
		{"a page of another port", page("http://127.0.0.1:1", testToken), 403},
	} {
		header := tt.header.Clone()
		for k, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
			header.Set(k, v)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, resp.StatusCode, tt.status)
		}
	}
	s.stop()
	if strings.Contains(log.String(), testToken) {
		t.Errorf("the token stands in the log: %s", log.String())
	}
}

// Many clients at once, on all transports, each get their own answers.
func TestRPCManyClients(t *testing.T) {
	t.Parallel()
	s := startRPC(t, Options{})
	const clients, calls = 64, 25
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			var ask func(message string) (string, error)
			switch n % 3 {
			case 0:
				conn := s.dial(t)
				ask = func(m string) (string, error) {
					if _, err := fmt.Fprintln(conn, m); err != nil {
						return "", err
					}
					return conn.in.ReadString('\n')
				}
			case 1:
				ws := s.websocket(t)
				ask = func(m string) (string, error) {
					if err := ws.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
						return "", err
					}
					_, got, err := ws.Read(t.Context())
					return string(got), err
				}
			default:
				ask = func(m string) (string, error) {
					_, got, err := s.ask(t.Context(), http.MethodPost, m)
					return got, err
				}
			}
			for i := range calls {
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":["%d-%d"]}`, i, n, i)
				got, err := ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":["%d-%d"]}`, i, n, i))
				if err != nil || strings.TrimSpace(got) != want {
					t.Errorf("client %d heard %q, %v, want %s", n, got, err, want)
					return
				}
			}
		})
	}
	all.Wait()
}

// Whatever is sent, the answer is nothing or JSON in one line, and each request
// that is one has one.
func FuzzRPCMessage(f *testing.F) {
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":1}}`, `[{"jsonrpc":"2.0","id":"a","method":"pretty"},{"jsonrpc":"2.0","method":"echo"},1]`,
		`{"jsonrpc":"2.0","id":{},"method":""}`, `{"jsonrpc":"2.0","id":1e2,"method":"fail","params":["usage"]}`, `[]`, `[`, "\xff", `{"id":null,"error":{},"jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","id":1,"method":"rpc.cancel","params":{"id":1}}`, `{"jsonrpc":"2.0","id":1,"method":"panic"}`,
	} {
		f.Add([]byte(message))
	}
	r := newRPC(newRPCHost(), slog.New(slog.DiscardHandler), testLimit, time.Minute)
	f.Fuzz(func(t *testing.T, message []byte) {
		if bytes.Contains(message, []byte("wait")) || bytes.Contains(message, []byte("until")) || bytes.Contains(message, []byte(`\u`)) {
			return // methods that wait for a test
		}
		status, answer := r.post(t.Context(), message)
		if answer == nil && status == http.StatusNoContent {
			return
		}
		if !json.Valid(answer) || bytes.ContainsAny(answer, "\n\r") {
			t.Fatalf("%q was answered %q", message, answer)
		}
		var one struct{ Result, Error json.RawMessage }
		if answer[0] != '[' && (json.Unmarshal(answer, &one) != nil || (one.Result == nil) == (one.Error == nil)) {
			t.Errorf("%q was answered %s", message, answer)
		}
	})
}
