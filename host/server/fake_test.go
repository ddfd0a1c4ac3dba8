package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sess/dispatch"
	"sess/host/server"
	"sess/plugin"
)

const token = "the-token-of-the-tests"

// fakeHost is a host with one plugin, whose verbs answer with what they were
// given, and which counts the calls that reach it.
type fakeHost struct {
	mu       sync.Mutex // guards the rest
	commands []server.Command
	verbs    map[string]*dispatch.Dispatcher
	calls    []plugin.Call
	ready    error
	sessions string // what LoadAll writes
	broken   error  // and then fails with
	confirm  string // the verb that a person has to allow
	changed  chan struct{}
}

func newHost(t *testing.T) *fakeHost {
	t.Helper()
	h := &fakeHost{verbs: map[string]*dispatch.Dispatcher{}, changed: make(chan struct{})}
	h.add(t, "notes", "notes-plugin", nil)
	d, err := dispatch.New(dispatch.Command{Name: "plugins", Summary: "the plugins", Verbs: []dispatch.Verb{{
		Name: "list", Summary: "list them", Effect: plugin.EffectRead,
		Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) {
			return plugin.Result{Data: json.RawMessage(`[{"id":"notes-plugin","state":"ready","restarts":2}]`)}, nil
		},
	}, {
		Name: "inspect", Summary: "tell about one", Effect: plugin.EffectRead, Args: []plugin.Arg{{Name: "id", Type: plugin.TypeString, Required: true}},
		Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			return plugin.Result{}, plugin.Errorf(plugin.NotFound, "no plugin %q", in.Arg("id"))
		},
	}, {
		Name: "install", Summary: "install one", Effect: plugin.EffectWrite, ByHand: true,
		Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) { return plugin.Result{}, nil },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	h.verbs["plugins"] = d
	h.commands = append(h.commands, server.Command{Spec: d.Spec(), HTTP: true})
	return h
}

// add brings in a command of a plugin. wait, if there is one, is what its verb
// "wait" does.
func (h *fakeHost) add(t *testing.T, name, id string, wait func(ctx context.Context) error) {
	t.Helper()
	echo := func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
		data, err := json.Marshal(map[string]any{
			"name": in.Arg("name"), "tags": in.Map("tags"), "tag": in.Strings("tag"), "limit": in.Int("limit"), "reason": in.String("reason"),
			"session": in.Call.Session, "agent": in.Call.Agent, "project": in.Call.Project, "caller": in.Call.Caller,
		})
		res := plugin.Result{Text: "done", Data: data, Page: &plugin.Page{Total: 7, Next: "c=1&x"}}
		if in.Arg("name") == "noted" {
			res.Notices = []string{"schön", "the disk is full"}
		}
		return res, err
	}
	flags := func(fs *dispatch.Flags) {
		fs.Map("tags", "labels")
		fs.Strings("tag", "with this tag")
		fs.Paged()
		fs.String("reason", "", "why")
		fs.Bool("auto-name", false, "make a name")
		fs.Bool("all", false, "all of them")
	}
	optional := []plugin.Arg{{Name: "name", Type: plugin.TypeString, Help: "name of a note"}}
	d, err := dispatch.New(dispatch.Command{
		Name: name, Summary: "notes on things",
		Verbs: []dispatch.Verb{
			{Name: "list", Aliases: []string{"ls"}, Summary: "list them", Effect: plugin.EffectRead, Args: optional, Flags: flags, Run: echo},
			{Name: "save", Summary: "save one", Effect: plugin.EffectWrite, Args: optional, Flags: flags, Run: echo},
			{Name: "trash restore", Summary: "bring one back", Effect: plugin.EffectWrite, Args: optional, Flags: flags, Run: echo},
			{
				Name: "delete", Summary: "delete one", Effect: plugin.EffectDestroy, Args: optional,
				Flags: func(fs *dispatch.Flags) { fs.Bool("confirm", false, "really").Confirm() },
				Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
					if !in.Bool("confirm") {
						return plugin.Result{}, plugin.Errorf(plugin.Usage, "not confirmed")
					}
					return plugin.Result{Text: "deleted"}, nil
				},
			},
			{
				Name: "fail", Summary: "answer with an error", Effect: plugin.EffectRead, Args: []plugin.Arg{{Name: "code", Type: plugin.TypeString, Required: true}},
				Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
					return plugin.Result{}, plugin.Errorf(plugin.Code(in.Arg("code")), "it failed").WithHint("do otherwise").WithDetail("id", "x")
				},
			},
			{
				Name: "wait", Summary: "wait for something", Effect: plugin.EffectRead,
				Run: func(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
					if wait == nil {
						return plugin.Result{}, nil
					}
					return plugin.Result{Text: "waited"}, wait(ctx)
				},
			},
			{Name: "op", Summary: "for plugins", Effect: plugin.EffectRead, Internal: true, Run: echo},
		},
		Routes: []plugin.Route{
			{Method: "GET", Path: "/" + name + "-of/{id}/items", Argv: []string{"list", "--session={id}"}},
			{Method: "POST", Path: "/" + name + "-of/{id}/items", Argv: []string{"save", "--auto-name", "--reason={reason}", "--session={id}"}, Status: 201},
			{Method: "GET", Path: "/" + name + "-of/{id}/items/chosen", Argv: []string{"list", "--session={id}", "--", "chosen"}},
			{Method: "DELETE", Path: "/" + name + "-of/{id}/items/{item}", Argv: []string{"delete", "--confirm", "--session={id}", "--", "{item}"}},
			{Method: "GET", Path: "/" + name + "-of/{id}/items/{item}", Argv: []string{"fail", "--session={id}", "--", "{item}"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.verbs[name] = d
	h.commands = append(h.commands, server.Command{Spec: d.Spec(), Plugin: id, HTTP: true, Tool: true})
}

func (h *fakeHost) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	h.mu.Lock()
	d := h.verbs[call.Argv[0]]
	if call.Caller != plugin.CallerHost && d != nil {
		h.calls = append(h.calls, call)
	}
	h.mu.Unlock()
	if d == nil {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "unknown command %q", call.Argv[0])
	}
	if len(call.Argv) > 1 && call.Argv[len(call.Argv)-1] == "panic" {
		panic("a bug with the secret " + token)
	}
	call.Argv = call.Argv[1:]
	return d.Dispatch(ctx, call, progress)
}

func (h *fakeHost) Commands(context.Context) []server.Command {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]server.Command(nil), h.commands...)
}

func (h *fakeHost) Absent(_ context.Context, command string) error {
	switch command {
	case "off":
		return plugin.Errorf(plugin.Unavailable, "plugin off is switched off")
	case "wrong":
		return plugin.Errorf(plugin.Usage, "plugin wrong objects to its configuration")
	}
	return nil
}

func (h *fakeHost) Call(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	switch method {
	case "sessions.saveSession", "sessions.deleteSession", "sessions.deleteProjectSessions", "sessions.saveManifest":
		if bytes.Contains(params, []byte("stale")) {
			return nil, plugin.Errorf(plugin.Conflict, "session stale changed meanwhile")
		}
		if bytes.Contains(params, []byte("noted")) {
			server.TellNotices(ctx, []string{"schön"})
		}
		return json.Marshal(map[string]any{"revision": 6, "deleted": 2, "caller": caller, "method": method, "params": string(params)})
	case "notes.invoke", "plugins.list":
		return json.RawMessage("null"), nil
	case "notes.panic":
		panic("a bug")
	}
	return nil, plugin.Errorf(plugin.Usage, "%w %q", server.ErrUnknownMethod, method)
}

// LoadAll writes what the test has set: a part of it, where it fails later.
func (h *fakeHost) LoadAll(_ context.Context, w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions == "" {
		return h.broken
	}
	_, err := io.WriteString(w, h.sessions)
	return errors.Join(err, h.broken)
}

func (h *fakeHost) Methods(context.Context) []string { return nil }

func (h *fakeHost) Subscribe(server.EventFilter) server.Subscription {
	return &fakeEvents{changed: h.changed, closed: make(chan struct{})}
}

func (h *fakeHost) Confirms(_ *plugin.Spec, verb *plugin.Verb) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirm != "" && h.confirm == verb.Name
}

// fakeEvents tells that the commands have changed.
type fakeEvents struct {
	changed chan struct{}
	closed  chan struct{}
	once    sync.Once
}

func (e *fakeEvents) Next(ctx context.Context) (server.Event, error) {
	select {
	case <-e.changed:
		return server.Event{Kind: "plugins.changed"}, nil
	case <-e.closed:
		return server.Event{}, io.EOF
	case <-ctx.Done():
		return server.Event{}, ctx.Err()
	}
}

func (e *fakeEvents) Close() { e.once.Do(func() { close(e.closed) }) }

func (h *fakeHost) Converse(context.Context, server.ChatLine) (server.Exchange, error) {
	return nil, plugin.Errorf(plugin.NotFound, "no session")
}

func (h *fakeHost) Watch(context.Context, plugin.SessionRef, string) (server.ChatStream, error) {
	return nil, plugin.Errorf(plugin.NotFound, "no session")
}

func (h *fakeHost) Ready(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready
}

// reached is how many calls came through, and the last one.
func (h *fakeHost) reached() (int, plugin.Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) == 0 {
		return 0, plugin.Call{}
	}
	return len(h.calls), h.calls[len(h.calls)-1]
}

// gateway is a server that listens on a port of this machine.
type gateway struct {
	host *fakeHost
	url  string
	log  *lockedBuffer
	stop context.CancelFunc
	done chan error
}

type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start serves h until the end of the test. It checks that the token is in no
// line of the log, at no level.
func start(t *testing.T, h *fakeHost, o server.Options) *gateway {
	t.Helper()
	g := &gateway{host: h, log: &lockedBuffer{}, done: make(chan error, 1)}
	o.Token = cmp.Or(o.Token, token)
	o.Version = "9.9"
	o.Logger = slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := server.New(h, o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.url = "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	g.stop = stop
	go func() { g.done <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-g.done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return g
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request. Of the headers, given as "Name: value", one that begins
// with "-" leaves out the token; Host is taken for the request's host.
func (g *gateway) ask(t *testing.T, method, target, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.url+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		if h == "-" {
			req.Header.Del("Authorization")
			continue
		}
		name, value, _ := strings.Cut(h, ": ")
		switch {
		case name == "Host":
			req.Host = value
		case name == "Authorization":
			req.Header.Add(name, value)
		default:
			req.Header.Set(name, value)
		}
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// failure reads the body of an error, and checks that it is a whole one.
func failure(t *testing.T, a answer) (code, text string) {
	t.Helper()
	var body struct{ Error, Code, Text, Hint string }
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error == "" || body.Code == "" || body.Text == "" {
		t.Errorf("the body of an error with status %d is %q, want error, code and text (%v)", a.status, a.body, err)
	}
	return body.Code, body.Text
}
