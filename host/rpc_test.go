package host_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/host/client"
	"sess/host/server"
	"sess/plugin"
)

// openGateway opens a host whose plugin has a process of its own, and serves it.
// The options reach it over the socket and over the network.
func openGateway(tb testing.TB) (h *host.Host, socket, network client.Options) {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	h, err = host.Open(tb.Context(), host.Options{
		Home: tb.TempDir(), Exe: exe, Environ: os.Environ(), Builtins: [][]byte{fmt.Appendf(nil, probeManifest, allPermissions)}, Background: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	const token = "let-me-in"
	s, err := server.New(h, server.Options{Token: token})
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "s")
	unix, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	for l, serve := range map[net.Listener]func(context.Context, net.Listener) error{unix: s.ServeSocket, tcp: s.Serve} {
		served.Go(func() {
			if err := serve(ctx, l); err != nil {
				tb.Errorf("serve %s: %v", l.Addr(), err)
			}
		})
	}
	tb.Cleanup(func() {
		cancel()
		served.Wait()
		if err := h.Close(context.Background()); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return h, client.Options{Socket: path}, client.Options{URL: "http://" + tcp.Addr().String(), Token: token}
}

func connect(tb testing.TB, o client.Options) *client.Client {
	tb.Helper()
	c, err := client.Dial(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return c
}

// From the client through the gateway to a plugin's process and back nothing is
// lost: answers, progress, errors, events.
func TestThroughGateway(t *testing.T) {
	t.Parallel()
	h, socket, network := openGateway(t)
	for name, o := range map[string]client.Options{"socket": socket, "network": network} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, o)
			sub, err := c.Subscribe(t.Context(), client.Filter{Kinds: []string{"probe"}, Project: name})
			if err != nil {
				t.Fatal(err)
			}
			var steps []plugin.Progress
			res, err := c.Dispatch(t.Context(), plugin.Call{Argv: []string{"probe", "echo", "--steps", "--", "--é <"}, Project: name}, func(p plugin.Progress) { steps = append(steps, p) })
			if err != nil || res.Text != "--é <" {
				t.Errorf("echo = %+v, %v", res, err)
			}
			if diff := cmp.Diff([]plugin.Progress{{Stage: "echoing", Done: 1, Total: 1, Unit: "words"}}, steps); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
			_, here := h.Dispatch(t.Context(), plugin.Call{Argv: []string{"probe", "ecco"}, Caller: plugin.CallerRPC}, nil)
			_, there := c.Dispatch(t.Context(), plugin.Call{Argv: []string{"probe", "ecco"}}, nil)
			if a, b := plugin.AsError(here), plugin.AsError(there); here == nil || there == nil || a.Code != b.Code || a.Text() != b.Text() || !cmp.Equal(a.Details, b.Details) {
				t.Errorf("through the gateway %+v, without it %+v", b, a)
			}
			if out, err := c.Call(t.Context(), "probe.invoke", map[string]any{"action": "new", "id": "s-" + name, "project": name}, nil); err != nil || string(out) != `{"text":"made s-`+name+`","data":{}}` {
				t.Errorf("probe.invoke = %s, %v", out, err)
			}
			if e, err := sub.Next(t.Context()); err != nil || e.Kind != "probe.changed" || e.Verb != "new" || e.Project != name {
				t.Errorf("event %+v, %v", e, err)
			}
			methods, err := c.Call(t.Context(), "gateway.methods", nil, nil)
			if err != nil || !strings.Contains(string(methods), `"probe.invoke"`) || !strings.Contains(string(methods), `"rpc.cancel"`) {
				t.Errorf("gateway.methods = %s, %v", methods, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			waiting := make(chan error, 1)
			go func() {
				_, err := c.Dispatch(ctx, plugin.Call{Argv: []string{"probe", "told"}}, nil)
				waiting <- err
			}()
			cancel()
			if err := <-waiting; !errors.Is(err, context.Canceled) {
				t.Errorf("a call that was cancelled: %v", err)
			}
		})
	}
}

// Many clients at once get their own answers; the plugin's death fails at most
// the calls that run, in words, and no connection.
func TestManyThroughGateway(t *testing.T) {
	t.Parallel()
	_, socket, network := openGateway(t)
	const clients, calls = 64, 5
	var all sync.WaitGroup
	for n := range clients {
		o := socket
		if n%2 == 0 {
			o = network
		}
		c := connect(t, o)
		all.Go(func() {
			for i := range calls {
				if n == 7 && i == 2 {
					if _, err := c.Dispatch(t.Context(), plugin.Call{Argv: []string{"probe", "die"}}, nil); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
						t.Errorf("the call that kills the plugin: %v, want unavailable", err)
					}
				}
				want := fmt.Sprintf("%d-%d", n, i)
				// What only reads is asked again when the plugin has died.
				res, err := c.Dispatch(t.Context(), plugin.Call{Argv: []string{"probe", "echo", want}}, nil)
				if err != nil || res.Text != want {
					t.Errorf("client %d: %q, %v, want %s", n, res.Text, err, want)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkRPC measures a call through the gateway, on an open connection to the
// plugin and back, against the call of the plugin alone. They take turns; the
// ratios are those of the medians, and have to stay below 2.
func BenchmarkRPC(b *testing.B) {
	h, socket, network := openGateway(b)
	call := plugin.Call{Argv: []string{"probe", "echo", "word"}, Project: "default", Session: "s"}
	ways := []struct {
		name string
		plugin.Dispatcher
	}{
		{"plugin", h}, {"socket", connect(b, socket)}, {"websocket", connect(b, network)},
	}
	times := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, way := range ways {
			started := time.Now()
			if _, err := way.Dispatch(b.Context(), call, nil); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(started))
		}
	}
	median := func(i int) float64 {
		slices.Sort(times[i])
		return float64(times[i][len(times[i])/2])
	}
	for i, way := range ways {
		b.ReportMetric(median(i), way.name+"-ns")
		if i > 0 {
			b.ReportMetric(median(i)/median(0), way.name+"-ratio")
		}
	}
}
