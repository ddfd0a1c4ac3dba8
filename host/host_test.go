package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/dispatch"
	"sess/host"
	"sess/host/chat"
	"sess/plugin"
	"sess/plugin/sess"
	"sess/plugin/wire"
	"sess/store/chunk"
	"sess/store/durable"
)

// TestMain lets the test binary be the plugin "probe", a bad one, or the sess plugin, when the
// host runs it again, as a bundled plugin is run.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "plugin" && os.Args[2] == "serve" {
		build, _ := host.BuildID(os.Args[0])
		if role := os.Args[3]; strings.HasPrefix(role, "bad") {
			serveBad(role, build)
			return
		}
		if os.Args[3] == "sess" {
			p := sess.New(sess.Options{Build: build, Logger: slog.New(slog.DiscardHandler)})
			wire.Serve(countedPlugin{p}, wire.ServeOptions{})
			return
		}
		wire.Serve(newProbe(build), wire.ServeOptions{Logger: slog.New(slog.DiscardHandler)})
		return
	}
	os.Exit(m.Run())
}

const probeManifest = `{
	"id": "probe", "version": "1.0.0", "description": "asks the host for things", "builtin": "probe", "protocol": 1,
	"permissions": [%s], "commands": ["probe"],
	"configSchema": {"type": "object", "additionalProperties": false, "properties": {"exposeTool": {"type": "boolean", "default": true}}}
}`

// probe is a plugin whose verbs ask the host for things.
type probe struct {
	*dispatch.Dispatcher
	build   string
	runtime plugin.Runtime
	told    chan plugin.Event
}

func newProbe(build string) *probe {
	p := &probe{build: build, told: make(chan plugin.Event, 10)}
	session := func(in *dispatch.Invocation) plugin.SessionRef {
		return plugin.SessionRef{Project: in.Call.Project, ID: in.Call.Session}
	}
	text := func(format string, args ...any) (plugin.Result, error) {
		return plugin.Result{Text: fmt.Sprintf(format, args...), Data: json.RawMessage("{}")}, nil
	}
	d, err := dispatch.New(dispatch.Command{Name: "probe", Summary: "ask the host for things", Verbs: []dispatch.Verb{{
		Name: "session", Summary: "read the session", Effect: plugin.EffectRead,
		Run: func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			s, err := p.runtime.Session(ctx, session(in))
			if err != nil {
				return plugin.Result{}, err
			}
			return text("%s/%s has %d messages", s.Ref.Project, s.Ref.ID, s.Document.Meta.Messages)
		},
	}, {
		Name: "new", Summary: "make a session", Effect: plugin.EffectWrite,
		Args: []plugin.Arg{{Name: "id", Type: plugin.TypeString, Required: true}},
		Run: func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			made, err := p.runtime.NewSession(ctx, plugin.NewSessionRequest{Project: in.Call.Project, ID: in.Arg("id"), Title: "made", Op: "op-" + in.Arg("id")})
			if err != nil {
				return plugin.Result{}, err
			}
			return text("made %s", made.Ref.ID)
		},
	}, {
		Name: "stage", Summary: "stage the session as it is", Effect: plugin.EffectWrite,
		Run: func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			s, err := p.runtime.Session(ctx, session(in))
			if err != nil {
				return plugin.Result{}, err
			}
			st, err := p.runtime.Stage(ctx, plugin.StageRequest{Session: s.Ref, Document: s.Document, Restore: true})
			if err != nil {
				return plugin.Result{}, err
			}
			return text("differs: %v", st.Differs)
		},
	}, {
		Name: "replace", Summary: "commit the session under another title", Effect: plugin.EffectWrite,
		Run: func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			s, err := p.runtime.Session(ctx, session(in))
			if err != nil {
				return plugin.Result{}, err
			}
			s.Document.Header = json.RawMessage(`{"title": "replaced"}`)
			st, err := p.runtime.Stage(ctx, plugin.StageRequest{Session: s.Ref, Document: s.Document, Restore: true})
			if err != nil {
				return plugin.Result{}, err
			}
			revision, err := p.runtime.Commit(ctx, plugin.CommitRequest{Stage: st.ID, Revision: st.Revision, Op: "op"})
			if err != nil {
				return plugin.Result{}, err
			}
			return text("revision %d", revision)
		},
	}, {
		Name: "told", Summary: "wait for the next event", Effect: plugin.EffectRead,
		Run: func(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
			select {
			case e := <-p.told:
				return text("%s of %s/%s, revision %d", e.Kind, e.Project, e.Session, e.Revision)
			case <-ctx.Done():
				return plugin.Result{}, ctx.Err()
			}
		},
	}, {
		Name: "call", Summary: "call a gateway method", Effect: plugin.EffectWrite,
		Args: []plugin.Arg{{Name: "method", Type: plugin.TypeString, Required: true}, {Name: "params", Type: plugin.TypeString}},
		Run: func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			out, err := p.runtime.Call(ctx, in.Arg("method"), json.RawMessage(in.Arg("params")))
			return plugin.Result{Text: string(out), Data: out}, err
		},
	}, {
		Name: "echo", Summary: "answer with what was said", Effect: plugin.EffectRead,
		Args:  []plugin.Arg{{Name: "word", Type: plugin.TypeString}},
		Flags: func(fs *dispatch.Flags) { fs.Bool("steps", false, "tell how far it is") },
		Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			if in.Bool("steps") {
				in.Progress(plugin.Progress{Stage: "echoing", Done: 1, Total: 1, Unit: "words"})
			}
			return text("%s", in.Arg("word"))
		},
	}, {
		Name: "die", Summary: "end the process in the middle of a call", Effect: plugin.EffectWrite,
		Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) {
			os.Exit(3)
			return plugin.Result{}, nil
		},
	}}})
	if err != nil {
		panic(err)
	}
	p.Dispatcher = d
	return p
}

func (p *probe) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Spec: p.Spec(), Build: p.build, API: []string{plugin.APIVersion}}, nil
}

func (p *probe) Configure(_ context.Context, _ plugin.Configuration, r plugin.Runtime) error {
	p.runtime = r
	return nil
}

func (p *probe) Notify(_ context.Context, e plugin.Event) ([]string, error) {
	select {
	case p.told <- e:
	default:
	}
	return []string{fmt.Sprintf("%s of %s", e.Kind, e.Session)}, nil
}

func (p *probe) Complete(context.Context, plugin.CompleteRequest) ([]plugin.Candidate, error) {
	return nil, nil
}
func (p *probe) Status(context.Context) ([]plugin.ServiceStatus, error) { return nil, nil }
func (p *probe) Drain(context.Context) error                            { return nil }

const allPermissions = `"session.read", "session.write", "session.new", "rpc:sessions.list", "rpc:sessions.use"`

func openHost(t *testing.T, home, permissions string) *host.Host {
	t.Helper()
	return openHostWith(t, home, permissions, nil)
}

// openHostWith opens a host whose plugin runs in this process, or with nil in one
// of its own.
func openHostWith(t *testing.T, home, permissions string, here plugin.Plugin) *host.Host {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), host.Options{
		Home: home, Exe: exe, Environ: os.Environ(), Builtins: [][]byte{fmt.Appendf(nil, probeManifest, permissions)},
		Local: map[string]plugin.Plugin{"probe": here},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return h
}

func dispatchText(t *testing.T, h *host.Host, argv ...string) (string, error) {
	t.Helper()
	res, err := h.Dispatch(t.Context(), plugin.Call{Argv: argv, Caller: plugin.CallerCLI}, nil)
	return res.Text, err
}

func mustDispatch(t *testing.T, h *host.Host, argv ...string) string {
	t.Helper()
	text, err := dispatchText(t, h, argv...)
	if err != nil {
		t.Fatalf("%v: %v", argv, err)
	}
	return text
}

// A plugin gets what its manifest asks for and nothing else.
func TestPermissions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		permissions string
		argv        []string
		denied      string // the permission that is missing; "" when the call works
	}{
		{"", []string{"session"}, "session.read"},
		{`"session.read"`, []string{"session"}, ""},
		{`"session.read"`, []string{"stage"}, "session.write"},
		{`"session.read", "session.write"`, []string{"stage"}, ""},
		{`"session.read"`, []string{"new", "s1"}, "session.new"},
		{`"session.new"`, []string{"new", "s1"}, ""},
		{`"session.read"`, []string{"call", "sessions.list"}, "rpc:sessions.list"},
		{`"rpc:sessions.list"`, []string{"call", "sessions.list"}, ""},
		{`"rpc:sessions.list"`, []string{"call", "sessions.use", `{"id": "x"}`}, "rpc:sessions.use"},
	}
	for _, tt := range tests {
		for where, here := range map[string]plugin.Plugin{"its own process": nil, "this one": newProbe("test")} {
			t.Run(strings.Join(tt.argv, " ")+" with "+tt.permissions+" in "+where, func(t *testing.T) {
				t.Parallel()
				h := openHostWith(t, t.TempDir(), tt.permissions, here)
				_, err := dispatchText(t, h, append([]string{"probe"}, tt.argv...)...)
				if tt.denied == "" {
					if err != nil {
						t.Errorf("Dispatch: %v", err)
					}
					return
				}
				if !errors.Is(err, &plugin.Error{Code: plugin.Denied}) || !strings.Contains(err.Error(), tt.denied) {
					t.Errorf("Dispatch: %v, want denied for %s", err, tt.denied)
				}
			})
		}
	}
}

// A session is made on first use and stays the active one; a named one is
// looked for in all projects.
func TestResolve(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	h := openHost(t, home, allPermissions)
	if ref, err := h.Resolve(t.Context(), "", ""); err != nil || ref.ID != "" || ref.Project != host.DefaultProject {
		t.Fatalf("Resolve in an empty home = %v, %v", ref, err)
	}
	first := mustDispatch(t, h, "probe", "session")
	if again := mustDispatch(t, h, "probe", "session"); again != first {
		t.Errorf("second call saw %q, first one %q", again, first)
	}
	in := func(project string, argv ...string) {
		t.Helper()
		if _, err := h.Dispatch(t.Context(), plugin.Call{Argv: argv, Project: project}, nil); err != nil {
			t.Fatal(err)
		}
	}
	in("p2", "probe", "new", "s2")
	in("p3", "probe", "new", "s3")
	in("p2", "probe", "new", "both")
	in("p3", "probe", "new", "both")
	tests := []struct {
		project, id, want string
		code              plugin.Code
	}{
		{"", "", "p3/both", ""},
		{"p2", "", "p2/both", ""},
		{"", "s2", "p2/s2", ""},
		{"p3", "s2", "p3/s2", ""}, // taken at its word; whether it exists is the reader's to say
		{"", "both", "p3/both", ""},
		{"p9", "", "p9/", ""},
		{"", "../x", "", plugin.InvalidName},
		{"..", "", "", plugin.InvalidName},
	}
	for _, tt := range tests {
		ref, err := h.Resolve(t.Context(), tt.project, tt.id)
		if tt.code != "" {
			if !errors.Is(err, &plugin.Error{Code: tt.code}) {
				t.Errorf("Resolve(%q, %q) = %v, %v, want %s", tt.project, tt.id, ref, err, tt.code)
			}
			continue
		}
		if err != nil || ref.String() != tt.want {
			t.Errorf("Resolve(%q, %q) = %v, %v, want %s", tt.project, tt.id, ref, err, tt.want)
		}
	}
	mustDispatch(t, h, "sessions", "use", "s2")
	if _, err := h.Resolve(t.Context(), "", "both"); !errors.Is(err, &plugin.Error{Code: plugin.Usage}) || !strings.Contains(err.Error(), "[p2 p3]") {
		t.Errorf("an id in two projects: %v, want usage with both", err)
	}
	if _, err := dispatchText(t, h, "sessions", "show", "s22"); !errors.Is(err, &plugin.Error{Code: plugin.NotFound}) || !strings.Contains(err.(*plugin.Error).Hint, "s2") {
		t.Errorf("show of an unknown session: %v, want not_found that proposes s2", err)
	}
}

// A crash fails the call in flight and nothing else.
func TestCrashInACall(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions)
	before := mustDispatch(t, h, "probe", "session")
	_, err := dispatchText(t, h, "probe", "die")
	if !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("call that kills the plugin: %v, want unavailable", err)
	}
	if after := mustDispatch(t, h, "probe", "session"); after != before {
		t.Errorf("after the crash %q, before %q", after, before)
	}
	res, err := h.Dispatch(t.Context(), plugin.Call{Argv: []string{"plugins", "list"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		State    string
		Restarts int
	}
	if err := json.Unmarshal(res.Data, &rows); err != nil || len(rows) != 1 || rows[0].State != "ready" || rows[0].Restarts != 1 {
		t.Errorf("plugins list = %s, %v, want one ready plugin with 1 restart", res.Data, err)
	}
}

// The gateway methods of the host's own commands are their verbs.
func TestCall(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions)
	mustDispatch(t, h, "probe", "new", "one")
	mustDispatch(t, h, "probe", "new", "two")
	if got := mustDispatch(t, h, "probe", "call", "sessions.use", `{"id": "one"}`); !strings.Contains(got, "session one") {
		t.Errorf("sessions.use answered %s", got)
	}
	if ref, err := h.Resolve(t.Context(), "", ""); err != nil || ref.ID != "one" {
		t.Errorf("active session = %v, %v, want one", ref, err)
	}
	out, err := h.Call(t.Context(), plugin.CallerRPC, "probe.invoke", json.RawMessage(`{"action": "session", "session": "two"}`), nil)
	if err != nil || string(out) != "{}" {
		t.Errorf("probe.invoke = %s, %v", out, err)
	}
	for _, tt := range []struct {
		method, params string
		code           plugin.Code
	}{
		{"probe.nothing", "{}", plugin.Usage},
		{"probe.invoke", `{"action": "session", "x": 1}`, plugin.Usage},
		{"probe.invoke", `[`, plugin.Usage},
		{"sessions.use", `{"id": "three"}`, plugin.NotFound},
	} {
		if _, err := h.Call(t.Context(), plugin.CallerRPC, tt.method, json.RawMessage(tt.params), nil); !errors.Is(err, &plugin.Error{Code: tt.code}) {
			t.Errorf("Call(%s, %s): %v, want %s", tt.method, tt.params, err, tt.code)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions)
	_, err := dispatchText(t, h, "prob", "session")
	e := plugin.AsError(err)
	if e.Code != plugin.Usage || e.Hint != "did you mean probe?" {
		t.Errorf("Dispatch = %s %q, hint %q", e.Code, e.Message, e.Hint)
	}
}

// A chat follows the session that its own command made active, and only that.
func TestChatFollows(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions)
	var shown []string
	c, err := h.OpenChat(t.Context(), host.ChatOptions{Out: chat.SinkFunc(func(e chat.Event) {
		if e.Kind == chat.EventNotice || e.Kind == chat.EventAnswer {
			shown = append(shown, e.Text+e.Result.Text)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	first := c.Ref()
	mustDispatch(t, h, "probe", "new", "elsewhere") // not from this chat
	if err := c.Send(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	if c.Ref() != first {
		t.Errorf("the chat went to %v on its own", c.Ref())
	}
	if err := c.Send(t.Context(), "/probe new mine"); err != nil {
		t.Fatal(err)
	}
	if c.Ref().ID != "mine" {
		t.Errorf("after its own new the chat shows %v", c.Ref())
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"made mine", "this chat now shows session mine of project default: \"made\", 0 messages", "turn_ended of " + first.ID}
	if diff := cmp.Diff(want, sorted(shown, want)); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
}

// sorted puts what was shown in the order wanted: a notice of the background
// may come at any time.
func sorted(got, want []string) []string {
	var out, rest []string
	for _, w := range want {
		for _, g := range got {
			if g == w {
				out = append(out, g)
			}
		}
	}
	for _, g := range got {
		known := false
		for _, w := range want {
			known = known || g == w
		}
		if !known {
			rest = append(rest, g)
		}
	}
	return append(out, rest...)
}

func TestOpenRefusesAWrongConfiguration(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"plugins": {"entries": {"probe": {"config": {"exposeTool": 1}}}}}`: "plugins.entries.probe.config.exposeTool: want boolean, got 1",
		`{"plugins": {"entries": {"ghost": {}}}}`:                            "plugins.entries.ghost: no plugin of this id is here",
	} {
		home := writeConfig(t, text)
		_, err := host.Open(t.Context(), host.Options{Home: home, Exe: exe, Builtins: [][]byte{fmt.Appendf(nil, probeManifest, "")}})
		if !errors.Is(err, &plugin.Error{Code: plugin.Usage}) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open with %s: %v, want %q", text, err, want)
		}
	}
}

func TestDisabledPlugin(t *testing.T) {
	t.Parallel()
	const off = `{"plugins": {"entries": {"probe": {"enabled": false}}}}`
	h := openHost(t, writeConfig(t, off), "")
	_, err := dispatchText(t, h, "probe", "session")
	if !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("Dispatch to a disabled plugin: %v", err)
	}
	if got := mustDispatch(t, h, "plugins", "list"); !strings.Contains(got, "disabled") {
		t.Errorf("plugins list:\n%s", got)
	}

	// What it said of itself when it was on makes no difference.
	home := t.TempDir()
	if _, err := openHost(t, home, "").Spec(t.Context(), "probe"); err != nil {
		t.Fatalf("Spec of an enabled plugin: %v", err)
	}
	if err := os.WriteFile(host.ConfigPath(home), []byte(off), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openHost(t, home, "").Spec(t.Context(), "probe"); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("Spec of a plugin that was on before: %v", err)
	}
}

// A stage lasts as long as the call that it was made for: one that the plugin
// leaves behind keeps no chunk from being swept.
func TestStageEndsWithItsCall(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	h := openHost(t, home, allPermissions)
	sessions, err := durable.OpenExisting(filepath.Join(home, "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close()
	mustDispatch(t, h, "probe", "stage")
	unlock, free, err := chunk.Open(sessions, chunk.Options{}).TryExclusive()
	if err != nil || !free {
		t.Fatalf("the stage outlives its call (%v)", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// The first change of a process removes what an earlier crash has left.
func TestUpkeep(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	mustDispatch(t, openHost(t, home, allPermissions), "probe", "session") // a session, and no change
	refs, err := filepath.Glob(filepath.Join(home, "sessions", "default", "*.json"))
	if err != nil || len(refs) != 1 {
		t.Fatalf("sessions on disk: %v, %v", refs, err)
	}
	left := filepath.Join(filepath.Dir(refs[0]), "."+filepath.Base(refs[0])+".00112233aabbccdd.tmp")
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), host.Options{Home: home, Exe: exe, Environ: os.Environ(), Builtins: [][]byte{fmt.Appendf(nil, probeManifest, allPermissions)}})
	if err != nil {
		t.Fatal(err)
	}
	mustDispatch(t, h, "probe", "new", "two")
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover temp file is still there: %v", err)
	}
}

// Plugins hear that a session was replaced.
func TestSessionReplaced(t *testing.T) {
	t.Parallel()
	h := openHost(t, t.TempDir(), allPermissions)
	mustDispatch(t, h, "probe", "new", "one")
	revision := mustDispatch(t, h, "probe", "replace")
	if got, want := mustDispatch(t, h, "probe", "told"), "session_replaced of default/one, "+revision; got != want {
		t.Errorf("the plugin was told %q, want %q", got, want)
	}
}
