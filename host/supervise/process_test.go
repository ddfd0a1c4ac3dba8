package supervise_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sess/host/supervise"
	"sess/plugin"
	"sess/plugin/wire"
)

// asRole in the environment makes the test binary another program: one of
// [roles].
const asRole = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	name := os.Getenv(asRole)
	if name == "" {
		os.Exit(m.Run())
	}
	role, ok := roles()[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no role", name)
		os.Exit(97)
	}
	role()
}

// roles are the programs that the tests start.
func roles() map[string]func() {
	hello := func(line string) { fmt.Println(line); block() }
	return map[string]func(){
		"plugin": func() { wire.Serve(&testPlugin{}, wire.ServeOptions{}) },
		"slow": func() {
			time.Sleep(300 * time.Millisecond)
			wire.Serve(&testPlugin{}, wire.ServeOptions{})
		},
		"noisy": func() { // prints what no host should choke on, before and after
			fmt.Fprintln(os.Stderr, `{"@message":1,"@level":{},"@timestamp":[]}`)
			fmt.Fprintln(os.Stderr, `{"@level":"warn"}`)
			fmt.Fprintln(os.Stderr, strings.Repeat("l", 1<<20))
			wire.Serve(&testPlugin{}, wire.ServeOptions{})
		},
		"stray":       func() { fmt.Print("hello\x1b[31m from a library\n"); wire.Serve(&testPlugin{}, wire.ServeOptions{}) },
		"stray-long":  func() { hello(strings.Repeat("x", 100_000)) },
		"version":     func() { hello("1|7|unix|/nowhere|grpc") },
		"core":        func() { hello("2|1|unix|/nowhere|grpc") },
		"netrpc":      func() { hello("1|1|unix|/nowhere|netrpc") },
		"no-mux":      func() { hello("1|1|unix|/nowhere|grpc|") },
		"no-mtls":     func() { hello("1|1|unix|/nowhere|grpc||true") },
		"silent":      func() { fmt.Fprintln(os.Stderr, "waiting for a licence"); block() },
		"quits":       func() { fmt.Fprintln(os.Stderr, "no licence found"); os.Exit(3) },
		"panics":      func() { panic("no luck") },
		"sleeper":     block,
		"host":        host,
		"guarded":     func() { os.Exit(supervise.Guard(os.Args[1:])) },
		"exit-7":      func() { os.Exit(7) },
		"lives-alone": livesAlone,
	}
}

// block ends with the process.
func block() { select {} }

// livesAlone is a plugin program that does not watch its stdin, and tells its
// process number.
func livesAlone() {
	fmt.Println(os.Getpid())
	block()
}

// testPlugin answers what its first word asks for.
type testPlugin struct{ plugin.Plugin }

func (p *testPlugin) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Build: "b1", API: []string{plugin.APIVersion}}, nil
}

func (p *testPlugin) Configure(_ context.Context, c plugin.Configuration, _ plugin.Runtime) error {
	if string(c.Config) == `{"wrong":1}` {
		return plugin.Errorf(plugin.Usage, "plugins.entries.test.config.wrong: unknown key")
	}
	return nil
}

func (p *testPlugin) Notify(context.Context, plugin.Event) ([]string, error) {
	return []string{"noted"}, nil
}

func (p *testPlugin) Complete(context.Context, plugin.CompleteRequest) ([]plugin.Candidate, error) {
	return []plugin.Candidate{{Value: "v1"}}, nil
}

func (p *testPlugin) Status(context.Context) ([]plugin.ServiceStatus, error) {
	return []plugin.ServiceStatus{{Name: "pruner"}}, nil
}

func (p *testPlugin) Drain(context.Context) error {
	if os.Getenv("IGNORE_DRAIN") != "" {
		block()
	}
	return nil
}

func (p *testPlugin) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	text := func(v ...any) (plugin.Result, error) { return plugin.Result{Text: fmt.Sprint(v...)}, nil }
	switch call.Argv[0] {
	case "pid":
		return text(os.Getpid())
	case "panic":
		panic("caught")
	case "crash": // no handler can recover this one
		go func() { panic("boom at " + call.Argv[1]) }()
		block()
	case "exit":
		os.Exit(3)
	case "stdin":
		n, err := io.Copy(io.Discard, os.Stdin)
		return text(n, err)
	case "environ":
		return text(strings.Join(os.Environ(), "\n"))
	case "socket-dir":
		return text(call.Cwd)
	case "print":
		fmt.Println("printed to stdout")
		fmt.Fprintln(os.Stderr, "printed to stderr")
		return text("done")
	case "bomb":
		line := strings.Repeat("b", 1000)
		for range 20_000 {
			slog.Warn(line)
		}
		return text("done")
	case "wait":
		progress.Report(plugin.Progress{Stage: "waiting"})
		<-ctx.Done()
		return plugin.Result{}, ctx.Err()
	case "spawn": // a child that holds on to stdout and stderr
		exe, err := os.Executable()
		if err != nil {
			return plugin.Result{}, err
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), asRole+"=sleeper")
		cmd.Stdout, cmd.Stderr = os.NewFile(1, "stdout"), os.NewFile(2, "stderr")
		if err := cmd.Start(); err != nil {
			return plugin.Result{}, err
		}
		return text(cmd.Process.Pid)
	}
	return plugin.Result{}, plugin.Errorf(plugin.Usage, "no verb %q", call.Argv[0])
}

// noRuntime offers a plugin nothing.
type noRuntime struct{ plugin.Runtime }

func self() string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return exe
}

func config(role string) supervise.Config {
	mux := runtime.GOOS != "windows"
	return supervise.Config{
		Manifest: &plugin.Manifest{ID: "test", Version: "1.2.3", Protocol: plugin.ProtocolVersion, Mux: &mux},
		Exe:      self(),
		// The race detector sees one in go-plugin's own start of a multiplexed
		// plugin, and would make its exit status say so.
		Environ:    os.Environ(),
		Env:        []string{asRole + "=" + role, "GORACE=exitcode=0"},
		NewRuntime: func(int) (plugin.Runtime, func()) { return noRuntime{}, nil },
	}
}

// lines is a log that can be waited for.
type lines struct {
	mu      sync.Mutex // guards buf and changed
	buf     bytes.Buffer
	changed chan struct{}
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		found, changed := strings.Contains(l.buf.String(), text), l.changed
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("the log never said %q:\n%s", text, l)
		}
	}
}

func supervisor(t *testing.T, cfg supervise.Config) *supervise.Supervisor {
	t.Helper()
	if cfg.RuntimeDir == "" {
		cfg.RuntimeDir = shortDir(t)
	}
	s := supervise.New(cfg)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// shortDir is a private folder whose path a socket's fits behind.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func dispatch(t *testing.T, s *supervise.Supervisor, argv ...string) (string, error) {
	t.Helper()
	r, err := s.Dispatch(t.Context(), plugin.Call{Argv: argv}, nil)
	return r.Text, err
}

func mustDispatch(t *testing.T, s *supervise.Supervisor, argv ...string) string {
	t.Helper()
	text, err := dispatch(t, s, argv...)
	if err != nil {
		t.Fatalf("Dispatch(%q): %v", argv, err)
	}
	return text
}

func wantError(t *testing.T, err error, code plugin.Code, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*plugin.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("error = %v, want the code %s", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(e.Text(), part) {
			t.Errorf("error %q does not say %q", e.Text(), part)
		}
	}
	if e.Hint == "" {
		t.Errorf("error %q has no hint", e.Message)
	}
}

// What is known of a build is not asked for at each start. A process of another
// build is asked all the same.
func TestAKnownPluginIsNotAsked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, build, want string
		known             bool
	}{
		{"this build", "b1", "remembered", true},
		{"another build", "b0", "", true},
		{"nothing", "", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := config("plugin")
			cfg.Known = func() (plugin.Description, bool) {
				return plugin.Description{Build: test.build, Spec: plugin.Spec{Command: "remembered"}}, test.known
			}
			s := supervisor(t, cfg)
			d, err := s.Describe(t.Context())
			if err != nil || d.Build != "b1" || d.Spec.Command != test.want {
				t.Errorf("Describe = %+v, %v, want build b1 and the command %q", d, err, test.want)
			}
			mustDispatch(t, s, "pid")
		})
	}
}

// A build that is not the host's is refused, whatever is known of the host's.
func TestAKnownPluginOfAnotherBuild(t *testing.T) {
	t.Parallel()
	cfg := config("plugin")
	cfg.Build = "b0"
	cfg.Known = func() (plugin.Description, bool) { return plugin.Description{Build: "b0"}, true }
	s := supervisor(t, cfg)
	_, err := s.Describe(t.Context())
	wantError(t, err, plugin.Unavailable, "is build b1, and this host is build b0", "restart the host")
}

func TestAPluginIsStartedUsedAndClosed(t *testing.T) {
	t.Parallel()
	for _, mux := range []bool{false, true} {
		for _, mtls := range []bool{false, true} {
			t.Run(fmt.Sprintf("mux=%t,mtls=%t", mux, mtls), func(t *testing.T) {
				t.Parallel()
				cfg := config("plugin")
				cfg.Manifest.Mux, cfg.MTLS = &mux, mtls
				cfg.RuntimeDir = shortDir(t)
				var exits []supervise.Exit
				cfg.OnExit = func(e supervise.Exit) { exits = append(exits, e) }
				closed := 0
				cfg.NewRuntime = func(int) (plugin.Runtime, func()) { return noRuntime{}, func() { closed++ } }
				s := supervisor(t, cfg)

				pid := mustDispatch(t, s, "pid")
				if state := s.State(); state.Phase != supervise.Ready || strconv.Itoa(state.PID) != pid {
					t.Errorf("State = %+v, want the process %s", state, pid)
				}
				if d, err := s.Describe(t.Context()); err != nil || d.Build != "b1" {
					t.Errorf("Describe = %+v, %v", d, err)
				}
				if n, err := s.Notify(t.Context(), plugin.Event{}); err != nil || len(n) != 1 {
					t.Errorf("Notify = %q, %v", n, err)
				}
				if c, err := s.Complete(t.Context(), plugin.CompleteRequest{}); err != nil || len(c) != 1 {
					t.Errorf("Complete = %v, %v", c, err)
				}
				if c, err := s.Status(t.Context()); err != nil || len(c) != 1 {
					t.Errorf("Status = %v, %v", c, err)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Errorf("Close = %v", err)
				}
				if len(exits) != 1 || !exits[0].Expected || exits[0].Reason != "exit status 0" || strconv.Itoa(exits[0].PID) != pid || closed != 1 {
					t.Errorf("exits %+v, runtimes closed %d", exits, closed)
				}
				if left := leftovers(t, cfg.RuntimeDir); len(left) > 0 {
					t.Errorf("left in the runtime dir: %q", left)
				}
			})
		}
	}
}

// leftovers are the names in a runtime dir, but for its lock.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestAPluginSeesLittleOfItsHost(t *testing.T) {
	t.Setenv("SECRET_OF_THE_HOST", "x")
	cfg := config("plugin")
	cfg.Env = append(cfg.Env, "GIVEN=1")
	s := supervisor(t, cfg)
	env := mustDispatch(t, s, "environ")
	for _, absent := range []string{"SECRET_OF_THE_HOST", "PLUGIN_", wire.Handshake().MagicCookieKey} {
		if strings.Contains(env, absent) {
			t.Errorf("the plugin sees %s in %q", absent, env)
		}
	}
	for _, present := range []string{"GIVEN=1", "PATH="} {
		if !strings.Contains(env, present) {
			t.Errorf("the plugin does not see %s in %q", present, env)
		}
	}
	if got := mustDispatch(t, s, "stdin"); got != "0 <nil>" {
		t.Errorf("the plugin read %s from its stdin", got)
	}
}

func TestStartFaultsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	elf := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xf3\x00" + strings.Repeat("\x00", 100)
	for _, test := range []struct {
		name  string
		cfg   func(*supervise.Config)
		role  string
		code  plugin.Code
		parts []string
		unix  bool
	}{
		{name: "stray text", role: "stray", parts: []string{self(), `printed "hello\x1b[31m from a library"`, "1|1|unix|", "stderr"}},
		{name: "long stray text", role: "stray-long", parts: []string{"xxx…", "stderr"}},
		{name: "other protocol", role: "version", parts: []string{self(), "test 1.2.3", `version "7"`, "speaks 1"}},
		{name: "other core protocol", role: "core", parts: []string{"version 2 of go-plugin's"}},
		{name: "no gRPC", role: "netrpc", parts: []string{"does not speak gRPC"}},
		{name: "no multiplexing", role: "no-mux", parts: []string{`"mux": false`}},
		{name: "no mutual TLS", role: "no-mtls", cfg: func(c *supervise.Config) { c.MTLS = true }, parts: []string{`"mtls": false`}},
		{name: "protocol of the manifest", cfg: func(c *supervise.Config) { c.Manifest.Protocol = 9 }, parts: []string{"protocol 9", "speaks 1"}},
		{name: "other build", cfg: func(c *supervise.Config) { c.Build = "b2" }, role: "plugin", parts: []string{"is build b1", "is build b2", "restart the host"}},
		{name: "wrong configuration", cfg: func(c *supervise.Config) { c.Configuration.Config = json.RawMessage(`{"wrong":1}`) }, role: "plugin", code: plugin.Usage, parts: []string{"unknown key"}},
		{name: "quits", role: "quits", parts: []string{self(), "exit status 3: no licence found", "sess plugins inspect test"}},
		{name: "panics", role: "panics", parts: []string{"exit status 2: panic: no luck"}},
		{
			name: "silent", role: "silent", cfg: func(c *supervise.Config) { c.StartTimeout = 500 * time.Millisecond },
			parts: []string{"not ready after 500ms", "waiting for a licence"},
		},
		{name: "missing", cfg: func(c *supervise.Config) { c.Exe = filepath.Join(dir, "none") }, parts: []string{"none does not exist"}},
		{name: "a folder", cfg: func(c *supervise.Config) { c.Exe = dir }, parts: []string{dir + " is a folder"}},
		{name: "not executable", cfg: func(c *supervise.Config) { c.Exe = file("plain", "x", 0o644) }, parts: []string{"plain is not executable", "chmod +x"}, unix: true},
		{name: "a text file", cfg: func(c *supervise.Config) { c.Exe = file("text", "hello\n", 0o755) }, parts: []string{"is a text file", runtime.GOARCH}, unix: true},
		{name: "an empty file", cfg: func(c *supervise.Config) { c.Exe = file("empty", "", 0o755) }, parts: []string{"is an empty file"}, unix: true},
		{name: "other processor", cfg: func(c *supervise.Config) { c.Exe = file("elf", elf, 0o755) }, parts: []string{"an ELF program for riscv64", runtime.GOARCH}, unix: true},
		{name: "missing interpreter", cfg: func(c *supervise.Config) { c.Exe = file("script", "#!/no/such/sh\n", 0o755) }, parts: []string{"interpreter /no/such/sh"}, unix: true},
		{name: "wrong checksum", cfg: func(c *supervise.Config) { c.SHA256 = strings.Repeat("ab", 32) }, code: plugin.Corrupt, parts: []string{self(), sum(t, self()), strings.Repeat("ab", 32)}},
	} {
		if test.unix && runtime.GOOS == "windows" {
			continue // it knows no such files
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(test.role)
			if test.cfg != nil {
				test.cfg(&cfg)
			}
			cfg.RuntimeDir = shortDir(t)
			s := supervisor(t, cfg)
			_, err := dispatch(t, s, "pid")
			code := test.code
			if code == "" {
				code = plugin.Unavailable
			}
			e, ok := errors.AsType[*plugin.Error](err)
			if !ok || e.Code != code {
				t.Fatalf("Dispatch = %v, want the code %s", err, code)
			}
			for _, part := range test.parts {
				if !strings.Contains(e.Text(), part) {
					t.Errorf("the error does not say %q: %s", part, e.Text())
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close = %v", err)
			}
			if left := leftovers(t, cfg.RuntimeDir); len(left) > 0 {
				t.Errorf("left in the runtime dir: %q", left)
			}
		})
	}
}

func sum(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func TestARightChecksumIsAccepted(t *testing.T) {
	t.Parallel()
	cfg := config("slow")
	cfg.SHA256 = strings.ToUpper(sum(t, self()))
	mustDispatch(t, supervisor(t, cfg), "pid")
}

func TestFaultyLogLinesStopNobody(t *testing.T) {
	t.Parallel()
	log := newLines()
	cfg := config("noisy")
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := supervisor(t, cfg)
	mustDispatch(t, s, "print")
	log.await(t, "printed to stdout")
	log.await(t, "printed to stderr")
	log.await(t, `@message`)
	log.await(t, "cut=true")

	if got := mustDispatch(t, s, "bomb"); got != "done" {
		t.Errorf("Dispatch(bomb) = %q", got)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
	if text := log.String(); strings.Contains(text, strings.Repeat("l", 70_000)) || !strings.Contains(text, "plugin output dropped") {
		t.Errorf("of long lines and many lines, %d bytes reached the log", len(text))
	}
}

func TestACrashIsExplainedAndMended(t *testing.T) {
	t.Parallel()
	log := newLines()
	cfg := config("plugin")
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	s := supervisor(t, cfg)
	first := mustDispatch(t, s, "pid")

	_, err := dispatch(t, s, "panic")
	e, ok := errors.AsType[*plugin.Error](err)
	if !ok || e.Code != plugin.Internal || e.Details["incident"] == "" {
		t.Fatalf("a panic in a handler = %v", err)
	}
	if log.await(t, e.Details["incident"]); mustDispatch(t, s, "pid") != first {
		t.Error("a panic in a handler ended the process")
	}

	waiting := make(chan struct{})
	inFlight := make(chan error, 1)
	go func() {
		_, err := s.Dispatch(t.Context(), plugin.Call{Argv: []string{"wait"}}, func(plugin.Progress) { close(waiting) })
		inFlight <- err
	}()
	<-waiting
	_, err = dispatch(t, s, "crash", "night")
	wantError(t, err, plugin.Unavailable, "plugin test stopped (exit status 2: panic: boom at night)", "is being restarted")
	if strings.Contains(plugin.AsError(err).Text(), "goroutine") {
		t.Errorf("the error has a stack: %v", err)
	}
	wantError(t, <-inFlight, plugin.Unavailable, "boom at night")

	second := mustDispatch(t, s, "pid")
	if second == first {
		t.Error("the crashed process answers")
	}
	log.await(t, "goroutine")
	state := s.State()
	if state.Restarts != 1 || state.LastError == nil || !strings.Contains(state.LastError.Error(), "boom at night") {
		t.Errorf("State = %+v", state)
	}
}

func TestManyCrashesInARowFail(t *testing.T) {
	t.Parallel()
	s := supervisor(t, config("plugin"))
	for i := range 5 {
		_, err := dispatch(t, s, "exit")
		wantError(t, err, plugin.Unavailable, "exit status 3")
		if i == 0 {
			mustDispatch(t, s, "pid")
		}
	}
	_, err := dispatch(t, s, "pid")
	wantError(t, err, plugin.Unavailable, "failed 5 times in a row", "exit status 3")
	if state := s.State(); state.Phase != supervise.Failed {
		t.Errorf("State = %+v", state)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Errorf("Start = %v", err)
	}
	mustDispatch(t, s, "pid")
}

func TestTheCallersCancellationIsNoFault(t *testing.T) {
	t.Parallel()
	s := supervisor(t, config("plugin"))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Dispatch(ctx, plugin.Call{Argv: []string{"wait"}}, func(plugin.Progress) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Dispatch = %v, want the cancellation", err)
	}
	if state := s.State(); state.Phase != supervise.Ready || state.Restarts != 0 {
		t.Errorf("State = %+v", state)
	}
}

func TestCloseEndsAPluginThatDoesNotDrain(t *testing.T) {
	t.Parallel()
	cfg := config("plugin")
	cfg.Env = append(cfg.Env, "IGNORE_DRAIN=1")
	cfg.DrainTimeout = 50 * time.Millisecond
	s := supervisor(t, cfg)
	mustDispatch(t, s, "pid")
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
	if state := s.State(); state.Phase != supervise.Stopped {
		t.Errorf("State = %+v", state)
	}
}

// firstLine reads one line of a command's stdout.
func firstLine(t *testing.T, r io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("read a line: %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}
