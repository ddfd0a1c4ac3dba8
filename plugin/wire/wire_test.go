package wire_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	goplugin "github.com/hashicorp/go-plugin"

	"sess/plugin"
	"sess/plugin/wire"
	"sess/store/transcript"
)

// asPlugin in the environment makes the test binary serve [testPlugin].
const asPlugin = "WIRE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		wire.Serve(&testPlugin{}, wire.ServeOptions{})
		return
	}
	// go-plugin gives its own stdin to the plugin, whose lifeline it is.
	lifeline, keep, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	os.Stdin = lifeline
	code := m.Run()
	_ = keep.Close()
	os.Exit(code)
}

// big is larger than any one message may be.
const big = 5 << 20

// testPlugin answers what its first word asks for.
type testPlugin struct{ runtime plugin.Runtime }

func (p *testPlugin) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{
		Spec:  plugin.Spec{Command: "test", Verbs: []plugin.Verb{{Name: "echo", Effect: plugin.EffectRead}}},
		Build: "b1",
		API:   []string{plugin.APIVersion}, Abilities: []string{plugin.AbilityProvider},
	}, nil
}

func (p *testPlugin) Configure(_ context.Context, c plugin.Configuration, r plugin.Runtime) error {
	if string(c.Config) == `{"bad":true}` {
		return plugin.Errorf(plugin.Usage, "bad is not allowed").WithHint("leave it out")
	}
	p.runtime = r
	return nil
}

func (p *testPlugin) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	answer := func(v any) (plugin.Result, error) {
		data, err := json.Marshal(v)
		return plugin.Result{Text: "done", Data: data, Notices: []string{"careful"}}, err
	}
	switch call.Argv[0] {
	case "echo":
		return answer(call)
	case "double":
		input, err := io.ReadAll(call.Input)
		return plugin.Result{Text: strings.Repeat(string(input), 2)}, err
	case "first": // of the input; the rest is not wanted
		var b [1]byte
		_, err := io.ReadFull(call.Input, b[:])
		return plugin.Result{Text: string(b[:])}, err
	case "copy":
		err := call.Output.Begin("copy.txt", "text/plain")
		if err == nil {
			_, err = io.Copy(call.Output, call.Input)
		}
		return plugin.Result{Text: "copied"}, err
	case "count":
		for i := range 3 {
			progress.Report(plugin.Progress{Stage: "counting", Done: int64(i + 1), Total: 3, Unit: "steps"})
		}
		return plugin.Result{}, nil
	case "fail":
		return plugin.Result{}, plugin.Errorf(plugin.Code(call.Argv[1]), "it failed").WithHint("try").WithDetail("k", "v")
	case "panic":
		panic("boom")
	case "exit":
		os.Exit(3)
	case "environ":
		return answer(os.Environ())
	case "wait":
		progress.Report(plugin.Progress{Stage: "waiting"})
		<-ctx.Done()
		return plugin.Result{}, ctx.Err()
	case "wait-in-host":
		_, err := p.runtime.Call(ctx, "wait", nil)
		return plugin.Result{}, err
	case "deadline":
		_, ok := ctx.Deadline()
		return answer(ok)
	case "tour":
		return p.tour(ctx)
	case "runtime-error":
		_, err := p.runtime.Session(ctx, plugin.SessionRef{ID: "missing"})
		return plugin.Result{}, err
	case "runtime-panic":
		return plugin.Result{}, p.runtime.Unstage(ctx, "panic")
	case "bad-chunks":
		_, err := p.runtime.WriteChunks(ctx, "s", func(yield func(plugin.Chunk, error) bool) {
			_ = yield(plugin.Chunk{ID: "a", Frame: []byte("a")}, nil) &&
				yield(plugin.Chunk{}, plugin.Errorf(plugin.Corrupt, "chunk b is damaged"))
		})
		return plugin.Result{}, err
	}
	return plugin.Result{}, plugin.Errorf(plugin.Usage, "no verb %q", call.Argv[0])
}

// tour uses every service of the host once and reports what it saw.
func (p *testPlugin) tour(ctx context.Context) (plugin.Result, error) {
	var saw tour
	err := func() error {
		session, err := p.runtime.Session(ctx, plugin.SessionRef{ID: "s1"})
		if err != nil {
			return err
		}
		saw.Tail = len(session.Document.Lists["messages"].Tail[0])
		saw.Revision = session.Revision

		var chunks []plugin.Chunk
		for chunk, err := range p.runtime.ReadChunks(ctx, []transcript.ID{"a", "b"}) {
			if err != nil {
				return err
			}
			saw.Read = append(saw.Read, len(chunk.Frame))
			chunks = append(chunks, chunk)
		}
		for _, err := range p.runtime.ReadChunks(ctx, []transcript.ID{"a", "gone"}) {
			saw.Gone = errors.Is(err, &plugin.Error{Code: plugin.NotFound})
		}
		stage, err := p.runtime.Stage(ctx, plugin.StageRequest{Session: session.Ref, Document: session.Document, Restore: true})
		if err != nil {
			return err
		}
		saw.Stage = *stage
		saw.Missing, err = p.runtime.WriteChunks(ctx, stage.ID, func(yield func(plugin.Chunk, error) bool) {
			for _, c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		if saw.Committed, err = p.runtime.Commit(ctx, plugin.CommitRequest{Stage: stage.ID, Revision: stage.Revision}); err != nil {
			return err
		}
		if err := p.runtime.Unstage(ctx, stage.ID); err != nil {
			return err
		}
		if saw.Op, err = p.runtime.OpState(ctx, session.Ref, "op"); err != nil {
			return err
		}
		if saw.New, err = p.runtime.NewSession(ctx, plugin.NewSessionRequest{Project: "p", ID: "s2"}); err != nil {
			return err
		}
		if err := p.runtime.Select(ctx, saw.New.Ref, "snap"); err != nil {
			return err
		}
		params, _ := json.Marshal(strings.Repeat("x", big))
		echoed, err := p.runtime.Call(ctx, "echo", params)
		saw.Called = bytes.Equal(params, echoed)
		return err
	}()
	if err != nil {
		return plugin.Result{}, err
	}
	data, err := json.Marshal(saw)
	return plugin.Result{Data: data}, err
}

type tour struct {
	Tail      int
	Revision  int64
	Read      []int
	Gone      bool
	Stage     plugin.Stage
	Missing   []transcript.ID
	Committed int64
	Op        plugin.OpState
	New       plugin.MadeSession
	Called    bool
}

func (p *testPlugin) Notify(ctx context.Context, e plugin.Event) ([]string, error) {
	return []string{string(e.Kind), plugin.RequestID(ctx)}, nil
}

func (p *testPlugin) Complete(_ context.Context, req plugin.CompleteRequest) ([]plugin.Candidate, error) {
	return []plugin.Candidate{{Value: req.Kind, Help: strings.Join(req.Call.Argv, " ")}}, nil
}

func (p *testPlugin) Status(context.Context) ([]plugin.ServiceStatus, error) {
	return []plugin.ServiceStatus{{Name: "pruner", Next: time.Unix(60, 0).UTC()}}, nil
}

func (p *testPlugin) Drain(context.Context) error {
	return plugin.Errorf(plugin.Busy, "still pruning")
}

// hostRuntime is the host's side of the tour.
type hostRuntime struct {
	ids     chan string   // the request id of each call
	waiting chan struct{} // a call of "wait" has begun
	waited  chan error    // what ended it
}

func newHostRuntime() *hostRuntime {
	return &hostRuntime{make(chan string, 100), make(chan struct{}, 1), make(chan error, 1)}
}

func (r *hostRuntime) Session(ctx context.Context, ref plugin.SessionRef) (*plugin.Session, error) {
	r.ids <- plugin.RequestID(ctx)
	if ref.ID != "s1" {
		return nil, plugin.Errorf(plugin.NotFound, "no session %q", ref.ID)
	}
	tail := transcript.Record(`"` + strings.Repeat("m", big) + `"`)
	return &plugin.Session{
		Ref:      plugin.SessionRef{Project: "p", ID: "s1"},
		Revision: 3,
		Document: transcript.Document{
			Format: transcript.Format,
			Lists:  map[string]*transcript.List{"messages": {Records: 1, Tail: []transcript.Record{tail}}},
		},
	}, nil
}

func (r *hostRuntime) ReadChunks(_ context.Context, ids []transcript.ID) plugin.Chunks {
	return func(yield func(plugin.Chunk, error) bool) {
		for _, id := range ids {
			if id == "gone" {
				yield(plugin.Chunk{}, plugin.Errorf(plugin.NotFound, "chunk %s is gone", id))
				return
			}
			if !yield(plugin.Chunk{ID: id, Frame: bytes.Repeat([]byte(id), 2<<20)}, nil) {
				return
			}
		}
	}
}

func (r *hostRuntime) Stage(_ context.Context, req plugin.StageRequest) (*plugin.Stage, error) {
	if !req.Restore || len(req.Document.Lists["messages"].Tail[0]) != big+2 {
		return nil, plugin.Errorf(plugin.Internal, "the stage arrived changed")
	}
	return &plugin.Stage{ID: "st", Missing: []transcript.ID{"a", "b"}, Revision: 3, Differs: true, Ref: req.Session}, nil
}

func (r *hostRuntime) WriteChunks(_ context.Context, stage string, chunks plugin.Chunks) ([]transcript.ID, error) {
	for chunk, err := range chunks {
		if err != nil {
			return nil, err
		}
		if len(chunk.Frame) != 2<<20 || stage != "st" {
			return nil, plugin.Errorf(plugin.Internal, "chunk %s arrived changed", chunk.ID)
		}
	}
	return []transcript.ID{"c"}, nil
}

func (r *hostRuntime) Commit(_ context.Context, req plugin.CommitRequest) (int64, error) {
	return req.Revision + 1, nil
}

func (r *hostRuntime) Unstage(_ context.Context, stage string) error {
	if stage == "panic" {
		panic("boom in the host")
	}
	return nil
}

func (r *hostRuntime) OpState(context.Context, plugin.SessionRef, string) (plugin.OpState, error) {
	return plugin.OpLanded, nil
}

func (r *hostRuntime) NewSession(_ context.Context, req plugin.NewSessionRequest) (plugin.MadeSession, error) {
	return plugin.MadeSession{Ref: plugin.SessionRef{Project: req.Project, ID: req.ID}, File: "/f", Resume: []string{"go", "on"}}, nil
}

func (r *hostRuntime) Select(context.Context, plugin.SessionRef, string) error { return nil }

func (r *hostRuntime) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if method == "wait" {
		r.waiting <- struct{}{}
		<-ctx.Done()
		r.waited <- ctx.Err()
		return nil, ctx.Err()
	}
	return params, nil
}

// start runs the test binary as a plugin and connects to it.
func start(t *testing.T, mux, mtls bool) *wire.Client {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := wire.ClientConfig("test", nil)
	config.Cmd = exec.Command(exe)
	config.Cmd.Env = []string{
		asPlugin + "=1",
		// The race detector sees one in go-plugin's own start of a multiplexed
		// plugin, and would make its exit status say so.
		"GORACE=exitcode=0",
		"TMPDIR=" + os.TempDir(),
	}
	config.GRPCBrokerMultiplex = mux
	config.AutoMTLS = mtls
	client := goplugin.NewClient(config)
	t.Cleanup(client.Kill)
	c, err := wire.Dispense(client)
	if err != nil {
		t.Fatalf("Dispense: %v", err)
	}
	t.Cleanup(func() {
		client.Kill()
		c.Close()
	})
	return c
}

func configured(t *testing.T, mux, mtls bool) (*wire.Client, *hostRuntime) {
	t.Helper()
	c, host := start(t, mux, mtls), newHostRuntime()
	if err := c.Configure(t.Context(), plugin.Configuration{Config: json.RawMessage(`{}`)}, host); err != nil {
		t.Fatalf("Configure: %v", err)
	}
	return c, host
}

func TestEverythingCrossesInEveryMode(t *testing.T) {
	t.Parallel()
	for _, mux := range []bool{false, true} {
		for _, mtls := range []bool{false, true} {
			t.Run(fmt.Sprintf("mux=%t,mtls=%t", mux, mtls), func(t *testing.T) {
				t.Parallel()
				c, host := configured(t, mux, mtls)
				ctx := t.Context()

				d, err := c.Describe(ctx)
				if err != nil || d.Spec.Command != "test" || d.Spec.Verbs[0].Name != "echo" || d.Build != "b1" {
					t.Errorf("Describe = %+v, %v", d, err)
				}

				call := plugin.Call{
					Argv: []string{"echo", "a b", "--", "-x"}, Agent: "main", Project: "p", Session: "s", Turn: "t",
					Caller: plugin.CallerCLI, Cwd: "/", RequestID: "r1",
				}
				result, err := c.Dispatch(ctx, call, nil)
				if err != nil {
					t.Fatalf("Dispatch(echo): %v", err)
				}
				var echoed plugin.Call
				if err := json.Unmarshal(result.Data, &echoed); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(call, echoed); diff != "" {
					t.Errorf("the call arrived changed (-sent +got):\n%s", diff)
				}
				if result.Text != "done" || !slices.Equal(result.Notices, []string{"careful"}) {
					t.Errorf("Dispatch(echo) = %+v", result)
				}

				result, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"double"}, Input: bytes.NewReader(bytes.Repeat([]byte("x"), big))}, nil)
				if err != nil || len(result.Text) != 2*big {
					t.Errorf("Dispatch(double) = %d bytes, %v, want %d", len(result.Text), err, 2*big)
				}

				var copied output
				result, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"copy"}, Input: bytes.NewReader(bytes.Repeat([]byte("x"), big)), Output: &copied}, nil)
				if err != nil || result.Text != "copied" || copied.Len() != big || copied.is != "copy.txt text/plain" {
					t.Errorf("Dispatch(copy) = %q, %v, with %d bytes of %q", result.Text, err, copied.Len(), copied.is)
				}
				if _, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"copy"}, Input: strings.NewReader(""), Output: &copied}, nil); err != nil {
					t.Errorf("Dispatch(copy) of an empty input: %v", err)
				}
				result, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"first"}, Input: &onlyOne{}}, nil)
				if err != nil || result.Text != "1" {
					t.Errorf("Dispatch(first) = %q, %v", result.Text, err)
				}
				lost := errors.New("the disk is gone")
				if _, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"copy"}, Input: iotest.ErrReader(lost), Output: &output{}}, nil); !errors.Is(err, lost) {
					t.Errorf("Dispatch(copy) of an input that fails: %v, want %v", err, lost)
				}
				if _, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"copy"}, Input: strings.NewReader("x"), Output: &output{full: lost}}, nil); !errors.Is(err, lost) {
					t.Errorf("Dispatch(copy) to an output that fails: %v, want %v", err, lost)
				}

				var steps []plugin.Progress
				_, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"count"}}, func(p plugin.Progress) { steps = append(steps, p) })
				if err != nil || len(steps) != 3 || steps[2] != (plugin.Progress{Stage: "counting", Done: 3, Total: 3, Unit: "steps"}) {
					t.Errorf("Dispatch(count) = %v with progress %v", err, steps)
				}

				result, err = c.Dispatch(ctx, plugin.Call{Argv: []string{"tour"}, RequestID: "r2"}, nil)
				if err != nil {
					t.Fatalf("Dispatch(tour): %v", err)
				}
				var saw tour
				if err := json.Unmarshal(result.Data, &saw); err != nil {
					t.Fatal(err)
				}
				ref := plugin.SessionRef{Project: "p", ID: "s1"}
				want := tour{
					Tail: big + 2, Revision: 3, Read: []int{2 << 20, 2 << 20}, Gone: true,
					Stage:   plugin.Stage{ID: "st", Missing: []transcript.ID{"a", "b"}, Revision: 3, Differs: true, Ref: ref},
					Missing: []transcript.ID{"c"}, Committed: 4, Op: plugin.OpLanded,
					New: plugin.MadeSession{Ref: plugin.SessionRef{Project: "p", ID: "s2"}, File: "/f", Resume: []string{"go", "on"}}, Called: true,
				}
				if diff := cmp.Diff(want, saw); diff != "" {
					t.Errorf("the tour of the runtime (-want +got):\n%s", diff)
				}
				if id := <-host.ids; id != "r2" {
					t.Errorf("the call back into the host has request id %q, want r2", id)
				}

				notices, err := c.Notify(plugin.WithRequestID(ctx, "r3"), plugin.Event{Kind: plugin.EventTurnEnded})
				if err != nil || !slices.Equal(notices, []string{"turn_ended", "r3"}) {
					t.Errorf("Notify = %q, %v", notices, err)
				}
				words, err := c.Complete(ctx, plugin.CompleteRequest{Call: plugin.Call{Argv: []string{"load", ""}}, Kind: "snapshot"})
				if err != nil || !slices.Equal(words, []plugin.Candidate{{Value: "snapshot", Help: "load "}}) {
					t.Errorf("Complete = %v, %v", words, err)
				}
				services, err := c.Status(ctx)
				if err != nil || len(services) != 1 || !services[0].Next.Equal(time.Unix(60, 0)) || !services[0].Last.IsZero() {
					t.Errorf("Status = %v, %v", services, err)
				}
				if err := c.Drain(ctx); !errors.Is(err, &plugin.Error{Code: plugin.Busy}) {
					t.Errorf("Drain = %v, want busy", err)
				}
			})
		}
	}
}

func TestErrorsOfCalls(t *testing.T) {
	t.Parallel()
	c, _ := configured(t, true, false)
	for _, test := range []struct {
		argv []string
		want *plugin.Error // but for details and cause
	}{
		{[]string{"fail", "conflict"}, &plugin.Error{Code: plugin.Conflict, Message: "it failed", Hint: "try"}},
		{[]string{"runtime-error"}, &plugin.Error{Code: plugin.NotFound, Message: `no session "missing"`}},
		{[]string{"bad-chunks"}, &plugin.Error{Code: plugin.Corrupt, Message: "chunk b is damaged"}},
		{[]string{"panic"}, &plugin.Error{Code: plugin.Internal, Message: "a bug stopped Dispatch"}},
		{[]string{"runtime-panic"}, &plugin.Error{Code: plugin.Internal, Message: "a bug stopped Unstage"}},
	} {
		_, err := c.Dispatch(t.Context(), plugin.Call{Argv: test.argv}, nil)
		e, ok := errors.AsType[*plugin.Error](err)
		if !ok || e.Code != test.want.Code || e.Message != test.want.Message {
			t.Errorf("Dispatch(%q) = %v, want %v", test.argv, err, test.want)
			continue
		}
		if incident := e.Details["incident"]; e.Code == plugin.Internal && (incident == "" || !strings.Contains(e.Hint, incident)) {
			t.Errorf("Dispatch(%q): hint %q, details %v: want an incident id in both", test.argv, e.Hint, e.Details)
		}
	}
	if err := c.Configure(t.Context(), plugin.Configuration{}, newHostRuntime()); !errors.Is(err, &plugin.Error{Code: plugin.Internal}) {
		t.Errorf("a second Configure = %v, want internal", err)
	}
}

func TestARefusedConfigurationIsADomainError(t *testing.T) {
	t.Parallel()
	c := start(t, false, false)
	err := c.Configure(t.Context(), plugin.Configuration{Config: json.RawMessage(`{"bad":true}`)}, newHostRuntime())
	e, ok := errors.AsType[*plugin.Error](err)
	if !ok || e.Code != plugin.Usage || e.Text() != "bad is not allowed; leave it out" {
		t.Errorf("Configure = %v", err)
	}
}

func TestCancellationReachesBothSides(t *testing.T) {
	t.Parallel()
	c, host := configured(t, true, true)

	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Dispatch(ctx, plugin.Call{Argv: []string{"wait"}}, func(plugin.Progress) { cancel() })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("a cancelled Dispatch = %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Dispatch(ctx, plugin.Call{Argv: []string{"wait-in-host"}}, nil)
		failed <- err
	}()
	<-host.waiting
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a Dispatch cancelled inside a call back = %v", err)
	}
	if err := <-host.waited; !errors.Is(err, context.Canceled) {
		t.Errorf("the call back into the host ended with %v", err)
	}
}

func TestDeadlinesCross(t *testing.T) {
	t.Parallel()
	c, _ := configured(t, false, false)
	for _, test := range []struct {
		name string
		ctx  func() (context.Context, context.CancelFunc)
		want string
	}{
		{"none", func() (context.Context, context.CancelFunc) { return t.Context(), func() {} }, "false"},
		{"an hour", func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Hour) }, "true"},
	} {
		ctx, cancel := test.ctx()
		result, err := c.Dispatch(ctx, plugin.Call{Argv: []string{"deadline"}}, nil)
		cancel()
		if err != nil || string(result.Data) != test.want {
			t.Errorf("%s: the plugin sees a deadline: %s, %v, want %s", test.name, result.Data, err, test.want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Dispatch(ctx, plugin.Call{Argv: []string{"wait"}}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a Dispatch past its deadline = %v", err)
	}
}

func TestADeadPluginIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, mux := range []bool{false, true} {
		t.Run(fmt.Sprint("mux=", mux), func(t *testing.T) {
			t.Parallel()
			c, _ := configured(t, mux, false)
			for _, argv := range [][]string{{"exit"}, {"echo"}} {
				_, err := c.Dispatch(t.Context(), plugin.Call{Argv: argv}, nil)
				e, ok := errors.AsType[*plugin.Error](err)
				if !ok || e.Code != plugin.Unavailable || e.Message != "plugin test stopped during Dispatch" || !errors.Is(err, wire.ErrStopped) {
					t.Errorf("Dispatch(%q) = %#v", argv, err)
				}
			}
		})
	}
}

func TestTheHandshakeStaysOutOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, mux := range []bool{false, true} {
		c, _ := configured(t, mux, true)
		result, err := c.Dispatch(t.Context(), plugin.Call{Argv: []string{"environ"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"PLUGIN_", wire.Handshake().MagicCookieKey} {
			if strings.Contains(strings.ReplaceAll(string(result.Data), asPlugin, ""), secret) {
				t.Errorf("mux=%t: the plugin's environment still has %s: %s", mux, secret, result.Data)
			}
		}
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	c, _ := configured(t, true, false)
	var failed atomic.Int64
	done := make(chan struct{})
	for i := range 16 {
		go func() {
			defer func() { done <- struct{}{} }()
			for j := range 10 {
				id := fmt.Sprint(i, ".", j)
				result, err := c.Dispatch(t.Context(), plugin.Call{Argv: []string{"double"}, Input: strings.NewReader(id)}, nil)
				if err != nil || result.Text != id+id {
					failed.Add(1)
				}
			}
		}()
	}
	for range 16 {
		<-done
	}
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of 160 concurrent calls failed", n)
	}
}

// command runs the test binary as a plugin without go-plugin's client.
func command(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append([]string{asPlugin + "=1", "GORACE=exitcode=0", "TMPDIR=" + t.TempDir()}, env...)
	return cmd
}

func TestStartedByHandAPluginSaysWhatItIs(t *testing.T) {
	t.Parallel()
	cmd := command(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 1 || len(out) > 0 {
		t.Errorf("exit status %d (%v), stdout %q, want 1 and nothing", cmd.ProcessState.ExitCode(), err, out)
	}
	if !strings.Contains(stderr.String(), "plugin of sess") || !strings.Contains(stderr.String(), "sess plugins list") {
		t.Errorf("stderr = %q", stderr.String())
	}
}

func TestAPluginEndsWithItsLifeline(t *testing.T) {
	t.Parallel()
	handshake := wire.Handshake()
	cmd := command(t, handshake.MagicCookieKey+"="+handshake.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=1")
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.Contains(line, "|grpc|") {
		t.Fatalf("the handshake is %q, %v", line, err)
	}
	if err := lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); t.Context().Err() != nil || err == nil {
		t.Errorf("after the lifeline's end the plugin ended with %v", err)
	}
}

func TestLoggerWritesWhatEveryHostReads(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	ctx := plugin.WithRequestID(t.Context(), "r1")
	log := wire.NewLogger(&buf, wire.LevelTrace).With("plugin", "sess")
	log.WarnContext(ctx, "slow disk", "level", 3, "msg", 4, "time", 5)
	log.Log(ctx, wire.LevelTrace, "detail")
	var lines []map[string]any
	for line := range strings.Lines(buf.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		at, _ := m["@timestamp"].(string)
		if _, err := time.Parse(wire.TimeFormat, at); err != nil {
			t.Errorf("@timestamp %q: %v", at, err)
		}
		delete(m, "@timestamp")
		lines = append(lines, m)
	}
	want := []map[string]any{
		{"@level": "warn", "@message": "slow disk", "plugin": "sess", "request_id": "r1", "level": 3.0, "msg": 4.0, "time": 5.0},
		{"@level": "trace", "@message": "detail", "plugin": "sess", "request_id": "r1"},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("log lines (-want +got):\n%s", diff)
	}
}

// output keeps what is written to it, unless it is full.
type output struct {
	bytes.Buffer
	is   string
	full error
}

func (o *output) Begin(name, mediaType string) error {
	o.is = name + " " + mediaType
	return nil
}

func (o *output) Write(p []byte) (int, error) {
	if o.full != nil {
		return 0, o.full
	}
	return o.Buffer.Write(p)
}

// onlyOne gives one byte; nobody may want more.
type onlyOne struct{ given bool }

func (r *onlyOne) Read(p []byte) (int, error) {
	if r.given {
		panic("more was wanted than the plugin reads")
	}
	r.given = true
	return copy(p, "1"), nil
}
