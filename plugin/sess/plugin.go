package sess

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

// Options adjusts a [Plugin]. The zero value works.
type Options struct {
	// Build identifies the executable in Describe.
	Build string
	// Now is the clock; nil means [time.Now]. The schedule of the pruner runs by
	// the system's clock whatever Now says.
	Now func() time.Time
	// Logger gets what an operator would note, never content; nil means nothing
	// is logged.
	Logger *slog.Logger
	// Pool is how pools are opened. Its Now and Logger default to those above,
	// its TrashKeep is the configuration's.
	Pool snapshot.Options
}

// Plugin is the sess plugin. It is made by [New], works once Configure has
// succeeded, and is safe for concurrent use. Whoever configured it calls Drain
// at the end.
type Plugin struct {
	options    Options
	dispatcher *dispatch.Dispatcher

	mu      sync.Mutex // guards service
	service *service   // nil before Configure
}

var _ plugin.Plugin = (*Plugin)(nil)

// New makes a plugin that has no configuration yet.
func New(options Options) *Plugin {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Pool.Now == nil {
		options.Pool.Now = options.Now
	}
	if options.Pool.Logger == nil {
		options.Pool.Logger = options.Logger
	}
	p := &Plugin{options: options}
	d, err := dispatch.New(p.commands())
	if err != nil {
		panic("sess: " + err.Error()) // the declarations are part of the program
	}
	p.dispatcher = d
	return p
}

// Describe answers with the verbs; it needs no configuration.
func (p *Plugin) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{
		Spec:  p.dispatcher.Spec(),
		Build: p.options.Build,
		API:   []string{plugin.APIVersion},
	}, nil
}

// Configure checks the configuration and, where the host stays, starts the
// pruner. A second call is refused.
func (p *Plugin) Configure(_ context.Context, configuration plugin.Configuration, runtime plugin.Runtime) error {
	config, err := ParseConfig(configuration.Config)
	if err != nil {
		return plugin.AsError(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.service != nil {
		return plugin.Errorf(plugin.Internal, "the sess plugin is configured already")
	}
	s, err := newService(p.options, config, configuration, runtime, p.dispatcher)
	if err != nil {
		return plugin.AsError(err)
	}
	p.service = s
	return nil
}

// configured returns what Configure made.
func (p *Plugin) configured() (*service, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.service == nil {
		return nil, plugin.Errorf(plugin.Unavailable, "the sess plugin has no configuration yet").
			WithHint("wait until the host has started it, then try again")
	}
	return p.service, nil
}

// Dispatch runs one verb.
func (p *Plugin) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	s, err := p.configured()
	if err != nil {
		return plugin.Result{}, err
	}
	if !s.calls.enter() {
		return plugin.Result{}, plugin.Errorf(plugin.Unavailable, "the sess plugin is being stopped").
			WithHint("try again once it has been started again")
	}
	defer s.calls.leave()
	return p.dispatcher.Dispatch(plugin.WithRequestID(ctx, call.RequestID), call, progress)
}

// Notify saves the session after a turn where the configuration asks for it, and
// settles what another plugin has left behind.
func (p *Plugin) Notify(ctx context.Context, event plugin.Event) ([]string, error) {
	s, err := p.configured()
	if err != nil {
		return nil, err
	}
	switch {
	case event.Kind == plugin.EventPluginEnded:
		s.pluginEnded(ctx, event.Plugin)
	case event.Kind == plugin.EventTurnEnded && s.config.AutoSave:
		return s.autosave.turnEnded(ctx, event), nil
	}
	return nil, nil
}

// Status tells about the pruner, also where no schedule runs.
func (p *Plugin) Status(ctx context.Context) ([]plugin.ServiceStatus, error) {
	s, err := p.configured()
	if err != nil {
		return nil, err
	}
	status, err := s.pruner.status(ctx)
	if err != nil {
		return nil, explain(err)
	}
	return []plugin.ServiceStatus{status}, nil
}

// Drain waits for calls, autosaves and background work in flight, as long as ctx
// lasts, and starts no more. Then it closes the pools.
func (p *Plugin) Drain(ctx context.Context) error {
	s, err := p.configured()
	if err != nil {
		return nil // nothing was started
	}
	if err := s.drain(ctx); err != nil {
		return plugin.AsError(err)
	}
	return nil
}
