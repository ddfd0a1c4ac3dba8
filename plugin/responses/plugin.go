package responses

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sess/dispatch"
	"sess/plugin"
	"sess/plugin/upstream"
)

// ID is the plugin's id, and the kind of the providers that it serves.
const ID = "responses"

// Options adjusts a [Plugin]. The zero value works.
type Options struct {
	// Build identifies the executable in Describe.
	Build string
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// Plugin is the plugin. It is made by [New], works once Configure has succeeded,
// and is safe for concurrent use.
type Plugin struct {
	*dispatch.Plugin
	build     string
	now       func() time.Time
	config    Config
	transport *http.Transport // shared by all endpoints

	plain sync.Map // models without encrypted reasoning, by address and name
}

var _ plugin.Plugin = (*Plugin)(nil)

// New makes a plugin that has no configuration yet.
func New(o Options) *Plugin {
	p := &Plugin{build: o.Build, now: o.Now, transport: upstream.NewTransport()}
	if p.now == nil {
		p.now = time.Now
	}
	p.Plugin = dispatch.MustPlugin(p.command())
	return p
}

// Describe answers with the verbs; it needs no configuration.
func (p *Plugin) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{
		Spec: p.Spec(), Build: p.build, API: []string{plugin.APIVersion}, Abilities: []string{plugin.AbilityProvider},
	}, nil
}

// Configure remembers what it is given.
func (p *Plugin) Configure(ctx context.Context, c plugin.Configuration, r plugin.Runtime) error {
	config, err := parseConfig(c.Config)
	if err != nil {
		return err
	}
	p.config = config
	return p.Plugin.Configure(ctx, c, r)
}

// isPlain reports whether a model is known to have no encrypted reasoning.
func (p *Plugin) isPlain(to plugin.Endpoint) bool {
	_, known := p.plain.Load([2]string{to.BaseURL, to.Name()})
	return known
}

func (p *Plugin) notePlain(to plugin.Endpoint) { p.plain.Store([2]string{to.BaseURL, to.Name()}, true) }

// Drain ends what still runs, and gives up the connections to providers.
func (p *Plugin) Drain(ctx context.Context) error {
	defer p.transport.CloseIdleConnections()
	return p.Plugin.Drain(ctx)
}
