package main

import (
	"context"
	"time"

	"sess/dispatch"
	"sess/host"
	"sess/host/server"
	"sess/plugin"
)

// lookTime is how often "sess mcp" looks whether the plugins have changed.
const lookTime = time.Second

// mcpVerb is the tools for an agent that starts this program.
func (a *app) mcpVerb() dispatch.Verb {
	return dispatch.Verb{
		Name: "mcp", Summary: "Offer the tools to another agent, over the Model Context Protocol",
		Help: "An agent starts it and talks with it over standard input and output; it ends when the agent does. --agent, --project and " +
			"--session hold for calls that do not say otherwise. A gateway offers the same at /mcp.",
		Examples: []string{"mcp", "mcp --project=website"},
		Effect:   plugin.EffectWrite, Run: a.mcp,
	}
}

// mcp offers the tools to the agent at the other end of stdin and stdout.
func (a *app) mcp(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	if a.remote() {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "mcp works on a home of this machine, and %s is set", urlEnv).
			WithHint("name the home with --home, or give the agent the address of that gateway with the path /mcp and its token")
	}
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	h, err := a.open(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	a.shown = true // stdout belongs to the protocol
	tools := &tools{Host: h, app: a, home: home}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		tools.look(ctx)
	}()
	err = server.ServeMCP(ctx, tools, a.stdin, a.out, server.MCPOptions{
		Given:   plugin.Call{Agent: in.Call.Agent, Project: in.Call.Project, Session: in.Call.Session, Cwd: in.Call.Cwd},
		Version: host.Version(), Logger: h.Logger(),
	})
	stop()
	<-looking
	return plugin.Result{}, err
}

// tools are those of a host of this process. Its home's gateway, where one runs,
// makes the calls, as it does for every command. What others change of the plugins
// is noticed.
type tools struct {
	*host.Host
	app  *app
	home string
}

// Dispatch has a call made by the gateway, or else in this process.
func (t *tools) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	c, err := t.app.dialHome(ctx, t.home)
	if err != nil {
		result, err := t.Host.Dispatch(ctx, call, progress)
		result.Notices = append(result.Notices, t.Troubles()...) // what this process prints nobody sees
		return result, err
	}
	defer c.Close()
	return c.Dispatch(ctx, call, progress)
}

// Commands lists the commands as they are now.
func (t *tools) Commands(ctx context.Context) []server.Command {
	t.Refresh(ctx)
	return t.Host.Commands(ctx)
}

// look notices until ctx ends what nobody asks for, so that clients are told.
func (t *tools) look(ctx context.Context) {
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.Refresh(ctx)
		}
	}
}
