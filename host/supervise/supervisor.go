package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"sess/plugin"
	"sess/plugin/wire"
)

const (
	firstPause  = 200 * time.Millisecond // after the first failure; doubles
	maxPause    = 30 * time.Second
	settleAfter = time.Minute     // ready for this long, a plugin is well again
	patience    = 5 * time.Second // how long a call waits for a restart
	noticing    = time.Second     // how far a process's end may be behind its connection's
	lastWait    = 5 * time.Second // how long Close waits for a killed process
)

// Config says what a [Supervisor] runs. Manifest, Exe and NewRuntime are
// required; the zero value of every other field works.
type Config struct {
	// Manifest is the plugin's; its mux and protocol count here.
	Manifest *plugin.Manifest
	// Exe is the absolute path of its program, Args are the arguments.
	Exe  string
	Args []string
	// Guard is a command that Exe and Args are appended to, for programs that
	// do not end by themselves when their stdin does; see [Guard].
	Guard []string
	// Dir is the working directory; empty means the program's folder.
	Dir string
	// Environ is the host's environment, as "K=V". The plugin gets only the few
	// variables of it that every program needs, and those of Env.
	Environ []string
	Env     []string
	// SHA256 is the checksum that the program must have, in hex; empty means
	// that it is not checked.
	SHA256 string
	// Check is asked before each start whether the program may run: its error
	// gives the plugin up. Nil means that it may.
	Check func() error
	// Build is the build that the plugin must say it is; empty means any.
	Build string
	// Known returns what a plugin of this build is known to say of itself, so that
	// it need not be asked at each start; a process of another build is asked. Nil,
	// or false, means that nothing is known.
	Known func() (plugin.Description, bool)
	// MTLS makes both sides prove to each other who they are. Without it the
	// private folder of their socket is what keeps others out.
	MTLS bool
	// RuntimeDir is where that folder is made; empty, or a path that will not
	// do, means the folder for temporary files. It is made if it is missing.
	RuntimeDir string
	// Unconfigured leaves a process unconfigured: it can be asked for its
	// description, and nothing else.
	Unconfigured bool
	// Configuration is handed to each new process.
	Configuration plugin.Configuration
	// NewRuntime makes what the host offers to one process, which it numbers
	// from 1. The second result is called when that process is gone and none of
	// its calls runs any more; it may be nil.
	NewRuntime func(instance int) (plugin.Runtime, func())
	// ReadOnly reports whether a call changes nothing, so that it may be sent
	// again when the process dies under it. Nil means none is.
	ReadOnly func(call plugin.Call) bool
	// OnExit is told of the end of each process that was ready, after its
	// runtime was closed and before another one starts. It may be nil.
	OnExit func(Exit)
	// Logger takes what happens to the plugin and what the plugin writes; nil
	// discards it.
	Logger *slog.Logger
	// StartTimeout bounds a start; 0 means 10 s.
	StartTimeout time.Duration
	// DrainTimeout bounds the wait for what runs when the plugin is closed; 0
	// means 5 s.
	DrainTimeout time.Duration
}

// Exit is the end of one process.
type Exit struct {
	Instance int
	PID      int
	// Reason is how it ended, in one line.
	Reason string
	// Expected is true when the host ended it.
	Expected bool
}

// State is what is known of a plugin at one moment.
type State struct {
	Phase Phase
	// PID is the process number, 0 when there is no process.
	PID int
	// Restarts counts the starts after the first.
	Restarts int
	// Since is when the plugin came into this phase.
	Since time.Time
	// LastError is why a start failed or a process ended last, or nil.
	LastError error
	// Stderr is what the process wrote last: the panic, or up to 20 lines.
	Stderr []string
}

// Supervisor keeps one plugin running; see the package's comment. It starts
// nothing before the first call or [Supervisor.Start]. It is safe for
// concurrent use. Errors are [*plugin.Error] values. Close it.
type Supervisor struct {
	cfg    Config
	log    *slog.Logger
	launch func(ctx context.Context, n int) (instance, error)

	// hurry is the context under which things are ended in an orderly way; it
	// lasts until Close has no more time.
	hurry  context.Context
	rush   context.CancelFunc
	owned  sync.WaitGroup // every goroutine of ours
	closed chan struct{}  // closed by Close

	mu       sync.Mutex // guards all below
	machine  machine
	since    time.Time
	changed  chan struct{} // closed and replaced when anything below changes
	current  instance      // nil but in Ready and Draining
	calls    int           // that current is answering
	launched int
	attempts int // starts that have come to an end
	lastErr  error
	stderr   []string
	timer    *time.Timer
	abort    context.CancelCauseFunc // of the start that runs
	sockets  *SocketDir
}

var (
	_ plugin.Dispatcher = (*Supervisor)(nil)
	_ plugin.Provider   = (*Supervisor)(nil)
)

// New makes the supervisor of a plugin that does not run yet.
func New(cfg Config) *Supervisor {
	if cfg.StartTimeout <= 0 {
		cfg.StartTimeout = 10 * time.Second
	}
	if cfg.DrainTimeout <= 0 {
		cfg.DrainTimeout = 5 * time.Second
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Supervisor{
		cfg:     cfg,
		log:     log.With("plugin", cfg.Manifest.ID),
		closed:  make(chan struct{}),
		machine: machine{phase: Stopped},
		since:   time.Now(),
		changed: make(chan struct{}),
	}
	s.launch = s.launchProcess
	s.hurry, s.rush = context.WithCancel(context.Background())
	return s
}

// handle moves the machine by one event and does what follows. s.mu is held.
func (s *Supervisor) handle(e event) {
	m, actions := next(s.machine, e)
	if m.phase != s.machine.phase {
		s.since = time.Now()
	}
	s.machine = m
	for _, a := range actions {
		switch a {
		case launch:
			s.begin()
		case abort:
			s.abort(errors.New("the plugin is being closed"))
		case drain:
			in := s.current
			s.owned.Go(func() { s.drain(in) })
		case armSettled:
			s.arm(settleAfter, settled)
		case armDue:
			s.arm(pause(m.failures), due)
		case disarm:
			if s.timer != nil {
				s.timer.Stop()
				s.timer = nil
			}
		}
	}
	s.notify()
}

// notify wakes all that wait for a change. s.mu is held.
func (s *Supervisor) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// arm sends e after d, unless disarmed. s.mu is held.
func (s *Supervisor) arm(d time.Duration, e event) {
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timer == timer {
			s.timer = nil
			s.handle(e)
		}
	})
	s.timer = timer
}

// pause is how long the next start waits after so many failures: doubling, and
// between half and all of that, so that several plugins do not start in step.
func pause(failures int) time.Duration {
	d := min(firstPause<<(min(failures, 10)-1), maxPause)
	return d/2 + rand.N(d/2+1)
}

// begin starts a process. s.mu is held.
func (s *Supervisor) begin() {
	s.launched++
	n := s.launched
	ctx, abort := context.WithCancelCause(context.Background())
	s.abort = abort
	s.owned.Go(func() {
		defer abort(nil)
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
		defer cancel()
		began := time.Now()
		in, err := s.launch(ctx, n)
		if err != nil {
			e := broke
			if _, never := errors.AsType[permanent](err); never {
				e = refused
			}
			s.mu.Lock()
			s.attempts++
			s.lastErr = plugin.AsError(err)
			s.handle(e)
			m := s.machine
			s.mu.Unlock()
			level := slog.LevelWarn
			if m.phase == Stopped { // it was given up with the host, and nothing is wrong
				level = slog.LevelInfo
			}
			s.log.Log(ctx, level, "plugin start failed", "err", err, "failures", m.failures, "phase", string(m.phase))
			return
		}
		s.log.Info("plugin started", "pid", in.pid(), "duration_ms", time.Since(began).Milliseconds())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attempts++
		s.current = in
		s.handle(started)
		s.owned.Go(func() { s.watch(in, n) })
	})
}

// watch waits for the end of an instance and clears up after it.
func (s *Supervisor) watch(in instance, n int) {
	<-in.gone()
	exit := Exit{Instance: n, PID: in.pid(), Reason: in.ended()}
	s.mu.Lock()
	exit.Expected = s.machine.phase == Draining
	s.stderr = in.last()
	if !exit.Expected {
		s.lastErr = plugin.Errorf(plugin.Unavailable, "plugin %s ended (%s)", s.cfg.Manifest.ID, exit.Reason)
	}
	s.notify() // it is no longer alive, though the phase will change later
	s.mu.Unlock()

	in.end(context.Background()) // leaves nothing of go-plugin's behind
	in.release()
	if s.cfg.OnExit != nil {
		s.cfg.OnExit(exit)
	}
	s.mu.Lock()
	s.current = nil
	s.handle(exited)
	m := s.machine
	s.mu.Unlock()
	level := slog.LevelError
	if exit.Expected {
		level = slog.LevelInfo
	}
	s.log.Log(context.Background(), level, "plugin ended",
		"pid", exit.PID, "reason", exit.Reason, "failures", m.failures, "phase", string(m.phase))
}

// drain ends an instance: it is told, its calls are waited for, then it ends.
func (s *Supervisor) drain(in instance) {
	ctx, cancel := context.WithTimeout(s.hurry, s.cfg.DrainTimeout)
	defer cancel()
	if err := in.Drain(ctx); err != nil {
		s.log.Warn("plugin did not drain", "err", err)
	}
	s.await(ctx, func() bool { return s.calls == 0 })
	cancel()
	ctx, cancel = context.WithTimeout(s.hurry, killGrace)
	defer cancel()
	in.end(ctx)
}

// await waits until done, which is called with s.mu held, or ctx ends.
func (s *Supervisor) await(ctx context.Context, done func() bool) bool {
	for {
		s.mu.Lock()
		ok, changed := done(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// socketDir is the folder of the plugin's sockets, made once.
func (s *Supervisor) socketDir(ctx context.Context) (string, error) {
	s.mu.Lock()
	have := s.sockets
	s.mu.Unlock()
	if have != nil {
		return have.path, nil
	}
	dir, err := NewSocketDir(ctx, s.cfg.RuntimeDir)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.sockets = dir // only one start runs at a time
	s.mu.Unlock()
	return dir.path, nil
}

// acquire returns the instance to call, starting one or waiting for a restart
// if need be. s.release follows the call.
func (s *Supervisor) acquire(ctx context.Context) (instance, error) {
	s.mu.Lock()
	attempts := s.attempts
	s.mu.Unlock()
	var impatient <-chan time.Time
	for {
		s.mu.Lock()
		if s.isClosed() {
			s.mu.Unlock()
			return nil, s.unavailable("is stopped", ErrClosed)
		}
		if s.machine.phase == Stopped {
			s.handle(wanted)
		}
		m, changed, lastErr := s.machine, s.changed, s.lastErr
		restarting := m.phase != Starting || m.failures > 0
		switch {
		case m.phase == Ready && alive(s.current):
			s.calls++
			in := s.current
			s.mu.Unlock()
			return in, nil
		case m.phase == Failed:
			s.mu.Unlock()
			return nil, s.failed(m, lastErr)
		case m.phase == Backoff && s.attempts > attempts:
			s.mu.Unlock()
			return nil, plugin.AsError(lastErr) // of the start that this call waited for
		}
		s.mu.Unlock()
		if restarting && impatient == nil { // a first start has a bound of its own
			timer := time.NewTimer(patience)
			defer timer.Stop()
			impatient = timer.C
		}
		select {
		case <-changed:
		case <-impatient:
			return nil, s.unavailable("is being restarted", lastErr).WithHint("try again in a moment")
		case <-ctx.Done():
			what := "was not ready in time: " + context.Cause(ctx).Error()
			if errors.Is(context.Cause(ctx), context.Canceled) {
				what = "was not ready when the call was cancelled"
			}
			return nil, s.unavailable(what, ctx.Err())
		}
	}
}

func (s *Supervisor) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	if s.calls == 0 {
		s.notify()
	}
}

func (s *Supervisor) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

func alive(in instance) bool {
	select {
	case <-in.gone():
		return false
	default:
		return true
	}
}

func (s *Supervisor) unavailable(what string, cause error) *plugin.Error {
	return &plugin.Error{Code: plugin.Unavailable, Message: fmt.Sprintf("plugin %s %s", s.cfg.Manifest.ID, what), Err: cause}
}

// failed is the answer to calls of a plugin that was given up.
func (s *Supervisor) failed(m machine, cause error) *plugin.Error {
	e := *plugin.AsError(cause)
	if m.failures < maxFailures {
		return &e // refused: the fault speaks for itself
	}
	e.Message = fmt.Sprintf("plugin %s failed %d times in a row: %s", s.cfg.Manifest.ID, m.failures, e.Message)
	e.Hint = fmt.Sprintf("sess plugins inspect %s shows what it wrote last", s.cfg.Manifest.ID)
	return &e
}

// with calls f with a living instance. If the process dies under it, f is
// called once more with the next one, provided again; otherwise the error says
// what happened.
func (s *Supervisor) with(ctx context.Context, again bool, f func(in instance) error) error {
	for {
		in, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		err = f(in)
		s.release()
		if !errors.Is(err, wire.ErrStopped) {
			return err
		}
		s.lost(ctx, in)
		// Whoever is answered finds the end of the process dealt with.
		s.await(ctx, func() bool { return s.current != in })
		if !again {
			return s.died(in, err)
		}
		again = false
	}
}

// lost waits for the end of a process whose connection has ended. One that goes
// on without a connection is of no use, and is ended.
func (s *Supervisor) lost(ctx context.Context, in instance) {
	timer := time.NewTimer(noticing)
	defer timer.Stop()
	select {
	case <-in.gone():
	case <-ctx.Done():
	case <-timer.C:
		s.discard(in)
		select {
		case <-in.gone():
		case <-ctx.Done():
		}
	}
}

// discard ends an instance by force.
func (s *Supervisor) discard(in instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != in {
		return
	}
	s.owned.Go(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		in.end(over)
	})
}

// died is the error of a call whose process ended under it.
func (s *Supervisor) died(in instance, err error) error {
	how := "stopped"
	if !alive(in) {
		how = fmt.Sprintf("stopped (%s)", in.ended())
	}
	if s.isClosed() {
		return s.unavailable("was stopped during the call, as its host is stopping", err)
	}
	return s.unavailable(how+" during the call and is being restarted", err).
		WithHint("see whether the call took effect before you repeat it")
}

// Dispatch sends a call to the plugin. While the plugin is being restarted it
// waits, within ctx, for at most 5 s; a first start may take its whole time. A
// call under which the process dies fails as unavailable, and its outcome is
// not known; one that only reads is first sent again, once.
func (s *Supervisor) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (result plugin.Result, err error) {
	again := s.cfg.ReadOnly != nil && s.cfg.ReadOnly(call)
	err = s.with(ctx, again, func(in instance) (err error) {
		result, err = in.Dispatch(ctx, call, progress)
		return err
	})
	return result, err
}

// Turn asks the plugin for an answer of a model; it starts it if need be. An answer
// is never asked for twice: part of it may have been emitted, and paid for.
func (s *Supervisor) Turn(ctx context.Context, to plugin.Endpoint, req plugin.TurnRequest, emit func(plugin.Delta)) (result plugin.TurnResult, err error) {
	err = s.with(ctx, false, func(in instance) (err error) {
		result, err = in.Turn(ctx, to, req, emit)
		return err
	})
	return result, err
}

// Compact asks the plugin to make a history shorter; it starts it if need be. It is
// not asked twice.
func (s *Supervisor) Compact(ctx context.Context, to plugin.Endpoint, req plugin.CompactRequest) (result plugin.CompactResult, err error) {
	err = s.with(ctx, false, func(in instance) (err error) {
		result, err = in.Compact(ctx, to, req)
		return err
	})
	return result, err
}

// Start starts the plugin if it does not run, also after it failed, and waits
// until it is ready.
func (s *Supervisor) Start(ctx context.Context) error {
	s.mu.Lock()
	if !s.isClosed() {
		s.handle(revive)
	}
	s.mu.Unlock()
	_, err := s.Describe(ctx)
	return err
}

// Describe returns what the running plugin says of itself; it starts it if need
// be.
func (s *Supervisor) Describe(ctx context.Context) (d plugin.Description, err error) {
	err = s.with(ctx, true, func(in instance) error {
		d = in.description()
		return nil
	})
	return d, err
}

// Notify tells the plugin of an event; it starts it if need be. An event is not
// sent twice.
func (s *Supervisor) Notify(ctx context.Context, event plugin.Event) (notices []string, err error) {
	err = s.with(ctx, false, func(in instance) (err error) {
		notices, err = in.Notify(ctx, event)
		return err
	})
	return notices, err
}

// Complete asks the plugin for words for the shell; it starts it if need be.
func (s *Supervisor) Complete(ctx context.Context, req plugin.CompleteRequest) (list []plugin.Candidate, err error) {
	err = s.with(ctx, true, func(in instance) (err error) {
		list, err = in.Complete(ctx, req)
		return err
	})
	return list, err
}

// Status asks for the plugin's background services. A plugin that does not run
// has none.
func (s *Supervisor) Status(ctx context.Context) (list []plugin.ServiceStatus, err error) {
	if s.State().Phase != Ready {
		return nil, nil
	}
	err = s.with(ctx, true, func(in instance) (err error) {
		list, err = in.Status(ctx)
		return err
	})
	return list, err
}

// State tells what is known of the plugin now.
func (s *Supervisor) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := State{
		Phase:     s.machine.phase,
		Restarts:  max(0, s.launched-1),
		Since:     s.since,
		LastError: s.lastErr,
		Stderr:    s.stderr,
	}
	if s.current != nil {
		state.PID = s.current.pid()
		if alive(s.current) {
			state.Stderr = s.current.last()
		}
	}
	return state
}

// ErrClosed is the cause of the error of a call that came after [Supervisor.Close]
// and was never sent.
var ErrClosed = errors.New("the plugin's supervisor is closed")

// Close ends the plugin for good: new calls are refused, those that run are
// waited for, the plugin is told, then ended, and killed with its whole process
// group if it does not end. That takes at most DrainTimeout and some seconds;
// when ctx ends, the rest is done at once. It may be called more than once. The
// error tells of a process that even then did not end.
func (s *Supervisor) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.isClosed() {
		close(s.closed)
		s.handle(stop)
	}
	s.mu.Unlock()

	over := make(chan struct{})
	go func() {
		s.owned.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
		s.rush()
		select {
		case <-over:
		case <-time.After(lastWait):
			return s.unavailable(fmt.Sprintf("(process %d) did not end", s.State().PID), ctx.Err()).
				WithHint("end it by hand, or restart the machine if that does not help either")
		}
	}
	s.rush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sockets == nil {
		return nil
	}
	err := s.sockets.Close()
	s.sockets = nil
	return err
}
