package dispatch

import (
	"context"

	"sess/plugin"
)

// Plugin is a whole plugin that consists of verbs and nothing else: what most
// plugins are. It remembers what the host configured it with. One that also
// follows events, proposes words or runs in the background embeds it, and has
// those methods of its own.
type Plugin struct {
	*Dispatcher
	configuration plugin.Configuration
	runtime       plugin.Runtime
}

var _ plugin.Plugin = (*Plugin)(nil)

// MustPlugin makes a plugin of a command's declaration. It panics if that has
// mistakes, which are the program's.
func MustPlugin(cmd Command) *Plugin {
	d, err := New(cmd)
	if err != nil {
		panic(err)
	}
	return &Plugin{Dispatcher: d}
}

// Configuration is what the host configured the plugin with. It is there when
// verbs run.
func (p *Plugin) Configuration() plugin.Configuration { return p.configuration }

// Runtime is what the host offers to the plugin. It is there when verbs run.
func (p *Plugin) Runtime() plugin.Runtime { return p.runtime }

// Describe answers with the verbs.
func (p *Plugin) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Spec: p.Spec(), API: []string{plugin.APIVersion}}, nil
}

// Configure remembers what it is given. The host calls it once, before any verb.
func (p *Plugin) Configure(_ context.Context, c plugin.Configuration, r plugin.Runtime) error {
	p.configuration, p.runtime = c, r
	return nil
}

// Notify does nothing.
func (p *Plugin) Notify(context.Context, plugin.Event) ([]string, error) { return nil, nil }

// Complete proposes nothing.
func (p *Plugin) Complete(context.Context, plugin.CompleteRequest) ([]plugin.Candidate, error) {
	return nil, nil
}

// Status tells of no background services.
func (p *Plugin) Status(context.Context) ([]plugin.ServiceStatus, error) { return nil, nil }

// Drain has nothing to wait for.
func (p *Plugin) Drain(context.Context) error { return nil }
