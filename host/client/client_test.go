package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host/client"
	"sess/host/server"
	"sess/plugin"
)

const token = "let-me-in"

// fakeHost answers calls in the way that each test needs.
type fakeHost struct {
	server.Host
	call func(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error)
	subs chan *fakeSub
}

func (h *fakeHost) Call(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error) {
	return h.call(ctx, caller, method, params, progress)
}

func (h *fakeHost) Subscribe(f server.EventFilter) server.Subscription {
	s := &fakeSub{filter: f, events: make(chan server.Event, 2000), closed: make(chan struct{})}
	if slices.Equal(f.Kinds, []string{"plugins"}) {
		return s // the server's own
	}
	s.events <- server.Event{Seq: 1, Kind: "sess.changed", Verb: "save"} // before the client can know
	h.subs <- s
	return s
}

type fakeSub struct {
	filter server.EventFilter
	events chan server.Event
	closed chan struct{}
	once   sync.Once
}

func (s *fakeSub) Next(ctx context.Context) (server.Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case <-s.closed:
		return server.Event{}, io.EOF
	case <-ctx.Done():
		return server.Event{}, ctx.Err()
	}
}

func (s *fakeSub) Close() { s.once.Do(func() { close(s.closed) }) }

// gateway is a server on a socket and on the network.
type gateway struct {
	*fakeHost
	socket, url string
	stop        func()
}

func start(t *testing.T, call func(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error)) *gateway {
	t.Helper()
	g := &gateway{fakeHost: &fakeHost{call: call, subs: make(chan *fakeSub, 10)}, socket: filepath.Join(t.TempDir(), "s")}
	s, err := server.New(g.fakeHost, server.Options{Token: token, BodyLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.url = "http://" + web.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.ServeSocket(ctx, socket); err != nil {
			t.Errorf("ServeSocket: %v", err)
		}
	})
	served.Go(func() {
		if err := s.Serve(ctx, web); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	g.stop = sync.OnceFunc(func() {
		cancel()
		served.Wait()
	})
	t.Cleanup(g.stop)
	return g
}

// each runs a test over both ways to a gateway.
func (g *gateway) each(t *testing.T, test func(t *testing.T, c *client.Client)) {
	t.Helper()
	for name, o := range map[string]client.Options{"socket": {Socket: g.socket}, "network": {URL: g.url, Token: token}} {
		t.Run(name, func(t *testing.T) { test(t, dial(t, o)) })
	}
}

func dial(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// A call through a gateway arrives as it was made, and what it is answered comes
// back whole.
func TestDispatch(t *testing.T) {
	t.Parallel()
	var got string
	g := start(t, func(_ context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error) {
		got = string(caller) + " " + method + " " + string(params)
		progress.Report(plugin.Progress{Stage: "reading", Done: 1, Total: 2, Unit: "bytes"})
		return json.RawMessage(`{"text":"saved <v1>","data":{"n":1},"notices":["a","b"],"page":{"total":7,"next":"x"}}`), nil
	})
	g.each(t, func(t *testing.T, c *client.Client) {
		var steps []plugin.Progress
		res, err := c.Dispatch(t.Context(), plugin.Call{
			Argv: []string{"sess", "save", "--", "-v1"}, Agent: "a", Project: "p", Session: "s", Cwd: "/w", Input: bytes.NewReader([]byte{0, 255}), RequestID: "r",
			Turn: "t", Caller: plugin.CallerHost,
		}, func(p plugin.Progress) { steps = append(steps, p) })
		if err != nil {
			t.Fatal(err)
		}
		const sent = `rpc gateway.dispatch {"argv":["sess","save","--","-v1"],"agent":"a","project":"p","session":"s","cwd":"/w","requestId":"r","files":true}`
		if got != sent {
			t.Errorf("the gateway was asked %s, want %s", got, sent)
		}
		want := plugin.Result{Text: "saved <v1>", Data: json.RawMessage(`{"n":1}`), Notices: []string{"a", "b"}, Page: &plugin.Page{Total: 7, Next: "x"}}
		if diff := cmp.Diff(want, res); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]plugin.Progress{{Stage: "reading", Done: 1, Total: 2, Unit: "bytes"}}, steps); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

// Every error comes back with its code, hint and details.
func TestErrors(t *testing.T) {
	t.Parallel()
	g := start(t, func(_ context.Context, _ plugin.Caller, method string, _ json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
		return nil, plugin.Errorf(plugin.Code(method), "it is %s", method).WithHint("do that").WithDetail("name", "x").WithDetail("incident", "y")
	})
	g.each(t, func(t *testing.T, c *client.Client) {
		for _, info := range plugin.Codes() {
			_, err := c.Call(t.Context(), string(info.Code), nil, nil)
			want := &plugin.Error{Code: info.Code, Message: "it is " + string(info.Code), Hint: "do that", Details: map[string]string{"name": "x", "incident": "y"}}
			if diff := cmp.Diff(error(want), err); diff != "" {
				t.Errorf("%s (-want +got):\n%s", info.Code, diff)
			}
		}
	})
}

// A caller that gives up cancels its call in the gateway, hears what has come of
// it, and can go on with the connection.
func TestCancel(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 1)
	g := start(t, func(ctx context.Context, _ plugin.Caller, method string, _ json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
		if method == "echo" {
			return json.RawMessage("1"), nil
		}
		started <- struct{}{}
		<-ctx.Done()
		if method == "done" { // was past the point of no return
			return json.RawMessage("2"), nil
		}
		return nil, ctx.Err()
	})
	g.each(t, func(t *testing.T, c *client.Client) {
		for method, want := range map[string]error{"wait": context.Canceled, "done": nil} {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-started
				cancel()
			}()
			_, err := c.Call(ctx, method, nil, nil)
			if !errors.Is(err, want) || err != nil && !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
				t.Errorf("%s: %v, want %v", method, err, want)
			}
			if out, err := c.Call(t.Context(), "echo", nil, nil); err != nil || string(out) != "1" {
				t.Errorf("the next call: %s, %v", out, err)
			}
		}
	})
}

// A caller that has given up before it calls, or while it does, spoils nothing for
// others.
func TestCancelledBefore(t *testing.T) {
	t.Parallel()
	g := start(t, func(context.Context, plugin.Caller, string, json.RawMessage, plugin.ProgressFunc) (json.RawMessage, error) {
		return json.RawMessage("1"), nil
	})
	g.each(t, func(t *testing.T, c *client.Client) {
		var all sync.WaitGroup
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(cancel)
			if _, err := c.Call(ctx, "echo", nil, nil); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Call: %v", err)
			}
			cancel()
			if _, err := c.Call(ctx, "echo", nil, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("Call with a context that has ended: %v", err)
			}
			if _, err := c.Call(t.Context(), "echo", nil, nil); err != nil {
				t.Fatalf("a call after that: %v", err)
			}
		}
		all.Wait()
	})
}

// Calls of one connection do not wait for each other, and each gets its own
// answer.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	g := start(t, func(_ context.Context, _ plugin.Caller, method string, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
		if method == "first" {
			<-release
		}
		return params, nil
	})
	c := dial(t, client.Options{Socket: g.socket})
	first := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), "first", nil, nil)
		first <- err
	}()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			want, err := json.Marshal(map[string]int{"n": n})
			if err != nil {
				t.Error(err)
			}
			if out, err := c.Call(t.Context(), "echo", json.RawMessage(want), nil); err != nil || string(out) != string(want) {
				t.Errorf("call %d: %s, %v", n, out, err)
			}
		})
	}
	all.Wait()
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the first call: %v", err)
	}
}

// A gateway that goes fails what runs, and what comes after, with a way on.
func TestGone(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 2)
	g := start(t, func(ctx context.Context, _ plugin.Caller, _ string, _ json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	conn, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		peer, err := conn.Accept()
		if err != nil {
			return
		}
		// It dies after it has taken the call.
		buf := make([]byte, 100)
		_, _ = peer.Read(buf)
		peer.Close()
	}()
	c := dial(t, client.Options{Socket: conn.Addr().String()})
	for range 2 {
		_, err := c.Call(t.Context(), "wait", nil, nil)
		e := plugin.AsError(err)
		if err == nil || e.Code != plugin.Unavailable || !strings.Contains(e.Message, "has gone") || !strings.Contains(e.Hint, "sess gateway status") {
			t.Errorf("Call = %v, hint %q", err, e.Hint)
		}
	}
	g.stop()
	for name, o := range map[string]client.Options{"socket": {Socket: g.socket}, "network": {URL: g.url, Token: token}} {
		_, err := client.Dial(t.Context(), o)
		if e := plugin.AsError(err); err == nil || e.Code != plugin.Unavailable || !strings.Contains(e.Hint, "sess gateway status") {
			t.Errorf("Dial over the %s to a gateway that is not there: %v", name, err)
		}
	}
	ended := dial(t, client.Options{Socket: conn.Addr().String()})
	if err := ended.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ended.Call(t.Context(), "wait", nil, nil); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("Call after Close = %v", err)
	}
}

// Whom the gateway does not let in is told why.
func TestDenied(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for name, o := range map[string]client.Options{"a wrong token": {URL: g.url, Token: "x"}, "no token": {URL: g.url}} {
		_, err := client.Dial(t.Context(), o)
		if e := plugin.AsError(err); err == nil || e.Code != plugin.Denied || !strings.Contains(e.Hint, "sess gateway token") || strings.Contains(e.Hint, "header") {
			t.Errorf("Dial with %s: %v", name, err)
		}
	}
	for name, o := range map[string]client.Options{"nothing": {}, "both": {Socket: "s", URL: "u"}} {
		if _, err := client.Dial(t.Context(), o); !errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
			t.Errorf("Dial with %s: %v, want usage", name, err)
		}
	}
	if _, err := client.Dial(t.Context(), client.Options{URL: g.url + "/healthz", Token: token}); err == nil {
		t.Error("Dial to another path succeeds")
	}
}

// A request that is too large for the gateway fails alone.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	g := start(t, func(_ context.Context, _ plugin.Caller, _ string, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
		return params, nil
	})
	c := dial(t, client.Options{URL: g.url, Token: token})
	_, err := c.Call(t.Context(), "echo", map[string]string{"a": strings.Repeat("x", 2<<20)}, nil)
	if e := plugin.AsError(err); err == nil || e.Code != plugin.Usage || e.Details["limit"] != "1048576" {
		t.Errorf("a call of 2 MiB: %v", err)
	}
	large := map[string]string{"a": strings.Repeat("x", 1000<<10)}
	if out, err := c.Call(t.Context(), "echo", large, nil); err != nil || len(out) < 1000<<10 {
		t.Errorf("a call of 1,000 KiB: %d bytes, %v", len(out), err)
	}
}

// Events reach their subscription, also those that came before the client knew
// of it, until it is closed.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	g := start(t, func(context.Context, plugin.Caller, string, json.RawMessage, plugin.ProgressFunc) (json.RawMessage, error) {
		return json.RawMessage("1"), nil
	})
	g.each(t, func(t *testing.T, c *client.Client) {
		sub, err := c.Subscribe(t.Context(), client.Filter{Kinds: []string{"sess"}, Project: "p", Session: "s"})
		if err != nil {
			t.Fatal(err)
		}
		from := <-g.subs
		if diff := cmp.Diff(server.EventFilter{Kinds: []string{"sess"}, Project: "p", Session: "s"}, from.filter); diff != "" {
			t.Errorf("filter (-want +got):\n%s", diff)
		}
		from.events <- server.Event{Seq: 2, Kind: "sess.changed", Data: json.RawMessage(`{"name":"v1"}`)}
		for _, want := range []client.Event{{Seq: 1, Kind: "sess.changed", Verb: "save"}, {Seq: 2, Kind: "sess.changed", Data: json.RawMessage(`{"name":"v1"}`)}} {
			if e, err := sub.Next(t.Context()); err != nil || !cmp.Equal(e, want) {
				t.Errorf("Next = %+v, %v, want %+v", e, err, want)
			}
		}
		if err := sub.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-from.closed
		if _, err := sub.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("Next after Close: %v", err)
		}

		// Of a reader that is slow the oldest are dropped, and it hears how many.
		sub, err = c.Subscribe(t.Context(), client.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		from = <-g.subs
		const n = 1000
		for seq := int64(2); seq <= n; seq++ {
			from.events <- server.Event{Seq: seq, Kind: "x.changed"}
		}
		last, dropped := int64(0), int64(0)
		for last < n {
			e, err := sub.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == "events.dropped" {
				dropped += e.Dropped
				last += e.Dropped
			} else {
				last++
			}
			if e.Seq != last {
				t.Fatalf("event %+v after %d, of which %d were dropped", e, last, dropped)
			}
		}
	})
}
