package host

import (
	"context"
	"sync"
	"time"

	"sess/host/supervise"
	"sess/plugin"
)

// keeper keeps a plugin running and passes on what is asked of it: in a process
// of its own or in this one. Whoever calls cannot tell which.
type keeper interface {
	plugin.Dispatcher
	plugin.Provider
	// Start starts the plugin if it does not run, also after it failed.
	Start(ctx context.Context) error
	// Describe starts the plugin if need be, as do Notify and Complete.
	Describe(ctx context.Context) (plugin.Description, error)
	Notify(ctx context.Context, event plugin.Event) ([]string, error)
	Complete(ctx context.Context, req plugin.CompleteRequest) ([]plugin.Candidate, error)
	Status(ctx context.Context) ([]plugin.ServiceStatus, error)
	State() supervise.State
	// Close ends the plugin for good.
	Close(ctx context.Context) error
}

var (
	_ keeper = (*supervise.Supervisor)(nil)
	_ keeper = (*local)(nil)
)

// local keeps a plugin in this process. It is configured by the first call.
type local struct {
	id         string
	plugin     plugin.Plugin
	config     plugin.Configuration
	newRuntime func() (plugin.Runtime, func())

	mu    sync.Mutex // guards what follows
	state supervise.State
	end   func() // of the runtime; nil while there is none
	over  bool
}

func newLocal(id string, p plugin.Plugin, config plugin.Configuration, newRuntime func() (plugin.Runtime, func())) *local {
	return &local{
		id: id, plugin: p, config: config, newRuntime: newRuntime,
		state: supervise.State{Phase: supervise.Stopped, Since: time.Now()},
	}
}

// ready configures the plugin once. One that refuses its configuration stays
// refused.
func (l *local) ready(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
		return plugin.Errorf(plugin.Unavailable, "plugin %s is stopped, as its host is stopping", l.id)
	case l.state.Phase == supervise.Stopped:
		runtime, end := l.newRuntime()
		if err := l.plugin.Configure(ctx, l.config, runtime); err != nil {
			end()
			l.enter(supervise.Failed, plugin.AsError(err))
			break
		}
		l.end = end
		l.enter(supervise.Ready, nil)
	}
	return l.state.LastError
}

// enter changes the phase. l.mu is held.
func (l *local) enter(phase supervise.Phase, err error) {
	l.state = supervise.State{Phase: phase, Since: time.Now(), LastError: err}
}

// Start configures the plugin.
func (l *local) Start(ctx context.Context) error { return l.ready(ctx) }

func (l *local) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	if err := l.ready(ctx); err != nil {
		return plugin.Result{}, err
	}
	return l.plugin.Dispatch(ctx, call, progress)
}

// provider is the plugin as one that talks to models.
func (l *local) provider(ctx context.Context) (plugin.Provider, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	if p, ok := l.plugin.(plugin.Provider); ok {
		return p, nil
	}
	return nil, plugin.Errorf(plugin.Unavailable, "plugin %s talks to no models", l.id).WithHint("name another kind of provider in the configuration")
}

func (l *local) Turn(ctx context.Context, to plugin.Endpoint, req plugin.TurnRequest, emit func(plugin.Delta)) (plugin.TurnResult, error) {
	p, err := l.provider(ctx)
	if err != nil {
		return plugin.TurnResult{}, err
	}
	return p.Turn(ctx, to, req, emit)
}

func (l *local) Compact(ctx context.Context, to plugin.Endpoint, req plugin.CompactRequest) (plugin.CompactResult, error) {
	p, err := l.provider(ctx)
	if err != nil {
		return plugin.CompactResult{}, err
	}
	return p.Compact(ctx, to, req)
}

func (l *local) Describe(ctx context.Context) (plugin.Description, error) {
	if err := l.ready(ctx); err != nil {
		return plugin.Description{}, err
	}
	return l.plugin.Describe(ctx)
}

func (l *local) Notify(ctx context.Context, event plugin.Event) ([]string, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	return l.plugin.Notify(ctx, event)
}

func (l *local) Complete(ctx context.Context, req plugin.CompleteRequest) ([]plugin.Candidate, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	return l.plugin.Complete(ctx, req)
}

func (l *local) Status(ctx context.Context) ([]plugin.ServiceStatus, error) {
	if l.State().Phase != supervise.Ready {
		return nil, nil
	}
	return l.plugin.Status(ctx)
}

func (l *local) State() supervise.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Close drains the plugin, then gives up what its runtime holds. It may be
// called more than once.
func (l *local) Close(ctx context.Context) error {
	l.mu.Lock()
	end := l.end
	l.over, l.end = true, nil
	l.enter(supervise.Stopped, l.state.LastError)
	l.mu.Unlock()
	if end == nil {
		return nil
	}
	defer end()
	return l.plugin.Drain(ctx)
}
