// Package actions is the plugin that works on single messages of a conversation:
// it lists them with their numbers, and deletes some.
//
// A deletion takes the messages with their tool calls and their share of what
// the model sees. The sess plugin makes a snapshot of the state before, one for
// each deletion (package plugin/change), so that sess undo takes it back.
package actions

import (
	"context"
	_ "embed"

	"sess/dispatch"
	"sess/plugin"
)

// ManifestJSON is the plugin's manifest.
//
//go:embed plugin.json
var ManifestJSON []byte

// Plugin is the session-actions plugin. It is made by [New] and safe for
// concurrent use.
type Plugin struct {
	*dispatch.Plugin
	build string
}

var _ plugin.Plugin = (*Plugin)(nil)

// New makes the plugin. build identifies the executable in Describe.
func New(build string) *Plugin {
	p := &Plugin{build: build}
	p.Plugin = dispatch.MustPlugin(dispatch.Command{
		Name:    "messages",
		Summary: "The messages of a conversation: list and delete",
		Verbs:   []dispatch.Verb{p.listVerb(), p.deleteVerb()},
		Routes: []plugin.Route{
			{Method: "DELETE", Path: "/sessions/{id}/messages", Argv: []string{"delete", "--session={id}"}},
			{Method: "DELETE", Path: "/sessions/{id}/messages/{index}", Argv: []string{"delete", "--session={id}", "--", "{index}"}},
		},
	})
	return p
}

// Describe answers with the verbs.
func (p *Plugin) Describe(ctx context.Context) (plugin.Description, error) {
	d, err := p.Plugin.Describe(ctx)
	d.Build = p.build
	return d, err
}
