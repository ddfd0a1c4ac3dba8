package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"sess/dispatch"
	"sess/host"
	"sess/host/chat"
	"sess/plugin"
	"sess/plugin/wire"
	"sess/store/transcript"
)

// bad is a plugin that misbehaves in every way that its calls ask for, or that
// its role is.
type bad struct {
	role    string
	build   string
	runtime plugin.Runtime
}

var _ plugin.Plugin = (*bad)(nil)

// serveBad is the program of a bad plugin.
func serveBad(role, build string) {
	switch role {
	case "bad-stray":
		fmt.Print("hello from a library\n")
	case "bad-version":
		fmt.Println("1|7|unix|/nowhere|grpc")
		select {}
	case "bad-quits":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	case "bad-silent":
		fmt.Fprintln(os.Stderr, "waiting for a licence")
		select {}
	case "bad-build":
		build = "another"
	}
	wire.Serve(&bad{role: role, build: build}, wire.ServeOptions{})
}

func (b *bad) Describe(context.Context) (plugin.Description, error) {
	spec := plugin.Spec{Command: "bad", Summary: "misbehave", Verbs: []plugin.Verb{{
		Name: "do", Summary: "misbehave", Effect: plugin.EffectWrite,
		Args: []plugin.Arg{{Name: "what", Type: plugin.TypeString, Required: true}},
	}}}
	switch b.role {
	case "bad-command":
		spec.Command = "sessions"
	case "bad-describe":
		panic("nothing to describe")
	}
	return plugin.Description{Spec: spec, Build: b.build, API: []string{plugin.APIVersion}}, nil
}

func (b *bad) Configure(_ context.Context, _ plugin.Configuration, r plugin.Runtime) error {
	b.runtime = r
	if b.role == "bad-configure" {
		return errors.New("I do not like it")
	}
	return nil
}

func (b *bad) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	done := plugin.Result{Text: "done", Data: json.RawMessage("{}")}
	switch what := strings.Join(call.Argv[1:], " "); what {
	case "exit":
		os.Exit(3)
	case "kill":
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return done, err
		}
		if err := self.Kill(); err != nil {
			return done, err
		}
		select {}
	case "panic":
		panic("a nil map")
	case "panic in a verb":
		d := dispatch.MustPlugin(dispatch.Command{Name: "bad", Summary: "panic", Verbs: []dispatch.Verb{{
			Name: "do", Summary: "panic", Effect: plugin.EffectWrite,
			Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) { panic("a nil map in a verb") },
		}}})
		return d.Dispatch(ctx, plugin.Call{Argv: []string{"do"}}, nil)
	case "panic elsewhere": // no handler can recover this one
		go func() { panic("boom at night") }()
		select {}
	case "overflow": // nor this one
		debug.SetMaxStack(1 << 16)
		return plugin.Result{Text: fmt.Sprint(deeper(0))}, nil
	case "ignore the end":
		progress.Report(plugin.Progress{Stage: "for ever"})
		select {}
	case "stop":
		stopSelf()
		select {} // another thread may be a little ahead of the signal
	case "a long line on stdout":
		_, err := os.NewFile(1, "stdout").WriteString(strings.Repeat("x", 4<<20))
		return done, err
	case "a flood of output":
		line := strings.Repeat("b", 1000)
		for range 20_000 {
			fmt.Println(line)
			fmt.Fprintln(os.Stderr, line)
		}
	case "a flood of progress":
		for i := range 50_000 {
			progress.Report(plugin.Progress{Stage: "busy", Done: int64(i)})
		}
	case "a huge answer":
		done.Text = strings.Repeat("y", 40<<20)
	case "no JSON":
		done.Data = json.RawMessage(`{"open":`)
	case "no UTF-8":
		done.Text = "a\xffb"
	case "a code of its own":
		return done, &plugin.Error{Code: "banana", Message: "yellow\x1b[31m"}
	case "an error without words":
		return done, &plugin.Error{}
	case "nonsense for the host":
		_, err1 := b.runtime.Commit(ctx, plugin.CommitRequest{Stage: "none", Revision: -7, Op: "../../x"})
		_, err2 := b.runtime.WriteChunks(ctx, "none", func(yield func(plugin.Chunk, error) bool) {
			yield(plugin.Chunk{ID: "../../etc/passwd", Frame: []byte("x")}, nil)
		})
		_, err3 := b.runtime.Session(ctx, plugin.SessionRef{Project: "..", ID: "../x"})
		_, err4 := b.runtime.Call(ctx, "bad.invoke", json.RawMessage(`{`))
		_, err5 := b.runtime.NewSession(ctx, plugin.NewSessionRequest{Project: "default", ID: "../../x", Op: "op"})
		// A document may name chunks that are still to come; without them it does
		// not go live.
		err6 := func() error {
			doc := transcript.Document{Lists: map[string]*transcript.List{transcript.ListMessages: {
				Records: 9, Chunks: []transcript.Ref{{ID: transcript.ID(strings.Repeat("0", 64)), Records: 9, Bytes: 600}},
			}}}
			ref := plugin.SessionRef{Project: call.Project, ID: call.Session}
			st, err := b.runtime.Stage(ctx, plugin.StageRequest{Session: ref, Document: doc})
			if err != nil {
				return err
			}
			_, err = b.runtime.Commit(ctx, plugin.CommitRequest{Stage: st.ID, Revision: st.Revision, Op: "op"})
			return err
		}()
		if all := []error{err1, err2, err3, err4, err5, err6}; slices.Contains(all, nil) {
			done.Text = fmt.Sprint("accepted: ", all)
		}
	case "stages and dies":
		for range 20 {
			if _, err := b.runtime.Stage(ctx, plugin.StageRequest{Session: plugin.SessionRef{Project: call.Project, ID: call.Session}, Restore: true}); err != nil {
				return done, err
			}
		}
		os.Exit(4)
	case "well":
	default:
		return done, plugin.Errorf(plugin.Usage, "cannot do %q", what)
	}
	return done, nil
}

// deeper comes to no end that the stack would see.
func deeper(n int) int {
	if n < 0 {
		return 0
	}
	return deeper(n+1) + 1
}

func (b *bad) Notify(context.Context, plugin.Event) ([]string, error) {
	if b.role == "bad-deaf" {
		select {}
	}
	return nil, nil
}

func (b *bad) Complete(context.Context, plugin.CompleteRequest) ([]plugin.Candidate, error) {
	return nil, nil
}
func (b *bad) Status(context.Context) ([]plugin.ServiceStatus, error) { return nil, nil }

func (b *bad) Drain(context.Context) error {
	if b.role == "bad-stubborn" {
		select {}
	}
	return nil
}

const badManifest = `{"id": "bad", "version": "1.0.0", "builtin": %q, "protocol": 1, "commands": ["bad"], "permissions": ["session.read", "session.write", "session.new"],
	"configSchema": {"type": "object", "additionalProperties": false, "properties": {}}}`

// badHost is a host with a bad plugin, and a good one after it.
type badHost struct {
	*testing.T
	*host.Host
	home string
}

func openBad(t *testing.T, role string) *badHost {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	h, err := host.Open(t.Context(), host.Options{
		Home: home, Exe: exe, Environ: os.Environ(),
		Builtins: [][]byte{fmt.Appendf(nil, badManifest, role), fmt.Appendf(nil, probeManifest, allPermissions)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Some do not end unless they are made to.
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &badHost{t, h, home}
}

// logged waits until the home's log has a word: what plugins log comes by itself.
func (b *badHost) logged(word string) {
	b.Helper()
	late := time.After(20 * time.Second)
	for {
		log, err := os.ReadFile(filepath.Join(b.home, "logs", "sess.log"))
		if strings.Contains(string(log), word) {
			return
		}
		select {
		case <-late:
			b.Fatalf("the log does not have %s: %v\n%s", word, err, log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// does makes a call of the bad plugin.
func (b *badHost) does(ctx context.Context, what ...string) (plugin.Result, error) {
	return b.Dispatch(ctx, plugin.Call{Argv: append([]string{"bad", "do"}, what...), Caller: plugin.CallerCLI}, nil)
}

// restWorks checks that nothing but the bad plugin is the worse for it.
func (b *badHost) restWorks() {
	b.Helper()
	mustDispatch(b.T, b.Host, "sessions", "list")
	mustDispatch(b.T, b.Host, "probe", "session")
}

// badRow is what the list of plugins says of one.
type badRow struct {
	State, Reason string
	Restarts      int
}

func (b *badHost) row() badRow {
	b.Helper()
	res, err := b.Dispatch(b.Context(), plugin.Call{Argv: []string{"plugins", "list"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	var rows []badRow
	if err := json.Unmarshal(res.Data, &rows); err != nil || len(rows) != 2 {
		b.Fatalf("plugins list = %s, %v", res.Data, err)
	}
	return rows[0]
}

func (b *badHost) wants(err error, code plugin.Code, parts ...string) {
	b.Helper()
	e, ok := errors.AsType[*plugin.Error](err)
	if !ok || e.Code != code {
		b.Fatalf("error %v, want the code %s", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(e.Text(), part) {
			b.Errorf("the error does not say %q: %s", part, e.Text())
		}
	}
	if strings.Contains(e.Text(), "goroutine ") {
		b.Errorf("the error has a stack: %s", e.Text())
	}
}

// A call in which the plugin dies fails and says why; the next one works.
func TestPluginsThatDieInACall(t *testing.T) {
	t.Parallel()
	for what, parts := range map[string][]string{
		"exit":            {"plugin bad stopped", "exit status 3", "being restarted"},
		"kill":            {"plugin bad stopped", "being restarted"},
		"panic elsewhere": {"plugin bad stopped", "panic: boom at night"},
		"overflow":        {"plugin bad stopped", "stack overflow"},
		"stages and dies": {"plugin bad stopped", "exit status 4"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := openBad(t, "bad")
			b.restWorks()
			_, err := b.does(t.Context(), strings.Fields(what)...)
			b.wants(err, plugin.Unavailable, parts...)
			b.restWorks()
			if res, err := b.does(t.Context(), "well"); err != nil || res.Text != "done" {
				t.Errorf("the next call = %q, %v", res.Text, err)
			}
			if row := b.row(); row.State != "ready" || row.Restarts != 1 || !strings.Contains(row.Reason, "plugin bad ended (") {
				t.Errorf("plugins list says %+v", row)
			}
		})
	}
}

// A plugin that dies again and again is given up, which the list of plugins
// tells with the reason.
func TestPluginThatDiesAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := openBad(t, "bad")
	for range 5 {
		_, err := b.does(t.Context(), "exit")
		b.wants(err, plugin.Unavailable, "exit status 3")
	}
	_, err := b.does(t.Context(), "well")
	b.wants(err, plugin.Unavailable, "failed 5 times in a row", "exit status 3")
	b.restWorks()
	if row := b.row(); row.State != "failed" || !strings.Contains(row.Reason, "exit status 3") {
		t.Errorf("plugins list says %+v", row)
	}
}

// What a plugin answers, however odd, is passed on in order or refused in words;
// the process lives.
func TestPluginsThatAnswerOddly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what  string
		code  plugin.Code // "" where the call works
		parts []string
	}{
		{"panic", plugin.Internal, []string{"look for incident"}},
		{"panic in a verb", plugin.Internal, []string{"look for incident"}},
		{"a long line on stdout", "", nil},
		{"a flood of output", "", nil},
		{"a flood of progress", "", nil},
		{"no JSON", plugin.Internal, []string{"plugin bad broke the protocol", "no JSON"}},
		{"no UTF-8", "", nil},
		{"a code of its own", "banana", []string{"yellow"}},
		{"an error without words", plugin.Internal, []string{"did not say why"}},
		{"nonsense for the host", "", nil},
		{"something else", plugin.Usage, nil},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			b := openBad(t, "bad")
			res, err := b.does(t.Context(), strings.Fields(tt.what)...)
			if tt.code != "" {
				b.wants(err, tt.code, tt.parts...)
				if id := plugin.AsError(err).Details["incident"]; id != "" {
					b.logged(id)
				}
			} else if err != nil || res.Text != strings.ToValidUTF8(res.Text, "") || !json.Valid(res.Data) {
				t.Errorf("the call = %q, %s, %v", res.Text, res.Data, err)
			} else if strings.HasPrefix(res.Text, "accepted") {
				t.Errorf("the host accepted nonsense: %s", res.Text)
			}
			b.restWorks()
			if res, err := b.does(t.Context(), "well"); err != nil || res.Text != "done" {
				t.Errorf("the next call = %q, %v", res.Text, err)
			}
			if row := b.row(); row.State != "ready" || row.Restarts != 0 {
				t.Errorf("plugins list says %+v, want a plugin that was never restarted", row)
			}
		})
	}
}

func TestPluginWithAHugeAnswer(t *testing.T) {
	t.Parallel()
	b := openBad(t, "bad")
	if res, err := b.does(t.Context(), "a", "huge", "answer"); err != nil || len(res.Text) != 40<<20 {
		t.Errorf("an answer of 40 MB has %d bytes, %v", len(res.Text), err)
	}
	b.restWorks()
	if res, err := b.does(t.Context(), "well"); err != nil || res.Text != "done" {
		t.Errorf("the next call = %q, %v", res.Text, err)
	}
}

// A plugin that cannot be started is told of, once for every way; the rest
// works, a chat too.
func TestPluginsThatDoNotStart(t *testing.T) {
	t.Parallel()
	for role, parts := range map[string][]string{
		"bad-stray":     {"plugin bad", `printed "hello from a library"`},
		"bad-version":   {"plugin bad", `version "7"`, "speaks 1"},
		"bad-quits":     {"plugin bad", "exit status 3", "no licence found"},
		"bad-build":     {"plugin bad", "build another", "restart the host"},
		"bad-configure": {"plugin bad does not accept its configuration", "I do not like it"},
		"bad-describe":  {"plugin bad does not describe itself", "incident"},
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			b := openBad(t, role)
			_, err := b.does(t.Context(), "well")
			if e := plugin.AsError(err); e == nil || !slices.Contains([]plugin.Code{plugin.Unavailable, plugin.Internal}, e.Code) {
				t.Fatalf("a call of it: %v", err)
			}
			b.wants(err, plugin.AsError(err).Code, parts...)
			b.restWorks()
			b.talks()
			if row := b.row(); row.State == "ready" || row.Reason == "" {
				t.Errorf("plugins list says %+v", row)
			}
		})
	}
}

// talks has a turn in a chat; it returns the notices of it.
func (b *badHost) talks() (notices []string) {
	b.Helper()
	c, err := b.OpenChat(b.Context(), host.ChatOptions{Out: chat.SinkFunc(func(e chat.Event) {
		if e.Kind == chat.EventNotice {
			notices = append(notices, e.Text)
		}
	})})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Send(b.Context(), "hello"); err != nil {
		b.Errorf("a turn: %v", err)
	}
	end, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	if err := c.Close(end); err != nil && end.Err() == nil {
		b.Error(err)
	}
	return notices
}

// A plugin that brings the command of somebody else brings none.
func TestPluginWithSomebodyElsesCommand(t *testing.T) {
	t.Parallel()
	b := openBad(t, "bad-command")
	_, err := b.Spec(t.Context(), "bad")
	b.wants(err, plugin.Unavailable, `"sessions"`, "plugin.json")
	b.restWorks()
	b.talks()
}

// A plugin that hangs holds up who calls it, as long as they want to wait, and
// nobody else.
func TestPluginsThatHang(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ role, what string }{
		{"bad-silent", "well"},
		{"bad", "ignore the end"},
		{"bad", "stop"},
	} {
		t.Run(tt.role+" "+tt.what, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS == "windows" && tt.what == "stop" {
				t.Skip("Windows stops no process")
			}
			b := openBad(t, tt.role)
			ctx, cancel := context.WithCancel(t.Context())
			hangs := make(chan error, 1)
			go func() {
				_, err := b.does(ctx, strings.Fields(tt.what)...)
				hangs <- err
			}()
			b.restWorks()
			cancel()
			if err := <-hangs; err == nil {
				t.Error("the call that hangs was answered")
			}
			b.restWorks()
		})
	}
}

// A plugin that never comes back from an event keeps no other from being told.
func TestPluginThatHangsInAnEvent(t *testing.T) {
	t.Parallel()
	b := openBad(t, "bad-deaf")
	mustDispatch(b.T, b.Host, "probe", "new", "s1")
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan []string, 1)
	go func() {
		told <- b.Notify(ctx, plugin.Event{Kind: plugin.EventTurnEnded, Project: "default", Session: "s1"})
	}()
	if got := mustDispatch(b.T, b.Host, "probe", "told"); !strings.HasPrefix(got, "turn_ended of default/s1") {
		t.Errorf("the other plugin was told %q", got)
	}
	cancel()
	if notices := strings.Join(<-told, "\n"); !strings.Contains(notices, "turn_ended of s1") || !strings.Contains(notices, "plugin bad was not told") {
		t.Errorf("the notices are %q", notices)
	}
	b.restWorks()
}

// Closing does not wait for ever for a plugin that does not want to end.
func TestPluginThatDoesNotDrain(t *testing.T) {
	t.Parallel()
	b := openBad(t, "bad-stubborn")
	if _, err := b.does(t.Context(), "well"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}
