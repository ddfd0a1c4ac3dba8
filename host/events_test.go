package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/host/chat"
	"sess/host/server"
	"sess/plugin"
)

// next takes n events, of which it says kind and whatever else is set.
func next(t *testing.T, s server.Subscription, n int) []string {
	t.Helper()
	var all []string
	for range n {
		e, err := s.Next(t.Context())
		if err != nil {
			t.Fatalf("Next after %q: %v", all, err)
		}
		all = append(all, strings.TrimRight(fmt.Sprintf("%d %s %s/%s %s %s", e.Seq, e.Kind, e.Project, e.Session, e.Verb, e.Data), " "))
	}
	return all
}

// What changes something is told, with what it is about and without content;
// what only reads is not.
func TestEvents(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions+`, "rpc:events.publish"`)
	all, some := h.Subscribe(server.EventFilter{}), h.Subscribe(server.EventFilter{Kinds: []string{"session"}, Project: "default", Session: "one"})
	mustDispatch(t, h, "probe", "new", "one")
	mustDispatch(t, h, "probe", "session")
	mustDispatch(t, h, "probe", "replace")
	mustDispatch(t, h, "sessions", "use", "one")
	if _, err := dispatchText(t, h, "sessions", "use", "nobody"); err == nil {
		t.Error("an unknown session can be used")
	}
	mustDispatch(t, h, "probe", "call", "events.publish", `{"kind": "probe.changed", "verb": "tick", "session": "one", "data": {"n": "1"}}`)
	want := []string{
		"1 probe.changed default/ new",
		`2 session.replaced default/one  {"revision":2}`,
		"3 probe.changed default/one replace",
		`4 sessions.changed default/one use {"id":"one","projectId":"default"}`,
		`5 probe.changed default/one tick {"n":"1"}`,
	}
	if diff := cmp.Diff(want, next(t, all, len(want))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:2], next(t, some, 1)); diff != "" {
		t.Errorf("filtered events (-want +got):\n%s", diff)
	}
	some.Close()
	some.Close()
	if e, err := some.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("Next after Close = %v, %v, want io.EOF", e, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Subscribe(server.EventFilter{}).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next of a reader that has gone = %v", err)
	}
}

// Only a plugin may publish, and only in its own name.
func TestPublish(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), `"rpc:events.publish"`)
	for _, tt := range []struct {
		caller plugin.Caller
		params string
		code   plugin.Code
	}{
		{plugin.CallerRPC, `{"kind": "probe.changed"}`, plugin.Denied},
		{plugin.CallerHost, `{"kind": "probe.changed"}`, plugin.Denied},
		{plugin.PluginCaller("probe"), `{"kind": "sess.changed"}`, plugin.Denied},
		{plugin.PluginCaller("probe"), `{"kind": "turn.ended"}`, plugin.Denied},
		{plugin.PluginCaller("probe"), `{"kind": "probe.changed", "seq": 1}`, plugin.Usage},
		{plugin.PluginCaller("probe"), `{"kind": "probe.changed", "data": {"text": "` + strings.Repeat("x", 5000) + `"}}`, plugin.Usage},
		{plugin.PluginCaller("other"), `{"kind": "probe.changed"}`, plugin.NotFound},
	} {
		if _, err := h.Call(t.Context(), tt.caller, "events.publish", json.RawMessage(tt.params), nil); !errors.Is(err, &plugin.Error{Code: tt.code}) {
			t.Errorf("events.publish of %.60s by %s: %v, want %s", tt.params, tt.caller, err, tt.code)
		}
	}
}

// A reader that is too slow misses the oldest events, hears how many, and slows
// nobody down.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), `"rpc:events.publish"`)
	const n = 1000
	slow, quick := h.Subscribe(server.EventFilter{}), h.Subscribe(server.EventFilter{})
	for i := range n {
		if _, err := h.Call(t.Context(), plugin.PluginCaller("probe"), "events.publish", json.RawMessage(`{"kind": "probe.changed"}`), nil); err != nil {
			t.Fatal(err)
		}
		if e, err := quick.Next(t.Context()); err != nil || e.Seq != int64(i+1) {
			t.Fatalf("event %d = %v, %v", i+1, e, err)
		}
	}
	first, err := slow.Next(t.Context())
	if err != nil || first.Kind != "events.dropped" || first.Dropped == 0 || first.Seq != first.Dropped {
		t.Fatalf("first event of the slow reader = %+v, %v, want events.dropped", first, err)
	}
	for seq := first.Seq + 1; seq <= n; seq++ {
		if e, err := slow.Next(t.Context()); err != nil || e.Seq != seq {
			t.Fatalf("event after the dropped ones = %+v, %v, want number %d", e, err, seq)
		}
	}
}

// A chat's turns are told; nothing of what was said is.
func TestTurnEvents(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions)
	s := h.Subscribe(server.EventFilter{Kinds: []string{"turn"}})
	c, err := h.OpenChat(t.Context(), host.ChatOptions{Session: "talk", Out: chat.SinkFunc(func(chat.Event) {})})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := next(t, s, 2)
	var data [2]struct {
		Turn     string
		Revision int64
	}
	for i, e := range got {
		_, about, _ := strings.Cut(e, "  ")
		if err := json.Unmarshal([]byte(about), &data[i]); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
	if !strings.Contains(got[0], "turn.started default/talk") || !strings.Contains(got[1], "turn.ended default/talk") ||
		data[0].Turn == "" || data[0].Turn != data[1].Turn || data[1].Revision == 0 {
		t.Errorf("events = %q", got)
	}
}

// A command line as params reaches the command as it is; the whole answer comes
// back.
func TestCallArgv(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions)
	call := func(method, params string) (string, error) {
		out, err := h.Call(t.Context(), plugin.CallerRPC, method, json.RawMessage(params), nil)
		return string(out), err
	}
	for _, tt := range []struct{ method, params, want string }{
		{"probe.invoke", `{"argv": ["new", "one"], "project": "p"}`, `{"text":"made one","data":{}}`},
		{"probe.invoke", `{"argv": ["session"], "session": "one"}`, `{"text":"p/one has 0 messages","data":{}}`},
		{"probe.invoke", `{"action": "session", "session": "one"}`, `{}`},
		{"gateway.dispatch", `{"argv": ["probe", "session"], "session": "one", "requestId": "r-1"}`, `{"text":"p/one has 0 messages","data":{}}`},
		{"sessions.invoke", `{"action": "use", "id": "one"}`, `{"text":"session one of project p is the active one","data":{"id":"one","projectId":"p","messages":0,"bytes":0,"revision":0,"active":true,"createdAt":0,"updatedAt":0}}`},
	} {
		if got, err := call(tt.method, tt.params); err != nil || got != tt.want {
			t.Errorf("Call(%s, %s) = %s, %v, want %s", tt.method, tt.params, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		method, params, text, hint string
		code                       plugin.Code
	}{
		{"probe.invoke", `{"argv": ["new"], "action": "new"}`, "both action and argv", "give one", plugin.Usage},
		{"probe.invoke", `{"argv": ["session", "--session=one"]}`, "--session has no meaning", "field session", plugin.Usage},
		{"probe.invoke", `{"argv": ["session", "-v"]}`, "--verbose has no meaning", "leave it out", plugin.Usage},
		{"probe.invoke", `{"argv": ["session", "--home"]}`, "--home has no meaning", "leave it out", plugin.Usage},
		{"probe.invoke", `{"argv": []}`, "argv is empty", `["session"]`, plugin.Usage},
		{"probe.invoke", `{"argv": ["session"], "turn": "t"}`, `unknown field "turn"`, "", plugin.Usage},
		{"probe.invoke", `{"argv": "session"}`, "argv: string is not a list", "", plugin.Usage},
		{"probe.invoke", `{"argv": ["sesion"]}`, "sesion", "session", plugin.Usage},
		{"gateway.dispatch", `{"argv": ["probe", "session"], "caller": "host"}`, `unknown field "caller"`, "", plugin.Usage},
		{"gateway.dispatch", `{"argv": ["probe", "session"], "requestId": "a\nb"}`, "requestId", "leave it out", plugin.Usage},
		{"gateway.dispatch", `{}`, "no command", "", plugin.Usage},
		{"probe.session", `{}`, `unknown method "probe.session"`, `call probe.invoke with "action": "session"`, plugin.Usage},
		{"sessions.lst", `{}`, `unknown method "sessions.lst"`, "did you mean sessions.list", plugin.Usage},
	} {
		_, err := call(tt.method, tt.params)
		if e := plugin.AsError(err); err == nil || e.Code != tt.code || !strings.Contains(e.Message, tt.text) || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("Call(%s, %s) = %v, want %s %q with hint %q", tt.method, tt.params, err, tt.code, tt.text, tt.hint)
		}
	}
	if _, err := call("no.such", "{}"); !errors.Is(err, server.ErrUnknownMethod) {
		t.Errorf("an unknown method: %v, want server.ErrUnknownMethod", err)
	}
	for _, want := range []string{"gateway.dispatch", "probe.invoke", "sessions.invoke", "sessions.list", "plugins.inspect"} {
		if methods := h.Methods(t.Context()); !slices.Contains(methods, want) || !slices.IsSorted(methods) {
			t.Errorf("Methods = %q, want %s among them, sorted", methods, want)
		}
	}
	if err := h.AddMethods(host.Method{Name: "gateway.dispatch"}); err == nil {
		t.Error("a method can be declared twice")
	}
}

// A host that is being closed is not ready.
func TestReady(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), host.Options{Home: t.TempDir(), Exe: exe, Environ: os.Environ(), Builtins: [][]byte{fmt.Appendf(nil, probeManifest, "")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Errorf("Ready: %v", err)
	}
	s := h.Subscribe(server.EventFilter{})
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(t.Context()); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("Ready of a closed host: %v, want unavailable", err)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("Next of a closed host: %v, want io.EOF", err)
	}
}
