package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"sess/host/server"
	"sess/host/supervise"
	"sess/plugin"
	"sess/store/durable"
	"sess/surfaces"
)

// Files of a gateway in its home.
const (
	gatewayLock   = "gateway.lock"
	gatewayToken  = "gateway.token"
	gatewaySocket = "gateway.sock"
	gatewayRecord = "gateway.json"
)

const (
	// lockTime is how long a start waits for the lock: one that only looks whether
	// a gateway runs holds it for a moment.
	lockTime = 300 * time.Millisecond
	// stopTime bounds the end of a gateway; drainTime of it is for the calls that
	// run.
	stopTime  = 5 * time.Second
	drainTime = 3 * time.Second
)

// socketPathLimit is the longest path of a socket that every system takes, in
// bytes: the size of sun_path on macOS less its final zero.
const socketPathLimit = 103

// GatewayState says how a gateway fares.
type GatewayState string

// The states. One that is unreachable holds the lock of its home and does not
// answer at its socket.
const (
	GatewayRunning     GatewayState = "running"
	GatewayStopping    GatewayState = "stopping"
	GatewayStopped     GatewayState = "stopped"
	GatewayUnreachable GatewayState = "unreachable"
)

// GatewayStatus is what a gateway says about itself. It also lies in its home
// while it runs, for those who find its socket elsewhere or not at all.
type GatewayStatus struct {
	State     GatewayState `json:"state"`
	Home      string       `json:"home"`
	PID       int          `json:"pid,omitempty"`
	Address   string       `json:"address,omitempty"` // with scheme
	Socket    string       `json:"socket,omitempty"`
	StartedAt time.Time    `json:"startedAt,omitzero"` // UTC
	Version   string       `json:"version,omitempty"`
	Build     string       `json:"build,omitempty"`
	Log       string       `json:"log,omitempty"`
	// Listen is the address that its start was told to listen on, "" when the
	// configuration said so.
	Listen string `json:"listen,omitempty"`
	// Plugins are as "plugins list" shows them; only the gateway itself tells.
	Plugins json.RawMessage `json:"plugins,omitempty"`
	Reason  string          `json:"reason,omitempty"` // of a state that is not running
}

// GatewayOptions configures a gateway. Host and Program are required.
type GatewayOptions struct {
	Host    Options
	Program *Program
	// Listen is the TCP address to use instead of the configured one; port 0
	// picks a free one.
	Listen string
}

// Gateway is a host that stays and serves others: programs of this user at a
// unix socket, everybody who has the token over HTTP. There is one for a home.
// Safe for concurrent use. Serve closes it.
type Gateway struct {
	opts    GatewayOptions
	host    *Host
	started *Config // of which the gateway's part holds until the end
	home    durable.FS
	log     *slog.Logger
	logFile *logFile
	server  *server.Server
	tcp     net.Listener
	socket  net.Listener
	folder  *supervise.SocketDir // of a socket that has no place in the home
	status  GatewayStatus

	serving context.Context // of the server; ends when the stop begins
	stop    context.CancelCauseFunc
	unlock  func() error
	over    sync.Once
}

// OpenGateway takes the home for a gateway, opens its host and listens; nobody
// is answered before Serve. A home that has a gateway already is busy: the error
// names it. A wrong configuration, a token that is empty, an address that is in
// use, or one that others reach unprotected are refused.
func OpenGateway(ctx context.Context, opts GatewayOptions) (*Gateway, error) {
	g := &Gateway{opts: opts}
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.close(context.WithoutCancel(ctx)))
	}
	return g, nil
}

func (g *Gateway) open(ctx context.Context) (err error) {
	home := g.opts.Host.Home
	openFS := g.opts.Host.FS
	if openFS == nil {
		openFS = durable.OpenDir
	}
	g.serving, g.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	loose := durable.Tighten(home, ours) // before the home is opened, as the host does it
	if g.home, err = openFS(home); err != nil {
		return HomeError(home, err)
	}
	if err := g.lock(ctx); err != nil {
		return err
	}
	g.logFile = &logFile{open: openFS, home: home, name: gatewayLogName, limit: logLimit, keep: gatewayKeep}
	handler := slog.Handler(slog.NewJSONHandler(g.logFile, nil))
	if l := g.opts.Host.Logger; l != nil {
		handler = slog.NewMultiHandler(l.Handler(), handler)
	}
	g.log = slog.New(handler)
	if loose != nil {
		g.log.WarnContext(ctx, "others may read part of the home", "home", home, "err", loose)
	}
	hostOptions := g.opts.Host
	hostOptions.Background, hostOptions.Logger = true, g.log
	if g.host, err = Open(ctx, hostOptions); err != nil {
		return err
	}
	g.started = g.host.Config()
	if err := g.host.AddMethods(g.methods()...); err != nil {
		return err
	}
	g.status = GatewayStatus{
		State: GatewayRunning, Home: g.home.Dir(), PID: os.Getpid(), StartedAt: time.Now().UTC(), Version: Version(),
		Build: g.host.build, Log: filepath.Join(g.home.Dir(), filepath.FromSlash(gatewayLogName)), Listen: g.opts.Listen,
	}
	if err := g.listen(ctx); err != nil {
		return err
	}
	return g.record()
}

// lock makes this the home's only gateway.
func (g *Gateway) lock(ctx context.Context) (err error) {
	brief, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	g.unlock, err = durable.LockAs(brief, g.home, gatewayLock, "gateway", true)
	if locked, ok := errors.AsType[*durable.LockedError](err); ok {
		holder := readRecord(g.home, locked.Holder)
		e := plugin.Errorf(plugin.Busy, "a gateway runs already for %s: %s", g.home.Dir(), holder.String()).
			WithHint("sess gateway status tells how it fares, sess gateway stop ends it")
		if holder.PID != 0 {
			e = e.WithDetail("pid", fmt.Sprint(holder.PID)).WithDetail("address", holder.Address)
		}
		return e
	}
	return err
}

// listen opens the address and the socket, and prepares what answers there.
func (g *Gateway) listen(ctx context.Context) (err error) {
	config := g.host.Config()
	options := g.opts.server(config)
	address := options.Listen
	options.Version, options.StartedAt, options.Logger = g.status.Version, g.status.StartedAt, g.log
	if options.Token, err = g.token(config.Gateway.Token); err != nil {
		return err
	}
	scheme := "http"
	if options.TLSCert != "" {
		scheme = "https"
	}
	if g.server, err = server.New(g.host, options); err != nil {
		return err
	}
	var lc net.ListenConfig
	if g.tcp, err = lc.Listen(ctx, "tcp", address); err != nil {
		return listenError(address, err)
	}
	g.status.Address = scheme + "://" + g.tcp.Addr().String()
	return g.listenSocket(ctx, lc)
}

func listenError(address string, err error) error {
	hint := "choose another address with --listen or gateway.listen"
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "another program listens there: end it, or choose another address with --listen or gateway.listen; port 0 picks a free one"
	}
	return plugin.Errorf(plugin.Unavailable, "cannot listen on %s: %w", address, err).WithHint("%s", hint)
}

// server is what the settings say of the server.
func (o *GatewayOptions) server(c *Config) server.Options {
	out := server.Options{
		Listen: cmp.Or(o.Listen, c.Gateway.Listen), AllowedOrigins: c.Gateway.AllowedOrigins, AllowedHosts: c.Gateway.AllowedHosts,
		BodyLimit: c.Gateway.BodyLimit, Insecure: c.Gateway.Insecure, Grace: drainTime,
	}
	if c.Gateway.TLS != nil {
		out.TLSCert, out.TLSKey = o.Host.path(c.Gateway.TLS.Cert), o.Host.path(c.Gateway.TLS.Key)
	}
	return out
}

// CheckGateway refuses the settings that [OpenGateway] would refuse, so that a
// gateway that runs is not given up for one that cannot start.
func CheckGateway(opts GatewayOptions) error {
	token, _, err := ReadGatewayToken(opts.Host.Home, opts.Host.Builtins, opts.Host.Environ)
	if errors.Is(err, fs.ErrNotExist) {
		token, err = "the start makes one", nil
	}
	if err != nil {
		return err
	}
	found, err := find(opts.Host.Home, opts.Host.Builtins)
	if err != nil {
		return err
	}
	config, err := LoadConfig(opts.Host.Home, manifestsOf(found))
	if err != nil {
		return err
	}
	options := opts.server(config)
	options.Token = token
	_, err = server.New(nil, options)
	return err
}

// listenSocket opens the socket for the programs of this user: in the home, or,
// where the path would be too long, in a folder of its own. What is left of a
// gateway that was killed is replaced: its lock is ours now.
func (g *Gateway) listenSocket(ctx context.Context, lc net.ListenConfig) (err error) {
	path := filepath.Join(g.home.Dir(), gatewaySocket)
	if err := removeSocket(g.home); err != nil {
		return err
	}
	if len(path) > socketPathLimit {
		if g.folder, err = supervise.NewSocketDir(ctx, g.opts.Host.RuntimeDir); err != nil {
			return err
		}
		path = filepath.Join(g.folder.Path(), gatewaySocket)
	}
	if g.socket, err = lc.Listen(ctx, "unix", path); err != nil {
		return plugin.Errorf(plugin.Unavailable, "cannot make the socket %s: %w", path, err)
	}
	g.status.Socket = path
	// Nobody else gets into the folder; this is for those who move it.
	if err := os.Chmod(path, durable.FileMode); err != nil {
		return plugin.AsError(err)
	}
	return nil
}

// removeSocket removes a socket of an earlier gateway from the home. The caller
// holds the gateway's lock.
func removeSocket(home durable.FS) error {
	info, err := home.Stat(gatewaySocket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return plugin.AsError(err)
	case info.Mode().IsRegular() && info.Size() > 0 || info.IsDir():
		return plugin.Errorf(plugin.Exists, "%s is no socket", filepath.Join(home.Dir(), gatewaySocket)).
			WithHint("move it away, then start the gateway again")
	}
	return home.Remove(gatewaySocket)
}

// token is what everybody over the network has to show: from the environment,
// the configuration, or the home, where the first start makes one.
func (g *Gateway) token(configured string) (string, error) {
	token, from, err := findToken(g.home, configured, g.opts.Host.Environ)
	if errors.Is(err, fs.ErrNotExist) {
		if token, err = makeToken(g.home); err == nil {
			g.log.Info("gateway token made", "file", from)
		}
	}
	return token, err
}

// record writes down what this gateway is.
func (g *Gateway) record() error {
	data, err := json.Marshal(g.status)
	if err != nil {
		return err
	}
	return durable.Write(g.home, gatewayRecord, data)
}

// Status says how the gateway fares.
func (g *Gateway) Status(ctx context.Context) GatewayStatus {
	s := g.status
	if g.serving.Err() != nil {
		s.State, s.Reason = GatewayStopping, context.Cause(g.serving).Error()
		return s
	}
	if err := g.host.Ready(ctx); err != nil {
		s.Reason = plugin.AsError(err).Text()
	}
	if plugins, err := g.host.Call(ctx, plugin.CallerHost, "plugins.list", nil, nil); err == nil {
		s.Plugins = plugins
	}
	return s
}

// Serve answers until ctx ends or somebody asks for a stop, then closes the
// gateway: calls that run may finish, new ones are refused, plugins are drained;
// all within 5 seconds. It is called once.
func (g *Gateway) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { g.stop(context.Cause(ctx)) })()
	g.log.Info("gateway started", "pid", g.status.PID, "address", g.status.Address, "socket", g.status.Socket, "version", g.status.Version)
	var (
		servers   sync.WaitGroup
		errs      [2]error
		end       context.Context
		cancel    context.CancelFunc
		beginning = make(chan struct{})
	)
	g.host.background.Go(func() { g.host.keepExpiring(g.serving) })
	context.AfterFunc(g.serving, func() {
		defer close(beginning)
		end, cancel = context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		g.log.Info("gateway stopping", "cause", context.Cause(g.serving).Error())
		g.host.live.drain()                      // who waits for a turn has an answer in time
		if err := g.forgetRecord(); err != nil { // it is not to be found any more
			g.log.Warn("record not removed", "err", err)
		}
	})
	// Plugins have schedules; who serves does not wait for their start.
	g.host.background.Go(func() { g.host.startAll(g.serving, g.host.plugins()) })
	for i, serve := range []func() error{
		func() error { return g.server.Serve(g.serving, g.tcp) },
		func() error { return g.server.ServeSocket(g.serving, g.socket) },
	} {
		servers.Go(func() {
			errs[i] = serve()
			g.stop(errs[i]) // one without the other is no gateway
		})
	}
	servers.Wait()
	<-beginning
	defer cancel()
	return errors.Join(append(errs[:], g.close(end))...)
}

// close gives up everything, as far as it was opened.
func (g *Gateway) close(ctx context.Context) error {
	var errs []error
	g.over.Do(func() {
		g.stop(nil)
		for _, l := range []net.Listener{g.tcp, g.socket} {
			if l == nil {
				continue
			}
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
		if g.folder != nil {
			errs = append(errs, g.folder.Close())
		}
		if g.host != nil {
			errs = append(errs, g.host.Close(ctx))
		}
		if g.log != nil && g.status.Address != "" {
			g.log.Info("gateway stopped", "pid", g.status.PID)
		}
		if g.logFile != nil {
			errs = append(errs, g.logFile.Close())
		}
		if g.unlock != nil {
			errs = append(errs, g.forgetRecord(), g.unlock())
		}
		if g.home != nil {
			errs = append(errs, g.home.Close())
		}
	})
	return errors.Join(errs...)
}

// forgetRecord removes what the gateway wrote down of itself.
func (g *Gateway) forgetRecord() error {
	if err := g.home.Remove(gatewayRecord); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// errAsked is why a gateway stops that was told to.
var errAsked = errors.New("a client asked for it")

// methods are those of the gateway itself.
func (g *Gateway) methods() []Method {
	return []Method{
		{"gateway.status", g.callStatus},
		{"gateway.version", g.callVersion},
		{"gateway.stop", g.callStop},
		{"gateway.reload", g.callReload},
		{"command.run", g.callCommand},
		{CompleteMethod, g.callComplete},
	}
}

// noParams refuses params of a method that takes none.
func noParams(params json.RawMessage) error {
	return surfaces.Params(params, &struct{}{})
}

func (g *Gateway) callStatus(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if err := noParams(params); err != nil {
		return nil, err
	}
	return json.Marshal(g.Status(ctx))
}

// GatewayVersion is what a client has to know of a gateway before it asks for
// more.
type GatewayVersion struct {
	Version string `json:"version"`
	Build   string `json:"build"`
	Home    string `json:"home"`
	PID     int    `json:"pid"`
}

func (g *Gateway) callVersion(_ context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if err := noParams(params); err != nil {
		return nil, err
	}
	return json.Marshal(GatewayVersion{Version: g.status.Version, Build: g.status.Build, Home: g.status.Home, PID: g.status.PID})
}

// callStop begins the end: this answer is among the calls that may finish.
func (g *Gateway) callStop(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if err := noParams(params); err != nil {
		return nil, err
	}
	g.stop(errAsked)
	return json.Marshal(g.Status(ctx))
}

// Reloaded says what a reload did.
type Reloaded struct {
	ReloadReport
	// Restart lists the settings that have changed and take effect only when the
	// gateway starts again.
	Restart []string `json:"restart"`
}

func (g *Gateway) callReload(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if err := noParams(params); err != nil {
		return nil, err
	}
	report, err := g.host.Reload(ctx)
	if err != nil {
		g.log.Warn("configuration not reloaded", "err", err)
		return nil, err
	}
	out := Reloaded{ReloadReport: report, Restart: g.started.changed(g.host.Config())}
	g.log.Info("configuration reloaded", "added", report.Added, "changed", report.Changed, "removed", report.Removed, "failed", len(report.Failed))
	return json.Marshal(out)
}

// StageBegun is the progress that tells the writer of a long command line that the
// gateway is at it.
const StageBegun = "begun"

// begunTime is how long a command line may take before its writer is told that the
// gateway is at it.
const begunTime = 500 * time.Millisecond

// callCommand answers command.run: a command line, as its writer typed it. Only
// programs of this user, at the socket, are trusted like one at a terminal.
func (g *Gateway) callCommand(ctx context.Context, caller plugin.Caller, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error) {
	var line Line
	if err := surfaces.Params(params, &line); err != nil {
		return nil, err
	}
	if server.AtSocket(ctx) {
		caller = plugin.CallerCLI
	} else if caller.Internal() {
		return nil, plugin.Errorf(plugin.Denied, "command.run is for people").WithHint("call gateway.dispatch with an argv")
	}
	late := !line.StartBy.IsZero() && time.Now().After(line.StartBy)
	if late || line.AtHome != "" && !SameFolder(line.AtHome, g.home.Dir()) {
		return json.Marshal(Reply{Refused: true})
	}
	var telling sync.Mutex // progress is for one at a time
	tell := func(p plugin.Progress) {
		telling.Lock()
		defer telling.Unlock()
		progress.Report(p)
	}
	wait := begunTime
	if !line.StartBy.IsZero() {
		wait = min(wait, time.Until(line.StartBy)) // by then its writer wants to know
	}
	if files := server.ClientFiles(ctx); files != nil && line.Files {
		ctx = plugin.WithFiles(ctx, files)
	}
	begun := time.AfterFunc(wait, func() { tell(plugin.Progress{Stage: StageBegun}) })
	reply := g.host.CommandLine(ctx, g.opts.Program, line, caller, tell)
	begun.Stop()
	reply.Err = server.CutShort(ctx, "the command", reply.Err)
	telling.Lock() // after the answer nothing is told
	progress = nil
	telling.Unlock()
	return json.Marshal(reply)
}

// SameFolder reports whether two paths lead to one folder, as far as can be told.
func SameFolder(one, other string) bool {
	if one == other {
		return true
	}
	a, err1 := os.Stat(one)
	b, err2 := os.Stat(other)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
