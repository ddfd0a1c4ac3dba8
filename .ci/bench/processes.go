package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sess/dispatch"
	"sess/host"
	"sess/host/supervise"
	"sess/plugin"
	"sess/plugin/wire"
	"sess/store/session"
	"sess/store/transcript"
	"strconv"
	"syscall"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// program is the product's binary in a home of its own.
type program struct{ path, home string }

// build builds the product, with its own dependencies and as a release is, and
// another program of this module in the same way.
func (b *bench) build(ctx context.Context) (product program, empty string, err error) {
	dir := filepath.Join(b.dir, "bin")
	product, empty = program{filepath.Join(dir, "sess"), ""}, filepath.Join(dir, "empty")
	if _, err := os.Stat(empty); err == nil {
		return product, empty, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return product, empty, err
	}
	for out, pkg := range map[string]string{product.path: "../../cmd/sess", empty: "./empty"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-C", pkg, "-trimpath", "-ldflags=-s -w", "-buildvcs=false", "-o", out, ".")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return product, empty, fmt.Errorf("build %s: %w", pkg, err)
		}
	}
	return product, empty, nil
}

// run runs the program to its end.
func (p program) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env = append(os.Environ(), "SESS_HOME="+p.home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", filepath.Base(p.path), args, err, out)
	}
	return nil
}

// resident is run; it returns the most memory, in bytes, that the program, or a
// process of its own, had resident. A process counts from what its parent has,
// so a small one stands between.
func (p program) resident(ctx context.Context, args ...string) (int64, error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{"plugin", "serve", "resident", p.path}, args...)...)
	cmd.Env = append(os.Environ(), "SESS_HOME="+p.home)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w\n%s", filepath.Base(p.path), args, err, said.String())
	}
	return strconv.ParseInt(string(out), 10, 64)
}

// tellResident runs a program and prints the most memory that it had.
func tellResident(args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("this system does not tell how much memory a process had")
	}
	_, err := fmt.Print(usage.Maxrss << 10)
	return err
}

// starts measures whole processes.
func (b *bench) starts(ctx context.Context) error {
	const rounds = 41
	sess, path, err := b.build(ctx)
	if err != nil {
		return err
	}
	sess.home = filepath.Join(b.dir, "starts")
	empty := program{path, sess.home}
	for _, args := range [][]string{{"chat", "--message", "hello"}, {"save", "v1"}} {
		if err := sess.run(ctx, args...); err != nil {
			return err
		}
	}
	t, err := inTurns(rounds, 1,
		func() error { return empty.run(ctx) },
		func() error { return sess.run(ctx, "version") },
		func() error { return sess.run(ctx, "plugins", "list") },
		func() error { return sess.run(ctx, "list") },
	)
	if err != nil {
		return err
	}
	version := t[1]
	b.row("sess version, the whole process", "empty program with the same packages", version/t[0], 1.5)
	b.row("sess plugins list, the whole process", "sess version", t[2]/version, 1.5)
	b.row("sess list, with its plugin process", "sess version", t[3]/version, 4)
	return nil
}

// handshake is that of the bare plugin.
func handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "BENCH_BARE", MagicCookieValue: "1"}
}

// bare is the least that a plugin can be: one method, which answers each stream
// of one message with one message.
type bare struct {
	goplugin.NetRPCUnsupportedPlugin
}

func bareStream() *grpc.StreamDesc {
	return &grpc.StreamDesc{StreamName: "Do", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		in := &wrapperspb.BytesValue{}
		for {
			if err := stream.RecvMsg(in); errors.Is(err, io.EOF) {
				return stream.SendMsg(in)
			} else if err != nil {
				return err
			}
		}
	}}
}

func (bare) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "bench.Bare", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{*bareStream()}}, bare{})
	return nil
}

func (bare) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := conn.NewStream(ctx, bareStream(), "/bench.Bare/Do")
		if err != nil {
			return err
		}
		out := wrapperspb.Bytes([]byte("do"))
		if err := errors.Join(stream.SendMsg(out), stream.CloseSend(), stream.RecvMsg(out)); err != nil {
			return err
		}
		if err := stream.RecvMsg(out); !errors.Is(err, io.EOF) {
			return fmt.Errorf("the stream ends with %w", err)
		}
		return nil
	}, nil
}

// idle is a plugin of the product's kind whose one verb does nothing.
type idle struct {
	plugin.Plugin
	*dispatch.Dispatcher
}

func newIdle() (idle, error) {
	d, err := dispatch.New(dispatch.Command{Name: "idle", Summary: "do nothing", Verbs: []dispatch.Verb{{
		Name: "do", Summary: "do nothing", Effect: plugin.EffectRead,
		Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) { return plugin.Result{}, nil },
	}}})
	return idle{Dispatcher: d}, err
}

func (p idle) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	return p.Dispatcher.Dispatch(ctx, call, progress)
}

func (p idle) Describe(context.Context) (plugin.Description, error) {
	build := ""
	exe, err := os.Executable()
	if err == nil {
		build, err = host.BuildID(exe)
	}
	return plugin.Description{Spec: p.Spec(), Build: build, API: []string{plugin.APIVersion}}, err
}
func (idle) Configure(context.Context, plugin.Configuration, plugin.Runtime) error { return nil }
func (idle) Notify(context.Context, plugin.Event) ([]string, error)                { return nil, nil }

func (idle) Status(context.Context) ([]plugin.ServiceStatus, error) { return nil, nil }
func (idle) Drain(context.Context) error                            { return nil }

// serve is what this program does when it is run again: a plugin, or the parent
// of a process that is measured.
func serve(args []string) error {
	switch args[0] {
	case "resident":
		return tellResident(args[1:])
	case "bare":
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig: handshake(), Plugins: goplugin.PluginSet{"bare": bare{}}, GRPCServer: goplugin.DefaultGRPCServer,
			Logger: hclog.NewNullLogger(),
		})
		return nil
	}
	p, err := newIdle()
	if err != nil {
		return err
	}
	wire.Serve(p, wire.ServeOptions{Logger: slog.New(slog.DiscardHandler)})
	return nil
}

// bareCall starts the bare plugin and returns a call of its method.
func bareCall(mtls bool) (do func(context.Context) error, end func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: handshake(), Plugins: goplugin.PluginSet{"bare": bare{}}, Cmd: exec.Command(exe, "plugin", "serve", "bare"),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, GRPCBrokerMultiplex: true, AutoMTLS: mtls, Logger: hclog.NewNullLogger(),
	})
	conn, err := client.Client()
	if err != nil {
		client.Kill()
		return nil, nil, err
	}
	raw, err := conn.Dispense("bare")
	if err != nil {
		client.Kill()
		return nil, nil, err
	}
	do, ok := raw.(func(context.Context) error)
	if !ok {
		client.Kill()
		return nil, nil, fmt.Errorf("the bare plugin is a %T", raw)
	}
	return do, client.Kill, nil
}

// inTurns times calls that take turns, in rounds of some of each, and returns
// the median of each.
func inTurns(rounds, calls int, do ...func() error) ([]float64, error) {
	times := make([]samples, len(do))
	for round := -1; round < rounds; round++ {
		for i, call := range do {
			for range calls {
				var s samples
				if err := s.time(call); err != nil {
					return nil, err
				}
				if round >= 0 { // the first one fills caches
					times[i] = append(times[i], s...)
				}
			}
		}
	}
	medians := make([]float64, len(do))
	for i := range times {
		medians[i] = times[i].median()
	}
	return medians, nil
}

// border measures a call across the process border, in both modes in which the
// product starts plugins.
func (b *bench) border(ctx context.Context) error {
	for _, mtls := range []bool{false, true} {
		if err := b.borderIn(ctx, mtls); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) borderIn(ctx context.Context, mtls bool) (err error) {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	do, end, err := bareCall(mtls)
	if err != nil {
		return err
	}
	defer end()
	product := supervise.New(supervise.Config{
		Manifest: &plugin.Manifest{ID: "idle", Version: "1", Protocol: plugin.ProtocolVersion, Commands: []string{"idle"}},
		Exe:      exe, Args: []string{"plugin", "serve", "idle"}, Environ: os.Environ(), MTLS: mtls, RuntimeDir: filepath.Join(b.dir, "sockets"),
		NewRuntime: func(int) (plugin.Runtime, func()) { return noRuntime{}, nil },
	})
	defer func() { err = errors.Join(err, product.Close(context.WithoutCancel(ctx))) }()
	t, err := inTurns(60, 50, func() error { return do(ctx) }, func() error {
		_, err := product.Dispatch(ctx, plugin.Call{Argv: []string{"do"}}, nil)
		return err
	})
	if err != nil {
		return err
	}
	mode := "without TLS"
	if mtls {
		mode = "mutual TLS"
	}
	b.row("dispatch to a plugin, "+mode, "bare stream of a go-plugin process", t[1]/t[0], 1.3)
	fmt.Fprintf(os.Stderr, "%-52s %.0f µs, bare %.0f µs\n", "", t[1]/1e3, t[0]/1e3)
	return nil
}

// noRuntime is for a plugin that asks nothing.
type noRuntime struct{ plugin.Runtime }

// memory measures the most memory of host and plugin with a conversation of 500
// MB, above that with one of a few turns.
func (b *bench) memory(ctx context.Context) error {
	const mb = 500
	sess, _, err := b.build(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "memory")
	small, large := program{sess.path, filepath.Join(dir, "small")}, program{sess.path, filepath.Join(dir, "large")}
	if err := errors.Join(converse(ctx, small.home, "talk", 3), converse(ctx, large.home, "talk", mb<<20/turnBytes)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"save", "v1"},
		{"list"},
		{"view", "v1", "--limit=3"},
		{"chat", "--message", "hello"},
		{"save", "v2"},
		{"load", "v1"},
		{"undo"},
		{"copy", "v1", "v3"},
		{"delete", "v3"},
		{"verify", "v1"},
		{"prune"},
	} {
		few, err := small.resident(ctx, args...)
		if err != nil {
			return err
		}
		many, err := large.resident(ctx, args...)
		if err != nil {
			return err
		}
		b.row(fmt.Sprintf("sess %s, memory with %d MB", args[0], mb), "40 MB above a small conversation", float64(many-few)/(40<<20), 1)
		fmt.Fprintf(os.Stderr, "%-52s %d MB, small %d MB\n", "", many>>20, few>>20)
	}
	return nil
}

// converse makes a live session in a home, the active one.
func converse(ctx context.Context, home, id string, turns int) (err error) {
	store, err := session.Open(filepath.Join(home, "sessions"), session.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ref := session.Ref{Project: "default", ID: id}
	if err := store.Create(ctx, store.New(ref, "A talk", "")); err != nil {
		return err
	}
	text := newProse(13)
	lock, err := store.Lock(ctx, ref, "bench", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	const batch = 1 << 9
	for n := 0; n < turns; {
		live, err := lock.Read(ctx)
		if err != nil {
			return err
		}
		for end := min(n+batch, turns); n < end; n++ {
			// Half of what is kept of a turn are its messages, half is what the model
			// knows of it.
			err := errors.Join(
				live.Append(transcript.ListMessages, text.record(n, turnBytes/2)),
				live.Append(transcript.ListHistory, text.record(n, turnBytes/2)),
			)
			if err != nil {
				return err
			}
		}
		if _, err := lock.Write(ctx, live, live.Revision); err != nil {
			return err
		}
	}
	return store.Activate(ctx, ref)
}
