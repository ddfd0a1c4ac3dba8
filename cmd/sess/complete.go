package main

import (
	"cmp"
	"context"
	"io"
	"time"

	"sess/plugin"
	"sess/surfaces"
)

// completeTime bounds completion: a shell that hangs at a Tab is worse than one
// that proposes nothing.
const completeTime = 3 * time.Second

// complete prints the candidates for the last of the words, one a line. It
// never fails: a mistake in the line is told when the line is run.
func (a *app) complete(ctx context.Context, words []string) int {
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if err := a.declare(); err != nil {
		return plugin.ExitOK
	}
	flags, _, _ := surfaces.SplitHostFlags(words, func([]string) *plugin.Verb { return nil })
	a.flags.Home = flags.Home
	commands := a.commands(ctx)
	for _, d := range a.local {
		if spec := d.Spec(); spec.Command == topCommand && len(words) > 1 {
			if v, _ := spec.Find(words[:1]); v != nil {
				// Their words are completed like those of any command.
				commands = &surfaces.Commands{Prog: topCommand, Specs: []plugin.Spec{spec}}
			}
		}
	}
	out := commands.Complete(words)
	var asked []plugin.Candidate
	if out.Ask != nil {
		asked = a.ask(ctx, out.Ask, flags)
	}
	_, _ = io.WriteString(a.out, out.Lines(asked))
	if a.host != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = a.host.Close(end)
	}
	return plugin.ExitOK
}

// ask gets the candidates that only the host or a plugin knows.
func (a *app) ask(ctx context.Context, ask *surfaces.Ask, flags surfaces.HostFlags) []plugin.Candidate {
	if ask.Request.Kind == "shell" {
		var all []plugin.Candidate
		for _, s := range surfaces.Shells() {
			all = append(all, plugin.Candidate{Value: s})
		}
		return all
	}
	h, err := a.open(ctx)
	if err != nil {
		return nil
	}
	req := ask.Request
	req.Call.Agent = flags.Agent
	req.Call.Project = cmp.Or(flags.Project, a.getenv("SESS_PROJECT"))
	req.Call.Session = cmp.Or(flags.Session, a.getenv("SESS_SESSION"))
	req.Call.Caller = plugin.CallerCLI
	candidates, err := h.Complete(ctx, ask.Command, req)
	if err != nil {
		return nil
	}
	return candidates
}
