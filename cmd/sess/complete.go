package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"sess/host"
	"sess/host/client"
	"sess/plugin"
	"sess/surfaces"
)

const (
	// completeTime bounds completion: a shell that hangs at a Tab is worse than one
	// that proposes nothing.
	completeTime = 3 * time.Second
	// completeByTime is how long a gateway may take before it is done without it.
	completeByTime = time.Second
)

// complete prints the candidates for the last of the words, one a line. It
// never fails: a mistake in the line is told when the line is run.
func (a *app) complete(ctx context.Context, words []string) int {
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	a.flags, _, _ = surfaces.SplitHostFlags(words, func([]string) *plugin.Verb { return nil })
	line := host.Line{Args: words, Home: a.flags.Home, Project: a.getenv("SESS_PROJECT"), Session: a.getenv("SESS_SESSION")}
	line.Cwd, _ = os.Getwd()
	all, ok := a.completeThrough(ctx, line)
	if !ok {
		all = a.completeAlone(ctx, line)
	}
	_, _ = io.WriteString(a.out, surfaces.CompletionLines(all))
	return plugin.ExitOK
}

// completeThrough has a gateway complete a line: the named one, or that of the
// home. Without one ok is false.
func (a *app) completeThrough(ctx context.Context, line host.Line) (all []plugin.Candidate, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, completeByTime)
	defer cancel()
	if !line.Portable() {
		return nil, false
	}
	var c *client.Client
	var err error
	if a.remote() {
		c, err = a.dialRemote(ctx)
	} else if home, herr := a.homeDir(); herr == nil {
		c, err = client.Dial(ctx, client.Options{Socket: host.GatewaySocketPath(home)})
	}
	if err != nil || c == nil {
		return nil, a.remote() // what another machine has is not here
	}
	defer c.Close()
	data, err := c.Call(ctx, host.CompleteMethod, line, nil)
	if err != nil || json.Unmarshal(data, &all) != nil {
		return nil, a.remote()
	}
	return all, true
}

// completeAlone completes a line with a host of this process, or without one where
// the configuration is wrong.
func (a *app) completeAlone(ctx context.Context, line host.Line) []plugin.Candidate {
	if a.declare() != nil {
		return nil
	}
	h, err := a.open(ctx)
	if err != nil {
		out := a.program.Complete(a.program.Commands(), line.Args)
		return out.All(nil)
	}
	all := h.CompleteLine(ctx, a.program, line)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = h.Close(end)
	return all
}
