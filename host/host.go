package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"sess/dispatch"
	"sess/host/chat"
	"sess/host/server"
	"sess/host/supervise"
	"sess/plugin"
	"sess/plugin/upstream"
	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/session"
)

// Options configures a host. Home and Exe are required.
type Options struct {
	// Home is the folder where everything is kept; it is made if absent.
	Home string
	// Exe is the program's own executable, from which bundled plugins run.
	Exe string
	// Builtins are the manifests of the bundled plugins.
	Builtins [][]byte
	// Reserved are commands that plugins may not have, beside the host's own.
	Reserved []string
	// Local are bundled plugins that run in this process instead of one of their
	// own, by id: where both halves have to be watched together, as tests do. Each
	// is a fresh one, and the host configures and drains it.
	Local map[string]plugin.Plugin
	// Defaults leaves config.json aside, also a wrong one: for help.
	Defaults bool
	// Background is true for a host that stays: plugins then run their schedules.
	Background bool
	// Cwd is noted as the working directory of sessions made here.
	Cwd string
	// UserHome is what a leading ~ in the configuration means.
	UserHome string
	// RuntimeDir is where sockets lie; "" lets the supervisor choose.
	RuntimeDir string
	// Environ is the environment that plugins may be given parts of.
	Environ []string
	// FS opens folders; nil means the real disk.
	FS durable.OpenFunc
	// Chunks says how the chunks of sessions are kept; the zero value is good.
	Chunks chunk.Options
	// Now is the clock; nil means the real one.
	Now func() time.Time
	// Events is told of everything that happens in this host, in order; nil is
	// nobody. It must not wait.
	Events func(server.Event)
	// Logger receives the host's and the plugins' logs; nil drops them. Warnings
	// and errors also go to logs/sess.log in the home.
	Logger *slog.Logger
}

// path is a file that the configuration names: a relative one lies in the home.
func (o *Options) path(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok && o.UserHome != "" {
		return filepath.Join(o.UserHome, rest)
	}
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(o.Home, name)
}

// Host is an open host. Safe for concurrent use. Close it.
type Host struct {
	opts      Options
	log       *slog.Logger
	logFile   *logFile
	now       func() time.Time
	build     string
	home      durable.FS
	sessions  *session.Store
	transport *http.Transport // of the requests to all models
	own       []*dispatch.Dispatcher
	registry  atomic.Pointer[registry] // never nil; Reload replaces it
	events    *hub
	live      *conversations
	troubles  troubles

	reloading sync.Mutex // held while the registry is replaced

	refreshing sync.Mutex // guards what follows, and that one refreshes at a time
	read       string     // the mark of what was read

	life       context.Context // of what runs in the background
	end        context.CancelFunc
	background sync.WaitGroup
	tidy       sync.Once
	expiring   sync.Mutex // held while sessions expire

	mu       sync.Mutex              // guards what follows
	moves    map[string]*session.Ref // by request id
	calls    map[string]int          // in flight, by request id: those that a call makes have its own
	mended   map[string][]string     // what the answer to a request has to tell, by its id
	foreigns map[string]*foreignCall // those of the calls in flight, by request id
	runtimes map[*runtime]bool       // of the plugin processes that live
	methods  map[string]Method       // by name: those that are no command's
	closing  bool
}

var _ plugin.Dispatcher = (*Host)(nil)

// Open opens the home, reads the configuration and prepares the plugins; no
// process is started before it is needed. A wrong configuration is refused.
func Open(ctx context.Context, opts Options) (*Host, error) {
	h := &Host{
		opts: opts, now: opts.Now, transport: upstream.NewTransport(),
		moves: map[string]*session.Ref{}, calls: map[string]int{}, mended: map[string][]string{}, foreigns: map[string]*foreignCall{}, runtimes: map[*runtime]bool{}, methods: map[string]Method{},
	}
	if h.now == nil {
		h.now = time.Now
	}
	tell := opts.Events
	h.events = newHub(h.now, func(e server.Event) {
		h.live.told(e)
		if tell != nil {
			tell(e)
		}
	})
	if err := h.AddMethods(h.hostMethods()...); err != nil {
		return nil, err
	}
	if opts.FS == nil {
		h.opts.FS = durable.OpenDir
	}
	h.life, h.end = context.WithCancel(context.WithoutCancel(ctx))
	h.live = newConversations(h)
	h.logFile = &logFile{open: h.opts.FS, home: opts.Home, name: logName, limit: logLimit, keep: logKeep}
	handler := slog.Handler(slog.DiscardHandler)
	if opts.Logger != nil {
		handler = opts.Logger.Handler()
	}
	h.log = slog.New(slog.NewMultiHandler(handler, slog.NewJSONHandler(h.logFile, &slog.HandlerOptions{Level: slog.LevelWarn}),
		&troubleHandler{troubles: &h.troubles}))
	// Before anything opens the home, and so makes it look tightened.
	if err := durable.Tighten(opts.Home, ours); err != nil {
		h.log.WarnContext(ctx, "others may read part of the home", "home", opts.Home, "err", err)
	}
	h.registry.Store(&registry{})
	found, err := h.find()
	if err != nil {
		return nil, err
	}
	config, err := h.loadConfig(found)
	if err != nil {
		return nil, err
	}
	if h.build, err = BuildID(opts.Exe); err != nil {
		return nil, fmt.Errorf("own executable: %w", err)
	}
	if h.home, err = h.opts.FS(opts.Home); err != nil {
		return nil, HomeError(opts.Home, err)
	}
	h.sessions, err = session.Open(filepath.Join(opts.Home, "sessions"), session.Options{FS: h.opts.FS, Now: h.now, Logger: h.log, Chunks: opts.Chunks, Made: func(session.Ref) { h.expire() }})
	if err != nil {
		return nil, errors.Join(HomeError(opts.Home, err), h.home.Close())
	}
	if err := h.register(found, config); err != nil {
		return nil, errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	return h, nil
}

// ours reports whether an entry of the home is one that the program makes there.
func ours(name string) bool {
	switch name {
	case "agents", historyName, "config.json", "gateway.json", "gateway.lock", "gateway.lock.holder", "gateway.token", "logs", "plugins", "sessions":
		return true
	}
	return false
}

// checkHome refuses a home that is something else than a folder; one that is not
// there yet is fine.
func checkHome(home string) error {
	switch info, err := os.Stat(home); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return HomeError(home, err)
	case !info.IsDir():
		return HomeError(home, plugin.Errorf(plugin.Denied, "it is not a folder"))
	}
	return nil
}

// HomeError is err for people whose home cannot be used.
func HomeError(home string, err error) error {
	e := plugin.AsError(fmt.Errorf("cannot use %s as the home folder: %w", home, err))
	if e.Code == plugin.Internal {
		e.Code = plugin.Denied
	}
	if e.Code == plugin.NoSpace {
		return e // which says what to do
	}
	return e.WithHint("name another folder with --home or SESS_HOME")
}

// Close ends the plugins, each drained, waits for what runs in the background,
// and closes the stores. When ctx ends nothing is waited for any longer.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	defer h.events.close()
	stop := context.AfterFunc(ctx, h.end)
	defer stop()
	h.live.close(ctx)   // its turns talk to the plugins,
	h.background.Wait() // as does what runs in the background
	errs := []error{h.sessions.Flush(ctx)}
	h.end()
	var wg sync.WaitGroup
	var mu sync.Mutex
	h.reloading.Lock() // no plugin is started any more
	defer h.reloading.Unlock()
	for _, p := range slices.Backward(h.plugins()) {
		if p.sup == nil {
			continue
		}
		wg.Go(func() {
			if err := p.sup.Close(ctx); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("plugin %s: %w", p.Manifest.ID, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	h.background.Wait() // for the plugins that a reload has replaced
	h.transport.CloseIdleConnections()
	return errors.Join(append(errs, h.sessions.Close(), h.home.Close(), h.logFile.Close())...)
}

// Logger is what the host logs to, and logs/sess.log in its home.
func (h *Host) Logger() *slog.Logger { return h.log }

// Sessions is the host's session store.
func (h *Host) Sessions() *session.Store { return h.sessions }

// Config is the validated configuration.
func (h *Host) Config() *Config { return h.registry.Load().config }

// Dispatch answers a call whose first word is a command. It fills in what the
// call leaves open: agent, project, session, request id.
func (h *Host) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	if len(call.Argv) == 0 {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "no command given").WithHint("sess help lists them")
	}
	name := call.Argv[0]
	call.Argv = call.Argv[1:]
	to, err := h.dispatcher(name)
	if err != nil {
		return plugin.Result{}, err
	}
	call.Agent = cmp.Or(call.Agent, DefaultAgent)
	if call.RequestID == "" {
		call.RequestID = cmp.Or(plugin.RequestID(ctx), uuid.NewString())
	}
	foreign := h.foreign(&call)
	if foreign == nil {
		ref, err := h.Resolve(ctx, call.Project, call.Session)
		if err != nil {
			return plugin.Result{}, err
		}
		call.Project, call.Session = ref.Project, ref.ID
	}
	foreign = h.callBegins(&call, foreign)
	ctx = plugin.WithRequestID(ctx, call.RequestID)
	defer h.callEnds(call.RequestID)
	h.log.Debug("dispatch", "command", name, "request_id", call.RequestID, "caller", call.Caller)
	lent, err := h.lend(ctx, name, &call)
	if err != nil {
		return plugin.Result{}, err
	}
	res, err := to.Dispatch(ctx, call, progress)
	for errors.Is(err, supervise.ErrClosed) && h.life.Err() == nil {
		// The plugin was replaced, or is gone, since it was looked up.
		before := to
		if to, err = h.dispatcher(name); err != nil || to == before {
			return lent.end(plugin.Result{}, cmp.Or(err, error(plugin.Errorf(plugin.Unavailable, "%s is being stopped", name))))
		}
		res, err = to.Dispatch(ctx, call, progress)
	}
	res, err = lent.end(res, err)
	if err == nil {
		res.Notices = append(res.Notices, h.takeMended(call.RequestID)...)
		if foreign != nil {
			res.Notices = append(res.Notices, foreign.takeReport()...)
		}
		h.publishChange(ctx, name, call, res)
	}
	return res, err
}

// Ready is nil when calls can be answered: the host is not being closed, its
// sessions can be read, and none of the bundled plugins has failed.
func (h *Host) Ready(ctx context.Context) error {
	h.mu.Lock()
	closing := h.closing
	h.mu.Unlock()
	if closing {
		return plugin.Errorf(plugin.Unavailable, "the host is stopping")
	}
	if _, err := h.sessions.Manifest(ctx); err != nil {
		return plugin.AsError(chat.StoreError(err))
	}
	for _, p := range h.plugins() {
		if p.sup == nil || !p.Bundled {
			continue
		}
		if s := p.sup.State(); s.Phase == supervise.Failed {
			return plugin.Errorf(plugin.Unavailable, "plugin %s has failed: %w", p.Manifest.ID, s.LastError).
				WithHint("sess plugins inspect %s shows why", p.Manifest.ID)
		}
	}
	return nil
}

// callBegins notes that a call runs, and about which agent's conversations it is:
// what a plugin asks for while it serves the call is known by the request. A call
// that another one makes has its id, unless it is about other conversations.
func (h *Host) callBegins(call *plugin.Call, foreign *foreignCall) *foreignCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[call.RequestID] > 0 {
		if first := h.foreigns[call.RequestID]; first.same(foreign) {
			foreign = first
		} else {
			call.RequestID = uuid.NewString()
		}
	}
	h.calls[call.RequestID]++
	if foreign != nil {
		h.foreigns[call.RequestID] = foreign
	}
	return foreign
}

// tellMended notes for the answer to a request what had to be mended in the
// state that one of its stages brought to a session.
func (h *Host) tellMended(request string, ref session.Ref, notices []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[request] == 0 {
		return // nobody is there to be told
	}
	for _, n := range notices {
		h.mended[request] = append(h.mended[request], fmt.Sprintf("session %s: %s", ref.ID, n))
	}
}

// takeMended returns what was noted for a request; it is told once.
func (h *Host) takeMended(request string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	notices := h.mended[request]
	delete(h.mended, request)
	return notices
}

// callEnds gives up the stages that were made for a request, once none of its
// calls runs any more.
func (h *Host) callEnds(request string) {
	h.mu.Lock()
	h.calls[request]--
	if h.calls[request] > 0 {
		h.mu.Unlock()
		return
	}
	delete(h.calls, request)
	delete(h.mended, request)
	if f := h.foreigns[request]; f != nil {
		delete(h.foreigns, request)
		defer f.close()
	}
	runtimes := slices.Collect(maps.Keys(h.runtimes))
	h.mu.Unlock()
	for _, r := range runtimes {
		r.callEnds(request)
	}
}

// dispatcher finds who answers a command.
func (h *Host) dispatcher(command string) (plugin.Dispatcher, error) {
	for _, d := range h.own {
		if d.Spec().Command == command {
			return d, nil
		}
	}
	for _, p := range h.plugins() {
		if !slices.Contains(p.Manifest.Commands, command) {
			continue
		}
		if p.sup == nil {
			return nil, h.absence(p)
		}
		return p.sup, nil
	}
	e := plugin.Errorf(plugin.Usage, "unknown command %q", command)
	if near := plugin.Nearest(command, h.commandNames()); len(near) > 0 {
		return nil, e.WithHint("did you mean %s?", near[0])
	}
	return nil, e.WithHint("sess help lists the commands")
}

func (h *Host) commandNames() []string {
	var names []string
	for _, d := range h.own {
		names = append(names, d.Spec().Command)
	}
	for _, p := range h.plugins() {
		names = append(names, p.Manifest.Commands...)
	}
	return names
}

// Follow is Dispatch for a chat: it also tells which session the call made the
// active one; nil means that the chat stays where it is.
func (h *Host) Follow(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, *session.Ref, error) {
	call.RequestID = cmp.Or(call.RequestID, uuid.NewString())
	h.mu.Lock()
	h.moves[call.RequestID] = nil
	h.mu.Unlock()
	res, err := h.Dispatch(ctx, call, progress)
	h.mu.Lock()
	defer h.mu.Unlock()
	ref := h.moves[call.RequestID]
	delete(h.moves, call.RequestID)
	return res, ref, err
}

// moved notes that the request of ctx made another session the active one, if
// a chat waits to hear of it.
func (h *Host) moved(ctx context.Context, ref session.Ref) {
	id := plugin.RequestID(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waiting := h.moves[id]; waiting {
		h.moves[id] = &ref
	}
}
